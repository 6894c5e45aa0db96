r"""The teacher's guide: site/guide.md, with what the series itself says.

A line `{plan}` becomes the table of weeks; a line like `{04_rope}` becomes
that notebook's heading, minutes, aim, and what students get wrong.
"""

import re
from pathlib import Path

from lessons.exercises import mistakes as known_mistakes
from lessons.tables import table

from .counts import reading
from .course import exercises
from .frame import SERIES
from .notebooks import NOTEBOOKS, ROOT, read_notebook

PAGE = ROOT / "site" / "guide.md"
TITLES = {Path(each.file).stem: each for each in SERIES}
WEEKS = [stem for stem, each in TITLES.items() if each.step]
LINK = "[{0.label}](../notebooks/{0.file})"


def guide_page() -> str:
    r"""Return the guide in Markdown; its links start in the folder `site`.

    Raises ValueError for a line in braces that names no notebook.
    """

    def fill(line):
        if line[1] not in ("plan", *TITLES):
            known = ", ".join(["plan", *TITLES])
            raise ValueError(f"{PAGE} has {line[0]}; expected one of {known}")
        return plan() if line[1] == "plan" else facts(line[1])

    text = PAGE.read_text(encoding="utf-8")
    return re.sub(r"^\{(\w+)\}$", fill, text, flags=re.M)


def plan() -> str:
    """Return the table of weeks, with each notebook's minutes."""
    rows = ["week notebook reading exercises".split(), ["---"] * 4]
    for week, stem in enumerate(WEEKS, 1):
        times = reading(read_notebook(NOTEBOOKS / TITLES[stem].file))
        minutes = f"{times.minutes} min", f"{times.practice} min"
        rows.append([str(week), LINK.format(TITLES[stem]), *minutes])
    return table(rows)


def facts(stem: str) -> str:
    """Return the head of a notebook's part of the guide."""
    entry, wrong = TITLES[stem], mistakes(stem)
    path = NOTEBOOKS / entry.file
    week = f"Week {WEEKS.index(stem) + 1}: " if stem in WEEKS else ""
    lines = "\n".join(
        f"- Exercise {e.number}, `{e.name}` ({e.points} points): "
        f"{wrong[e.number]}"
        for e in exercises(path)
    )
    times = reading(read_notebook(path))
    return (
        f"### {week}{entry.label}\n\n{LINK.format(entry)}: {times.minutes} "
        f"minutes of reading, {times.practice} minutes of exercises.\n\n"
        f"**Aim.** Students can {entry.aims}\n\n**What students get wrong**, "
        f"in the words of the checks:\n\n{lines}"
    )


def mistakes(stem: str) -> dict[int, str]:
    """Return by exercise what its check says of the known mistakes."""
    found = {}
    for n, words, _ in known_mistakes(stem):
        safe = re.sub(r"([\\`*_$<>[\]{}|])", r"\\\1", words)
        found.setdefault(n, {})[f"“{safe}”"] = None
    return {n: " · ".join(named) for n, named in found.items()}
