"""The files that install the project, and what the README promises."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

import llamalib
from llamalib.files import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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


def test_torch_is_a_range():
    (torch,) = (r for r in PYPROJECT["dependencies"] if r.startswith("torch"))
    assert ">=" in torch and "<" in torch


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


def test_nothing_loads_a_pickle_that_could_run():
    code = "".join(
        file.read_text(encoding="utf-8")
        for folder in ("llamalib", "data/recipe")
        for file in (ROOT / folder).rglob("*.py")
    )
    calls = re.findall(r"torch\.load\((.*?)\)", code, re.S)
    assert calls and all("weights_only=True" in call for call in calls)
    assert not re.search(r"weights_only=False|trust_remote_code", code)
    # of all files that are read, only the project's own notebook is run
    (line,) = re.findall(r".*(?<![.\w])(?:eval|exec)\(.*", code)
    assert line in read("llamalib/__main__.py")
