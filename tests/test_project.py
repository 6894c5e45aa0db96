"""The files that install the project, and what the README promises."""

import importlib.util
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from llamalib.formats.find import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_conda_installs_what_pyproject_lists():
    """environment.yml names Python and this project, and nothing else."""
    environment = yaml.safe_load(read("environment.yml"))
    *conda, pip = environment["dependencies"]
    assert conda == ["python" + PYPROJECT["requires-python"], "pip"]
    assert pip == {"pip": ["-c constraints.txt", "-e .[dev]"]}


def names(requirements):
    return {re.match(r"[\w-]+", r)[0].lower() for r in requirements}


def test_constraints_pin_what_pyproject_lists():
    lines = [
        line
        for line in read("constraints.txt").splitlines()
        if line and not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {name.replace("-", "_") for name in names(lines)}
    extras = PYPROJECT["optional-dependencies"].values()
    listed = names(PYPROJECT["dependencies"]).union(*map(names, extras))
    assert {name.replace("-", "_") for name in listed} <= pinned
    torch = next(line for line in lines if line.startswith("torch=="))
    assert re.fullmatch(r"torch==\d+\.\d+\.\d+", torch)


def test_torch_is_a_range():
    (torch,) = (r for r in PYPROJECT["dependencies"] if r.startswith("torch"))
    assert ">=" in torch and "<" in torch


def test_importing_needs_only_torch_and_tiktoken():
    """No matplotlib, no ipywidgets, no transformers, no download client."""
    listing = subprocess.run(
        [sys.executable, "-c", "import llamalib, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {"torch", "tiktoken"} <= set(listing)
    for name in (
        "matplotlib",
        "ipywidgets",
        "transformers",
        "nbformat",
        "huggingface_hub",
        "tokenizers",
    ):
        assert importlib.util.find_spec(name), f"{name} is not installed"
        assert name not in listing


@pytest.mark.parametrize("library", ["matplotlib", "ipywidgets"])
def test_one_place_imports(library):
    """And nothing else: the pictures' folder, the widgets' file."""
    allowed = {"matplotlib": "plots", "ipywidgets": "widgets.py"}[library]
    for file in (ROOT / "llamalib").rglob("*.py"):
        imports = re.findall(
            rf"^\s*(?:import|from) {library}", file.read_text(), re.M
        )
        place = file.relative_to(ROOT / "llamalib").parts[0]
        assert not imports or place == allowed, file


def test_make_alone_lists_every_task():
    """Each task of the Makefile, with what it is for."""
    listing = subprocess.run(
        ["make", "--no-print-directory"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for task in (
        "run",
        "test",
        "test-slow",
        "test-browser",
        "lab",
        "notebooks",
        "pocket",
        "bench",
        "bench-gpu",
        "weights",
    ):
        assert re.search(rf"^make {task} +\w", listing, re.M), task
    listed = set(re.findall(r"^make ([\w-]+)", listing, re.M))
    (phony,) = re.findall(r"^\.PHONY: (.*)", read("Makefile"), re.M)
    assert listed == set(phony.split())


def dry_run(task, venv):
    return subprocess.run(
        ["make", "--no-print-directory", "--dry-run", task, f"VENV={venv}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_make_installs_once(tmp_path):
    """First everything, then nothing, then only what the tests need."""
    first = dry_run("run", tmp_path)
    assert "-m venv" in first
    assert "pip install --quiet -c constraints.txt -e ." in first
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / "base.done").touch()
    again = dry_run("run", tmp_path)
    assert again == f"{tmp_path}/bin/python -m llamalib run\n"
    test = dry_run("test", tmp_path)
    assert "-e '.[dev]'" in test and "-m venv" not in test
    (tmp_path / "dev.done").touch()
    spread = "-n auto --maxprocesses 8 --dist loadfile"
    assert dry_run("test", tmp_path).splitlines() == [
        f"{tmp_path}/bin/python -m pytest {spread} tests",
        f"{tmp_path}/bin/python -m pytest {spread} --nbval notebooks",
    ]


@pytest.mark.parametrize("file", ["README.md", "data/README.md"])
def test_readmes_name_what_exists(file):
    text = read(file)
    folder = (ROOT / file).parent
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (folder / link).exists(), link
    tasks = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    for task in re.findall(r"`make ([a-z-]+)", text):
        assert task in tasks, task


def test_ci_runs_the_readmes_test_command():
    assert "make run" in read("README.md")
    assert "make test" in read("README.md")
    lines = read(".ci/run").splitlines()
    assert lines.index("make test") < lines.index("make test-browser")
    workflow = read(".github/workflows/test.yml")
    matrix = yaml.safe_load(workflow)["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["target"] == ["test", "test-slow", "test-browser"]
    assert "make ${{ matrix.target }}" in workflow


def test_nothing_loads_a_pickle_that_could_run():
    code = "".join(
        p.read_text()
        for p in [
            *ROOT.glob("llamalib/**/*.py"),
            *ROOT.glob("data/recipe/*.py"),
        ]
    )
    calls = re.findall(r"torch\.load\((.*?)\)", code, re.S)
    assert calls and all("weights_only=True" in call for call in calls)
    assert not re.search(r"weights_only=False|trust_remote_code", code)
    # of all that is read, only the project's own notebook is run
    (line,) = re.findall(r".*(?<![.\w])(?:eval|exec)\(.*", code)
    assert line.strip() == 'exec("".join(cell["source"]), names)'
    assert line in read("llamalib/__main__.py")
