"""A checkpoint of exactly Llama 3.2-1B's shapes, random, never committed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint import WEIGHTS, write_1b, write_transformers
from opening import DTYPES, MOST_MEMORY, opened, write_shards

import llamalib
from llamalib.__main__ import all_notebooks, executed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(),
        reason="reads a process's memory where Linux shows it",
    ),
]

# Loads, runs six tokens, and prints shapes and how much memory it took.
LOAD = r"""
import json, re, sys
import torch, tiktoken, llamalib
from llamalib.gqa import fused_attention

def peak():
    # of this process alone: what getrusage says begins with its parent's
    status = open("/proc/self/status").read()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])

seen = {}
def attend(xq, xk, xv, mask):
    seen.update(xq=xq.shape, xk=xk.shape, xv=xv.shape)
    return fused_attention(xq, xk, xv, mask)

before = peak()
llama = llamalib.load(sys.argv[1], device="cpu")
loaded = peak() - before
tokens = torch.tensor([128000, 791, 6864, 315, 9822, 374])
w = llama.state_dict()
embeddings = w["tok_embeddings.weight"][tokens]
with torch.no_grad():
    logits = llama(tokens, attend=attend, last_only=True)
print(json.dumps({
    "embeddings": embeddings.shape, "logits": logits.shape,
    "finite": bool(logits.isfinite().all()),
    "parameters": sum(p.numel() for p in llama.parameters()),
    "factor": llama.config.rope_scaling_factor,
    "loaded": loaded, "run": peak() - before,
    **{name: shape[1:] for name, shape in seen.items()},
}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_1b(tmp_path_factory.mktemp("1b"))
    yield folder
    (folder / WEIGHTS).unlink()  # 2.5 GB


def test_shapes_and_memory(folder):
    size = (folder / WEIGHTS).stat().st_size
    assert 2 * 1_235_814_400 < size < 2 * 1_235_814_400 + 100_000
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(f"file {size:,} bytes", found)
    assert found["parameters"] == 1_235_814_400
    assert found["factor"] == 32
    assert found["embeddings"] == [6, 2048]
    assert found["xq"] == [6, 32, 64]
    assert found["xk"] == found["xv"] == [6, 8, 64]
    assert found["logits"] == [1, 128256] and found["finite"]
    # loading maps the file; running reads all of it into memory, once
    assert found["loaded"] < 0.1 * size
    assert found["run"] < 1.1 * size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["one file", "two shards", "Hugging Face's"])
def test_memory_to_open(folder, tmp_path, form, dtype):
    """Never two whole copies, whatever is read and asked for."""
    if form == "two shards":
        write_shards(folder, tmp_path, 2)
    elif form == "Hugging Face's":
        write_transformers(llamalib.load(folder, device="cpu"), tmp_path)
        tokenizer = (folder / "tokenizer.model").read_bytes()
        (tmp_path / "tokenizer.model").write_bytes(tokenizer)
    else:
        tmp_path = folder
    found = opened("ours", tmp_path, dtype)
    print(form, dtype, found)
    assert found["run"] < MOST_MEMORY
    if tmp_path != folder:  # gigabytes
        shutil.rmtree(tmp_path)


@pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)
def test_the_series_runs_on_it(folder, monkeypatch, path):
    """Every cell, and every assertion, on random weights of this size."""
    monkeypatch.setenv("LLAMA_DIR", str(folder))
    cells = executed(path).cells
    assert all(c.execution_count for c in cells if c.cell_type == "code")
