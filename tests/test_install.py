"""The project anywhere: the Makefile, difficult names, a bare environment."""

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from llamalib.fetch import PACKED
from llamalib.load import ROOT

PLACE = "Ünï cödé 羊", "ll ama"


def run(command, cwd, **how):
    how = dict(capture_output=True, encoding="utf-8", timeout=300) | how
    return subprocess.run(command, cwd=cwd, **how)


# -- the Makefile ------------------------------------------------------------

needs_make = pytest.mark.skipif(
    os.name == "nt" or not shutil.which("make"), reason="needs make"
)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TASKS = re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.M)
SMOLLM2, LLAMA3 = (
    re.search(rf"^{name} = (.*)", MAKEFILE, re.M)[1]
    for name in ("SMOLLM2", "LLAMA3")
)


def make(*arguments, cwd=ROOT, **how):
    return run(["make", "--no-print-directory", *arguments], cwd, **how)


@pytest.fixture
def makes(tmp_path):
    """Return a folder for make, with an environment that only talks."""
    folder = tmp_path.joinpath(*PLACE)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    return folder


@needs_make
@pytest.mark.parametrize("task", sorted({*TASKS} - {"help", "clean"}))
def test_make_installs_once(makes, task):
    """Each target installs what it needs, then runs its command."""
    done = make(task, "PYTHON=true", cwd=makes)
    assert done.returncode == 0, done.stderr
    assert "pip\ninstall\n" in done.stdout
    again = make(task, "PYTHON=true", cwd=makes)
    assert again.stdout and "pip" not in again.stdout
    assert done.stdout.endswith(again.stdout)


def test_make_and_fetch_name_the_same_files():
    files = [
        f"data/{name}/{packed.member.rpartition('/')[2]}"
        for name, packed in PACKED.items()
    ]
    assert [SMOLLM2, LLAMA3] == files


@needs_make
@pytest.mark.parametrize(
    "task, files", [("run", 1), ("lab", 1), ("test", 2), ("format", 0)]
)
@pytest.mark.parametrize("ci", ["", "true"])
def test_make_fetches_once(makes, task, files, ci):
    """Without a network it goes on, but not in CI."""
    done = make(task, "PYTHON=true", cwd=makes, env=os.environ | {"CI": ci})
    assert done.stdout.count("llamalib\nfetch\n") == files
    python = makes / ".venv" / "bin" / "python"
    python.write_text(
        '#!/bin/sh\n[ "$3" = fetch ] && echo "no network" >&2 && exit 1\n'
        'printf "%s\\n" "$@"\n'
    )
    done = make(task, cwd=makes, env=os.environ | {"CI": ci})
    fails = bool(ci and files)
    assert bool(done.returncode) == fails, done
    assert bool(done.stdout) != fails
    if not fails:
        assert done.stderr == "no network\n" * files
    for name in (SMOLLM2, LLAMA3):
        (makes / name).parent.mkdir(parents=True)
        (makes / name).touch()
    done = make(task, cwd=makes, env=os.environ | {"CI": ci})
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


@needs_make
def test_make_lists_its_targets():
    said = make().stdout
    assert all(f"make {task} " in said for task in TASKS)
    for words in ("run PROMPT=", "lab LAB_FLAGS=", "verify FOLDER="):
        assert f": make {words}" in said


@needs_make
def test_make_hands_words_on(makes):
    """Quotes, dollar signs and spaces pass make and the shell unchanged."""
    # the Makefile's own run with another recipe: what would reach Python
    show = "include Makefile\nrun: ; @printenv LLAMA_PROMPT\n"
    (makes / "show").write_text(show)
    (makes / ".venv" / "base.done").touch()  # newer than the lists
    (makes / SMOLLM2).parent.mkdir(parents=True)
    (makes / SMOLLM2).touch()

    def prompted(*given, **variables):
        how = dict(cwd=makes, env=os.environ | variables)
        return make("-f", "show", "run", *given, **how).stdout

    for prompt in (
        "It costs $5, \"$HOME\" & 'more'; `ls` #1",
        *("a $(shell echo ran) b", "is $( open", "$(error no)", ""),
    ):
        assert prompted(f"PROMPT={prompt}") == prompt + "\n"
    # some shells have a PROMPT of their own, which is no text to continue
    assert prompted(PROMPT="%n@%m") == "The capital of France is\n"
    flags = "LAB_FLAGS=--no-browser --port=9"
    said = make("lab", "WORK=mein Ordner", flags, cwd=makes).stdout
    assert said.endswith("--work\nmein Ordner\n--\n--no-browser\n--port=9\n")


@needs_make
def test_make_clean_keeps_what_is_yours(makes):
    """Also the second time, when nothing is left to do."""
    kept = [makes / "work", makes / "build" / "course"]  # it may hold marks
    for folder in [*kept, makes / "data" / "build"]:
        folder.mkdir(parents=True)
    for _ in range(2):
        assert make("clean", cwd=makes).returncode == 0
    assert not (makes / ".venv").exists()
    assert not (makes / "data" / "build").exists()
    assert all(folder.exists() for folder in kept)


# -- the commands, without make, cc or git -----------------------------------


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Return a copy of the project; its path is a difficult one."""
    folder = tmp_path_factory.mktemp(PLACE[0]) / PLACE[1]
    names = ".git .[!cg]* __pycache__ work build Llama-* SmolLM2-* *.egg-info"
    ignore = shutil.ignore_patterns(*names.split())
    return shutil.copytree(ROOT, folder, ignore=ignore)


@pytest.fixture
def command(clone, tmp_path):
    """Return what runs Python there, with nothing on the PATH."""
    keep = "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"  # for Windows
    env = {name: os.environ[name] for name in keep if name in os.environ}
    env |= dict(PATH=str(tmp_path), HOME=str(tmp_path))
    env |= dict(PYTHONPATH=str(clone), PYTHONUTF8="1", OMP_NUM_THREADS="1")

    def command(*words, ends=0, **variables):
        done = run([sys.executable, *words], clone, env=env | variables)
        assert done.returncode == ends, done.stdout + done.stderr
        return done.stdout

    return command


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_run(command, encoding):
    """A pipe on Windows may have no such letter: the text still comes."""
    prompt = "羊: The capital of France is"
    shown = prompt if encoding == "utf-8" else prompt.replace("羊", "?")
    said = command("-m", "llamalib", "run", prompt, PYTHONIOENCODING=encoding)
    assert said.splitlines()[2].startswith(shown)


def test_a_notebook_is_executed_and_compared(command, clone):
    source = "import time\nfrom llamalib.load import ROOT\n"
    source += "print(ROOT.name, flush=True)\ntime.sleep(0.5)\nprint(2)"
    cells = [nbformat.v4.new_code_cell(source)]
    path = clone / "mein Heft.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    command("-m", "nbconvert", "--config", ".ci/execute.json", str(path))
    (cell,) = nbformat.read(path, as_version=4).cells
    (output,) = cell.outputs  # what is printed later is added to it
    assert output["text"] == "ll ama\n2\n"
    text = path.read_text(encoding="utf-8").replace("ll ama", "llama")
    path.write_text(text, encoding="utf-8")
    assert "1 failed" in command("-m", "pytest", "--nbval", str(path), ends=1)


def test_lab_copies(command, clone):
    """With no --work, the copy is `work` in the project's folder."""
    command("-m", "tools", "lab", "--", "--version")
    assert (clone / "work" / "index.ipynb").is_file()
    assert (clone / "work" / "solutions" / "04_rope.py").is_file()


NO_DOCSTRINGS = """
import importlib, pkgutil, sys
import matplotlib
matplotlib.use("agg")
import llamalib
from lessons import theme, n07_lm_head

assert False, "an optimized Python skips this"
for module in pkgutil.walk_packages(llamalib.__path__, "llamalib."):
    importlib.import_module(module.name)
llama = llamalib.load(device="cpu")
assert theme.png(n07_lm_head.next_token(llama).figure())
ids = list(llamalib.generate(llama, [1], max_new_tokens=2))
print(len(ids), "transformers" in sys.modules)
"""


def test_python_without_docstrings_and_asserts(command):
    """`python -OO`; nor is a library loaded that only the tests need."""
    assert command("-OO", "-c", NO_DOCSTRINGS) == "2 False\n"
