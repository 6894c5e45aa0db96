"""The commands in a folder with a difficult name, without make, cc or git."""

import os
import shutil
import subprocess
import sys

import pytest

from lessons import project
from lessons.__main__ import main
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
        # quick on a machine that runs other tests meanwhile
        environment |= {"OMP_NUM_THREADS": "1"}
        environment |= {"PYTEST_XDIST_AUTO_NUM_WORKERS": "1"}
        return subprocess.run(
            [sys.executable, "-m", *arguments],
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
    done = command("llamalib", "run", prompt, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith(shown)


def test_test_takes_files_and_notebooks(command, clone):
    """A failure of either ends it."""
    (clone / "tests" / "test_it.py").write_text("def test_it(): assert 1\n")
    done = command("lessons", "test", "tests/test_it.py")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
    (clone / "tests" / "test_it.py").write_text("def test_it(): assert 0\n")
    notebook = "notebooks/index.ipynb"
    done = command("lessons", "test", "tests/test_it.py", notebook)
    assert done.returncode == 1 and "1 failed" in done.stdout
    assert "index.ipynb" not in done.stdout


def test_a_notebook_is_executed_and_compared(command, clone):
    import nbformat

    source = "from llamalib.load import ROOT\nprint(ROOT.name)"
    cells = [nbformat.v4.new_code_cell(source)]
    path = clone / "mein Heft.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    done = command("lessons", "notebooks", str(path))
    assert done.returncode == 0, done.stderr
    (cell,) = nbformat.read(path, as_version=4).cells
    assert cell.outputs[0]["text"] == "ll ama\n"
    done = command("lessons", "test", str(path))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_lab_copies(command, clone):
    """With no --work, the copy is `work` in the project's folder."""
    done = command("lessons", "lab", "--", "--version")
    assert done.returncode == 0, done.stderr
    assert (clone / "work" / "index.ipynb").is_file()
    assert (clone / "work" / "solutions" / "04_rope.py").is_file()


@pytest.mark.parametrize(
    "task, package, extra",
    [
        ("test", "pytest", "dev"),
        ("pocket", "transformers", "dev"),
        ("bench", "transformers", "bench"),
        ("test-browser", "selenium", "browser"),
    ],
)
def test_what_is_not_installed_is_named(
    task, package, extra, monkeypatch, capsys
):
    monkeypatch.setattr(project, "find_spec", lambda name: None)
    assert main([task]) == 1
    more = "; it compiles llama.cpp: if that fails, take .[dev]"
    more *= extra == "bench"
    assert capsys.readouterr().err == (
        f"RuntimeError: {package} is not installed here: in {ROOT} run "
        f'`python -m pip install -c constraints.txt -e ".[{extra}]"`{more}\n'
    )


def test_clean_keeps_the_learners_copy(command, clone):
    (clone / "work").mkdir(exist_ok=True)
    (clone / "data" / "build").mkdir()
    (clone / ".venv").mkdir()
    done = command("lessons", "clean")
    assert done.returncode == 0 and "was not made by" in done.stdout
    assert (clone / "work").is_dir() and (clone / ".venv").is_dir()
    assert not (clone / "data" / "build").exists()
