"""The teacher's guide: complete, and in agreement with the notebooks."""

import json
import re

import pytest

from lessons import counts, guide
from lessons import frame as series
from lessons.assignments import mistakes
from lessons.notebooks import all_notebooks
from llamalib.load import ROOT

PATHS = {path.stem: path for path in all_notebooks()}
TEXT = guide.PAGE.read_text(encoding="utf-8")
WHOLE = guide.guide_page()


def parts():
    """Return what is written for each notebook, without what is derived."""
    found = re.split(r"^\{(\w+)\}$", TEXT, flags=re.M)
    found = dict(zip(found[1::2], found[2::2]))
    return {name: text for name, text in found.items() if name != "plan"}


def test_every_notebook_has_its_part_in_order():
    assert list(parts()) == list(PATHS)
    weeks = re.findall(r"^### Week (\d+): (.*)$", WHOLE, re.M)
    main = [each.label for each in series.SERIES if each.step]
    assert weeks == [(str(n), each) for n, each in enumerate(main, 1)]
    assert len(weeks) == 10 and not re.search(r"^\{", WHOLE, re.M)


@pytest.mark.parametrize("stem", PATHS)
def test_what_is_derived_is_todays(stem):
    found = guide.facts(stem)
    path = PATHS[stem]
    times = counts.reading(json.loads(path.read_text(encoding="utf-8")))
    assert f" {times.minutes} minutes of reading" in found
    assert f" {times.practice} minutes of exercises" in found
    line = r"^- Exercise \d+, `\w+` \((\d+) points\): “"
    points = re.findall(line, found, re.M)
    assert sum(map(int, points)) == times.practice
    if stem[0].isdigit():
        row = f"({guide.LINK.format(guide.TITLES[stem]).split('(')[1]} | "
        assert f"{row}{times.minutes} min | {times.practice} min |" in WHOLE


def test_mistakes_are_those_of_the_checks():
    for stem in PATHS:
        wrong = guide.mistakes(stem)
        for n, words, _ in mistakes(stem):
            assert words in re.sub(r"\\(.)", r"\1", wrong[n])
    rotate = guide.mistakes("04_rope")[1]
    assert rotate.startswith("“clockwise: a sign” · “row t is at positions")


def test_links_lead_to_files():
    links = re.findall(r"\]\((?!https:)([^)#]+)", WHOLE)
    assert len(links) >= 28
    for link in links:
        assert (guide.PAGE.parent / link).resolve().is_file(), link


def test_an_unknown_name_is_refused(tmp_path, monkeypatch):
    page = tmp_path / "guide.md"
    page.write_text("# Guide\n\n{03_norm}\n", encoding="utf-8")
    monkeypatch.setattr(guide, "PAGE", page)
    with pytest.raises(
        ValueError, match="has {03_norm}; expected one of plan"
    ):
        guide.guide_page()


def test_the_guide_knows_the_commands():
    """They are the ones that the project has."""
    text = " ".join(TEXT.split())
    assert "otter grade" in text and "otter assign" in text
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)`", text):
        assert re.search(rf"^{target}:", makefile, re.M), target
