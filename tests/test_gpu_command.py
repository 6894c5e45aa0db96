"""`python bench/gpu.py`, rehearsed on the CPU with a tiny model."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from bench import gpu

# What a machine with nothing but PyTorch and a few packages lacks.
ABSENT = (
    "IPython gguf huggingface_hub ipywidgets llama_cpp nbclient nbformat "
    "psutil sentencepiece tqdm transformers"
)
BLOCK = """
import sys


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}.split():
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Blocker())
"""
TESTS = """
import pytest

pytestmark = pytest.mark.cuda


def test_passes():
    pass


@pytest.mark.skip
def test_skips():
    pass
"""


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Hide packages from new processes; the tests of a GPU are two."""
    folder = tmp_path / "blocked"
    folder.mkdir()
    text = BLOCK.format(absent=ABSENT)
    (folder / "sitecustomize.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    # plugins of pytest need packages, too
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    file = tmp_path / "test_of_a_gpu.py"
    file.write_text(TESTS)
    monkeypatch.setattr(gpu, "test_files", lambda: [file])


def parts_of(folder):
    file = folder / "generation-cuda.json"
    return json.loads(file.read_text(encoding="utf-8"))["parts"]


def test_the_whole_chain_on_a_bare_machine(tmp_path, bare, capsys):
    """Every part, without the packages that it can do without."""
    folder = tmp_path / "results"
    assert gpu.main(["--minutes", "5", "--rehearse", str(folder)]) == 0
    parts = parts_of(folder)
    assert list(parts) == list(gpu.PARTS)
    assert {part["outcome"] for part in parts.values()} == {"finished"}
    said = "\n".join(parts["tests"]["printed"])
    assert "test_passes PASSED" in said and "1 passed, 1 skipped" in said
    assert "1 passed, 1 skipped" in capsys.readouterr().out
    said = "\n".join(parts["cells"]["printed"])
    assert "-- cell 17" in said and "Traceback" not in said
    assert "The capital of" in said and "positions run" in said
    found = json.loads((folder / "generation-cuda.json").read_text())
    rows = {row["name"]: row for row in found["sections"]["1b"]["rows"]}
    assert len(rows["ours bfloat16"]["decode"]) == 1
    said = rows["transformers bfloat16"]["missing"]
    assert said == "transformers is not installed"
    assert "| ours bfloat16 |" in (folder / "generation-cuda.md").read_text()


def test_without_a_gpu_a_sentence(tmp_path, monkeypatch, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(gpu, "RESULTS", tmp_path)
    assert gpu.main([]) == 1
    said = capsys.readouterr().err
    assert said == "no CUDA GPU here: nothing was run or written\n"
    assert not list(tmp_path.iterdir())


def test_a_part_that_takes_too_long_is_stopped(tmp_path, monkeypatch, capsys):
    """With what it started; the next one runs, and the exit status is 1."""
    late = tmp_path / "late"
    child = f"import time; time.sleep(4); open({str(late)!r}, 'w')"
    slow = (
        "import subprocess, sys, time; print('so far', flush=True); "
        f"subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    )
    parts = {
        "tests": (0.05, [], ["-c", slow]),
        "bench": (1, [], ["-c", "raise SystemExit(3)"]),
        "cells": (1, [], ["-c", ""]),
    }
    monkeypatch.setattr(gpu, "PARTS", parts)
    start = time.monotonic()
    arguments = ["--minutes", "0.9", "--rehearse", str(tmp_path)]
    assert gpu.main(arguments) == 1
    assert time.monotonic() - start < 54
    found = parts_of(tmp_path)
    assert found["tests"]["outcome"] == "stopped after 3 s"
    assert found["tests"]["printed"] == ["so far"]
    assert found["bench"]["outcome"] == "failed with exit status 3"
    assert found["cells"]["outcome"] == "finished"
    assert "tests: stopped after 3 s" in capsys.readouterr().out
    time.sleep(max(0, start + 8 - time.monotonic()))
    if hasattr(os, "killpg"):  # not on Windows
        assert not late.exists()


def test_as_a_script_it_needs_the_standard_library_alone(tmp_path):
    """Outside the project's folder, and without its packages: -I, -S."""
    command = [sys.executable, "-I", "-S", gpu.__file__, "--help"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "--minutes" in done.stdout and "--rehearse" not in done.stdout
