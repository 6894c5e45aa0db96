"""The pocket Llama's files for the page, which `llama.js` reads."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from llamalib.load import ROOT, load

POCKET = ROOT / "data" / "pocket-llama"


def write_pocket(folder: Path) -> None:
    r"""Write model.safetensors, params.json and tokenizer.model.

    The tensors are bfloat16 and have Meta's names. `output.weight` is
    absent: it is tied, so llama.js multiplies with the embedding again.
    """
    llama = load(POCKET, device="cpu", dtype=torch.bfloat16)
    assert llama.tied
    tensors = dict(llama.named_parameters())  # a tied one once
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    for name in ("params.json", "tokenizer.model"):
        shutil.copy(POCKET / name, folder)
