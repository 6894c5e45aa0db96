"""The Makefile and the environment that it makes; both keep what is yours."""

import os
import re
import shutil
import subprocess

import pytest

from llamalib.load import ROOT

needs_make = pytest.mark.skipif(
    os.name == "nt" or not shutil.which("make"), reason="needs make"
)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TASKS = re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.M)


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


# -- difficult names --


@pytest.fixture
def clone(tmp_path):
    """A project's files for make, with an environment that only talks."""
    folder = tmp_path / "Ünï cödé 羊" / "ll ama"
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    (folder / ".venv" / "pyvenv.cfg").touch()
    return folder


@needs_make
@pytest.mark.parametrize("task", sorted({*TASKS} - {"help", "clean"}))
def test_a_folder_with_any_name(clone, task):
    """Each target installs what it needs there, then runs its command."""
    done = make(task, "PYTHON=true", cwd=clone)
    assert done.returncode == 0, done.stderr
    assert "pip\ninstall\n" in done.stdout
    assert list((clone / ".venv").glob("*.done"))
    again = make(task, "PYTHON=true", cwd=clone)
    assert again.stdout and "pip" not in again.stdout
    assert done.stdout.endswith(again.stdout)


@needs_make
def test_the_list_shows_how_to_fill_a_gap():
    said = make().stdout
    assert all(f"make {task} " in said for task in TASKS)
    for words in ("run PROMPT=", "lab LAB_FLAGS=", "verify FOLDER="):
        assert f": make {words}" in said


@needs_make
def test_labs_folder_and_flags(clone):
    (clone / ".venv" / "base.done").touch()  # newer than the lists
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
    (clone / "build" / "course").mkdir(parents=True)  # it may hold marks
    for _ in range(2):
        assert make("clean", cwd=clone).returncode == 0
    assert not (clone / ".venv").exists()
    assert list((clone / "data").iterdir()) == []
    assert (clone / "build" / "course").exists()
    assert (clone / "work" / "answer.ipynb").exists()
