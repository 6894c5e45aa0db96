"""What README, CONTRIBUTING and the files that install promise."""

import io
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib

import pytest
from PIL import Image

import llamalib
import tools.__main__ as tools
from llamalib import __main__ as library
from llamalib.load import ROOT
from tools import explorer

with open(ROOT / "pyproject.toml", "rb") as opened:
    PYPROJECT = tomllib.load(opened)["project"]
PAPERS = "README.md", "CONTRIBUTING.md", "data/README.md", "site/guide.md"
PAPERS += ("llamalib/README.md",)
# made by a command that the page names
MADE = {"build/course/", "build/site/", "work/"}


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(params=PAPERS)
def paper(request):
    return request.param


def test_links_lead_to_files(paper):
    for link in re.findall(r"\]\((?!https?:|<)([^)#]+)", read(paper)):
        assert ((ROOT / paper).parent / link).exists(), link


def test_commands_exist(paper):
    targets = re.findall(r"^([a-z-]+):.*##", read("Makefile"), re.M)
    known = {
        "(?:`|^)make": targets,
        "-m llamalib": library.parser().commands,
        "-m tools": tools.parser().commands,
    }
    for start, commands in known.items():
        pattern = rf"{start}\s([a-z][a-z-]*)"
        found = set(re.findall(pattern, read(paper), re.M))
        assert found <= set(commands), (start, found - set(commands))


def test_no_command_serves_the_whole_network():
    texts = [read(name) for name in PAPERS] + [explorer.NEEDS]
    texts += [p.read_text("utf-8") for p in (ROOT / "site").glob("*.py")]
    served = re.findall(r"-m http\.server(.{17})", "".join(texts))
    assert len(served) == 2 and set(served) == {" --bind 127.0.0.1"}


def test_the_files_that_contributing_names_exist():
    text = read("CONTRIBUTING.md")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    spans = re.findall(
        r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S)
    )
    code = "\n".join(blocks + spans)
    endings = "py|md|cfg|toml|txt|json|ipynb|cff"
    files = re.findall(rf"(?<![\w/.])[\w./-]+\.(?:{endings})(?!\w)", code)
    folders = re.findall(r"(?<![\w/])(?:[\w.-]+/)+(?![\w*])", code)
    found = {*files, *folders} - MADE
    assert len(found) > 15
    assert [name for name in found if not (ROOT / name).exists()] == []


def names(requirements):
    return {
        re.match(r"[\w-]+", r)[0].lower().replace("-", "_")
        for r in requirements
    }


PINS = re.findall(r"^[^#\n].*", read("constraints.txt"), re.M)


def test_constraints_pin_what_pyproject_lists():
    # no local version, such as +cpu; a marker may follow
    assert all(re.match(r"[\w.-]+==[\w.]+( ;|$)", line) for line in PINS)
    extras = PYPROJECT["optional-dependencies"].values()
    listed = names(PYPROJECT["dependencies"]).union(*map(names, extras))
    assert listed <= names(PINS)


HASHED = re.compile(r"^(\S.*?)((?: \\\n +--hash=sha256:\w{64})+)$", re.M)


def test_the_base_is_locked_by_hashes():
    """`make lock` writes all versions twice; torch has a file of its own."""
    base, torch = (
        {pin for pin, _ in HASHED.findall(read(name))}
        for name in ("locked.txt", "locked-torch.txt")
    )
    assert base | torch <= set(PINS)
    assert names(PYPROJECT["dependencies"]) - names(base) == {"torch"}
    assert "torch" in names(torch)
    only_torch = [pin for pin in base if pin.startswith(("nvidia", "cuda"))]
    assert only_torch == []  # gigabytes, which a CPU build does not need
    for name in ("locked.txt", "locked-torch.txt"):
        pinned = re.findall(r"^[^#\s].*==", read(name), re.M)
        assert len(pinned) == len(HASHED.findall(read(name)))


FOLDERS = "bench", "data/recipe", "lessons", "llamalib", "site", "tools"


@pytest.mark.parametrize("folder", FOLDERS)
def test_text_is_read_as_utf_8(folder):
    """Windows would take its own encoding."""
    files = sorted((ROOT / folder).glob("*.py"))
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    assert [n for n, text in texts.items() if ".read_text()" in text] == []
    assert texts


def test_one_version():
    """pyproject.toml, the package and the first entry of the change log."""
    first = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.M)[1]
    assert PYPROJECT["version"] == llamalib.__version__ == first


def test_the_readmes_code_runs():
    (code,) = re.findall(
        r"^```python\n(.*?)^```", read("README.md"), re.M | re.S
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Paris")


@pytest.mark.browser
def test_the_pictures_are_todays():
    """`make picture` would show the same words."""
    written = runpy.run_path(str(ROOT / ".ci" / "front.py"))
    for file, theme, data, words in written["pictures"]():
        with Image.open(file) as shown:
            assert shown.text["words"] == words
            assert shown.size == Image.open(io.BytesIO(data)).size
            corner = shown.convert("L").getpixel((0, 0))
        assert (corner > 200) == (theme == "light")


def test_text_has_the_same_line_ends_everywhere():
    """Windows' git would write others into notebooks and solutions."""
    if not ((ROOT / ".git").exists() and shutil.which("git")):
        pytest.skip("no clone, or no git: there are no attributes to ask for")
    files = "README.md", "notebooks/index.ipynb", "llamalib/model.py"
    pocket = "data/pocket-llama/tokenizer.model"
    said = subprocess.run(
        ["git", "check-attr", "text", "eol", "--", *files, pocket],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for file in files:
        assert f"{file}: eol: lf" in said
    assert f"{pocket}: text: unset" in said
