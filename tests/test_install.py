"""The project anywhere: the Makefile, difficult names, a bare environment."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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


# A Python of any version: it makes an environment with itself, or prints its
# words. `pip` is what `import pip` finds, None if the environment lacks it.
# $TAKEN is the version of torch that its pip would take.
PYTHON = """#!/bin/sh
case "$1 $2" in
"-c "*) exec '{real}' -c '
import sys
sys.version_info, sys.modules["pip"] = {version}, {pip}
exec(sys.argv[1])' "$2";;
"-m venv") [ "$3" = --clear ] && rm -rf "$4" && shift
  mkdir -p "$3/bin" && cp -n "$0" "$3/bin/python";;
*) case "$*" in
  *--dry-run*) printf '{{"version": "1", "install": [{{"version": "%s"}}]}}' \
    "$TAKEN";;
  *) printf "%s\\n" "$@";;
  esac;;
esac
"""


def fake(path, *version, pip="sys"):
    """Write a Python of a version, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        PYTHON.format(real=sys.executable, version=version, pip=pip)
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def makes(tmp_path):
    """Return a folder for make, with an environment that only talks."""
    folder = tmp_path.joinpath(*PLACE)
    fake(folder / ".venv" / "bin" / "python", 3, 11, 7)
    lists = "constraints.txt", "locked.txt", "locked-torch.txt"
    for name in ("Makefile", "pyproject.toml", *lists):
        shutil.copy(ROOT / name, folder / name)
    return folder


@needs_make
@pytest.mark.parametrize(
    "task", sorted({*TASKS} - {"help", "clean", "scripts", "lock"})
)
def test_make_installs_once(makes, task):
    """Each target installs what it needs, then runs its command.

    `scripts` needs Node and npm's registry: CI runs it. `lock` is no reader's.
    """
    done = make(task, cwd=makes)
    assert done.returncode == 0, done.stderr
    assert "pip\ninstall\n" in done.stdout
    again = make(task, cwd=makes)
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
    "task, files",
    [("run", 1), ("site", 1), ("lab", 2), ("test", 2), ("format", 0)],
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


@pytest.fixture
def pythons(tmp_path, makes):
    """Return a Python 3.9, which is `python3` here, a 3.12, and `make run`."""
    old = fake(tmp_path / "python3", 3, 9, 18)
    new = fake(tmp_path / "python3.12", 3, 12, 1)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    env = {k: v for k, v in os.environ.items() if k not in ("TORCH", "TAKEN")}

    def make_run(*arguments, ends=0, **more):
        how = dict(cwd=makes, env=env | dict(PATH=path) | more)
        done = make("run", *arguments, **how)
        assert done.returncode == ends, done.stdout + done.stderr
        return done.stdout + done.stderr

    return old, new, make_run


def version_in(folder):
    text = (folder / "bin" / "python").read_text()
    return re.search(r"\((\d, \d+), \d+\)", text)[1]


@needs_make
def test_an_old_python_is_refused_and_another_one_taken(makes, pythons):
    """Before an environment is made; afterwards nothing has to be cleaned."""
    old, new, make_run = pythons
    shutil.rmtree(makes / ".venv")
    needed = "Python 3.11 to 3.14 is needed, {}: name another, as in make run "
    needed += "PYTHON=python3.12\n"
    said = make_run(ends=2)
    assert said.startswith(needed.format("python3 is 3.9.18"))
    fake(Path(old), 3, 15, 0)
    assert make_run(ends=2).startswith(needed.format("python3 is 3.15.0"))
    said = make_run("PYTHON=python3.99", ends=2)
    assert said.startswith(needed.format("python3.99 is not there"))
    assert not (makes / ".venv").exists()
    assert "pip\ninstall\n" in make_run(f"PYTHON={new}")
    assert version_in(makes / ".venv") == "3, 12"
    assert "pip" not in make_run(f"PYTHON={new}")
    assert "pip" not in make_run()  # the environment is there


@needs_make
@pytest.mark.parametrize("pip", ["sys", "None"])
def test_what_is_in_the_way_is_made_anew(makes, pythons, pip):
    """An environment that is too old, or that was left without its pip."""
    python3, _, make_run = pythons
    fake(Path(python3), 3, 12, 1)  # a new system, and an old environment
    version = (3, 9, 18) if pip == "sys" else (3, 12, 1)
    fake(makes / ".venv" / "bin" / "python", *version, pip=pip)
    (makes / ".venv" / "half").touch()
    make_run()
    assert version_in(makes / ".venv") == "3, 12"
    assert not (makes / ".venv" / "half").exists()


@needs_make
def test_an_environment_changes_its_python_only_if_told(makes, pythons):
    old, new, make_run = pythons
    make_run()
    (makes / ".venv" / "dev.done").touch()
    os.utime(makes / ".venv" / "base.done", (0, 0))  # the lists are newer
    assert "pip\ninstall\n" in make_run()
    assert (makes / ".venv" / "dev.done").exists()  # not made anew
    assert "is 3.9.18: name another" in make_run(f"PYTHON={old}", ends=2)
    assert version_in(makes / ".venv") == "3, 11"
    assert "pip\ninstall\n" in make_run(f"PYTHON={new}")
    assert version_in(makes / ".venv") == "3, 12"
    assert not (makes / ".venv" / "dev.done").exists()


@needs_make
def test_a_folder_of_yours_is_never_emptied(makes, pythons):
    _, new, make_run = pythons
    fake(makes / "mine" / "bin" / "python", 3, 9, 18)
    (makes / "mine" / "thesis").touch()
    said = make_run("VENV=mine", f"PYTHON={new}", ends=2)
    assert "mine is of another Python: name another folder\n" in said
    assert (makes / "mine" / "thesis").exists()


@needs_make
def test_an_installation_says_what_and_how_much(makes, pythons):
    """pip is not quiet; CUDA's gigabytes are named where they come."""
    _, _, make_run = pythons
    said = make_run()
    assert "torch, JupyterLab and others, 300 MB\n" in said
    assert "quiet" not in said and "\n-q" not in said
    assert ("2.8 GB" in said) == (sys.platform == "linux")
    (makes / ".venv" / "base.done").unlink()
    assert "2.8 GB" not in make_run("TORCH=cpu")


@needs_make
@pytest.mark.parametrize("taken", ["2.13.0", "2.13.0+cpu", "", "TORCH=cpu"])
def test_what_comes_from_where(makes, pythons, taken):
    """By hashes; torch too, but another build than that of PyPI."""
    _, _, make_run = pythons
    cpu = [taken] if "=" in taken else []
    said = make_run(*cpu, TAKEN="" if cpu else taken)
    calls = [
        each.split() for each in said.split("pip\ninstall\n--no-compile\n")[1:]
    ]
    by_version = ["-c", "constraints.txt", "torch"]
    if cpu:
        first = [*by_version[:2], "--no-deps", "--index-url"]
        first += ["https://download.pytorch.org/whl/cpu", "torch", "-m"]
        assert calls.pop(0) == first
    by_hash = ["-r", "locked-torch.txt"]
    torch = by_hash if taken == "2.13.0" else by_version
    last = ["--no-deps", "--no-build-isolation", "-e", "."]
    expected = [["-r", "locked.txt"], torch, last]
    for call, wanted in zip(calls, expected, strict=True):
        assert call[: len(wanted)] == wanted


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
    (makes / "show").write_text(show.replace("LLAMA_PROMPT", "LLAMA_DIR"))
    for folder in ("my'mo$del.gguf", "$(shell echo ran) b"):
        assert prompted(f"FOLDER={folder}") == folder + "\n"
    assert prompted(LLAMA_DIR="mine") == "mine\n"
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
    env |= dict(JUPYTER_DATA_DIR=str(tmp_path / "jupyter"))
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


@pytest.mark.slow  # it compiles torch anew
def test_python_without_docstrings_and_asserts(command):
    """`python -OO`; nor is a library loaded that only the tests need."""
    assert command("-OO", "-c", NO_DOCSTRINGS) == "2 False\n"
