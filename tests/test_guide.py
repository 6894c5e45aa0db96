"""The teacher's guide: complete, and in agreement with the notebooks."""

import ast
import json
import re

import pytest

from lessons import counts, guide
from lessons import frame as series
from lessons.assignments import exercises
from lessons.notebooks import all_notebooks
from llamalib.load import ROOT
from tests.test_exercises import MISTAKES, sections

LESSONS = ROOT / "lessons"
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
def test_a_part_has_questions_with_answers(stem):
    text = parts()[stem]
    kinds = ["Project.", "Discuss"]
    if stem[0].isdigit():
        kinds = ["Demo.", "Discuss", "Homework."]
    assert re.findall(r"^\*\*(.+?)\*\*", text, re.M) == kinds
    asked = re.findall(r"^\d\. \*(.+?)\* (.*)", text, re.M)
    assert 3 <= len(asked) <= 5
    for question, answer in asked:
        assert re.search("[?.]$", question) and answer, question


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


def test_mistakes_are_the_tests():
    """All that have a name are told; the others are errors and shapes."""
    other = r"shape|a value is|raises|changes its|expected|the result|by zero"
    untold = []
    for stem in PATHS:
        wrong = guide.mistakes(stem)
        for n, words, _ in sections(MISTAKES / f"{stem}.py"):
            told = re.sub(r"\\(.)", r"\1", wrong[n])
            if words not in told:
                untold += [words] * (not re.search(other, words))
    assert len(untold) < 25, untold
    rotate = guide.mistakes("04_rope")[1]
    assert rotate.startswith("“your pairs are halves, not adjacent” · “")


def numbers(text):
    """Return the numbers of two digits or more, without their commas."""
    found = re.findall(r"\d[\d,.]*\d", text)
    return [number.replace(",", "") for number in found]


def test_numbers_are_the_notebooks():
    """A number of the guide is in its notebook, or is its own exercise."""
    own = {"00_initialization": "4096 32 14336 128256 8,030,261,248"}
    own["05_attention"] = "122,070"
    own["06_feed_forward"] = "3072"
    seen = 0
    for stem, text in parts().items():
        notebook = json.loads(PATHS[stem].read_text(encoding="utf-8"))
        known = own.get(stem, "")
        for cell in notebook["cells"]:
            known += "\n" + "".join(cell["source"])
            for output in cell.get("outputs", ()):
                known += "".join(output.get("text", ()))
        known = set(numbers(known.replace("{,}", ",")))
        for number in numbers(text):
            assert number in known, f"{stem}: {number}"
            seen += 1
    assert seen > 30


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


def test_the_guide_says_where_nothing_is_drawn():
    """A seed changes only what the checks draw."""
    words = r"Some checks draw nothing: (.*?) \(notebook"
    (said,) = re.findall(words, TEXT, re.S)
    whole, single = said.split("and 01.3")
    told = set(re.findall(r"\b(\w+)\.(\d)", "01.3" + single))
    names = re.findall(r"\b(\d\d|[A-H])\b", whole)
    for stem, path in PATHS.items():
        name = stem.split("_")[0]
        text = (LESSONS / f"n{stem}.py").read_text(encoding="utf-8")
        module = ast.parse(text)
        functions = [n for n in module.body if isinstance(n, ast.FunctionDef)]
        drawing = {"draws"}
        for _ in range(3):  # functions that call such functions
            drawing |= {f.name for f in functions if drawing & names_of(f)}
        for each in exercises(path):
            draws = f"check_{each.number}" in drawing
            listed = name in names or (name, str(each.number)) in told
            assert draws is not listed, (stem, each.number)


def names_of(tree):
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def test_the_guide_knows_the_commands():
    """They are the ones that the project has."""
    text = " ".join(TEXT.split())
    assert "otter grade" in text and "otter assign" in text
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)`", text):
        assert re.search(rf"^{target}:", makefile, re.M), target
