r"""A course from the notebooks: for students, the teacher and otter-grader.

`make course` writes into build/course, in the folders of `notebooks`:

    students.md  how to install the project, and how to hand in
    student/     exercises open, no solution, the checks that readers see
    teacher/     solutions, hidden checks, and what students get wrong
    otter/       what `otter assign` of otter-grader 7 reads
    points.json  notebook, number, function and points of each exercise

A hidden check is the visible one with other seeds and shapes. A point is a
minute that the exercise announces. An edited file stays: its new version is
written next to it, as NAME.new.ipynb. otter-grader marks what comes back.
"""

import ast
import html
import json
import re
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from posixpath import dirname, join, normpath
from tempfile import TemporaryDirectory

from nbformat import v4, writes

from lessons.exercises import SOLUTIONS, mistakes, sections

from . import frame as series
from .counts import reading
from .lab import update_copy
from .notebooks import NOTEBOOKS, all_notebooks, read_notebook, write
from .rooms import address

WORDS = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
TEXTS = tomllib.loads(WORDS)
TAG = re.compile(r"(exercise|check)-(\d+)")
TEXT = re.compile(r"\*\*Exercise (\d+)\*\* \((\d+) min")
SOLUTION = re.compile(r"\n*The solution is in \[`.*\)\.")
LINK = re.compile(
    r"\[(?P<text>[^]]*)\]\((?P<to>[\w./]+\.ipynb)\)"
    r'|<a href="(?P<file>\w+\.ipynb)">(?P<words>[^<]*)</a>'
)


@dataclass(frozen=True)
class Exercise:
    """One exercise: its minutes, and the sources of its cells.

    Attributes:
        name: of the function that a student writes.
        given: names of what else its check is called with.
    """

    number: int
    name: str
    given: tuple[str, ...]
    points: int
    text: str
    stub: str
    check: str
    solution: str

    @property
    def title(self) -> str:
        """Its number and function, as the marks name it."""
        return f"{self.number} {self.name}"


def exercises(path: Path) -> list[Exercise]:
    """Return the exercises of a notebook of the series, in order.

    ValueError: for an exercise without a text, stub, check or solution.
    """
    found = defaultdict(dict)
    for cell in read_notebook(path).cells:
        kind, n = part(cell)
        found[n][kind] = cell.source
    for n, _, source in sections(SOLUTIONS / f"{path.stem}.py"):
        found[n]["solution"] = source
    return [exercise(path, n, found[n]) for n in sorted(found.keys() - {0})]


def exercise(path: Path, n: int, sources: dict[str, str]) -> Exercise:
    """Return an exercise, given the sources of its cells."""
    missing = {"text", "stub", "check", "solution"} - sources.keys()
    if missing:
        raise ValueError(
            f"exercise {n} of {path} has no {' and no '.join(missing)}; "
            f"expected a text **Exercise {n}** (… minutes), the tags "
            f"exercise-{n} and check-{n}, and # %% exercise {n} in {SOLUTIONS}"
        )
    text, call = sources["text"], ast.parse(sources["check"]).body[0].value
    name, *given = map(ast.unparse, call.args)
    points = int(TEXT.search(text)[2])
    sources = sources | {"text": SOLUTION.sub("", text)}
    return Exercise(n, name, tuple(given), points, **sources)


def part(cell) -> tuple[str, int]:
    """Return what a cell is, and of which exercise: ("stub", 1), ("", 0)."""
    if cell.get("id", "").startswith("frame-"):  # a header or a footer
        return cell.id.removeprefix("frame-"), 0
    tags = map(TAG.fullmatch, cell.metadata.get("tags", ()))
    if match := next(filter(None, tags), None):
        return match[1].replace("exercise", "stub"), int(match[2])
    match = TEXT.search(cell.source)
    return ("text", int(match[1])) if match else ("", 0)


def write_course(notebooks: list[str], out: Path) -> None:
    """Write the course of the given notebooks, or of all, into a folder."""
    chosen = list(map(find_notebook, notebooks)) or all_notebooks()
    with TemporaryDirectory() as folder:
        build(chosen, Path(folder))
        update_copy(Path(folder), out, "--out")
    files = "1 notebook" if len(chosen) == 1 else f"{len(chosen)} notebooks"
    print(f"{files} in {out}: hand out student/ and students.md")
    print("teacher/ and otter/ have the solutions: keep them")


def find_notebook(name: str) -> Path:
    """Return a notebook, given its path, its name or its number."""
    for path in all_notebooks():
        names = path.stem.split("_")[0], path.stem, path.name
        if name in names or Path(name).resolve() == path:
            return path
    known = ", ".join(path.stem for path in all_notebooks())
    raise ValueError(f"{name} is no notebook of the series: take {known}")


def build(chosen: list[Path], folder: Path) -> None:
    """Write the three versions of the notebooks, and the points."""
    rows, index = [], NOTEBOOKS / series.INDEX
    handed = {p.relative_to(NOTEBOOKS).as_posix() for p in (index, *chosen)}
    for version in ("student", "teacher"):
        save(read_notebook(index), series.INDEX, folder / version, handed)
    for path in chosen:
        found, file = exercises(path), path.relative_to(NOTEBOOKS).as_posix()
        for e in found:
            row = dict(number=e.number, name=e.name, points=e.points)
            rows.append({"notebook": path.stem} | row)
        for version in ("student", "teacher", "otter"):
            made = changed(path, file, found, version)
            links = handed if version != "otter" else ()
            save(made, file, folder / version, links)
    text = json.dumps(rows, indent=1) + "\n"
    write(folder / "points.json", text.encode())
    write(folder / "students.md", page(rows).encode())


def page(rows: list[dict]) -> str:
    """Return the page for students, given each exercise's row of points."""
    points = defaultdict(list)
    for row in rows:
        points[row["notebook"]].append(row["points"])
    lines = (f"| {n} | {len(p)} | {sum(p)} |" for n, p in points.items())
    where = dict(address=address() or "ADDRESS", whose="")
    if not address():
        where["whose"] = "; your teacher has the address"
    return TEXTS["page"].lstrip().format(rows="\n".join(lines), **where)


def save(notebook, file: str, folder: Path, handed) -> None:
    """Write a notebook, with links only to those that are handed out."""

    def keep(match):
        target = match["to"] or match["file"]
        known = normpath(join(dirname(file), target)) in handed
        return match[0] if known else match["text"] or match["words"]

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(keep, cell.source)
    write(folder / file, (writes(notebook) + "\n").encode())


def changed(path: Path, file: str, found: list[Exercise], version: str):
    """Return a version of a notebook of the series."""
    notebook, texts = read_notebook(path), TEXTS[version]
    (entry,) = (each for each in series.SERIES if each.file == file)
    words = vars(entry) | dict(
        names=", ".join(f"`{e.name}` ({e.points} points)" for e in found),
        total=sum(e.points for e in found),
        minutes=reading(notebook).minutes,
        stem=path.stem,
        label=entry.label,
        navigation=series.navigation(entry),
        footer=series.footer(entry).split("\n\n**Solutions")[0],
    )
    words["words"] = texts["words"].strip().format(**words)
    words["header"] = TEXTS["header"].strip().format(**words)
    gaps = {0: words} | {e.number: gaps_of(e, path.stem) for e in found}
    cells = (cells_of(cell, texts, gaps) for cell in notebook.cells)
    notebook.cells = list(chain.from_iterable(cells))
    return notebook


def gaps_of(each: Exercise, stem: str) -> dict[str, str | int]:
    """Return what fills the gaps of the texts for one exercise."""
    rows = [
        TEXTS["row"].format(words=html.escape(words), source=html.escape(code))
        for n, words, code in mistakes(stem)
        if n == each.number
    ]
    return vars(each) | dict(
        mistakes=re.sub(r"\n\s*\n", "\n", "".join(rows)).strip(),
        given=", ".join((each.name, *each.given)),
        module=f"n{stem}",
        verdict=each.check.replace("(", ".verdict(", 1),
    )


def cells_of(cell, texts: dict, gaps: dict[int, dict]) -> list:
    """Return the cells that a version has in place of a cell."""
    (kind, n), cells = part(cell), []
    if not kind:
        return [cell]
    if kind == "check":
        cell.outputs, cell.execution_count = [], None
    for i, (type, text) in enumerate(texts.get(kind, [("", f"{{{kind}}}")])):
        source = text.strip("\n").format(**gaps[n])
        make = getattr(v4, f"new_{type}_cell", lambda id: cell)
        cells.append(make(id=f"{kind}-{n}-{i}"))
        cells[-1].source = source
    return cells
