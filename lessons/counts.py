"""Count what there is to read in a notebook, and the minutes it takes."""

import re
from dataclasses import dataclass

# Seconds to read one line of code and one picture, and words per minute.
LINE, PICTURE, WORDS = 4, 20, 180


def table(rows: list[list[str]]) -> str:
    """Return rows of cells as a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


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
        share: of all lines of code, those in cells that verify: they assert,
            or print a difference. Counted roughly; folded cells count here.
    """

    words: int
    lines: int
    pictures: int
    cells: int
    practice: int
    share: float

    @property
    def minutes(self) -> int:
        """The time to read it, rounded up to whole minutes."""
        seconds = self.lines * LINE + self.pictures * PICTURE
        return -int(-(self.words / WORDS + seconds / 60) // 1)


def reading(notebook: dict) -> Reading:
    """Count a notebook, given as its JSON."""
    words = lines = pictures = practice = whole = verify = 0
    in_exercises = False
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code" and not in_exercises:
            code = sum(bool(line.strip()) for line in text.splitlines())
            whole += code
            if re.search(r"\bassert\b|\bdifference\b", text):
                verify += code
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
    share = verify / whole if whole else 0.0
    return Reading(words, lines, pictures, cells, practice, share)
