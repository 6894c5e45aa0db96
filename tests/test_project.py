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
        for folder in ("llamalib", "lessons", "data/recipe")
        for file in (ROOT / folder).rglob("*.py")
    )
    calls = re.findall(r"torch\.load\((.*?)\)", code, re.S)
    assert calls and all("weights_only=True" in call for call in calls)
    assert not re.search(r"weights_only=False|trust_remote_code", code)
    assert not re.search(r"(?<![.\w])(?:eval|exec)\(", code)


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


def test_the_first_screen():
    """One sentence, one picture, three steps, a line for each machine."""
    text = front()
    assert text.count("\n") < 45
    sentence = text.split("\n\n")[1]
    assert "any laptop" not in sentence  # torch has no builds for Intel Macs
    assert len(sentence.split(". ")) == 1 and len(sentence.split()) <= 25
    ((words, file),) = re.findall(r"!\[(.+)\]\((.+)\)", text)
    assert len(words) > 40 and (ROOT / file).stat().st_size <= 150_000
    steps = re.findall(r"^(\d)\. \*\*.+?\*\* .*?`(.+?)`", text, re.M)
    assert [number for number, _ in steps] == ["1", "2", "3"]
    assert [command for _, command in steps[1:]] == ["make run", "make lab"]
    machines = re.findall(r"^- \*\*([\w ]+)\*\*: .", text, re.M)
    assert machines == ["Windows", "macOS", "VS Code", "GPU"]
    assert "| " not in text and "measured" not in text


def test_the_picture_is_todays():
    """`python .ci/front.py` would change nothing."""
    written = runpy.run_path(str(ROOT / ".ci" / "front.py"))
    assert written["PICTURE"].read_bytes() == written["picture"]()


def test_the_commands_of_the_readme_exist():
    found = commands_in(read("README.md"))
    assert {"llamalib run", "llamalib fetch", "lessons lab"} <= set(found)


# -- continuous integration --


def steps_of(job):
    return [step.get("run", "") for step in job["steps"]]


def test_the_workflow():
    """On Linux by make; on Windows and macOS by commands that exist."""
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]
    for target in jobs["test"]["strategy"]["matrix"]["target"]:
        assert re.search(rf"^{target}:", read("Makefile"), re.M)
    job = jobs["elsewhere"]
    systems = " ".join(job["strategy"]["matrix"]["os"])
    assert "windows" in systems and "macos" in systems
    assert job["timeout-minutes"] <= 30
    text = "\n".join(steps_of(job))
    assert not re.search(r"\bmake\b|\bgit\b", text)
    assert commands_in(text) == ["llamalib run"]
    assert text.count("-m pytest") == 2 and "--nbval" in text
    files = re.findall(r"\S+\.(?:py|ipynb)", text)
    assert len(files) > 10
    for file in files:
        assert (ROOT / file).is_file(), file


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
