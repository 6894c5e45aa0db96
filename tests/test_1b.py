"""A random checkpoint of exactly Llama 3.2-1B's shapes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import llamalib
from tests.helpers import executed
from tests.reference import WEIGHTS, write_1b, write_shards, write_transformers
from tools.notebooks import all_notebooks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(),
        reason="needs Linux, which shows a process's peak memory",
    ),
]
MOST_MEMORY = 1.15

# Loads a folder, runs six tokens, and prints what it saw.
LOAD = r"""
import json, re, sys
import torch, tiktoken, safetensors, llamalib

def peak():
    # of this process alone: getrusage begins with the parent's peak
    status = open("/proc/self/status").read()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])

folder, dtype = sys.argv[1:]
before = peak()
llama = llamalib.load(folder, device="cpu", dtype=getattr(torch, dtype))
loaded = peak() - before
tokens = torch.tensor([128000, 791, 6864, 315, 9822, 374])
with torch.no_grad():
    logits = llama(tokens, last_only=True)
print(json.dumps({
    "logits": logits.shape, "finite": bool(logits.isfinite().all()),
    "parameters": sum(p.numel() for p in llama.parameters()),
    "weights": sum(p.nbytes for p in llama.parameters()),
    "loaded": loaded, "run": peak() - before,
}))
"""


def opened(folder, dtype="bfloat16") -> dict:
    """Run LOAD in a process of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder), dtype],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_1b(tmp_path_factory.mktemp("1b"))
    yield folder
    (folder / WEIGHTS).unlink()  # 2.5 GB


def test_shapes_and_memory(folder):
    """Loading maps the file; running reads all of it into memory, once."""
    found = opened(folder)
    assert found["parameters"] == 1_235_814_400
    assert found["logits"] == [1, 128256] and found["finite"]
    assert found["loaded"] < 0.1 * found["weights"]
    assert found["run"] < 1.1 * found["weights"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("form", ["one file", "two shards", "Hugging Face's"])
def test_memory_to_open(folder, tmp_path, form, dtype):
    """There are never two whole copies, for any format and dtype.

    The pages of the mapped files count, but the system can take them back.
    """
    if form == "two shards":
        write_shards(folder, tmp_path, 2)
    elif form == "Hugging Face's":
        write_transformers(llamalib.load(folder, device="cpu"), tmp_path)
        tokenizer = (folder / "tokenizer.model").read_bytes()
        (tmp_path / "tokenizer.model").write_bytes(tokenizer)
    else:
        tmp_path = folder
    found = opened(tmp_path, dtype)
    mapped = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert found["run"] < MOST_MEMORY * found["weights"] + mapped
    if tmp_path != folder:  # gigabytes
        shutil.rmtree(tmp_path)


@pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)
def test_the_series_runs_on_it(folder, monkeypatch, path):
    """Every cell, and every assertion, on random weights of this size."""
    monkeypatch.setenv("LLAMA_DIR", str(folder))
    cells = executed(path).cells
    assert all(c.execution_count for c in cells if c.cell_type == "code")
