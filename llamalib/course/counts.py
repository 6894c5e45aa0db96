r"""Lines of the package and words of the notebooks, as tables in Markdown."""

import json
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..files import ROOT

FORMER_ROOMS = {  # of the files of release 0.1.0, which was one flat folder
    "formats": "checkpoint fetch huggingface shards tokenizer_json",
    "fast": "compiled native one_query products quantization",
    "viz": "plots widgets",
    "in notebooks": "training experts long_context",
    "commands": "__main__",
}
# Seconds to read one line of code and one picture, and words per minute.
LINE, PICTURE, WORDS = 4, 20, 180


def table(rows: list[list[str]]) -> str:
    """Return rows of cells as a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def lines_table(revisions: list[str]) -> str:
    """Return the lines by room, in commits and in today's files."""
    counts = [package_lines(each) for each in (*revisions, None)]
    rows = [["room", *revisions, "now"], ["---"] * (len(counts) + 1)]
    for room in sorted(set().union(*counts)):
        rows.append([room, *(f"{each[room]:,}" for each in counts)])
    return table(rows)


def package_lines(revision: str | None) -> Counter:
    """Return the lines by room in a commit, or in today's files."""
    package = ROOT / "llamalib"
    found = [
        f"{path.relative_to(package).as_posix()}:{lines_of(path)}"
        for path in package.rglob("*.py")
    ]
    if revision is not None:
        files = "llamalib/*.py", "llamalib/*.c"
        done = git("grep", "-c", "", revision, "--", *files)
        if done.returncode:
            raise ValueError(f"git: {done.stderr.decode().strip()}")
        found = done.stdout.decode().splitlines()
    counts = Counter()
    for line in found:
        path, number = line.split("llamalib/")[-1].rsplit(":", 1)
        counts.update({room_of(path): int(number), "all": int(number)})
    return counts


def lines_of(file: Path) -> int:
    """Return the number of line ends in a file."""
    return file.read_bytes().count(b"\n")


def git(*arguments: str) -> subprocess.CompletedProcess:
    """Run git in the project, or raise FileNotFoundError without it."""
    try:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True)
    except FileNotFoundError:
        problem = "git is not installed: without it no commit can be read"
        raise FileNotFoundError(problem) from None


def room_of(path: str) -> str:
    """Return the room of a file, given its path in the package."""
    first = path.split("/")[0]
    for room, names in FORMER_ROOMS.items():
        if first.split(".")[0] in names.split():
            return room
    return "core" if first == path else first


@dataclass(frozen=True)
class Reading:
    """How much there is to read in a notebook, its exercises apart.

    Attributes:
        words: of prose, up to the cell that holds the exercises; the frame
            does not count, formulas do.
        lines: of code that are not blank, up to there; folded `check` cells
            do not count.
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


def words_table(paths: list[Path], revisions: list[str]) -> str:
    """Return words, cells and minutes by notebook, in commits and today."""
    heads = ["words", "cells", "minutes"]
    names = [f"{h}, {each}" for each in (*revisions, "now") for h in heads]
    rows = [["notebook", *names, "exercises"], ["---"] * (len(names) + 2)]
    for path in paths:
        row = [path.stem]
        for revision in (*revisions, None):
            found = counted(path, revision)
            row += [f"{n:,}" if found else "–" for n in found or (0, 0, 0)]
        practice = reading(json.loads(path.read_text("utf-8"))).practice
        rows.append([*row, str(practice)])
    return table(rows)


def counted(path: Path, revision: str | None):
    """Return words, cells and minutes of a notebook, or None without it."""
    text = path.read_text(encoding="utf-8")
    if revision is not None:
        name = f"{revision}:{path.relative_to(ROOT).as_posix()}"
        done = git("show", name)
        if done.returncode:
            return None
        text = done.stdout.decode()
    found = reading(json.loads(text))
    return found.words, found.cells, found.minutes
