"""A random checkpoint of exactly Llama 3.2-1B's shapes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import llamalib
from tests.gguf_files import write_gguf
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

# Loads a folder or file, runs six tokens, and prints what it saw.
LOAD = r"""
import json, re, sys, threading, time
import torch, tiktoken, safetensors, gguf, llamalib

def memory(what):
    # of this process alone: getrusage begins with the parent's peak
    status = open("/proc/self/status").read()
    return 1024 * int(re.search(what + r":\s+(\d+)", status)[1])

def peak():
    return memory("VmHWM")

def watch():  # memory that no file backs has no peak of its own
    while True:
        seen.append(memory("RssAnon"))
        time.sleep(0.005)

path, dtype = sys.argv[1:]
before, seen = peak(), [memory("RssAnon")]
threading.Thread(target=watch, daemon=True).start()
start = time.perf_counter()
llama = llamalib.load(path, device="cpu", dtype=getattr(torch, dtype))
seconds = time.perf_counter() - start
loaded, private = peak() - before, max(seen) - seen[0]
tokens = torch.tensor([128000, 791, 6864, 315, 9822, 374])
with torch.no_grad():
    logits = llama(tokens, last_only=True)
print(json.dumps({
    "logits": logits.shape, "finite": bool(logits.isfinite().all()),
    "parameters": sum(p.numel() for p in llama.parameters()),
    "weights": sum(p.nbytes for p in llama.parameters()),
    "loaded": loaded, "run": peak() - before,
    "private": private, "seconds": seconds,
}))
"""


def opened(path, dtype="bfloat16") -> dict:
    """Run LOAD in a process of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(path), dtype],
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


def test_memory_to_open_a_gguf(folder, tmp_path):
    """The model, and a piece of a tensor at a time in 32 bits."""
    llama = llamalib.load(folder, device="cpu")
    file = write_gguf(tmp_path / "1b.Q8_0.gguf", llama, "Q8_0")
    found = opened(file)
    file.unlink()  # 1.3 GB
    print(f"opened in {found['seconds']:.1f} s")
    assert found["parameters"] == 1_235_814_400
    assert found["weights"] < found["private"] < 1.25 * found["weights"]


@pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)
def test_the_series_runs_on_it(folder, monkeypatch, path):
    """Every cell, and every assertion, on random weights of this size."""
    monkeypatch.setenv("LLAMA_DIR", str(folder))
    cells = executed(path).cells
    assert all(c.execution_count for c in cells if c.cell_type == "code")
