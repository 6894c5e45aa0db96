"""The learner's copy of the notebooks: nothing that was typed is lost."""

import errno
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import nbformat
import pytest

from llamalib.load import ROOT
from tools import lab
from tools.__main__ import main

ONE, TWO = "00_one.ipynb", "appendix/A_two.ipynb"
TEXT = "solutions/00_one.py"


@pytest.fixture(autouse=True)
def jupyter(tmp_path, monkeypatch):
    """Keep JupyterLab's signatures out of the real home; return their place.

    The folder is absent, as on a new machine.
    """
    folder = tmp_path / "a home" / "jupyter"
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(folder))
    return folder


def notebook(*sources, output=None):
    """Return a notebook's bytes, with an output in its first cell."""
    cells = [
        nbformat.v4.new_code_cell(text, id=f"c{i}")
        for i, text in enumerate(sources)
    ]
    if output:
        cells[0].outputs = [nbformat.v4.new_output("stream", text=output)]
    text = nbformat.writes(nbformat.v4.new_notebook(cells=cells))
    return text.encode()


def put(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


class Copy:
    """A project's notebooks, and a learner's copy of them."""

    def __init__(self, folder):
        self.source, self.work = folder / "notebooks", folder / "mein ü"
        self.project(ONE, notebook("x = 1", output="1"))
        self.project(TWO, notebook("y = 2"))
        self.project(TEXT, b"# solution 1\n")

    def project(self, name, content):
        put(self.source / name, content)

    def learner(self, name, content):
        put(self.work / name, content)

    def update(self):
        lab.update_copy(self.source, self.work)

    def __getitem__(self, name):
        return (self.work / name).read_bytes()

    def names(self):
        found = self.work.rglob("*")
        return sorted(
            p.relative_to(self.work).as_posix()
            for p in found
            if p.is_file() and p.name != lab.STATE
        )


@pytest.fixture
def copy(tmp_path):
    copy = Copy(tmp_path)
    copy.update()
    return copy


def test_what_is_absent_is_copied(copy, capsys):
    """What is new in the project, and what the learner has deleted."""
    assert copy.names() == sorted([ONE, TWO, TEXT])
    (copy.work / TWO).unlink()
    copy.project("appendix/B_new.ipynb", notebook("z = 3"))
    copy.project(".ipynb_checkpoints/D.ipynb", notebook("old"))
    copy.update()
    assert copy.names() == sorted([ONE, TWO, TEXT, "appendix/B_new.ipynb"])
    assert copy[TWO] == notebook("y = 2")
    assert capsys.readouterr().out == ""


def test_an_untouched_notebook_is_updated(copy, capsys):
    copy.project(ONE, notebook("x = 10"))
    copy.project(TEXT, b"# solution 2\n")
    copy.update()
    assert copy[ONE] == notebook("x = 10") and copy[TEXT] == b"# solution 2\n"
    assert capsys.readouterr().out.count("where you have typed nothing") == 2


def test_a_run_and_a_save_are_no_typing(copy):
    """An empty cell, which JupyterLab adds behind the last, is none either."""
    ran = notebook("x = 1", "", output="ran here")
    copy.learner(ONE, ran)
    copy.project(ONE, notebook("x = 1", output="a new picture"))
    copy.update()
    assert copy[ONE] == ran  # its outputs are the learner's
    copy.project(ONE, notebook("x = 10"))
    copy.update()
    assert copy[ONE] == notebook("x = 10")
    assert copy.names() == sorted([ONE, TWO, TEXT])


def test_an_answer_is_never_overwritten(copy, capsys):
    answer = notebook("x = 1  # my answer")
    copy.learner(ONE, answer)
    copy.update()
    assert copy[ONE] == answer and capsys.readouterr().out == ""
    copy.project(ONE, notebook("x = 10"))
    copy.update()
    assert copy[ONE] == answer
    assert copy["00_one.new.ipynb"] == notebook("x = 10")
    assert capsys.readouterr().out == (
        f"You have changed {ONE}: its new version is 00_one.new.ipynb\n"
    )
    copy.update()  # said once
    assert capsys.readouterr().out == ""
    (copy.work / "00_one.new.ipynb").unlink()
    copy.update()  # nor does it come back
    assert copy.names() == sorted([ONE, TWO, TEXT])


@pytest.mark.parametrize("at", range(1, 5))
def test_killed_anywhere(tmp_path, monkeypatch, at):
    """Each file is the old one or the new one, and the next run repairs."""
    copy, calls = Copy(tmp_path), 0
    replace = Path.replace

    def killed(part, target):
        nonlocal calls
        calls += 1
        if calls == at:
            part.write_bytes(part.read_bytes()[:5])
            raise KeyboardInterrupt
        return replace(part, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        copy.update()
    for name in (ONE, TWO, TEXT):
        if (copy.work / name).exists():
            assert copy[name] == (copy.source / name).read_bytes()
    copy.update()
    assert copy.names() == sorted([ONE, TWO, TEXT])


def test_a_file_is_no_folder(tmp_path, capsys):
    (tmp_path / "work").touch()
    assert main(["lab", "--work", str(tmp_path / "work")]) == 1
    assert "work is no folder: name another" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["notebooks", "notebooks/mine"])
def test_the_projects_own_notebooks_are_no_copy(capsys, folder):
    assert main(["lab", "--work", str(ROOT / folder), "--copy"]) == 1
    assert "in the project's notebooks: name" in capsys.readouterr().err
    assert not (ROOT / "notebooks" / "mine").exists()
    assert not (ROOT / "notebooks" / lab.STATE).exists()


def test_nor_is_the_projects_own_folder(tmp_path, capsys, monkeypatch):
    """Where an empty name leads, of a variable that is not set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "ROOT", tmp_path)
    assert main(["lab", "--work", "", "--copy"]) == 1
    assert "the project's own folder: name" in capsys.readouterr().err
    assert not (tmp_path / lab.STATE).exists()


@pytest.mark.parametrize("name", [ONE, "appendix"])
def test_a_place_that_is_taken(tmp_path, name):
    """A folder where a notebook belongs, or a file where a folder does."""
    copy = Copy(tmp_path)
    (copy.work / ONE).mkdir(parents=True)
    if name != ONE:
        (copy.work / ONE).rmdir()
        (copy.work / name).touch()
    with pytest.raises(OSError, match=rf"{name}.*: move it away, or"):
        copy.update()


def test_a_full_disk(tmp_path, monkeypatch):
    """Nothing of a file stays, and the sentence names the folder."""
    copy = Copy(tmp_path)

    def refuses(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", refuses)
        said = f"make room for {re.escape(str(copy.work))}, or take --work"
        with pytest.raises(OSError, match=said):
            copy.update()
    assert list(copy.work.rglob("*")) == []
    copy.update()


def test_the_command_opens_the_index(tmp_path, monkeypatch):
    """In the copy, with the project's settings and the reader's flags."""
    import jupyterlab.labapp

    opened = []
    monkeypatch.setattr(jupyterlab.labapp, "main", opened.extend)
    monkeypatch.setattr("tools.explorer.whole_page", lambda: "page")
    work = tmp_path / "wo rk 羊"
    assert main(["lab", "--work", str(work), "--", "--no-browser"]) == 0
    assert f"--ServerApp.root_dir={work}" in opened
    assert "--LabApp.default_url=/lab/tree/index.ipynb" in opened
    assert opened[-1] == "--no-browser"
    (folder,) = (f for f in opened if "app_settings_dir" in f)
    settings = Path(folder.partition("=")[2]) / "overrides.json"
    assert settings.is_file()
    (folder,) = (f for f in opened if "extra_labextensions_path" in f)
    folder = Path(folder.partition("=")[2]) / "llama-text"
    for name in ("package.json", "text.js", "text.css"):
        assert (folder / name).is_file()
    for name in ("index.ipynb", "explorer.html", "solutions/A_training.py"):
        assert (work / name).is_file()


def test_nor_is_an_answer_in_a_new_version(copy):
    new, second = "00_one.new.ipynb", "00_one.new2.ipynb"
    for x, mine in ((10, None), (20, ONE), (30, new)):
        if mine:
            copy.learner(mine, notebook(f"x = {x}  # mine"))
        copy.project(ONE, notebook(f"x = {x}"))
        copy.update()
    assert copy[ONE] == notebook("x = 20  # mine")
    assert copy[new] == notebook("x = 30  # mine")
    assert copy[second] == notebook("x = 30")
    copy.project(ONE, notebook("x = 40"))
    copy.update()  # in `second` nothing was typed
    assert copy[second] == notebook("x = 40")
    assert copy[new] == notebook("x = 30  # mine")


@pytest.mark.parametrize("state", [None, b"", b"[]", b'{"typed": 1}'])
def test_without_its_notes_it_keeps_everything(copy, state):
    """Such a copy was also made by hand, or by an earlier release."""
    (copy.work / lab.STATE).unlink()
    if state is not None:
        put(copy.work / lab.STATE, state)
    copy.project(ONE, notebook("x = 10"))
    copy.update()
    assert copy[ONE] == notebook("x = 1", output="1")
    assert copy["00_one.new.ipynb"] == notebook("x = 10")
    copy.project(TWO, notebook("y = 20"))
    copy.update()  # by now it is known what was copied
    assert copy[TWO] == notebook("y = 20")


def test_a_broken_notebook_is_the_learners(copy):
    copy.learner(ONE, b"<<<<<<< half a notebook")
    copy.project(ONE, notebook("x = 10"))
    copy.update()
    assert copy[ONE] == b"<<<<<<< half a notebook"


def trusted(copy, name):
    """Return whether JupyterLab trusts a notebook's saved outputs."""
    from jupyter_server.services.contents.filemanager import (
        FileContentsManager,
    )

    manager = FileContentsManager(root_dir=str(copy.work))
    with closing(manager.notary.store):
        cells = manager.get(name)["content"]["cells"]
    return all(cell["metadata"]["trusted"] for cell in cells)


def test_jupyterlab_trusts_a_copy(copy, jupyter, monkeypatch):
    """Not what the learner brought, typed or ran; the next start repairs."""
    monkeypatch.setattr(lab, "NOTEBOOKS", copy.source)
    monkeypatch.setattr(lab, "write_explorer", lambda work: None)

    def start():
        assert main(["lab", "--work", str(copy.work), "--copy"]) == 0

    copy.learner("mine.ipynb", notebook("x = 1", output="3"))
    copy.learner("typed.ipynb", notebook("x = 1  # mine", output="1"))
    assert not trusted(copy, ONE)
    start()
    assert trusted(copy, ONE) and trusted(copy, TWO)
    assert not trusted(copy, "mine.ipynb")
    assert not trusted(copy, "typed.ipynb")
    (jupyter / "nbsignatures.db").unlink()  # as on another machine
    assert not trusted(copy, ONE)
    start()
    assert trusted(copy, ONE)
    copy.learner(ONE, notebook("x = 1", output="ran here"))
    start()
    assert not trusted(copy, ONE)


def test_a_broken_notebook_is_not_signed(copy, capsys):
    copy.project("00_a.ipynb", b"<<<<<<< half a notebook")
    lab.sign(copy.source)
    assert trusted(copy, ONE) and capsys.readouterr().out == ""


@pytest.mark.parametrize("why", ["no folder", "locked", "broken", "secret"])
def test_signatures_that_cannot_be_written(
    tmp_path, jupyter, monkeypatch, capsys, why
):
    """The copy is made, and the database stays as it is."""
    found = jupyter / "nbsignatures.db"
    jupyter.parent.mkdir()
    if why == "no folder":
        jupyter.touch()
    else:
        jupyter.mkdir()
        found.write_bytes(b"no database" * 99 if why == "broken" else b"")
    if why == "secret":
        (jupyter / "notebook_secret").mkdir()  # it cannot be written
    before = found.read_bytes() if why == "broken" else b""
    monkeypatch.setattr(lab, "write_explorer", lambda work: None)
    with closing(sqlite3.connect(found if why == "locked" else "")) as other:
        other.execute("BEGIN EXCLUSIVE")
        work = tmp_path / "work"
        assert main(["lab", "--work", str(work), "--copy"]) == 0
    said = capsys.readouterr()
    assert f"signatures in {jupyter} cannot be written (" in said.out
    assert said.out.endswith(f"Your copy is in {work}\n")
    assert said.err == "" and (work / "index.ipynb").is_file()
    assert not list(jupyter.glob("*.bak"))
    assert why != "broken" or found.read_bytes() == before


def test_the_explorer_is_next_to_the_index(tmp_path, monkeypatch, capsys):
    """The trusted index shows it before a cell is run. It is written once."""
    page = tmp_path / "explorer.html"
    monkeypatch.setattr("tools.explorer.whole_page", lambda: "first")
    lab.write_explorer(tmp_path)
    assert page.read_text() == "first"
    page.write_text("up to date")
    lab.write_explorer(tmp_path)
    assert page.read_text() == "up to date"
    os.utime(page, (0, 0))
    monkeypatch.setattr("tools.explorer.whole_page", lambda: "new")
    lab.write_explorer(tmp_path)
    assert page.read_text() == "new"
    assert capsys.readouterr().out.count("Preparing the explorer") == 2
    page.unlink()
    page.mkdir()
    os.utime(page, (0, 0))
    lab.write_explorer(tmp_path)
    assert "cannot show the explorer: " in capsys.readouterr().out
