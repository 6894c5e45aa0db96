"""An answer gets one line: right, not done, or what is wrong."""

import numpy as np
import pytest
import torch

from lessons import exercises
from lessons.judge import Wrong, agree, alike, exercise


@exercise(3)
def check(answer, n=2):
    x = torch.arange(3.0) + n
    found = answer(x, 2.0)
    mistakes = [("the factor is missing", x), ("added, not multiplied", x + 2)]
    agree(found, 2 * x, mistakes)


def verdict(capsys, answer, *given):
    check(answer, *given)
    said = capsys.readouterr().out
    assert said.startswith("Exercise 3: ") and "Traceback" not in said
    return said.removeprefix("Exercise 3: ").rstrip("\n")


def in_place(x, factor):
    x *= factor
    return x


def inner():
    return 1


def unreturned(x, factor):
    x = x * factor


def fails(x, factor):
    inner = x.no_such_thing
    return inner


@pytest.mark.parametrize(
    "answer",
    [
        lambda x, f: x * f,
        lambda x, f: [f * v for v in x],
        lambda x, f: [f * v.item() for v in x],
        lambda x, f: x.numpy() * np.float32(f),
        lambda x, f: (x * f).double(),
    ],
)
def test_any_right_answer_is_accepted(capsys, answer):
    assert verdict(capsys, answer) == "✓ right"


@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda x, f: None, "not done yet"),
        (lambda x, f: x, "✗ the factor is missing"),
        (lambda x, f: x + f, "✗ added, not multiplied"),
        (lambda x, f: x * f + 0.5, "✗ the result: a value is 0.5 off"),
        (lambda x, f: (x * f)[:2], "✗ the result has shape (2,); expected (3"),
        (lambda x, f: "abc", "✗ the result is 'abc', a str; expected numbers"),
        (lambda x, f: [[1], [2, 3]], "✗ the result is [[1], [2, 3]], a list"),
        (
            lambda x: x,
            "✗ your function takes (x), but the exercise calls it "
            "with 2 arguments",
        ),
        (lambda x, f: inner(x), "✗ your code raises TypeError: inner()"),
        (unreturned, "✗ your function returns None: is a return missing?"),
        (lambda x, f: exit(), "✗ your code raises SystemExit"),
        (in_place, "✗ your function changes its argument x; work on a copy"),
        (fails, "✗ your code raises AttributeError: 'Tensor' object has no"),
        (5, "✗ your answer is 5, an int; expected a function"),
        (None, "✗ your answer is None; expected a function"),
    ],
)
def test_each_mistake_has_a_line(capsys, answer, words):
    assert verdict(capsys, answer).startswith(words)


def test_only_the_readers_lines_are_shown(capsys):
    said = verdict(capsys, fails).splitlines()
    assert len(said) == 2 and said[1].strip().startswith("line ")
    assert said[1].endswith("inner = x.no_such_thing")


def test_none_in_a_later_call_is_a_mistake(capsys):
    @exercise(3)
    def twice(answer):
        agree(answer(1), 1)
        agree(answer(2), 2)

    twice(lambda n: 1 if n == 1 else None)
    assert "✗ it returns None here" in capsys.readouterr().out


def test_a_fault_of_the_check_is_not_the_readers(capsys):
    @exercise(3)
    def broken(answer):
        raise KeyError("a fault")

    with pytest.raises(KeyError):
        broken(lambda: 1)


@pytest.mark.parametrize(
    "found, expected, same",
    [
        (3, 3, True),
        (np.int64(3), 3, True),
        (3.00001, 3.0, True),
        (4, 3, False),
        ("3", 3, False),
        (b"abc", "abc", False),
        ([1, 2], (1, 2), True),
        (torch.tensor([1, 2]), [1, 2], True),
        (["a", 1], ["a", 2], False),
        ([["a"], ["b"]], [["a"], ["b"]], True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        (1 + 2j, 1 + 2j, True),
        (float("nan"), float("nan"), True),
        ([torch.ones(2), torch.ones(2)], torch.ones(2, 2), True),
        (torch.tensor([3.0]), 3, True),
        (np.array([[3.0]]), 3, True),
        (torch.tensor([3.0, 3.0]), 3, False),
        ([3.0], 3, False),
        (torch.tensor([3.0]), [[3.0]], False),
        (torch.ones(2, requires_grad=True), torch.ones(2), True),
    ],
)
def test_values_agree_whatever_their_type(found, expected, same):
    if same:
        agree(found, expected)
    else:
        with pytest.raises(Wrong):
            agree(found, expected)


# -- with the project's solution and its known mistakes --

SOLUTION = """import math

def double(x):
    return 2 * x

# %% exercise 1
def moved(x, n):
    return double(x) + n  # along x
"""


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Return a function: the verdict of `alike` on an answer.

    Its rows are those of mistakes.toml, for the solution above.
    """
    stem = tmp_path.name  # for each test another
    (tmp_path / f"{stem}.py").write_text(SOLUTION)
    monkeypatch.setattr(exercises, "SOLUTIONS", tmp_path)

    def verdict(answer, rows, cases=((1, 2), (3, 4)), **options):
        monkeypatch.setitem(exercises.MISTAKES, stem, {"1": rows})
        exercises.versions.cache_clear()

        @exercise(1)
        def check(answer):
            alike(answer, stem, 1, cases, **options)

        return check.verdict(answer)

    return verdict


PLAIN = ["double(x)", "x", "x is not doubled"]
MINUS = ["+ n", "- n", "n has the other sign"]
TIMES = ["+ n", "* n", "n is a factor"]


def test_the_mistake_that_agrees_is_named(judged):
    rows = [PLAIN, MINUS]
    assert judged(lambda x, n: x + x + n, rows) == (True, "right")
    assert judged(lambda x, n: x + n, rows) == (False, "x is not doubled")
    assert judged(lambda x, n: 2 * x - n, rows)[1] == "n has the other sign"
    said = "the result is 5; expected another number"
    assert judged(lambda x, n: 2 * x + n + 1, rows) == (False, said)


def test_it_must_agree_on_every_case(judged):
    """The mistake is named only if it explains all results."""
    words = "n is a factor"
    assert judged(lambda x, n: 2 * x * n, [TIMES]) == (False, words)
    mixed = {(1, 2): 4, (3, 4): 24, (5, 6): 16}  # the last is right
    cases = {f"case {x}": (x, n) for x, n in mixed}
    said = judged(lambda *case: mixed[case], [TIMES], cases)[1]
    assert said == "case 3 is 24; expected another number"


def test_the_tolerance_is_of_solution_and_mistakes(judged):
    def near(x, n):
        return (2 * x + n) * 1.01

    def near_plain(x, n):
        return (x + n) * 1.01

    for rough, words in (0.1, "x is not doubled"), (1e-3, "the result is 3.0"):
        right, _ = judged(near, [PLAIN], tolerance=rough)
        assert right == (rough == 0.1)
        said = judged(near_plain, [PLAIN], tolerance=rough)[1]
        assert said.startswith(words)


def test_a_readers_own_function_does_not_help_her(judged):
    """Her text is the solution's, but her `double` does nothing."""
    names = {"double": lambda x: x}
    exec(SOLUTION[SOLUTION.index("def moved") :], names)
    assert judged(names["moved"], [PLAIN]) == (False, "x is not doubled")


def test_a_mistake_that_raises_is_not_the_readers(judged):
    """Not even if it raises in a later call alone."""
    fails = ["double(x) + n", "no_such_name", "a name is unknown"]
    later = ["+ n", "+ n - 1 + 0 // (3 - x)", "fails for x = 3"]
    said = judged(lambda x, n: x + n, [fails, later, PLAIN])[1]
    assert said == "x is not doubled"
    said = judged(lambda x, n: 2 * x + n - 1, [fails, later])[1]
    assert said == "the result is 3; expected another number"


def test_an_exception_is_named_after_right_results_only(judged):
    """Before it, the wrong results name the mistake."""
    wrong = judged(lambda x, n: x + n + 0 // (3 - x), [PLAIN])
    assert wrong == (False, "x is not doubled")
    same = ["# along x", "if x < 3 else 0", "0 for a large x"]
    said = judged(lambda x, n: 2 * x + n + 0 // (3 - x), [same])[1]
    assert said.startswith("your code raises ZeroDivisionError")


def test_of_two_mistakes_that_agree_the_first_is_named(judged):
    """test_exercises finds such a pair: one of them is never named."""
    twin = ["+ n", "+ -n", "the twin"]
    for rows in [twin, MINUS], [MINUS, twin]:
        said = judged(lambda x, n: 2 * x - n, rows)[1]
        assert said == rows[0][-1]


def test_a_solution_cannot_change_what_the_answer_gets(judged):
    x = torch.ones(2)
    spoils = ["double(x)", "x.zero_()", "x is 0"]
    assert judged(lambda x, n: x - n, [spoils, PLAIN], [(x, 1)])[0] is False
    assert x.tolist() == [1, 1]


def test_an_unknown_exercise_is_named(judged, tmp_path):
    with pytest.raises(ValueError, match="has no line `# %% exercise 7`"):
        exercises.versions(tmp_path.name, 7)
