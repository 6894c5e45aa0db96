r"""Judge a reader's answer to an exercise, in one line and never a traceback.

A check calls the answer and raises `Wrong` with the mistake's name. `alike`
takes the names from mistakes.toml, and the results from the solution:

    @exercise(1)
    def check_1(answer):
        alike(answer, "07_lm_head", 1, [(z,), (z[0],)])

`agree` compares one result, where a check must call the answer itself:

    agree(answer(2), 4, [("you doubled it twice", 8)])
"""

import contextlib
import copy
import functools
import inspect
import linecache
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial

import numpy as np
import torch
from torch import Tensor

from llamalib.load import ROOT

from .exercises import versions

LIBRARIES = "site-packages", "dist-packages", "<frozen"
LIBRARIES += str(ROOT / "llamalib"), str(ROOT / "lessons")
VARIANT = ContextVar("variant", default=0)  # which checks: 0, the visible


@contextlib.contextmanager
def variant(n: int) -> Iterator[None]:
    """Give the checks other seeds and shapes; 0: those that readers see."""
    token = VARIANT.set(n)
    try:
        yield
    finally:
        VARIANT.reset(token)


def draws(seed: int = 0) -> torch.Generator:
    """Return a generator of random numbers, with this variant's seed."""
    return torch.Generator().manual_seed(seed + 1000 * VARIANT.get())


def vary(first, *others):
    """Return the first value, or in a hidden check one of the others."""
    n = VARIANT.get()
    return others[(n - 1) % len(others)] if n else first


class Wrong(Exception):
    """A named mistake in an answer."""


class NotDone(Exception):
    """The answer is still the empty stub."""


def exercise(number: int, expects: str = "what the exercise asks for"):
    r"""Return a decorator of checks: print one line instead of raising.

    The check is called with the reader's function and what else the notebook
    hands over. It raises `Wrong`, or returns; a text that it returns is
    printed after the tick. `expects` says what the answer should return, for
    a result of which the check can make nothing. `check.verdict`, called in
    the same way, returns (True, False or None for an empty stub; the words).
    """

    def decorate(check: Callable) -> Callable:
        def verdict(answer, *given) -> tuple[bool | None, str]:
            guarded = Guarded(answer)
            try:
                return True, check(guarded, *given) or "right"
            except NotDone:
                return None, "not done yet"
            except Wrong as mistake:
                return False, str(mistake)
            except Exception:
                if not guarded.called:  # a fault of the check
                    raise
                found = describe(guarded.last)
                return False, f"the result is {found}; expected {expects}"

        @functools.wraps(check)
        def run(answer, *given) -> None:
            right, words = verdict(answer, *given)
            sign = {True: "✓ ", False: "✗ ", None: ""}[right]
            print(f"Exercise {number}: {sign}{words}")

        run.verdict = verdict
        return run

    return decorate


class Guarded:
    """A reader's function: its arguments are copies, its errors are named.

    Attributes:
        last: the last result.
        called: whether it has returned.
    """

    def __init__(self, function: Callable):
        self.function, self.last, self.called = function, None, False

    def __call__(self, *args, **kwargs):
        """Return the result; raise NotDone or Wrong."""
        if not callable(self.function):
            found = describe(self.function)
            raise Wrong(f"your answer is {found}; expected a function")
        given, options = copies(args), copies(kwargs)
        self.require_arguments(given, options)
        try:
            self.last = self.function(*given, **options)
        except (Exception, SystemExit) as error:
            raise Wrong(f"your code raises {explain(error)}") from None
        if self.last is None:
            if self.called:
                raise Wrong("it returns None here")
            if is_stub(self.function):
                raise NotDone
            raise Wrong("your function returns None: is a return missing?")
        self.called = True
        # a function may have more arguments, with default values
        triples = zip(self.names(args), args, given, strict=False)
        for name, before, after in triples:
            if not is_same(before, after):
                words = f"your function changes its argument {name}"
                raise Wrong(f"{words}; work on a copy")
        return self.last

    def require_arguments(self, args, kwargs) -> None:
        """Raise Wrong unless the function takes these arguments."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # of a function written in C
            return
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            n = len(args) + len(kwargs)
            noun = "argument" if n == 1 else "arguments"
            raise Wrong(
                f"your function takes {signature}, but the exercise calls it "
                f"with {n} {noun}"
            ) from None

    def names(self, args) -> list[str]:
        """Return the names of the positional arguments."""
        try:
            names = list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):
            names = []
        return [*names, *map(str, range(len(names) + 1, len(args) + 1))]


def is_stub(function) -> bool:
    """Return whether a function does nothing, as `...` does."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    least = len((lambda: None).__code__.co_code)
    return code is None or len(code.co_code) <= least


def copies(value):
    """Return a value with copies of its tensors, arrays and lists."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(copies(each) for each in value)
    if isinstance(value, dict):
        return {key: copies(each) for key, each in value.items()}
    return copy.deepcopy(value) if isinstance(value, np.ndarray) else value


def is_same(before, after) -> bool:
    """Return whether an argument still has its value."""
    if isinstance(before, Tensor):
        same_shape = before.shape == after.shape
        return same_shape and torch.equal(before.detach(), after.detach())
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after)
    if isinstance(before, dict):
        before, after = list(before.items()), list(after.items())
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(map(is_same, before, after))
    return before is after or bool(before == after)


def explain(error: Exception) -> str:
    """Return an error's text and the reader's own lines that led to it."""
    if hasattr(error, "explained"):  # in another process, where it happened
        return error.explained
    first = (str(error).strip().splitlines() or [""])[0]
    words = f"{type(error).__name__}: {first[:200]}".rstrip(": ")
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        if not any(part in frame.filename for part in LIBRARIES):
            line = linecache.getline(frame.filename, frame.lineno).strip()
            lines.append(f"\n    line {frame.lineno}: {line}".rstrip(": "))
    return words + "".join(lines[-3:])


def describe(value) -> str:
    """Return a short name of a value: "a tensor (2, 3)", "'abc', a str"."""
    if isinstance(value, (Tensor, np.ndarray)):
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} {tuple(value.shape)} of {value.dtype}"
    text, kind = repr(value), type(value).__name__
    if value is None:
        return text
    article = "an" if kind[0] in "aeiou" else "a"
    return f"{text if len(text) < 60 else text[:57] + '…'}, {article} {kind}"


def agree(
    found,
    expected,
    mistakes: Iterable[tuple] = (),
    tolerance: float = 1e-4,
    what: str = "the result",
) -> None:
    r"""Raise Wrong unless a result is the expected one.

    A tensor may also be an array, a list of numbers, or have another dtype; a
    number may also be a tensor with one element; a list may be a tuple.

    mistakes: pairs of words and the result that this mistake gives. The first
    that agrees names the mistake.
    tolerance: relative, and a tenth of it absolute, for numbers with a point.
    """
    if close(found, expected, tolerance):
        return
    for words, result in mistakes:
        if close(found, result, tolerance):
            raise Wrong(words)
    raise Wrong(difference(found, expected, what))


def alike(
    answer: Guarded,
    stem: str,
    number: int,
    cases: Iterable[tuple] | dict[str, tuple],
    tolerance: float = 1e-4,
    observe: Callable = lambda function, *case: function(*case),
) -> None:
    r"""Raise Wrong unless an answer agrees with the project's solution.

    The first row of mistakes.toml that agrees with the answer on every case
    names the mistake. If none does, the first wrong result is described.

    stem: of the notebook, as in "04_rope".  number: of the exercise.
    cases: the arguments of each call; in a dict, by what the result is called.
    tolerance: as in `agree`.
    observe: called with a function and a case, returns what is compared: the
    function's result, or what it left behind.
    """
    if isinstance(cases, dict):
        pairs = cases.items()
    else:
        pairs = [("the result", case) for case in cases]
    solution, mistakes = versions(stem, number)
    answered, wrong = [], None
    for what, case in pairs:
        try:
            found = observe(answer, *case)
        except Wrong:
            if wrong is None:
                raise
            break  # the calls before this one name the mistake
        answered.append((case, found))
        try:
            expected = observe(solution, *copies(case))
            agree(found, expected, (), tolerance, what)
        except Wrong as difference:
            wrong = wrong or difference
    if wrong is None:
        return
    for words, mistake in mistakes:
        if gives(partial(observe, mistake), answered, tolerance):
            raise Wrong(words)
    raise wrong


def gives(function: Callable, answered: list, tolerance: float) -> bool:
    """Return whether a function gives these results, (arguments, result)."""
    try:
        return all(
            close(found, function(*copies(case)), tolerance)
            for case, found in answered
        )
    except Exception:  # a mistake may be unable to take some arguments
        return False


def compare(answer, cases, right, mistakes, tolerance=1e-4):
    """Call the answer on each case; name the mistake of the first wrong."""
    for case in cases:
        named = [(words, wrong(*case)) for words, wrong in mistakes.items()]
        agree(answer(*case), right(*case), named, tolerance)


def close(found, expected, tolerance: float) -> bool:
    """Return whether two values agree, of whatever types they are."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(close(found[k], expected[k], tolerance) for k in expected)
        )
    if isinstance(expected, (str, bytes)) or expected is None:
        return type(found) is type(expected) and found == expected
    if isinstance(expected, (list, tuple)) and not is_numbers(expected):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return False
        pairs = zip(found, expected, strict=True)
        return all(close(*pair, tolerance) for pair in pairs)
    a, b = as_tensor(found), as_tensor(expected)
    if a is None or b is None:
        return False
    if isinstance(found, (Tensor, np.ndarray)) and b.dim() == 0:
        a = a.squeeze()  # one element is a number
    if a.shape != b.shape:
        return False
    limits = dict(rtol=tolerance, atol=tolerance / 10, equal_nan=True)
    return torch.allclose(a, b, **limits)


def is_numbers(value) -> bool:
    """Return whether a list holds numbers, or lists of them."""
    return as_tensor(value) is not None


def as_tensor(value) -> Tensor | None:
    """Return numbers as a float64 tensor (complex128 if complex), or None."""
    if isinstance(value, (str, bytes, dict)) or value is None:
        return None
    try:
        if isinstance(value, (list, tuple)) and any(
            isinstance(each, (Tensor, np.ndarray)) for each in value
        ):
            value = torch.stack([torch.as_tensor(each) for each in value])
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
    return tensor.to(
        torch.complex128 if tensor.is_complex() else torch.float64
    )


def difference(found, expected, what: str) -> str:
    """Return in what two values differ, in words."""
    a, b = as_tensor(found), as_tensor(expected)
    if b is None or b.dim() == 0:
        if a is not None and b is not None and a.dim() == 0:
            return f"{what} is {found}; expected another number"
        return f"{what} is {describe(found)}; expected {kind(expected)}"
    shape = tuple(b.shape)
    if a is None:
        return f"{what} is {describe(found)}; expected numbers {shape}"
    if a.shape != b.shape:
        return f"{what} has shape {tuple(a.shape)}; expected {shape}"
    for name, (here, there) in {
        "nan": (a.isnan(), b.isnan()),
        "-inf": (a == -torch.inf, b == -torch.inf),
        "inf": (a == torch.inf, b == torch.inf),
    }.items():
        if not torch.equal(here, there):
            n, m = int(here.sum()), int(there.sum())
            right = f"expected {m}" if n != m else "expected other places"
            return f"{what} is {name} at {n} places; {right}"
    finite = b.isfinite()
    return f"{what}: a value is {(a - b)[finite].abs().max():.3g} off"


def kind(value) -> str:
    """Return what sort of value is expected: "a dict of 3"."""
    if isinstance(value, (list, tuple, dict)):
        return f"another {type(value).__name__} of {len(value)}"
    if isinstance(value, (str, bytes)):
        return f"another {type(value).__name__}"
    return "a number"
