r"""The teacher's guide: site/guide.md, with what the series itself says.

A line `{plan}` becomes the table of weeks; a line like `{04_rope}` becomes
that notebook's heading, minutes, aim, and what students get wrong.
"""

import ast
import json
import re
from importlib import import_module
from inspect import getsource
from pathlib import Path

from ..course.counts import reading, table
from ..course.series import NOTEBOOKS, SERIES
from ..files import ROOT

PAGE, MISTAKES = ROOT / "site" / "guide.md", ROOT / "tests" / "mistakes"
TITLES = {Path(each.file).stem: each for each in SERIES}
WEEKS = [stem for stem, each in TITLES.items() if each.step]
LINK = "[{0.label}](../notebooks/{0.file})"


def guide() -> str:
    r"""Return the guide in Markdown; its links start in the folder `site`.

    Raises ValueError for a line in braces that names no notebook.
    """

    def fill(line):
        if line[1] in TITLES:
            return facts(line[1])
        if line[1] != "plan":
            known = ", ".join(["plan", *TITLES])
            raise ValueError(f"{PAGE} has {line[0]}; expected one of {known}")
        return plan()

    text = PAGE.read_text(encoding="utf-8")
    return re.sub(r"^\{(\w+)\}$", fill, text, flags=re.M)


def plan() -> str:
    """Return the table of weeks, with each notebook's minutes."""
    rows = ["week notebook reading exercises".split(), ["---"] * 4]
    for week, stem in enumerate(WEEKS, 1):
        times = reading(load(stem))
        minutes = f"{times.minutes} min", f"{times.practice} min"
        rows.append([str(week), LINK.format(TITLES[stem]), *minutes])
    return table(rows)


def load(stem: str) -> dict:
    """Return a notebook of the series as its JSON."""
    return json.loads((NOTEBOOKS / TITLES[stem].file).read_text("utf-8"))


def facts(stem: str) -> str:
    """Return the head of a notebook's part of the guide."""
    entry, notebook, wrong = TITLES[stem], load(stem), mistakes(stem)
    week = f"Week {WEEKS.index(stem) + 1}: " if stem in WEEKS else ""
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
    points = dict(re.findall(r"\*\*Exercise (\d+)\*\* \((\d+) min", text))
    names = re.findall(r"course\.check_(\d+)\((\w+)", text)
    lines = "\n".join(
        f"- Exercise {n}, `{each}` ({points[n]} points): "
        + " · ".join(wrong[n])
        for n, each in names
    )
    times = reading(notebook)
    return (
        f"### {week}{entry.label}\n\n{LINK.format(entry)}: {times.minutes} "
        f"minutes of reading, {times.practice} minutes of exercises.\n\n"
        f"**Aim.** Students can {entry.aims}\n\n**What students get wrong**, "
        f"in the words of the checks:\n\n{lines}"
    )


def mistakes(stem: str) -> dict[str, list[str]]:
    """Return by exercise what its check says of the mistakes in the tests."""
    module = import_module(f"..course.nb{stem.split('_')[0]}", __package__)
    text, found = (MISTAKES / f"{stem}.py").read_text(encoding="utf-8"), {}
    for n, words in re.findall(r"^# %% exercise (\d+): (.*)$", text, re.M):
        own = texts(getattr(module, f"check_{n}"))
        whole = max((t for t in own if words in t), key=len, default="")
        safe = re.sub(r"([\\`*_$<>[\]{}|])", r"\\\1", whole)
        found.setdefault(n, {})[f"“{safe}”"] = whole
    return {n: [t for t, w in said.items() if w] for n, said in found.items()}


def texts(thing) -> list[str]:
    """Return the texts in the source of a function, f-strings apart."""
    nodes = list(ast.walk(ast.parse(getsource(thing))))
    apart = [v for n in nodes if isinstance(n, ast.JoinedStr) for v in n.values]
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and type(node.value) is str
        if node not in apart
    ]
