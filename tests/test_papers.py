"""The papers for contributors: what they name exists, what they ask runs."""

import json
import re
import subprocess
import sys
import tomllib

import pytest

import lessons.__main__ as lessons
from lessons import frame as series
from llamalib.load import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
# Paths of an example, or made by a command that the page names.
MADE = {"build/course/", "build/site/", "work/"}


def code(page):
    """Return what the page sets as code: spans, and lines of blocks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    without = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    spans = re.findall(r"`([^`]+)`", without)
    return [" ".join(each.split()) for each in (*lines, *spans)]


def test_every_command_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.M))
    found = {
        "make": targets,
        "python -m lessons": set(lessons.parser().commands),
    }
    for start, known in found.items():
        words = [
            match[1]
            for each in code(PAGE)
            if (match := re.match(rf"{start} ([a-z][a-z-]*)", each))
        ]
        assert len(words) > 1 and set(words) <= known, set(words) - known


def test_every_path_exists():
    pattern = r"[\w.-]+(?:/[\w.-]+)*\.(?:py|md|cfg|toml|txt|json|ipynb|cff)"
    found = set()
    for each in code(PAGE):
        found.update(re.findall(rf"(?<![\w/.]){pattern}(?!\w)", each))
        found.update(re.findall(r"(?<![\w/])(?:[\w.-]+/)+(?![\w*])", each))
    found -= MADE
    assert len(found) > 15
    for name in found:
        assert (ROOT / name).exists(), name


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert len(links) > 2
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_table_of_tags_is_the_notebooks():
    (table,) = re.findall(r"^\| tag \|.*\n((?:\|.*\n)+)", PAGE, re.M)
    first = [row.split("|")[1] for row in table.splitlines()[1:]]
    listed = re.findall(r"`([\w:-]+)`", "".join(first))
    used = {
        tag
        for path in (ROOT / "notebooks").rglob("*.ipynb")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        for tag in cell["metadata"].get("tags", ())
    }
    assert len(used) > 8 and sorted(listed) == sorted(used)


# -- the citation --


def test_the_citation_is_the_projects():
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(pyproject)["project"]
    assert found["cff-version"] == "1.2.0" and found["type"] == "software"
    assert found["message"] and found["abstract"] and found["keywords"]
    for key in ("version", "license"):
        assert found[key] == project[key], key
    (author,) = found["authors"]
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert f" {author['name']}\n" in licence
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {found['title']}\n")


# -- the forms for reported errors --


def forms():
    yaml = pytest.importorskip("yaml")
    return {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in FORMS.glob("*.yml")
    }


KINDS = {"input", "textarea", "dropdown", "markdown", "checkboxes"}


def test_the_forms_have_what_github_requires():
    found = forms()
    assert found.pop("config") == {"blank_issues_enabled": True}
    assert set(found) == {"notebook", "command", "check"}
    for form in found.values():
        assert set(form) == {"name", "description", "labels", "body"}
        ids = [part["id"] for part in form["body"]]
        assert len(ids) == len(set(ids)) and "versions" in ids
        for part in form["body"]:
            assert part["type"] in KINDS and part["attributes"]["label"]
            assert isinstance(part["validations"]["required"], bool)
            options = part["attributes"].get("options", ())
            assert bool(options) == (part["type"] == "dropdown")
            assert all(type(option) is str for option in options)


def test_the_forms_list_the_series():
    labels = [each.label for each in series.SERIES]
    options = {
        name: part["attributes"]["options"]
        for name, form in forms().items()
        for part in form.get("body", ())
        if part["id"] == "notebook"
    }
    assert options == {"notebook": ["Contents", *labels], "check": labels}


def test_the_command_of_the_forms_prints_versions():
    """The same command in each form."""
    texts = [
        part["attributes"]["description"]
        for form in forms().values()
        for part in form.get("body", ())
        if part["id"] == "versions"
    ]
    found = {re.search(r'python -c "(.*)"', text)[1] for text in texts}
    assert len(texts) == 3 and len(found) == 1
    run = [sys.executable, "-c", *found]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"^3\.\d+.* \d+\.\d+", done.stdout), done.stderr
