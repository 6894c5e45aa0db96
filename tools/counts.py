"""Count what there is to read in a notebook, and the minutes it takes."""

import re
from dataclasses import dataclass

# Words per minute; seconds for a line of code, a line of output, a picture.
# Students needed 404 minutes for the main road; these numbers gave 396.
WORDS, LINE, OUTPUT, PICTURE = 120, 4, 1, 30
PRACTICE = ("## Test yourself", "## Exercises")


@dataclass(frozen=True)
class Reading:
    """How much there is to read in a notebook, up to its questions.

    Cells tagged `frame` or `check` do not count, and nothing from the cell
    with "Test yourself" or the exercises on.

    Attributes:
        words: of prose; formulas count too.
        lines: of code that are not blank.
        printed: lines of text in the saved outputs.
        pictures: in the saved outputs.
        cells: all of them, to the notebook's end.
        practice: minutes of the exercises, as their texts say.
        share: of the lines of code up to the questions, those in cells that
            verify: they assert, or print a difference. Counted roughly;
            cells tagged `frame` or `check` count here.
    """

    words: int
    lines: int
    printed: int
    pictures: int
    cells: int
    practice: int
    share: float

    @property
    def minutes(self) -> int:
        """The time to read it, rounded up to whole minutes."""
        seconds = self.lines * LINE + self.printed * OUTPUT
        seconds += self.pictures * PICTURE
        return -int(-(self.words / WORDS + seconds / 60) // 1)


def reading(notebook: dict) -> Reading:
    """Count a notebook, given as its JSON."""
    words = lines = printed = pictures = practice = whole = verify = 0
    in_practice = False
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        code = sum(bool(line.strip()) for line in text.splitlines())
        if cell["cell_type"] == "code" and not in_practice:
            whole += code
            if re.search(r"\bassert\b|\bdifference\b", text):
                verify += code
        if {"frame", "check"} & set(cell["metadata"].get("tags", ())):
            continue
        if cell["cell_type"] == "markdown":
            in_practice = in_practice or any(each in text for each in PRACTICE)
            words += 0 if in_practice else len(text.split())
            spans = re.findall(r"\*\*Exercise \d+\*\* \((\d+) min", text)
            practice += sum(map(int, spans))
        elif not in_practice:
            lines += code
            for output in cell.get("outputs", ()):
                rows, images = seen(output)
                printed, pictures = printed + rows, pictures + images
    cells = len(notebook["cells"])
    share = verify / whole if whole else 0.0
    return Reading(words, lines, printed, pictures, cells, practice, share)


def seen(output: dict) -> tuple[int, int]:
    """Return how many lines of text and how many pictures an output shows."""
    data = output.get("data", {})
    images = "image/png" in data, "<img " in "".join(data.get("text/html", ()))
    if any(images):  # its text stands for what cannot be drawn
        return 0, sum(images)
    text = output.get("text", data.get("text/markdown", ()))
    if not text and "text/html" not in data:
        text = data.get("text/plain", ())
    return len("".join(text).splitlines()), 0
