"""The commands in a folder with a difficult name, without make, cc or git."""

import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from llamalib.load import ROOT

NOT_COPIED = (
    ".git",
    ".venv",
    ".[!cg]*",
    "__pycache__",
    "work",
    "build",
    "Llama-*",
    "*.egg-info",
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the project; its path has spaces and letters beyond ASCII."""
    folder = tmp_path_factory.mktemp("Ünï cödé 羊") / "ll ama"
    ignore = shutil.ignore_patterns(*NOT_COPIED)
    shutil.copytree(ROOT, folder, ignore=ignore)
    return folder


@pytest.fixture
def command(clone, tmp_path):
    """Return what runs a command there, with nothing on the PATH."""

    def run(*arguments, **variables):
        keep = "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"  # for Windows
        environment = {k: os.environ[k] for k in keep if k in os.environ}
        environment |= {"PATH": str(tmp_path), "HOME": str(tmp_path)}
        environment |= {"PYTHONPATH": str(clone), "PYTHONUTF8": "1"}
        environment |= {"OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=clone,
            env=environment | variables,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )

    return run


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_run(command, encoding):
    """A pipe on Windows may have no such letter: the text still comes."""
    prompt = "羊: The capital of France is"
    shown = prompt if encoding == "utf-8" else prompt.replace("羊", "?")
    done = command("-m", "llamalib", "run", prompt, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith(shown)


def test_a_notebook_is_executed_and_compared(command, clone):
    source = "import time\nfrom llamalib.load import ROOT\n"
    source += "print(ROOT.name, flush=True)\ntime.sleep(0.5)\nprint(2)"
    cells = [nbformat.v4.new_code_cell(source)]
    path = clone / "mein Heft.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    done = command(
        "-m", "nbconvert", "--config", ".ci/execute.json", str(path)
    )
    assert done.returncode == 0, done.stderr
    (cell,) = nbformat.read(path, as_version=4).cells
    (output,) = cell.outputs  # what is printed later is added to it
    assert output["text"] == "ll ama\n2\n"
    text = path.read_text(encoding="utf-8").replace("ll ama", "llama")
    path.write_text(text, encoding="utf-8")
    done = command("-m", "pytest", "--nbval", str(path))
    assert done.returncode == 1 and "1 failed" in done.stdout, done.stdout


def test_lab_copies(command, clone):
    """With no --work, the copy is `work` in the project's folder."""
    done = command("-m", "tools", "lab", "--", "--version")
    assert done.returncode == 0, done.stderr
    assert (clone / "work" / "index.ipynb").is_file()
    assert (clone / "work" / "solutions" / "04_rope.py").is_file()
