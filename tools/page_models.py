"""The models that the explorer's page runs, and its recorded runs, as files.

site/explorer/models.js reads them. Of SmolLM2 it is the very blocks of the
file that the notebooks open: taken apart, so that gzip makes them smaller,
and cut into parts, which a browser fetches and keeps one by one.
"""

import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save as save_arrays
from safetensors.torch import save_file

from llamalib.config import params_of
from llamalib.gguf import SMOLLM, by_metas_names, open_file, read_checkpoint
from llamalib.load import load
from llamalib.model import Llama
from llamalib.tokenizer import SPLIT_PATTERN, Tokenizer

from .notebooks import ROOT

POCKET = ROOT / "data" / "pocket-llama"
SMOLLM2 = ROOT / "data" / "SmolLM2-135M-Instruct"
KINDS = {SPLIT_PATTERN: "Llama 3", SMOLLM: "SmolLM2"}
GROUP = 32  # numbers that share a scale in ggml's blocks
PART = 6 * 2**20  # bytes of a part, about, before gzip
EXACT = 16, 128  # neurons and logits of a run that keep all 16 bits


def smollm2_file() -> Path | None:
    """Return SmolLM2's GGUF; None if it was never fetched."""
    return next(iter(sorted(SMOLLM2.glob("*.gguf"))), None)


# -- a model's files ----------------------------------------------------------


def write_pocket(folder: Path) -> list[dict]:
    """Write the pocket's files; return its parts: name, bytes, sha256.

    The weights are bfloat16 and have Meta's names. `output.weight` is
    absent: it is tied, so the page multiplies with the embedding again.
    """
    llama = load(POCKET, device="cpu", dtype=torch.bfloat16)
    assert llama.tied
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model.safetensors"
    tensors = dict(llama.named_parameters())  # a tied one once
    save_file(tensors, file, metadata={"tied": "true"})
    write_settings(llama.config, llama.tokenizer, folder)
    return [part_of(file)]


def write_smollm2(
    source: Path, folder: Path, whole: bool = True
) -> list[dict]:
    """Write SmolLM2's files; return its parts: name, bytes, sha256.

    source: a GGUF whose matrices are of types Q4_1 and Q8_0.  whole: with
    the weights; else there are no parts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = read_checkpoint(source)
    write_settings(checkpoint.config, checkpoint.tokenizer, folder)
    if not whole:
        return []
    files = []
    for arrays in parts_of(by_metas_names(open_file(source), source)):
        about = {"tied": "true"} if checkpoint.tied else None
        data = gzip.compress(save_arrays(arrays, about), mtime=0)
        files.append(folder / f"part-{len(files):02}.gz")
        files[-1].write_bytes(data)
    shutil.copy(SMOLLM2 / "LICENSE", folder)
    notice = (SMOLLM2 / "ABOUT.txt").read_text(encoding="utf-8").rstrip()
    (folder / "NOTICE.txt").write_text(f"{notice}\n\n{CHANGED}", "utf-8")
    return [part_of(file) for file in files]


CHANGED = """\
Changed: the numbers of the GGUF file's blocks (types Q4_1 and Q8_0) are the
same, bit for bit. Their scales stand apart, the tensors have Meta's names, and
all is cut into parts that are compressed by gzip. LICENSE holds for them, too.
"""


def part_of(file: Path) -> dict:
    """Return what made.js says of a file."""
    data = file.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return dict(name=file.name, bytes=len(data), sha256=digest)


def write_settings(config, tokenizer: Tokenizer, folder: Path) -> None:
    """Write params.json, and tokenizer.json: tokens by id, and what is special.

    A token's bytes are a text, with one character each.
    """
    special = tokenizer.special_tokens
    tokens = [
        tokenizer.decode_bytes([i]).decode("latin-1")
        for i in range(tokenizer.n_words)
    ]
    for i in special.values():
        tokens[i] = None
    spec = dict(
        kind=KINDS[tokenizer._encoding._pat_str],
        tokens=tokens,
        special_tokens=special,
        bos=tokenizer.bos_id,
        stop=sorted(tokenizer.stop_tokens),
    )
    for name, found in {
        "params.json": params_of(config),
        "tokenizer.json": spec,
    }.items():
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        (folder / name).write_text(text, encoding="utf-8")


def parts_of(tensors: dict) -> Iterator[dict[str, np.ndarray]]:
    """Yield the arrays of each part, by name.

    tensors: ggml's, by Meta's names.
    """
    found: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        rows = tensor.data if tensor.data.ndim > 1 else tensor.data[None]
        n = -(-rows.nbytes // PART)  # pieces of a large matrix
        for i, piece in enumerate(np.array_split(rows, n)):
            size = sum(array.nbytes for array in found.values())
            if found and size + piece.nbytes > PART:
                yield found
                found = {}
            stem = f"{name}/{i}" if n > 1 else name
            found |= planes(stem, piece, tensor.tensor_type.name)
    yield found


def planes(name: str, rows: np.ndarray, kind: str) -> dict[str, np.ndarray]:
    """Return the blocks of some rows, taken apart, by name.

    Q4_1: a scale, a least number, 16 bytes of two numbers each. Q8_0: a
    scale, 32 bytes. NAME.q is (rows, bytes), the others (rows, groups).
    """
    if kind == "F32":
        return {name: np.ascontiguousarray(rows[0], np.float32)}
    bits = {"Q4_1": 4, "Q8_0": 8}.get(kind)
    if bits is None:
        raise ValueError(f"{name} is of type {kind}; expected Q4_1 or Q8_0")
    heads = 2 if bits == 4 else 1  # float16 numbers before a block's bytes
    size = 2 * heads + GROUP * bits // 8
    blocks = np.ascontiguousarray(rows).view(np.uint8)
    blocks = blocks.reshape(len(rows), -1, size)
    q = blocks[:, :, 2 * heads :].reshape(len(rows), -1)
    found = {f"{name}.q": q if bits == 4 else q.view(np.int8)}
    for i, end in enumerate(["scale", "least"][:heads]):
        half = np.ascontiguousarray(blocks[:, :, 2 * i : 2 * i + 2])
        found[f"{name}.{end}"] = half.view(np.float16)[:, :, 0]
    return {k: np.ascontiguousarray(v) for k, v in found.items()}


# -- recorded runs -------------------------------------------------------------


@torch.no_grad()
def activations(llama: Llama, ids: list[int]) -> dict[str, torch.Tensor]:
    """Return every activation of a text that the page records.

    By name and layer, such as "q.0": one row a position, float32. `logits`
    (T, V). Of a model that stopped before layer 0, 1, …, or after the last:
    `lens.ids` and `lens.probs` (L + 1, T, 3), the most likely next tokens;
    `lens.ranks` (L + 1, T), the place, from 1, of the token that the whole
    model finds most likely.
    """
    found, hooks = {}, []

    def keep(module, name, layer, which):
        def hook(module, args, out):
            found[f"{name}.{layer}"] = (out if which else args[0])[0].float()

        hooks.append(module.register_forward_hook(hook))

    for i, block in enumerate(llama.layers):
        attention, ffn = block.attention, block.feed_forward
        keep(block, "x", i, 0)
        for name in "qkv":
            keep(getattr(attention, f"w{name}"), name, i, 1)
        keep(block.ffn_norm, "h", i, 0)
        keep(ffn.w1, "gate", i, 1)
        keep(ffn.w3, "up", i, 1)
    keep(llama.norm, "x", len(llama.layers), 0)
    try:
        logits = llama(torch.tensor(ids)).float()
    finally:
        for hook in hooks:
            hook.remove()
    stream = [found[f"x.{i}"] for i in range(len(llama.layers) + 1)]
    said = llama.output(llama.norm(torch.stack(stream))).float()
    best = said.softmax(-1).topk(3)
    final = logits.argmax(-1)[None, :, None].expand(len(stream), -1, 1)
    ranks = 1 + (said > said.gather(-1, final)).sum(-1)
    lens = {"lens.ids": best.indices.int(), "lens.probs": best.values}
    lens["lens.ranks"] = ranks.int()
    return found | lens | dict(logits=logits, ids=torch.tensor(ids).int())


def write_run(llama: Llama, prompt: str, file: Path) -> None:
    """Record a prompt's run in a file: safetensors, compressed by gzip.

    Numbers have 16 bits. Of the neurons and the logits, the page prints the
    largest; the others, which it draws and adds up, are rounded further, so
    that gzip saves more: neurons to 4 bits, logits to eighths.
    """
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    found = activations(llama, ids)
    for i in range(len(llama.layers)):
        gate, up = found[f"gate.{i}"], found[f"up.{i}"]
        size = (torch.nn.functional.silu(gate) * up).abs()
        for name, x in dict(gate=gate, up=up).items():
            found[f"{name}.{i}"] = mixed(x, coarse(x), size, EXACT[0])
    logits = found["logits"]
    found["logits"] = mixed(logits, (8 * logits).round() / 8, logits, EXACT[1])
    for name, weight in llama.named_parameters():
        if weight.dim() == 1:  # the norms'
            found[name] = weight.detach()
    arrays = {
        name: (x.half() if is_halved(name, x) else x).cpu().numpy()
        for name, x in found.items()
    }
    data = save_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(data, mtime=0))


def is_halved(name: str, x: torch.Tensor) -> bool:
    """Return whether 16 bits are enough: a small probability would be 0."""
    return x.is_floating_point() and name != "lens.probs"


def coarse(x: torch.Tensor) -> torch.Tensor:
    """Return x with 4 significant bits; no sign changes, and 0 stays alone."""
    fraction, exponent = torch.frexp(x)
    return torch.ldexp((fraction * 16).round() / 16, exponent)


def mixed(x, rounded, size, n: int) -> torch.Tensor:
    """Return x where `size` is among the n largest of a row, else `rounded`."""
    large = torch.zeros_like(x, dtype=torch.bool)
    large.scatter_(-1, size.topk(n).indices, True)
    return torch.where(large, x, rounded)
