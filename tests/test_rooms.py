"""Rooms that others lend: a dev container, Binder, Colab and Kaggle."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from llamalib.load import ROOT
from tools import rooms

ADDRESS = "https://github.com/someone/some-name"
SETUP = ROOT / rooms.SETUP


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


# -- Colab and Kaggle ---------------------------------------------------------


def setup_cells():
    cells = json.loads(SETUP.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    # nbval would download the project
    assert "nbval-skip" in code[0]["metadata"]["tags"]  # it would install
    assert [c["execution_count"] for c in code] == [1, 2]
    return ["".join(cell["source"]) for cell in code]


def with_address(cell, address):
    lines = json.dumps(cell.splitlines(keepends=True))
    return "".join(json.loads(rooms.with_address(lines, address)))


@pytest.fixture
def archive(tmp_path):
    """The address of a page that has the project, as files."""
    page = tmp_path / "a page"
    (page / "archive").mkdir(parents=True)
    with zipfile.ZipFile(page / "archive" / "HEAD.zip", "w") as opened:
        names = ["pyproject.toml", "constraints.txt"]
        names += (ROOT / "llamalib").rglob("*.py")
        names += (ROOT / "data" / "pocket-llama").iterdir()
        for name in names:
            file = ROOT / name
            opened.write(file, f"name-main/{file.relative_to(ROOT)}")
    return page.as_uri()


# pip notes what it was asked for, nothing reaches the network
NO_NETWORK = """
import json, socket, subprocess
socket.socket.connect = None
subprocess.check_call = lambda command: print("pip:", json.dumps(command[4:]))
subprocess.call = lambda command: print(*command[1:])
"""


def run_cells(folder, *cells):
    """Run cells in one process, in a folder without the project."""
    folder.mkdir(exist_ok=True)
    environment = dict(os.environ)
    for name in ("PYTHONPATH", "LLAMA_DIR"):
        environment.pop(name, None)
    others = f"[p for p in sys.path if p != {str(ROOT)!r}]"
    code = f"import sys\nsys.path = {others}"
    return subprocess.run(
        [sys.executable, "-c", "\n".join([code, NO_NETWORK, *cells])],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


SHOW = "\nimport sys; print(sys.modules['llamalib'].__file__)"


def test_the_setup_cell_runs(tmp_path, archive):
    """Twice: the second time it downloads nothing."""
    first, second = setup_cells()
    cell = with_address(first, archive)
    done = run_cells(tmp_path / "content", cell, cell, second, SHOW)
    assert done.returncode == 0, done.stderr
    pip, *lines, said, file = done.stdout.splitlines()[:8]
    fetched = [
        "-m llamalib fetch SmolLM2-135M-Instruct",
        "-m llamalib fetch Llama-3-tokenizer",
    ]
    assert lines == [*fetched, pip, *fetched] and said.startswith(" Paris")
    assert "content" in file and str(ROOT / "llamalib") not in file
    assert pip.startswith("pip: ")
    asked = json.loads(pip.removeprefix("pip: "))
    assert asked[:2] == ["-q", "-c"]
    pins = Path(asked[2]).read_text(encoding="utf-8")
    # only of what the machine does not have
    assert "numpy" not in pins and "torch" not in pins
    asked = asked[3:]
    project = tomllib.loads(read("pyproject.toml"))["project"]
    left = set(project["dependencies"]) - set(asked)
    assert {re.match(r"\w+", name)[0] for name in left} == {
        "torch",
        "jupyterlab",
        "ipywidgets",
    }


@pytest.mark.parametrize(
    "address, start, end",
    [
        ("", "Write the project's address into ADDRESS", "run this again.\n"),
        ("example", "No project came from example (", "correct ADDRESS.\n"),
        ("https://a b", "No project came from", "correct ADDRESS.\n"),
    ],
)
def test_a_wrong_address_is_one_sentence(tmp_path, address, start, end):
    cell = with_address(setup_cells()[0], address)
    done = run_cells(tmp_path / "content", cell)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(start) and done.stdout.endswith(end)
    assert not list((tmp_path / "content").glob("llama*"))


# -- the address --------------------------------------------------------------


def test_one_address_is_shown():
    """The README's is the notebook's; a fork's own remote is another."""
    address = re.search(r'^ADDRESS = "(.*?)"', setup_cells()[0], re.M)[1]
    urls = tomllib.loads(read("pyproject.toml"))["project"].get("urls", {})
    assert address == urls.get("Repository", address)
    readme = read("README.md")
    assert readme == rooms.with_links(readme, address)


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com/someone/some-name",
        "https://github.com/someone/some-name.git",
        "https://someone:s3cret@github.com/someone/some-name.git/",
        "https://x-access-token:s3cret@p@github.com/someone/some-name",
        "git@github.com:someone/some-name.git",
        "ssh://git@github.com/someone/some-name.git",
    ],
)
def test_a_remote_on_github_is_the_address(remote):
    """Without a user and a password."""
    assert rooms.on_github(remote) == ADDRESS


@pytest.mark.parametrize(
    "remote",
    [
        "",
        "/srv/git/someone/some-name.git",
        "file:///github.com/someone/some-name",
        "https://gitlab.com/someone/some-name",
        "https://example.com/github.com/someone/some-name",
        "https://github.com.example.com/someone/some-name",
        "https://github.com/someone",
        "https://github.com/someone/some-name/tree/main",
        "git@example.com:someone/some-name.git",
    ],
)
def test_another_remote_is_no_address(remote):
    assert rooms.on_github(remote) == ""
    assert rooms.colab(remote, "a.ipynb") == ""


def test_the_address_is_that_of_gits_remote(tmp_path, monkeypatch):
    """Of the project's own; pyproject.toml's goes before it."""
    folder, toml = tmp_path / "project", tmp_path / "project/pyproject.toml"
    folder.mkdir()
    toml.write_text("[project]\n")
    monkeypatch.setattr(rooms, "ROOT", folder)

    def git(*words, cwd=folder):
        subprocess.run(["git", *words], cwd=cwd, check=True)

    if not shutil.which("git"):
        assert rooms.address() == ""
        return
    secret = ADDRESS.replace("github", "someone:s3cret@github")
    git("init", "-q", cwd=tmp_path)
    git("remote", "add", "origin", secret, cwd=tmp_path)
    assert rooms.address() == ""  # another project's
    git("init", "-q")
    assert rooms.address() == ""
    git("remote", "add", "origin", secret)
    assert rooms.address() == ADDRESS
    toml.write_text(f'[project.urls]\nRepository = "{ADDRESS}-2"\n')
    assert rooms.address() == f"{ADDRESS}-2"


def test_the_address_is_written(tmp_path, monkeypatch):
    """And taken away again; nothing else changes."""
    readme = f"`git clone x y`\n{rooms.BEGIN}\nold\n{rooms.END}\nb\n"
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / rooms.SETUP).write_bytes(SETUP.read_bytes())
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    for address in (ADDRESS, ""):
        urls = f'[project.urls]\nRepository = "{address}"\n' * bool(address)
        (tmp_path / "pyproject.toml").write_text(f"[project]\n{urls}")
        for file, text in rooms.addressed().items():
            file.write_text(text, encoding="utf-8")
        text = (tmp_path / "README.md").read_text()
        clone = f"`git clone {address or 'ADDRESS'} y`"
        assert text.startswith(f"{clone}\n{rooms.BEGIN}\n\n")
        assert text.endswith(f"\n\n{rooms.END}\nb\n") and "old" not in text
        notebook = (tmp_path / rooms.SETUP).read_text(encoding="utf-8")
        cell = "".join(json.loads(notebook)["cells"][1]["source"])
        assert f'ADDRESS = "{address}"' in cell
    assert notebook == rooms.with_address(SETUP.read_text("utf-8"), "")


@pytest.mark.parametrize("wrong", ["github.com/a/b", "https://github.com/a"])
def test_a_wrong_repository_is_refused(tmp_path, monkeypatch, wrong):
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    urls = f'[project]\n[project.urls]\nRepository = "{wrong}"\n'
    (tmp_path / "pyproject.toml").write_text(urls)
    with pytest.raises(ValueError, match=f"an address like.*{wrong}"):
        rooms.address()


def test_the_links_name_what_exists():
    marks = f"{rooms.BEGIN}{rooms.END}"
    text = rooms.with_links(marks, ADDRESS)
    pages = dict(re.findall(r"\[([\w ]+)\]\((https://\S+)\)", text))
    assert pages.keys() == rooms.ROOMS.keys()
    files = [re.findall(r"notebooks/\w+\.ipynb", p) for p in pages.values()]
    assert sum(map(len, files)) == 3
    assert all((ROOT / file).is_file() for found in files for file in found)
    assert pages.pop("the site") == "https://someone.github.io/some-name/"
    assert all("someone/some-name" in page for page in pages.values())
    colab = rooms.colab(ADDRESS, rooms.SETUP)
    assert colab == pages["Colab"]
