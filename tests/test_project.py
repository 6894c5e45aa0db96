"""The files that install the project, and what the README promises."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib

import pytest

import lessons.__main__ as lessons
import llamalib
from llamalib import __main__ as library
from llamalib.load import ROOT

with open(ROOT / "pyproject.toml", "rb") as opened:
    PYPROJECT = tomllib.load(opened)["project"]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def names(requirements):
    return {
        re.match(r"[\w-]+", r)[0].lower().replace("-", "_")
        for r in requirements
    }


def test_constraints_pin_what_pyproject_lists():
    lines = [
        line
        for line in read("constraints.txt").splitlines()
        if line and not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    extras = PYPROJECT["optional-dependencies"].values()
    listed = names(PYPROJECT["dependencies"]).union(*map(names, extras))
    assert listed <= names(lines)
    torch = next(line for line in lines if line.startswith("torch=="))
    assert re.fullmatch(r"torch==\d+\.\d+\.\d+", torch)  # no local version


def test_one_version():
    """pyproject.toml, the package and the first entry of the change log."""
    first = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.M)[1]
    assert PYPROJECT["version"] == llamalib.__version__ == first


@pytest.mark.parametrize("file", ["README.md", "data/README.md"])
def test_readmes_name_what_exists(file):
    text = read(file)
    folder = (ROOT / file).parent
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (folder / link).exists(), link
    tasks = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    for task in re.findall(r"`make ([a-z-]+)", text):
        assert task in tasks, task
    for room in re.findall(r"`llamalib/(\w+)/`", text):
        assert (ROOT / "llamalib" / room).is_dir(), room


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


# -- the README's first screen --


def commands_in(text):
    """Return the commands that a text names, as `lessons lab`, and check."""
    found = re.findall(r"-m (llamalib|lessons) ([a-z-]+)", text)
    known = {"llamalib": library.parser, "lessons": lessons.parser}
    for package, command in found:
        assert command in known[package]().commands, (package, command)
    return [" ".join(each) for each in found]


def front():
    text = read("README.md")
    return text[: text.index("\n## ")]


def test_the_picture_is_todays():
    """`python .ci/front.py` would change nothing."""
    written = runpy.run_path(str(ROOT / ".ci" / "front.py"))
    assert written["PICTURE"].read_bytes() == written["picture"]()


def test_the_commands_of_the_readme_exist():
    found = commands_in(read("README.md"))
    assert {"llamalib run", "llamalib fetch", "lessons lab"} <= set(found)


# -- continuous integration --


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
