r"""Lines of the package and words of the notebooks, as tables in Markdown."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..files import ROOT

# Seconds to read one line of code and one picture, and words per minute.
LINE, PICTURE, WORDS = 4, 20, 180


def table(rows: list[list[str]]) -> str:
    """Return rows of cells as a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def lines_table() -> str:
    """Return the lines of .py files by room."""
    counts = Counter()
    for path in (ROOT / "llamalib").rglob("*.py"):
        lines = path.read_bytes().count(b"\n")
        counts.update({room_of(path): lines, "all": lines})
    rows = [[room, f"{n:,}"] for room, n in sorted(counts.items())]
    return table([["room", "lines"], ["---", "---:"], *rows])


def room_of(path: Path) -> str:
    """Return the room of a file of the package."""
    room, *inside = path.relative_to(ROOT / "llamalib").parts
    core = "commands" if room == "__main__.py" else "core"
    return room if inside else core


@dataclass(frozen=True)
class Reading:
    """How much there is to read in a notebook, its exercises apart.

    Attributes:
        words: of prose, up to the cell that holds the exercises; the frame
            does not count, formulas do.
        lines: of code that are not blank, up to there; folded cells do not
            count.
        pictures: in the saved outputs.
        cells: all of them.
        practice: minutes of the exercises, as their texts say.
    """

    words: int
    lines: int
    pictures: int
    cells: int
    practice: int

    @property
    def minutes(self) -> int:
        """The time to read it, rounded up to whole minutes."""
        seconds = self.lines * LINE + self.pictures * PICTURE
        return -int(-(self.words / WORDS + seconds / 60) // 1)


def reading(notebook: dict) -> Reading:
    """Count a notebook, given as its JSON."""
    words = lines = pictures = practice = 0
    in_exercises = False
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if {"frame", "check"} & set(cell["metadata"].get("tags", ())):
            continue
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            continue
        if cell["cell_type"] == "markdown":
            in_exercises = in_exercises or "## Exercises" in text
            words += 0 if in_exercises else len(text.split())
            spans = re.findall(r"\*\*Exercise \d+\*\* \((\d+) min", text)
            practice += sum(map(int, spans))
        elif not in_exercises:
            lines += sum(bool(line.strip()) for line in text.splitlines())
            found = [o.get("data", {}) for o in cell.get("outputs", ())]
            pages = ["".join(data.get("text/html", ())) for data in found]
            pictures += sum("image/png" in data for data in found)
            pictures += sum("<img " in page for page in pages)
    cells = len(notebook["cells"])
    return Reading(words, lines, pictures, cells, practice)


def words_table(paths: list[Path]) -> str:
    """Return words, cells and minutes by notebook."""
    heads = ["notebook", "words", "cells", "minutes", "exercises"]
    rows = [heads, ["---"] * len(heads)]
    for path in paths:
        found = reading(json.loads(path.read_text(encoding="utf-8")))
        numbers = found.words, found.cells, found.minutes, found.practice
        rows.append([path.stem, *(f"{n:,}" for n in numbers)])
    return table(rows)
