"""`python bench/gpu.py`, rehearsed on the CPU with a tiny model."""

import json
import os
import subprocess
import sys

import pytest
import torch

from bench import gpu

# What a machine with little more than PyTorch and pytest lacks.
ABSENT = """IPython gguf huggingface_hub hypothesis ipykernel ipywidgets
llama_cpp nbclient nbformat nbval psutil sentencepiece tqdm transformers"""


@pytest.mark.slow
def test_the_whole_chain_on_a_bare_machine(tmp_path, monkeypatch, capsys):
    """Every part finishes, and every test of a GPU is collected."""
    hide = f"import sys\nsys.modules |= dict.fromkeys({ABSENT.split()})\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    # plugins of pytest need packages, too
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu.main(["--minutes", "5", "--rehearse", str(tmp_path)]) == 0
    text = (tmp_path / "generation-cuda.json").read_text(encoding="utf-8")
    found = json.loads(text)
    assert list(found["parts"]) == list(gpu.PARTS)
    parts = found["parts"].values()
    tests, _, cells = ("\n".join(part["printed"]) for part in parts)
    assert "test_model.py::" in tests and "test_compiled.py::" in tests
    assert " skipped, " in capsys.readouterr().out
    assert "The best way to" in cells and "positions run" in cells
    rows = {row["name"]: row for row in found["sections"]["1b"]["rows"]}
    assert len(rows["ours bfloat16"]["decode"]) == 1
    said = rows["transformers bfloat16"]["missing"]
    assert said == "transformers is not installed"


def test_without_a_gpu_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "RESULTS", tmp_path / "none")
    assert gpu.main([]) == 1 and not (tmp_path / "none").exists()
    assert "no CUDA GPU here: nothing was run" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="needs a named pipe")
def test_a_part_that_takes_too_long_is_stopped(tmp_path, monkeypatch, capsys):
    """With what it started; the next one runs, and the exit status is 1."""
    file = str(tmp_path / "pipe")
    os.mkfifo(file)
    pipe = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    child = f"import time; opened = open({file!r}, 'w'); "
    child += "print('so far', flush=True); time.sleep(60)"
    slow = "import subprocess, sys; "
    slow += f"subprocess.run([sys.executable, '-c', {child!r}])"
    parts = {"slow": (0.05, [], ["-c", slow]), "next": (1, [], ["-c", ""])}
    monkeypatch.setattr(gpu, "PARTS", parts)
    monkeypatch.setattr(gpu, "arguments", lambda *given: [])
    assert gpu.main(["--minutes", "1", "--rehearse", str(tmp_path)]) == 1
    assert os.read(pipe, 1) == b""  # its end: no process has it open
    said = capsys.readouterr().out
    assert "so far\nslow: stopped after 3 s\n" in said
    assert "next: finished\n" in said


def test_as_a_script_it_needs_the_standard_library_alone(tmp_path):
    """Outside the project's folder, and without its packages: -I, -S."""
    command = [sys.executable, "-I", "-S", gpu.__file__, "--help"]
    said = subprocess.check_output(command, cwd=tmp_path, text=True)
    assert "--minutes" in said and "--rehearse" not in said
