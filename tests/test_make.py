"""The Makefile and the environment that it makes; both keep what is yours."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from llamalib.load import ROOT

needs_make = pytest.mark.skipif(
    os.name == "nt" or not shutil.which("make"), reason="needs make"
)
SCRIPT = ROOT / ".ci" / "environment.py"
SPEC = importlib.util.spec_from_file_location("environment", SCRIPT)
environment = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(environment)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
# task: its recipe
RULES = dict(re.findall(r"^([a-z-]+):.*## .*\n\t(.*)", MAKEFILE, re.M))


def make(*arguments, **how):
    """Run make in the project's folder."""
    how = {"cwd": ROOT} | how
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        **how,
    )


# -- every target is a command --

NO_ENVIRONMENT = {"help", "clean"}


@needs_make
def test_make_alone_lists_every_task():
    listing = make(check=True).stdout
    listed = re.findall(r"^make ([\w-]+) +\w", listing, re.M)
    (phony,) = re.findall(r"^\.PHONY: ((?:.*\\\n)*.*)", MAKEFILE, re.M)
    assert sorted(listed) == sorted(phony.replace("\\\n", "").split())
    assert set(listed) == set(RULES)


# -- prompts --

# the Makefile's own run, with another recipe: what would reach Python
SHOW = "include Makefile\nrun: ; @printenv LLAMA_PROMPT\n"


def prompted(*arguments, **environment):
    no_venv = "VENV=/nonexistent", "-o", "/nonexistent/base.done"
    return make(
        *("-f", "-", "run", *arguments, *no_venv),
        input=SHOW,
        env=os.environ | environment,
    ).stdout


@needs_make
def test_make_hands_a_prompt_on_unchanged():
    """A dollar sign and quotes get through make and the shell."""
    prompt = "It costs $5, \"$HOME\" & 'more'; `ls` #1"
    assert prompted(f"PROMPT={prompt}") == prompt + "\n"
    for prompt in ("a $(shell echo ran) b", "is $( open", "$(error no)"):
        assert prompted(f"PROMPT={prompt}") == prompt + "\n"
    assert prompted("PROMPT=") == "\n"
    # some shells have a PROMPT of their own, which is no text to continue
    assert prompted(PROMPT="%n@%m") == "The capital of France is\n"


@needs_make
def test_make_hands_a_long_prompt_on():
    """Its spaces are escaped in MAKEFLAGS, which would be too long."""
    prompt = "a " * 50_000
    assert prompted(f"PROMPT={prompt}") == prompt + "\n"


# -- difficult names --


@pytest.fixture
def clone(tmp_path):
    """A project's files for make, with an environment that only talks."""
    folder = tmp_path / "Ünï cödé 羊" / "ll ama"
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / ".ci").mkdir()
    shutil.copy(SCRIPT, folder / ".ci")
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    (folder / ".venv" / "pyvenv.cfg").touch()
    return folder


@needs_make
@pytest.mark.parametrize("task", sorted(set(RULES) - NO_ENVIRONMENT))
def test_a_folder_with_any_name(clone, task):
    """Each target installs what it needs there, then runs its command."""
    done = make(task, cwd=clone)
    assert done.returncode == 0, done.stderr
    assert "pip\ninstall\n" in done.stdout
    assert list((clone / ".venv").glob("*.done"))
    again = make(task, cwd=clone)  # it has installed what it needs
    first = {
        "lab": "-m lessons lab --work work --",
        "course": "-m lessons course",
        "weights": "-m llamalib fetch meta-llama/Llama-3.2-1B",
        "run": "-m llamalib run",
        "verify": "-m llamalib verify",
        "test": "-m pytest -n auto --maxprocesses 8 --dist loadfile tests",
        "test-slow": "-m pytest -m slow tests",
        "notebooks": "-m nbconvert --config .ci/execute.json",
        "format": "-m ruff check .",
        "site": "site/build.py",
        "pocket": "data/recipe/make_pocket.py",
        "bench": "bench/opening.py bench/generation.py",
        "bench-gpu": "bench/generation.py --device cuda",
        "test-browser": "-m pytest -n auto --maxprocesses 8",
    }
    assert " ".join(again.stdout.split()).startswith(first[task])
    assert done.stdout.endswith(again.stdout)


@needs_make
@pytest.mark.parametrize("task", ["run", "clean"])
@pytest.mark.parametrize("name", ["my env", ""])
def test_an_environment_that_make_cannot_name(clone, task, name):
    done = make(task, f"VENV={name}", cwd=clone)
    assert done.returncode == 2 and done.stdout == ""
    assert f'VENV is "{name}": name a folder without spaces' in done.stderr


@needs_make
def test_labs_folder_and_flags(clone):
    (clone / ".venv" / "base.done").touch()
    flags = "LAB_FLAGS=--no-browser --port=9"
    done = make("lab", "WORK=mein Ordner", flags, cwd=clone)
    said = done.stdout.split("\n")
    assert said[2:] == [
        *("lab", "--work", "mein Ordner"),
        *("--", "--no-browser", "--port=9", ""),
    ]


@needs_make
def test_clean_there(clone):
    """It keeps the learner's copy; the second time nothing is left to do."""
    (clone / "work").mkdir()
    (clone / "work" / "answer.ipynb").touch()
    (clone / "data" / "build").mkdir(parents=True)
    for _ in range(2):
        assert make("clean", cwd=clone).returncode == 0
    assert not (clone / ".venv").exists()
    assert list((clone / "data").iterdir()) == []
    assert (clone / "work" / "answer.ipynb").exists()


# -- what make may delete --


def snapshot(folder):
    return {
        path.relative_to(folder): path.is_file() and path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def failing_python(folder):
    """Return a Python that runs scripts, and makes half an environment."""
    file = folder / "python"
    venv = 'mkdir -p "$3/bin"; touch "$3/pyvenv.cfg"; exit 1'
    file.write_text(
        f'#!/bin/sh\nif [ "$2" = venv ]; then {venv}; fi\n'
        f"exec '{sys.executable}' \"$@\"\n"
    )
    file.chmod(0o755)
    return file


@needs_make
@pytest.mark.parametrize("task", ["run", "clean"])
def test_make_leaves_a_folder_that_it_did_not_make(clone, tmp_path, task):
    """In a clone: `clean` also removes what was built in the project."""
    mine = tmp_path / "mine"
    (mine / "deep").mkdir(parents=True)
    (mine / "deep" / "thesis.txt").write_text("years of work")
    before = snapshot(mine)
    python = failing_python(tmp_path)
    done = make(task, f"VENV={mine}", f"PYTHON={python}", cwd=clone)
    assert snapshot(mine) == before
    said = done.stdout + done.stderr
    assert "it stays as it is" in said and "Traceback" not in said
    assert (done.returncode == 0) == (task == "clean")


@needs_make
def test_a_failure_deletes_only_what_it_made(tmp_path, monkeypatch):
    python = failing_python(tmp_path)
    monkeypatch.setattr(sys, "executable", str(python))
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (empty, tmp_path / "new"):
        assert environment.main(folder, "base") == 1
    assert list(empty.iterdir()) == [] and not (tmp_path / "new").exists()


def test_clean_deletes_what_was_made(tmp_path, monkeypatch):
    """But no environment of the user's own."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        (folder / "bin").mkdir(parents=True)
        (folder / "pyvenv.cfg").touch()
    (ours / environment.OURS).write_text("complete")
    for built in ("data/build", "build/site", "build/course"):
        (tmp_path / built).mkdir(parents=True)
    (tmp_path / "work").mkdir()
    for folder in (theirs, ours, tmp_path / "absent"):
        assert environment.clean(folder) == 0
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["build", "data", "theirs", "work"]
    assert list((tmp_path / "data").iterdir()) == []
    (kept,) = (tmp_path / "build").iterdir()
    assert kept.name == "course"  # it may hold marks


def test_clean_spares_the_python_that_runs_it_on_windows(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / environment.OURS).write_text("complete")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert environment.clean(tmp_path) == 1
    assert tmp_path.exists() and "by hand" in capsys.readouterr().out


# -- killed, and two at once --

PIP = "bin/python", "-m", "pip", "--version"


def started(folder, task="base"):
    """Start making an environment, with an index that has no package."""
    return subprocess.Popen(
        [sys.executable, "-I", SCRIPT, folder, task],
        env=os.environ | {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_a_killed_run_is_repeated(tmp_path):
    """Killed in the middle, its own and a second one's, started meanwhile."""
    folder = tmp_path / "Ünï cödé" / "ve nv"
    process = started(folder)
    while not (folder / "pyvenv.cfg").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    begun = (folder / environment.OURS).read_text()
    processes = [started(folder), started(folder)]
    said = [process.communicate()[0] for process in processes]
    assert begun == "begun"
    assert sum("waiting" in each for each in said) == 1, said
    done = subprocess.run([folder / PIP[0], *PIP[1:]], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (folder / environment.OURS).read_text() == "complete"
    assert not (folder / "base.done").exists()  # no package was found


@pytest.fixture
def pip(monkeypatch):
    """Replace what runs; collect the commands, and answer by a status."""
    commands, answer = [], [0]

    def run(command, check=False, **how):
        commands.append([str(word) for word in command])
        return subprocess.CompletedProcess(command, answer[0])

    monkeypatch.setattr(environment.subprocess, "run", run)
    return commands, answer


def fake_environment(folder):
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").touch()
    (folder / "bin" / "python").touch()
    return folder


def test_installed_once(pip, tmp_path):
    """And again when the lists of packages are newer."""
    commands, _ = pip
    folder = fake_environment(tmp_path)
    for _ in range(2):
        assert environment.main(folder, "dev") == 0
    assert len(commands) == 1 and commands[0][-2:] == ["-e", ".[dev]"]
    os.utime(folder / "dev.done", (0, 0))
    assert environment.main(folder, "dev") == 0
    assert len(commands) == 2


@pytest.mark.parametrize("status", [0, 1])
def test_the_bench_tries_again(pip, tmp_path, capsys, status):
    """What did not install is not marked as installed."""
    pip[1][0] = status
    folder = fake_environment(tmp_path)
    assert environment.main(folder, "bench") == 0
    assert (folder / "bench.done").exists() != status
    assert ("tries again" in capsys.readouterr().out) == bool(status)
    assert environment.main(folder, "dev") == status


def test_an_environment_whose_python_has_gone_is_made_again(pip, tmp_path):
    folder = fake_environment(tmp_path)
    (folder / environment.OURS).write_text("complete")
    (folder / "bin" / "python").unlink()
    assert environment.main(folder, "base") == 0
    assert pip[0][0] == [sys.executable, "-m", "venv", str(folder)]
