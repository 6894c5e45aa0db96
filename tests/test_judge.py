"""An answer gets one line: right, not done, or what is wrong."""

import numpy as np
import pytest
import torch

from lessons.judge import Wrong, agree, exercise


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
        (torch.ones(2, requires_grad=True), torch.ones(2), True),
    ],
)
def test_values_agree_whatever_their_type(found, expected, same):
    if same:
        agree(found, expected)
    else:
        with pytest.raises(Wrong):
            agree(found, expected)
