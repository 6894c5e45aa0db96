"""The teacher's guide: complete, and in agreement with the notebooks."""

import json
import re

import pytest

from lessons.exercises import mistakes
from tools import counts, guide
from tools import frame as series
from tools.course import exercises
from tools.notebooks import all_notebooks

PATHS = {path.stem: path for path in all_notebooks()}


def test_every_notebook_has_its_part_in_order():
    found = re.findall(r"^\{(\w+)\}$", guide.PAGE.read_text("utf-8"), re.M)
    lines = [name for name in found if name != "plan"]
    assert lines == list(PATHS), "site/guide.md has a line {stem} for each"
    whole = guide.guide_page()
    weeks = re.findall(r"^### Week (\d+): (.*)$", whole, re.M)
    main = [each.label for each in series.SERIES if each.step]
    assert weeks == [(str(n), each) for n, each in enumerate(main, 1)]


@pytest.mark.parametrize("stem", PATHS)
def test_what_is_derived_is_todays(stem):
    found, plan = guide.facts(stem), guide.plan()
    times = counts.reading(json.loads(PATHS[stem].read_text("utf-8")))
    assert f" {times.minutes} minutes of reading" in found
    assert f" {times.practice} minutes of exercises" in found
    points = re.findall(r"^- Exercise .* \((\d+) points\): “", found, re.M)
    assert sum(map(int, points)) == times.practice
    row = f"{stem}.ipynb) | {times.minutes} min | {times.practice} min |"
    assert (row in plan) == stem[0].isdigit()
    wrong = guide.mistakes(stem)
    for n, words, _ in mistakes(stem):
        assert words in re.sub(r"\\(.)", r"\1", wrong[n])


def test_the_exercises_that_it_names_exist():
    """As 02.1: a notebook and an exercise."""
    known = {
        f"{stem.split('_')[0]}.{each.number}"
        for stem, path in PATHS.items()
        for each in exercises(path)
    }
    text = guide.PAGE.read_text("utf-8")
    named = set(re.findall(r"\b((?:0\d|[A-H])\.\d)\b", text))
    assert len(named) > 10 and named <= known


def test_an_unknown_name_is_refused(tmp_path, monkeypatch):
    page = tmp_path / "guide.md"
    page.write_text("# Guide\n\n{03_norm}\n", encoding="utf-8")
    monkeypatch.setattr(guide, "PAGE", page)
    with pytest.raises(ValueError, match="has {03_norm}; expected one of"):
        guide.guide_page()
