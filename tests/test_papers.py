"""The papers for contributors: what they name exists, what they ask runs."""

import re

import lessons.__main__ as lessons
from llamalib.load import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
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


# -- the citation --


# -- the forms for reported errors --
