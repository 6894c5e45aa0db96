"""The commands of `python -m llamalib`."""

import os
import re
import subprocess
import sys

import nbformat
import pytest

from llamalib.__main__ import main
from llamalib.files import ROOT
from llamalib.tasks.notebooks import execute_in_place


def run(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "llamalib", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
    )
    return done.returncode, done.stdout, done.stderr


def test_run_continues_the_capital_of_france():
    code, out, _ = run("run")
    assert code == 0
    prompt, continuation, *_, speed = out.splitlines()
    assert prompt == "prompt       | The capital of France is"
    assert continuation.startswith("continuation |  Paris")
    assert speed.startswith("speed        | ")
    assert "tokens per second" in speed


NASTY = 'A "quoted" $HOME $\\foo$ \\ prompt'


@pytest.mark.parametrize("prompt", [NASTY, "", "one\ntwo"])
def test_run_continues_any_prompt(prompt, monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "")  # restored afterwards
    monkeypatch.setenv("LLAMA_PROMPT", "another")
    assert main(["run", "--prompt", prompt]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"prompt       | {prompt}\ncontinuation | ")


def test_run_takes_the_prompt_from_the_environment():
    code, out, err = run("run", LLAMA_PROMPT=NASTY + " 🙂")
    assert code == 0, err
    assert out.startswith(f"prompt       | {NASTY} 🙂\ncontinuation | ")


def test_a_failing_notebook_says_why(tmp_path):
    code, out, err = run("run", LLAMA_DIR=str(tmp_path / "nowhere"))
    assert code == 1 and out == ""
    assert "09_generate.ipynb failed: FileNotFoundError" in err
    assert "nowhere" in err and "Traceback" not in err


CELL = """
import os, sys
import ipywidgets
from llamalib.viz import nb07 as viz
from llamalib.viz.play import Play

print("prompt:", os.environ.get("LLAMA_PROMPT"))
print("on the same stream")
Play(
    lambda n: viz.next_token_bars(["a"] * n, [0.5] * n),
    n=ipywidgets.IntSlider(3, 1, 9),
)
"""


def test_execute_says_which_cell_failed(tmp_path):
    cells = [nbformat.v4.new_markdown_cell("# Not code")]
    for source in ("x = 1", "y = 0\nx / y", "x"):
        cells.append(nbformat.v4.new_code_cell(source))
    path = tmp_path / "three.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    before = path.read_text(encoding="utf-8")
    with pytest.raises(RuntimeError) as caught:
        execute_in_place(path)
    assert str(caught.value) == (
        "cell [2] of three.ipynb failed, which begins 'y = 0': "
        "ZeroDivisionError: division by zero"
    )
    assert path.read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    "text, said",
    [
        ("{}", "ValidationError"),
        ("", "NotJSONError"),
        ('{"nbformat": 99}', "NBFormatError"),
        ('{"nbformat": 4, "nbformat_minor": 5, "cells": [1]}', "TypeError"),
    ],
)
def test_execute_says_what_is_no_notebook(tmp_path, capsys, text, said):
    path = tmp_path / "no.ipynb"
    path.write_text(text, encoding="utf-8")
    assert main(["execute", str(path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"ValueError: {path} is no notebook ({said}: ")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["gone.ipynb", "."])
def test_execute_names_a_missing_notebook(tmp_path, capsys, name):
    path = tmp_path / name
    assert main(["execute", str(path)]) == 1
    err = capsys.readouterr().err
    assert err == f"FileNotFoundError: {path} is missing, or is a folder\n"


def in_a_shell(redirected, unbuffered=""):
    """Run a command in a shell that redirects its output."""
    return subprocess.run(
        f"'{sys.executable}' -m llamalib {redirected}",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_closed_output_is_named():
    done = in_a_shell("words >&-")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "RuntimeError: standard output is closed: open it to read\n"
    )


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("command, unbuffered", [("words", ""), ("run", "1")])
def test_a_reader_may_leave(command, unbuffered):
    """As `head` does, which closes its end of the pipe."""
    done = in_a_shell(f"{command} | true", unbuffered)
    assert (done.stdout, done.stderr) == ("", "")


def test_execute_saves_what_needs_no_kernel(tmp_path, monkeypatch):
    """A still picture for a widget, no prompt, no name of the machine."""
    monkeypatch.setenv("LLAMA_PROMPT", "from outside")
    path = tmp_path / "one.ipynb"
    cells = [nbformat.v4.new_code_cell(CELL)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    execute_in_place(path)
    saved = nbformat.read(path, as_version=4)
    (cell,) = saved.cells
    said, play = cell.outputs
    assert cell.execution_count == 1
    assert said["text"] == "prompt: None\non the same stream\n"
    assert set(play["data"]) == {"text/html", "text/plain"}
    assert play["data"]["text/plain"] == "Play(n=3)"
    assert set(saved.metadata) == {"kernelspec", "language_info"}


def test_all_notebooks_are_executed_with_the_pocket(monkeypatch):
    """Their saved outputs are its own, whatever the reader's LLAMA_DIR is."""
    seen, pocket = [], str(ROOT / "data" / "pocket-llama")
    monkeypatch.setattr(
        "llamalib.tasks.notebooks.execute_in_place",
        lambda path: seen.append((path.name, os.environ["LLAMA_DIR"])),
    )
    for arguments in (["mine.ipynb"], []):
        monkeypatch.setenv("LLAMA_DIR", "elsewhere")
        assert main(["notebooks", *arguments]) == 0
    assert seen[0] == ("mine.ipynb", "elsewhere")
    assert len(seen) > 15 and {folder for _, folder in seen[1:]} == {pocket}


@pytest.mark.parametrize("offline", ["0", "1"])
def test_fetching_without_a_network(offline, tmp_path):
    """An endpoint where nobody listens, and a client told not to try."""
    code, out, err = run(
        "fetch",
        "Llama-3.9-none",
        HF_ENDPOINT="http://127.0.0.1:9",
        HF_HUB_OFFLINE=offline,
        HF_HOME=str(tmp_path),
    )
    assert code == 1 and "Llama Community License" in out
    assert "cannot be reached" in err and "Traceback" not in err
    assert not (ROOT / "data" / "Llama-3.9-none" / "original").exists()


def test_unknown_commands():
    with pytest.raises(SystemExit):
        main(["sing"])


def test_run_stops_behind_the_last_result(tmp_path, monkeypatch, capsys):
    sources = ["print(1)", "x = 2\nprint(x)", "print(x + 1)", "1 / 0"]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for cell in cells[1:3]:
        cell.metadata["tags"] = ["result"]
    cells.insert(0, nbformat.v4.new_markdown_cell("not code"))
    path = tmp_path / "five.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    monkeypatch.setattr("llamalib.__main__.GENERATE", path)
    monkeypatch.setenv("MPLBACKEND", "")  # and as it was, afterwards
    assert main(["run"]) == 0
    assert capsys.readouterr().out == "2\n3\n"
    cells[-1].metadata["tags"] = ["result"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    assert main(["run"]) == 1
    out, err = capsys.readouterr()
    assert out == "2\n3\n"
    assert "a cell of five.ipynb failed: ZeroDivisionError" in err


def test_lines_by_room():
    """A table whose rows add up."""
    code, out, err = run("lines")
    assert code == 0, err
    rows = dict(
        re.fullmatch(r"\| (.+?) \| ([\d,]+) \|", line).groups()
        for line in out.splitlines()[2:]
    )
    counts = {room: int(n.replace(",", "")) for room, n in rows.items()}
    assert counts.pop("all") == sum(counts.values())
    files = {path.name: path for path in (ROOT / "llamalib").glob("*.py")}
    assert counts["commands"] == lines_of(files.pop("__main__.py"))
    assert counts["core"] == sum(map(lines_of, files.values()))


def lines_of(file):
    return file.read_text(encoding="utf-8").count("\n")
