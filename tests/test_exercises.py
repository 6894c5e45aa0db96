"""Each exercise: not done, solved in several ways, and with mistakes.

Its check must also name every exception and every wrong type, and come to the
same verdicts in its hidden variants, which ask with other inputs.
"""

import ast
import contextlib
import copy
import dataclasses
import functools
import io
import itertools
import re
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from lessons.assignments import mistakes, sections
from lessons.judge import draws, variant, vary
from lessons.notebooks import all_notebooks
from llamalib.load import ROOT
from tests.helpers import code_cells

SOLUTIONS = ROOT / "notebooks" / "solutions"
RIGHT = ROOT / "tests" / "right"


def exercises(path):
    """Return number to (source of the stub, source of the check)."""
    found = {}
    for tags, source in code_cells(path):
        for tag in tags:
            if match := re.fullmatch(r"(exercise|check)-(\d+)", tag):
                found.setdefault(int(match[2]), {})[match[1]] = source
    return {n: (each["exercise"], each["check"]) for n, each in found.items()}


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
    for number, words, source in mistakes(path.stem)
]


UNUSUAL = [
    (path.stem, number, words, source)
    for path in WITH_EXERCISES
    for number, words, source in sections(RIGHT / f"{path.stem}.py")
]


def bound(node):
    """Yield the names that a statement binds, or a part of which it sets."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    place = node
    while isinstance(place, (ast.Attribute, ast.Subscript)):
        place = place.value
    if isinstance(getattr(node, "ctx", None), ast.Store):
        if isinstance(place, ast.Name):
            yield place.id
    if not isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp)):
        for each in ast.iter_child_nodes(node):
            yield from bound(each)


def used(node):
    """Return the names that some code reads, without a function's own."""
    if isinstance(node, ast.Name):
        return {node.id}
    names = set().union(*map(used, ast.iter_child_nodes(node)))
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        names -= {n.arg for n in ast.walk(node.args) if hasattr(n, "arg")}
        body = node.body if isinstance(node.body, list) else [node.body]
        names -= {name for each in body for name in bound(each)}
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
        names -= {n for each in node.generators for n in bound(each.target)}
    return names


def needed(path):
    """Return what the answers and checks need of a notebook's code."""
    statements, functions = [], {}
    for tags, source in code_cells(path):
        if not any(re.match("exercise-|check-|long", tag) for tag in tags):
            statements += ast.parse(source).body
    for each in statements:
        if isinstance(each, (ast.FunctionDef, ast.ClassDef)):
            functions[each.name] = each
    sources = [s for _, _, s in mistakes(path.stem)]
    for folder in (RIGHT, SOLUTIONS):
        sources += [s for *_, s in sections(folder / f"{path.stem}.py")]
    sources += [check for _, check in exercises(path).values()]
    names, before = set().union(*map(used, map(ast.parse, sources))), set()
    while names != before:  # a function may call a later one
        before = set(names)
        called = [functions[name] for name in names & set(functions)]
        names = names.union(*map(used, called))
    kept = []
    for each in reversed(statements):
        if names & {*bound(each)}:
            kept.insert(0, each)
            if isinstance(each, ast.Assign):  # earlier values are not read
                names -= {n.id for n in each.targets if hasattr(n, "id")}
            names |= used(each)
    return [ast.unparse(each) for each in kept]


@pytest.fixture(scope="module")
def namespaces():
    """Each notebook's names that its exercises need, made on demand."""
    made = {}

    def namespace(stem):
        if stem not in made:
            made[stem] = {"__name__": "__main__", "display": lambda *_: None}
            for source in needed(PATHS[stem]):
                # what needs a cell that is left out, such as a long one
                with contextlib.redirect_stdout(io.StringIO()):
                    with contextlib.suppress(Exception):
                        exec(source, made[stem])
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


@pytest.mark.parametrize("stem, number", CASES)
def test_an_exception_is_named(namespaces, stem, number):
    source = f"def {name_of(stem, number)}(*args, **options):\n"
    source += "    raise KeyError('on purpose')"
    said = answer(namespaces, stem, number, source)
    assert said.startswith(
        f"Exercise {number}: ✗ your code raises KeyError: 'on purpose'"
    ), said
    assert "judge.py" not in said and "course" not in said


WRONG_TYPES = "'abc'", "[]", "{}", "-3.5", "object()", "[None]", "(1, 'a')"


@pytest.mark.parametrize("stem, number", CASES)
def test_a_wrong_type_is_named(namespaces, stem, number):
    for value in WRONG_TYPES:
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


@pytest.mark.parametrize("stem, number", CASES)
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


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_an_unusual_right_answer_each(path):
    found = [n for n, _, _ in sections(RIGHT / f"{path.stem}.py")]
    for number in exercises(path):
        assert number in found, f"exercise {number}"


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_two_to_four_exercises_each_with_mistakes(path):
    numbers = list(exercises(path))
    assert numbers == list(range(1, len(numbers) + 1))
    assert 2 <= len(numbers) <= 4
    solved = [n for n, _, _ in sections(SOLUTIONS / f"{path.stem}.py")]
    assert solved == numbers
    wrong = [n for n, _, _ in mistakes(path.stem)]
    for number in numbers:
        assert wrong.count(number) >= 2, f"exercise {number}"


# -- hidden variants: other inputs, the same verdicts --

HIDDEN = 1, 2, 3
# checks that also count what the model runs, or what an answer keeps
COUNTED = ("05_attention", 3), ("09_generate", 2)
STEMS = [path.stem for path in WITH_EXERCISES]
WEIGHTS = [torch.arange(1.0, 7).view(s) / 3 for s in ((2, 3), (2, 3), (3, 2))]
WEIGHTS.append(WEIGHTS[1] - 1)  # of x, w1, w2, w3


@pytest.fixture(scope="module")
def judged(namespaces):
    """Return a function: the verdict on a source, in one variant."""

    def judge(stem, number, source, n, change=lambda function: function):
        names, name = namespaces(stem), name_of(stem, number)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(source, stem, "exec"), names)
            names[name] = change(names[name])
            _, check = exercises(PATHS[stem])[number]
            with variant(n):
                return eval(check.replace("(", ".verdict(", 1), names)

    return judge


# -- what a check asks, and an answer that only remembers --


def key(value, values=True):
    """Return what compares two arguments; a tensor may be its shape alone."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        value = torch.as_tensor(value).detach()
        return tuple(value.shape), str(value.tolist()) if values else ""
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.items())
    if getattr(value, "__name__", "") == "network":  # H's: what it computes
        return str(value(*WEIGHTS).tolist())
    if isinstance(value, (list, tuple, set)):
        return tuple(key(each, values) for each in value)
    plain = (str, bytes, int, float, torch.dtype, type(None))
    if isinstance(value, plain):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)


def kept(value):
    """Return a list of what an iterator gives, each with its own memory."""
    if not is_iterator(value):
        return value
    return [copy.deepcopy(each) for each in value]


def is_iterator(value):
    return isinstance(value, Iterator)


def recorder(calls):
    """Return a change of a function, which notes arguments and result."""

    def change(function):
        def run(*args):
            held = [kept(each) for each in args]
            again = [
                iter(each) if is_iterator(arg) else each
                for each, arg in zip(held, args)
            ]
            result = kept(function(*again))
            calls.append((key(held), key(held, False), result))
            return result

        return run

    return change


def table(calls):
    """Return a change of a function: it knows the recorded calls alone.

    To other arguments it gives the results in the order of the record.
    """
    known = {asked: result for asked, _, result in calls}
    in_order = itertools.cycle([result for _, _, result in calls])

    def change(function):
        def run(*args):
            other = next(in_order)
            return known.get(key([kept(each) for each in args]), other)

        return run

    return change


@pytest.fixture(scope="module")
def recorded(judged):
    """Return a function: the solution's calls in one variant."""

    @functools.cache
    def calls(stem, number, n):
        made = []
        source = solution(stem, number)
        right, words = judged(stem, number, source, n, recorder(made))
        assert right or (stem, number) in COUNTED, words
        return made

    return calls


@pytest.mark.parametrize("stem, number", CASES)
def test_a_hidden_check_asks_something_new(recorded, stem, number):
    asked = [recorded(stem, number, n) for n in (0, *HIDDEN)]
    values = [{call[0] for call in calls} for calls in asked]
    for n in HIDDEN:
        assert values[n] - values[0], f"variant {n} asks what readers see"
    shapes = {tuple(call[1] for call in calls) for calls in asked}
    assert len(shapes) >= 3, "two variants with other shapes or numbers"


@pytest.mark.parametrize("stem, number", CASES)
def test_a_table_of_answers_is_wrong(judged, recorded, stem, number):
    calls, source = recorded(stem, number, 0), solution(stem, number)
    if (stem, number) not in COUNTED:
        assert judged(stem, number, source, 0, table(calls))[0]
    for n in HIDDEN:
        right, words = judged(stem, number, source, n, table(calls))
        assert right is False, f"variant {n}: {words}"


# -- verdicts --


@pytest.mark.parametrize("n", HIDDEN)
@pytest.mark.parametrize("stem, number", CASES)
def test_stub_and_right_answers(judged, stem, number, n):
    stub, _ = exercises(PATHS[stem])[number]
    assert judged(stem, number, stub, n) == (None, "not done yet")
    sources = [solution(stem, number)]
    sources += [e[-1] for e in UNUSUAL if e[:2] == (stem, number)]
    for source in sources:
        right, words = judged(stem, number, source, n)
        assert right is True, f"{words}\n{source}"


@pytest.fixture(scope="module")
def named(judged):
    """Return a function: of each mistake, whether its words are kept."""

    @functools.cache
    def shares(stem):
        found = []
        for other, number, words, source in WRONG:
            if other != stem:
                continue
            right, plain = judged(stem, number, source, 0)
            assert right is False and words in plain, plain
            for n in HIDDEN:
                right, said = judged(stem, number, source, n)
                where = f"exercise {number}, variant {n}: {words}"
                assert right is False, f"{where}\n{source}"
                assert "NameError" not in said, f"{where}\n{said}"
                same = without_numbers(said) == without_numbers(plain)
                found.append((same, f"{stem}, {where}\n  {said}"))
        return found

    return shares


def without_numbers(words):
    return re.sub(r"[-+.\de]*\d", "#", words)


def test_most_mistakes_keep_their_words(named, record_property):
    found = [each for stem in STEMS for each in named(stem)]
    share = sum(same for same, _ in found) / len(found)
    record_property("share", share)
    others = "\n".join(said for same, said in found if not same)
    print(f"{share:.1%} of {len(found)} keep their words; not:\n{others}")
    assert share >= 0.9


def test_variants():
    def drawn():
        return torch.rand(3, generator=draws(2)).tolist()

    seen, plain = vary("a", "b", "c"), drawn()
    assert seen == "a"
    assert plain == torch.rand(3, generator=draws(2)).tolist()
    found = []
    for n in range(4):
        with variant(n):
            found.append((vary("a", "b", "c"), *drawn()))
    assert [each[0] for each in found] == ["a", "b", "c", "b"]
    assert list(found[0][1:]) == plain
    assert len({each[1:] for each in found}) == 4
    assert vary("a", "b") == "a"


# -- variants in which rounding once decided --

MIN_P = """def keep_min_p(logits, m):
    away = logits - logits.amax(-1, keepdim=True)
    return logits.masked_fill(away < math.log(m), float("-inf"))"""
COARSE = [
    ("05_attention", 3, source, n)
    for number, _, source in sections(RIGHT / "05_attention.py")
    for n in (998113, 2610115, 1642997, 2335079)
    if number == 3
]
COARSE.append(("08_sampling", 3, "import math\n" + MIN_P, 2343012))


@pytest.mark.parametrize("case", COARSE)
def test_no_rounding_decides(judged, case):
    assert judged(*case)[0]


def test_parts_of_other_shapes_are_not_added():
    """Two of them would fill the memory with their sum."""
    check = import_module("lessons.nE_tensor_parallel").check_1
    shapes = (4, 1), (1, 5), (4, 5)

    def partial_result(h, W, b, rank, n):
        return h @ W.T + b if n == 1 else torch.zeros(shapes[rank])

    right, words = check.verdict(partial_result)
    assert not right and "the sum has shape (4, 1)" in words
