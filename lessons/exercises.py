"""Solutions to the exercises and known mistakes: their sources and functions.

A file in `notebooks/solutions` begins with what its solutions need. There
they run, and never among the reader's own names: she may have redefined one.
"""

import functools
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from llamalib.load import ROOT

SOLUTIONS = ROOT / "notebooks" / "solutions"
MISTAKES = tomllib.loads(
    Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8")
)
SECTION = re.compile(r"^# %% exercise (\d+)(?:: (.*))?$", re.M)


def sections(file: Path) -> list[tuple[int, str, str]]:
    """Return (exercise, words after the colon, source) of each section."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    parts = SECTION.split(text)
    sources = map(str.strip, parts[3::3])
    return list(zip(map(int, parts[1::3]), parts[2::3], sources, strict=True))


def mistakes(stem: str) -> list[tuple[int, str, str]]:
    """Return (exercise, words of the check, source) of the known mistakes.

    Each is the solution with one text replaced, as mistakes.toml has it.
    ValueError: for a text that is not in the solution exactly once.
    """
    solutions = {n: s for n, _, s in sections(SOLUTIONS / f"{stem}.py")}
    found = []
    for number, replaced in MISTAKES.get(stem, {}).items():
        solution = solutions[int(number)]
        for old, new, words in replaced:
            if solution.count(old) != 1:
                where = f"exercise {number} of {stem}"
                raise ValueError(f"{old!r} is not once in {where}")
            source = solution.replace(old, new)
            found.append((int(number), words, source))
    return found


@functools.cache
def versions(
    stem: str, number: int
) -> tuple[Callable, list[tuple[str, Callable]]]:
    """Return an exercise's solution, and (words, function) of its mistakes.

    ValueError: for an exercise that has no solution.
    """
    file = SOLUTIONS / f"{stem}.py"
    solved = [s for n, _, s in sections(file) if n == number]
    if not solved:
        raise ValueError(f"{file} has no line `# %% exercise {number}`")
    known = [(words, s) for n, words, s in mistakes(stem) if n == number]
    wrong = [(words, function_in(source, file)) for words, source in known]
    return function_in(solved[0], file), wrong


def function_in(source: str, file: Path) -> Callable:
    """Return the function that a section defines, with the head's names."""
    names = dict(head(file))
    exec(compile(source, f"<a section of {file.name}>", "exec"), names)
    return names[re.search(r"^def (\w+)", source, re.M)[1]]


@functools.cache
def head(file: Path) -> dict:
    """Return the names that a file defines before its first section."""
    names = {"__name__": file.stem}
    source = SECTION.split(file.read_text(encoding="utf-8"))[0]
    exec(compile(source, str(file), "exec"), names)
    return names
