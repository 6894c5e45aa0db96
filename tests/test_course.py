"""The course: what students, teachers and otter-grader get."""

import functools
import importlib.util
import json
import re
import subprocess
import sys

import nbformat
import pytest
import yaml

from lessons.exercises import mistakes
from tests.helpers import code_cells
from tests.test_notebooks import MAIN, printed_by_cell
from tools import course as made
from tools.__main__ import main
from tools.course import exercises
from tools.notebooks import NOTEBOOKS, all_notebooks

PATHS = all_notebooks()
FOUND = {path.stem: exercises(path) for path in PATHS}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A folder with the course of all notebooks."""
    folder = tmp_path_factory.mktemp("course")
    assert main(["course", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request):
    return request.param


@functools.cache
def read(course, version, path):
    """Return a notebook of the course, if it is a valid one."""
    file = course / version / path.relative_to(NOTEBOOKS)
    notebook = nbformat.read(file, 4)
    nbformat.validate(notebook)
    return notebook


def tagged(notebook, tag):
    """Return the one cell with a tag."""
    (cell,) = (c for c in notebook.cells if tag in c.metadata.get("tags", ()))
    return cell


# -- what students get --


def test_students_get_open_exercises(course, path):
    """The stubs are unchanged, the checks have no output, nothing spoils."""
    notebook = read(course, "student", path)
    original = nbformat.read(path, 4)
    text = source_of(notebook)
    assert "solutions/" not in text and "Hint" in text
    for each in FOUND[path.stem]:
        for kind in ("exercise", "check"):
            tag = f"{kind}-{each.number}"
            cell, before = tagged(notebook, tag), tagged(original, tag)
            assert cell.source == before.source and not cell.outputs
        lines = set(each.solution.splitlines())
        lines -= set(source_of(original).splitlines())
        assert lines and not lines & set(text.splitlines())


def source_of(notebook):
    return "\n".join(cell.source for cell in notebook.cells)


def test_the_command_says_what_to_hand_out(tmp_path, capsys):
    assert main(["course", "03", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "out: hand out student/ and students.md\n" in said
    assert said.startswith("1 notebook in ")
    page = (tmp_path / "out" / "students.md").read_text("utf-8")
    assert "make lab" in page and "git clone" in page


def test_the_explanation_keeps_its_outputs(course, path):
    notebook, original = read(course, "student", path), nbformat.read(path, 4)
    before = {
        c.id: c.outputs
        for c in original.cells
        if c.cell_type == "code" and not re.search("check-", str(c.metadata))
    }
    after = {c.id: c.outputs for c in notebook.cells if c.id in before}
    assert after == before


def files_of(folder):
    return list(folder.rglob("*.ipynb"))


def links_of(file):
    """Return the files that a notebook links to."""
    cells = nbformat.read(file, 4).cells
    text = "".join(c.source for c in cells if c.cell_type == "markdown")
    found = re.findall(r'\]\(([^)\s]+)\)|href="([^"]+)"', text)
    links = {a or b for a, b in found}
    return [link for link in links if not link.startswith("http")]


def test_a_link_to_what_is_not_handed_out_is_text(course, tmp_path):
    """Every other link is to a file in the folder."""
    out = tmp_path / "out"
    assert main(["course", "03", "G_speed.ipynb", "--out", str(out)]) == 0
    few = files_of(out / "student")
    names = {file.name for file in few}
    assert names == {"index.ipynb", "03_rmsnorm.ipynb", "G_speed.ipynb"}
    every = [f for v in ("student", "teacher") for f in files_of(course / v)]
    assert len(every) == 2 * (len(PATHS) + 1)
    for file in few + every:
        for link in links_of(file):
            assert (file.parent / link).is_file(), (file.name, link)
    text = nbformat.read(out / "student" / "03_rmsnorm.ipynb", 4).cells[0]
    assert "← 02 · Embed · [Contents](index.ipynb) · 04 " in text.source


# -- points --


def test_points_are_the_announced_minutes(course):
    rows = json.loads((course / "points.json").read_text("utf-8"))
    page = (course / "students.md").read_text("utf-8")
    assert [row["notebook"] for row in rows] == [
        path.stem for path in PATHS for _ in FOUND[path.stem]
    ]
    for path in PATHS:
        header = nbformat.read(path, 4).cells[0].source
        announced = re.search(r"\*\*exercises:\*\* (\d+) minutes", header)[1]
        own = [row for row in rows if row["notebook"] == path.stem]
        assert f"| {path.stem} | {len(own)} | {announced} |" in page
        assert sum(row["points"] for row in own) == int(announced)
        assert [(row["number"], row["name"]) for row in own] == [
            (each.number, each.name) for each in FOUND[path.stem]
        ]


# -- what the teacher gets --


def test_the_teachers_checks_are_all_right(course):
    """Executed, it shows a tick for each visible and each hidden check."""
    (file,) = (course / "teacher").rglob("03_rmsnorm.ipynb")
    names, lines = MAIN.copy(), ""
    for _, source in code_cells(file):
        lines += printed_by_cell(source, names, may_fail=False)
    said = re.findall(r"^Exercise (\d+): (.)", lines, re.M)
    assert said == [(n, "✓") for n in "12" for _ in range(4)]


def test_a_hidden_check_draws_otherwise(course):
    """Its cell runs the same check in variants 1, 2 and 3."""
    (file,) = (course / "teacher").rglob("03_rmsnorm.ipynb")
    (cell,) = (c for c in nbformat.read(file, 4).cells if c.id == "check-1-1")
    seen = []

    class Lesson:
        def check_1(answer):
            from lessons.judge import VARIANT

            seen.append((answer, VARIANT.get()))

    exec(cell.source, {"lesson": Lesson, "my_layer_norm": "mine"})
    assert seen == [("mine", n) for n in (1, 2, 3)]


def test_teachers_see_every_mistake(course, path):
    text = nbformat.writes(read(course, "teacher", path))
    assert len(mistakes(path.stem)) == text.count("<tr><td>") > 0
    for each in FOUND[path.stem]:
        cell = tagged(read(course, "teacher", path), f"exercise-{each.number}")
        assert cell.source == each.solution


# -- what otter-grader gets --


def test_otters_format(course, path):
    """Raw cells nest in pairs, and their settings are YAML."""
    cells = read(course, "otter", path).cells
    raw = [cell.source for cell in cells if cell.cell_type == "raw"]
    config = yaml.safe_load(raw[0])
    assert raw[0].startswith("# ASSIGNMENT CONFIG\n")
    assert config["name"] == path.stem and not config["tests"]["ok_format"]
    marks = ["BEGIN QUESTION", "BEGIN SOLUTION", "END SOLUTION"]
    marks += ["BEGIN TESTS", "END TESTS", "END QUESTION"]
    found = [text.split("\n")[0].removeprefix("# ") for text in raw[1:]]
    assert found == marks * len(FOUND[path.stem])
    questions = [yaml.safe_load(text) for text in raw[1::6]]
    assert [(q["name"], q["points"]) for q in questions] == [
        (f"exercise_{each.number}", each.points) for each in FOUND[path.stem]
    ]


def test_otters_tests_fail_with_the_checks_words(course, path):
    """Not done; and each says what it is called with."""
    cells = read(course, "otter", path).cells
    tests = [c.source for c in cells if "\ndef test_" in "\n" + c.source]
    assert len(tests) == 2 * len(FOUND[path.stem])
    assert [t.startswith("# HIDDEN\n") for t in tests[:2]] == [False, True]
    for number, each in enumerate(FOUND[path.stem]):
        for source in tests[2 * number : 2 * number + 2]:
            names = {}
            exec(source, names)
            test = next(v for k, v in names.items() if k.startswith("test_"))
            given = test.__code__.co_varnames[: test.__code__.co_argcount]
            assert each.name in given
            stub = dict.fromkeys(given) | {each.name: lambda *_, **__: None}
            if len(given) == 1:  # the others need the notebook's model
                with pytest.raises(AssertionError, match="not done yet"):
                    test(**stub)


@pytest.mark.skipif(
    not importlib.util.find_spec("otter"),
    reason="needs otter-grader: pip install -c constraints.txt -e .[course]",
)
def test_otter_grades_the_solution_the_stub_and_a_mistake(course, tmp_path):
    from otter.api import grade_submission

    (master,) = (course / "otter").rglob("G_speed.ipynb")
    (tmp_path / master.name).write_bytes(master.read_bytes())
    command = [sys.executable, "-m", "otter", "assign", master.name, "dist"]
    subprocess.run([*command, "--no-run-tests"], cwd=tmp_path, check=True)
    folder = tmp_path / "dist"
    (tests,) = (folder / "autograder").glob("*.zip")
    solved = folder / "autograder" / master.name
    mistake = nbformat.read(solved, 4)
    words, source = mistakes("G_speed")[0][1:]
    tagged(mistake, "exercise-1").source = source
    nbformat.write(mistake, tmp_path / "mistake.ipynb")
    hand_ins = solved, folder / "student" / master.name, "mistake.ipynb"
    results = [
        grade_submission(str(tmp_path / each), str(tests), quiet=True)
        for each in hand_ins
    ]
    assert [each.total for each in results] == [35, 0, 20]
    assert words in results[2].summary()


# -- the files --


def test_an_edited_file_is_kept(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert main(["course", "03", "--out", str(out)]) == 0
    file = out / "teacher" / "03_rmsnorm.ipynb"
    other = out / "student" / "03_rmsnorm.ipynb"
    mine = file.read_text("utf-8").replace("# 03 · RMSNorm", "# Our week 3")
    file.write_text(mine, encoding="utf-8")
    (out / "own.txt").write_text("mine")
    monkeypatch.setitem(made.TEXTS, "header", "today {words}")
    assert main(["course", "03", "--out", str(out)]) == 0
    assert file.read_text("utf-8") == mine
    assert (out / "own.txt").read_text() == "mine"
    new = file.with_name("03_rmsnorm.new.ipynb")
    assert "today " in new.read_text("utf-8")
    assert "today " in other.read_text("utf-8")
    said = capsys.readouterr().out
    assert "You have changed teacher/03_rmsnorm.ipynb" in said


# -- clear errors --


def test_errors_are_one_line(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    for given, out, said in (
        ("3", tmp_path / "out", "ValueError: 3 is no notebook of the series"),
        ("03", file, "--out mine"),
        ("03", file / "inside", "--out mine"),
        ("03", made.NOTEBOOKS / "x", "in the project's notebooks: name"),
    ):
        assert main(["course", given, "--out", str(out)]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert file.read_text() == "mine" and not (tmp_path / "out").exists()
    assert not (made.NOTEBOOKS / "x").exists()
