"""Write the pocket Llama's files for the page, which `site/llama.js` reads."""

import json
import shutil
from pathlib import Path

import torch

from ..loading import load
from .notebooks import write
from .project import POCKET


def write_pocket(folder: Path) -> None:
    r"""Write model.safetensors, params.json and tokenizer.model.

    The tensors are bfloat16 and have Meta's names. `output.weight` is
    absent, because it is tied to the embedding.
    Source: the published description of the safetensors format: the header's
    length in 8 bytes, the header in JSON, the tensors.
    """
    weights = load(POCKET, device="cpu", dtype=torch.bfloat16).weights()
    del weights["output.weight"]
    header, data = {}, []
    for name, weight in weights.items():
        data.append(weight.detach().view(torch.uint8).numpy().tobytes())
        end = sum(map(len, data))
        place = [end - len(data[-1]), end]
        header[name] = dict(
            dtype="BF16", shape=weight.shape, data_offsets=place
        )
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligned, as the format asks
    folder.mkdir(parents=True, exist_ok=True)
    length = len(text).to_bytes(8, "little")
    write(folder / "model.safetensors", b"".join([length, text, *data]))
    for name in ("params.json", "tokenizer.model"):
        shutil.copy(POCKET / name, folder)
