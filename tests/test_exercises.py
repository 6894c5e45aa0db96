"""Each exercise: not done, solved in several ways, and with mistakes.

A notebook whose checks are in `lessons` has one line in its check
cell. Its checks must also name every exception and every wrong type.
"""

import ast
import contextlib
import io
import re

import pytest
from matplotlib import pyplot as plt

from lessons.notebooks import all_notebooks
from llamalib.load import ROOT
from tests.helpers import code_cells, run_without_long

SOLUTIONS = ROOT / "notebooks" / "solutions"
MISTAKES = ROOT / "tests" / "mistakes"
RIGHT = ROOT / "tests" / "right"


def exercises(path):
    """Return number to (source of the stub, source of the check)."""
    found = {}
    for tags, source in code_cells(path):
        for tag in tags:
            if match := re.fullmatch(r"(exercise|check)-(\d+)", tag):
                found.setdefault(int(match[2]), {})[match[1]] = source
    return {n: (each["exercise"], each["check"]) for n, each in found.items()}


def sections(path):
    """Return [(exercise's number, words after the colon, source), …]."""
    text = path.read_text(encoding="utf-8")
    parts = re.split(r"^# %% exercise (\d+)(?:: (.*))?$", text, flags=re.M)
    return [
        (int(n), words, source)
        for n, words, source in zip(parts[1::3], parts[2::3], parts[3::3])
    ]


PATHS = {path.stem: path for path in all_notebooks()}
WITH_EXERCISES = [path for path in PATHS.values() if exercises(path)]
CASES = [
    (path.stem, number)
    for path in WITH_EXERCISES
    for number in exercises(path)
]
WRONG = [
    (path.stem, number, words, source)
    for path in WITH_EXERCISES
    for number, words, source in sections(MISTAKES / f"{path.stem}.py")
]


def in_course(path):
    """Return whether the notebook's checks are in `lessons`."""
    checks = [check for _, check in exercises(path).values()]
    return all(re.fullmatch(r"lesson\.check_\d\(.*\)", c) for c in checks)


COURSE = [path for path in WITH_EXERCISES if in_course(path)]
COURSE_CASES = [
    (path.stem, number) for path in COURSE for number in exercises(path)
]
UNUSUAL = [
    (path.stem, number, words, source)
    for path in COURSE
    for number, words, source in sections(RIGHT / f"{path.stem}.py")
]


@pytest.fixture(scope="module")
def namespaces():
    """Each notebook's names after its last cell, made on demand."""
    made = {}

    def namespace(stem):
        if stem not in made:
            path = PATHS[stem]
            names = {"__name__": "__main__", "display": lambda *_: None}
            with contextlib.redirect_stdout(io.StringIO()):
                run_without_long(path, names)
            made[stem] = names
        return dict(made[stem])

    return namespace


def answer(namespaces, stem, number, source):
    """Return what the check prints about this source in the stub's place."""
    path = PATHS[stem]
    stub, check = exercises(path)[number]
    names = namespaces(stem)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(stub if source is None else source, stem, "exec"), names)
        said.seek(0)
        said.truncate()
        exec(compile(check, stem, "exec"), names)
    plt.close("all")
    return said.getvalue().strip()


@pytest.mark.parametrize("stem, number", CASES)
def test_not_done(namespaces, stem, number):
    said = answer(namespaces, stem, number, None)
    assert said.startswith(f"Exercise {number}: not done yet"), said


@pytest.mark.parametrize("stem, number", CASES)
def test_the_solution_is_right(namespaces, stem, number):
    said = answer(namespaces, stem, number, solution(stem, number))
    assert said.startswith(f"Exercise {number}: ✓"), said


@pytest.mark.parametrize(
    "stem, number, words, source",
    WRONG,
    ids=[f"{stem}-{n}-{words[:30]}" for stem, n, words, _ in WRONG],
)
def test_a_mistake_is_named(namespaces, stem, number, words, source):
    said = answer(namespaces, stem, number, source)
    assert said.startswith(f"Exercise {number}: ✗"), said
    assert words in said, said


def solution(stem, number):
    """Return the source of the project's solution."""
    found = sections(SOLUTIONS / f"{stem}.py")
    (source,) = (source for n, _, source in found if n == number)
    return source


@pytest.mark.parametrize(
    "stem, number, words, source",
    UNUSUAL,
    ids=[f"{stem}-{n}-{words[:30]}" for stem, n, words, _ in UNUSUAL],
)
def test_an_unusual_right_answer(namespaces, stem, number, words, source):
    said = answer(namespaces, stem, number, source)
    assert said.startswith(f"Exercise {number}: ✓"), said


def name_of(stem, number):
    """Return the name of the function that the reader writes."""
    stub, _ = exercises(PATHS[stem])[number]
    body = ast.parse(stub).body
    (name,) = (n.name for n in body if isinstance(n, ast.FunctionDef))
    return name


@pytest.mark.parametrize("stem, number", COURSE_CASES)
def test_an_exception_is_named(namespaces, stem, number):
    source = f"def {name_of(stem, number)}(*args, **options):\n"
    source += "    raise KeyError('on purpose')"
    said = answer(namespaces, stem, number, source)
    assert said.startswith(
        f"Exercise {number}: ✗ your code raises KeyError: 'on purpose'"
    ), said
    assert "judge.py" not in said and "course" not in said


WRONG_TYPES = "'abc'", "[]", "{}", "-3.5", "object()", "[None]", "(1, 'a')"


@pytest.mark.parametrize("value", WRONG_TYPES)
@pytest.mark.parametrize("stem, number", COURSE_CASES)
def test_a_wrong_type_is_named(namespaces, stem, number, value):
    source = f"def {name_of(stem, number)}(*args, **options):\n"
    source += f"    return {value}"
    said = answer(namespaces, stem, number, source)
    assert said.startswith(f"Exercise {number}: ✗"), said
    assert len(said) < 500, said


SPOIL = """

def {name}(*args, _right={name}, **options):
    result = _right(*args, **options)
    for each in args:
        if hasattr(each, "add_"):
            each.detach().add_(1)
        elif isinstance(each, list):
            each.append(each[-1] if each else 0)
    return result
"""


@pytest.mark.parametrize("stem, number", COURSE_CASES)
def test_changing_an_argument_is_a_mistake(namespaces, stem, number):
    source = solution(stem, number)
    source += SPOIL.format(name=name_of(stem, number))
    said = answer(namespaces, stem, number, source)
    if "✓" in said:  # no argument can be changed
        names = namespaces(stem)
        seen = []
        spy = lambda *args, **options: seen.extend(args)  # noqa: E731
        stub, check = exercises(PATHS[stem])[number]
        with contextlib.redirect_stdout(io.StringIO()):
            exec(check, names | {name_of(stem, number): spy})
        assert not any(hasattr(a, "add_") or type(a) is list for a in seen)
    else:
        assert "your function changes its argument" in said, said


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_three_unusual_right_answers_each(path):
    found = [n for n, _, _ in sections(RIGHT / f"{path.stem}.py")]
    for number in exercises(path):
        assert found.count(number) >= 3, f"exercise {number}"


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_two_to_four_exercises_each_with_mistakes(path):
    numbers = list(exercises(path))
    assert numbers == list(range(1, len(numbers) + 1))
    assert 2 <= len(numbers) <= 4
    solved = [n for n, _, _ in sections(SOLUTIONS / f"{path.stem}.py")]
    assert solved == numbers
    wrong = [n for n, _, _ in sections(MISTAKES / f"{path.stem}.py")]
    for number in numbers:
        assert wrong.count(number) >= 2, f"exercise {number}"
