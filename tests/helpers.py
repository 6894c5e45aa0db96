"""Small models and checkpoint folders for the tests."""

import gc
import json
import subprocess
import sys

import pytest
import torch

from llamalib import Llama, ModelArgs
from llamalib.config import params_of
from llamalib.tokenizer import write_ranks
from tests.reference import (
    shards_of,
    transformers_config,
    transformers_weights,
    weights,
)

needs_cuda = [  # a class's pytestmark
    pytest.mark.cuda,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no CUDA GPU on this machine"
    ),
]

SMALL = dict(
    dim=64,
    n_layers=2,
    n_heads=8,
    n_kv_heads=2,
    vocab_size=300 + 256,
    multiple_of=16,
    ffn_dim_multiplier=1.5,
    norm_eps=1e-5,
    rope_theta=500000.0,
)


def dead_process() -> int:
    """Return the number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


# Settings that formats write in their own ways
OTHER_SETTINGS = [
    {},
    dict(use_scaled_rope=True, rope_scaling_factor=8.0),
    dict(use_scaled_rope=True, rope_scaling_factor=32.0),
    dict(head_width=12, rope_theta=1e4, norm_eps=1e-6),
    dict(multiple_of=7, ffn_dim_multiplier=None, context_length=99),
]


def small_config(**changes) -> ModelArgs:
    return ModelArgs(**(SMALL | changes))


def random_llama(config=None, seed=0, tied=True) -> Llama:
    """Return a model with float32 weights that give logits of order 1."""
    llama = Llama(config or small_config(), tied=tied)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in llama.parameters():
            if weight.dim() == 1:
                weight.normal_(1, 0.2, generator=generator)
            else:
                std = weight.shape[1] ** -0.5
                weight.normal_(0, std, generator=generator)
    return llama.requires_grad_(False).eval()


def random_ids(*shape, seed=0, vocab=300):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, shape, generator=generator)


def small_ranks(n=300) -> dict[bytes, int]:
    """Return all bytes, then the two-letter tokens aa, ab, …"""
    letters = b"abcdefghijklmnopqrstuvwxyz"
    pairs = (bytes([x, y]) for x in letters for y in letters)
    tokens = [bytes([b]) for b in range(256)]
    tokens += [next(pairs) for _ in range(n - 256)]
    return {token: rank for rank, token in enumerate(tokens)}


def write_tokenizer(path, ranks=None):
    ranks = ranks or small_ranks()
    write_ranks(path, ranks)


def write_checkpoint(
    folder, llama=None, *, shards=1, params=None, dtype=torch.bfloat16
):
    """Write a valid folder in Meta's format, and return it."""
    llama = llama or random_llama()
    folder.mkdir(parents=True, exist_ok=True)
    params = params_of(llama.config) if params is None else params
    (folder / "params.json").write_text(json.dumps(params))
    ranks = small_ranks(llama.config.vocab_size - 256)
    write_tokenizer(folder / "tokenizer.model", ranks)
    tensors = {
        name: weight.detach().to(dtype)
        for name, weight in weights(llama).items()
    }
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    parts = [tensors] if shards == 1 else shards_of(tensors, shards)
    for i, part in enumerate(parts):
        torch.save(part, folder / f"consolidated.{i:02d}.pth")
    return folder


def to_transformers(llama):
    """Return the transformers library's model with the same weights."""
    from transformers import LlamaForCausalLM

    theirs = LlamaForCausalLM(transformers_config(llama)).eval()
    theirs.load_state_dict(transformers_weights(llama))
    return theirs


def live_bytes():
    """Of all tensors that there are, each memory once."""
    gc.collect()
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in gc.get_objects()
        if type(t) in (torch.Tensor, torch.nn.Parameter)
    }
    return sum(storages.values())


def code_cells(path):
    """Return (tags, source) of every code cell of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        (cell["metadata"].get("tags", []), "".join(cell["source"]))
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def executed(path):
    """Return the notebook after a run in a fresh kernel, in its folder."""
    import nbformat
    from nbclient import execute

    notebook = nbformat.read(path, as_version=4)
    return execute(notebook, cwd=str(path.parent), kernel_name="python3")


def other_values(control):
    """Return values that a widget's control does not have now."""
    if hasattr(control, "options"):
        found = [o[1] if type(o) is tuple else o for o in control.options]
        if type(control.value) is tuple:  # (layer, head)
            found = [value for _, value in control.options]
    elif isinstance(control.value, bool):
        found = [not control.value]
    elif isinstance(control.value, str):
        found = ["One", " three"]
    else:
        found = [control.min, control.max]
    return [value for value in found if value != control.value]


def assert_follows(play):
    """Assert that each control changes the picture, and changes it back."""
    first = play.picture.value
    assert first and not play.message.value
    for name, control in play.controls.items():
        old, pictures = control.value, set()
        for value in other_values(control)[:3]:
            control.value = value
            if not play.message.value:
                pictures.add(play.picture.value)
        control.value = old
        assert pictures - {first}, name
        assert play.picture.value == first, name
