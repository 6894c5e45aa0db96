"""Each exercise: not done, solved in several ways, and with mistakes.

Its check comes to the same verdict in its hidden variants, which ask with
other inputs. It also names every exception and every wrong type.
"""

import ast
import contextlib
import functools
import importlib
import io
import re
from pathlib import Path

import pytest
import torch
from matplotlib import pyplot as plt

from lessons.exercises import SOLUTIONS, mistakes, sections
from lessons.judge import variant
from llamalib.load import ROOT, load
from tests.helpers import code_cells
from tools.course import exercises
from tools.notebooks import all_notebooks

VARIANTS = range(4)  # 0 is what readers see, the others are hidden
PATHS = {path.stem: path for path in all_notebooks()}
FOUND = {
    (stem, each.number): each
    for stem, path in PATHS.items()
    for each in exercises(path)
}
SOLVED = [(*key, "the solution", x.solution) for key, x in FOUND.items()]
UNUSUAL = [
    (stem, *section)
    for stem in PATHS
    for section in sections(ROOT / "tests" / "right" / f"{stem}.py")
]
WRONG = [(stem, *each) for stem in PATHS for each in mistakes(stem)]
LESSONS = {s: importlib.import_module(f"lessons.n{s}") for s in PATHS}
ALIKE = [stem for stem, lesson in LESSONS.items() if hasattr(lesson, "alike")]
# Their checks run a model hundreds of times: half the layers, half the time.
DRAFT = "07_lm_head", "09_generate", "F_heads"
each_exercise = pytest.mark.parametrize("stem, number", FOUND)


def each_answer(answers):
    """Parametrize by answers: notebook, exercise, words, source."""
    ids = [f"{stem}-{n}-{words[:30]}" for stem, n, words, _ in answers]
    return pytest.mark.parametrize(
        "stem, number, words, source", answers, ids=ids
    )


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
    is_stored = isinstance(getattr(node, "ctx", None), ast.Store)
    if is_stored and isinstance(place, ast.Name):
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
    answers = (*SOLVED, *UNUSUAL, *WRONG)
    sources = [a[-1] for a in answers if a[0] == path.stem]
    sources += [x.check for (stem, _), x in FOUND.items() if stem == path.stem]
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


@functools.cache
def namespace(stem):
    """Return the names of a notebook that its exercises need."""
    names = {"__name__": "__main__", "display": lambda *_: None}
    for source in needed(PATHS[stem]):
        # what needs a cell that is left out, such as a long one
        unseen = contextlib.redirect_stdout(io.StringIO())
        with unseen, contextlib.suppress(Exception):
            exec(source, names)
    if stem in DRAFT:
        how = dict(device="cpu", dtype=torch.float32)
        names["llama"] = load(ROOT / "data" / "pocket-draft", **how)
    return names


def judged(stem, number, source, n=0, change=lambda function: function):
    """Return the verdict on a source, in one variant: a bool, and words."""
    names, each = dict(namespace(stem)), FOUND[stem, number]
    with contextlib.redirect_stdout(io.StringIO()), variant(n):
        exec(compile(source, stem, "exec"), names)
        names[each.name] = change(names[each.name])
        verdict = eval(each.check.replace("(", ".verdict(", 1), names)
    plt.close("all")
    return verdict


def test_every_exercise_is_covered():
    """It has a right answer of another kind, and two mistakes or more."""
    for key in FOUND:
        said = f"tests/right/{key[0]}.py has no `# %% exercise {key[1]}: …`"
        assert [each[:2] for each in UNUSUAL].count(key) >= 1, said
        assert [each[:2] for each in WRONG].count(key) >= 2, key


@each_exercise
def test_not_done(stem, number, capsys):
    """As the notebook's own cell prints it; in a hidden check, too."""
    names, each = dict(namespace(stem)), FOUND[stem, number]
    exec(each.stub, names)
    exec(each.check, names)
    said = capsys.readouterr().out
    assert said.startswith(f"Exercise {number}: not done yet"), said
    for n in VARIANTS:
        assert judged(stem, number, each.stub, n) == (None, "not done yet")


@each_answer(SOLVED + UNUSUAL)
def test_a_right_answer(stem, number, words, source):
    for n in VARIANTS:
        right, said = judged(stem, number, source, n)
        assert right is True, f"variant {n}: {said}"


@each_answer(WRONG)
def test_a_mistake_is_named(stem, number, words, source):
    """By `alike` in its own words, which no earlier one has taken.

    By another check it may have other words in a hidden variant.
    """
    for n in VARIANTS:
        right, said = judged(stem, number, source, n)
        assert right is False and "NameError" not in said, f"{n}: {said}"
        if stem in ALIKE:
            why = f"variant {n}: {words!r} gives {said!r}; merge two rows, or "
            assert said == words, why + "add a case that tells them apart"
        assert n or words in said, said


def written(stem, number, statement):
    """Return the source of an answer of one statement."""
    name = FOUND[stem, number].name
    return f"def {name}(*args, **options):\n    {statement}"


@each_exercise
def test_an_exception_is_named(stem, number):
    source = written(stem, number, "raise KeyError('on purpose')")
    right, said = judged(stem, number, source)
    assert right is False
    assert said.startswith("your code raises KeyError: 'on purpose'"), said
    assert "judge.py" not in said


WRONG_TYPES = "'abc'", "[]", "{}", "-3.5", "object()", "[None]", "(1, 'a')"


@each_exercise
def test_a_wrong_type_is_named(stem, number):
    for value in WRONG_TYPES:
        source = written(stem, number, f"return {value}")
        right, said = judged(stem, number, source)
        assert right is False and len(said) < 500, said


@each_exercise
def test_changing_an_argument_is_a_mistake(stem, number):
    changed = []

    def spoil(function):
        @functools.wraps(function)
        def run(*args):
            result = function(*args)
            for each in args:
                if hasattr(each, "add_"):
                    changed.append(each.detach().add_(1))
                elif isinstance(each, list):
                    changed.append(each.append(each[-1] if each else 0))
            return result

        return run

    source = FOUND[stem, number].solution
    right, said = judged(stem, number, source, change=spoil)
    assert right is not bool(changed)
    assert right or "your function changes its argument" in said, said


@each_exercise
def test_a_hidden_check_asks_something_new(stem, number):
    """An answer that remembers the visible results is wrong there."""
    asked = []

    def noted(function):
        def run(*args):
            asked[-1].append(repr(args))
            return function(*args)

        return run

    for n in VARIANTS:
        asked.append([])
        judged(stem, number, FOUND[stem, number].solution, n, noted)
        assert n == 0 or set(asked[n]) - set(asked[0])


# -- the checks that take their words from mistakes.toml, by `alike` --


@pytest.mark.parametrize("stem", ALIKE)
def test_a_mistake_is_written_once(stem):
    tree = ast.parse(Path(LESSONS[stem].__file__).read_text("utf-8"))
    constants = {
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)
    }
    texts = [text for text in constants if isinstance(text, str)]
    for _, words, _ in mistakes(stem):
        assert not [text for text in texts if words in text]


@pytest.mark.parametrize("stem", ALIKE)
def test_solutions_use_the_notebooks_own_functions(stem):
    """A copy of one, at the head of the solutions, is a true copy."""
    text = (SOLUTIONS / f"{stem}.py").read_text("utf-8").split("# %% ")[0]
    cells = [ast.parse(source) for _, source in code_cells(PATHS[stem])]
    taught = {ast.unparse(each) for cell in cells for each in cell.body}
    for each in ast.parse(text).body:
        if not isinstance(each, ast.Expr):  # its docstring
            assert ast.unparse(each) in taught


def test_a_readers_own_rope_matrix_does_not_help_her():
    key, names = ("04_rope", 2), dict(namespace("04_rope"))
    names["rope_matrix"] = lambda m, freqs: torch.eye(2 * len(freqs))
    exec(FOUND[key].solution, names)
    answer = names[FOUND[key].name]
    right, said = LESSONS["04_rope"].check_2.verdict(answer)
    assert right is False and said.startswith(
        "this is the score at distance 0"
    )


@pytest.mark.parametrize(
    "kept",
    [
        "[(k.clone(), v.clone()) for k, v in pieces]",
        "[[*map(torch.tensor, each)] for each in "
        "[(k.tolist(), v.tolist()) for k, v in pieces]]",
    ],
)
def test_keeping_all_pieces_is_a_mistake(kept):
    """Its results are right: only its memory shows it."""
    key = "05_attention", 3
    source = FOUND[key].solution.replace("in pieces:", f"in {kept}:")
    right, said = judged(*key, source)
    assert right is False and said.startswith("you keep something")
