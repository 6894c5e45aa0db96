r"""The notebooks in order, and what is written into them.

`python -m tools frame` writes the library's definitions into the cells that
name them (quote.py), and a header and a footer into every notebook: links,
times, and what a reader can do afterwards. It takes away what an execution
leaves of this machine, and prints minutes and checks. With --check it only
compares. It needs the standard library alone.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from lessons.tables import table

from .counts import reading
from .notebooks import NOTEBOOKS, ROOT, write
from .quote import quote
from .rooms import addressed

INDEX = "index.ipynb"
KERNEL = dict(display_name="Python 3", language="python", name="python3")
WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True)
class Notebook:
    """One notebook: its file, its title, what one can do after it.

    Attributes:
        file: its path from `notebooks`.
        aims: completes "After this notebook you can …".
        deeper: files of the appendices that go deeper.
        step: its place in the flow of the data, on the main road.
    """

    file: str
    title: str
    aims: str
    deeper: tuple[str, ...] = ()
    step: str = ""

    @property
    def label(self) -> str:
        """The number or letter, and the title."""
        return f"{Path(self.file).stem.split('_')[0]} · {self.title}"

    @property
    def solutions(self) -> str:
        """The path of its solutions from `notebooks`."""
        return f"solutions/{Path(self.file).stem}.py"


def read_series() -> tuple[Notebook, ...]:
    """Return the notebooks in order, as series.json lists them."""
    text = Path(__file__).with_name("series.json").read_text(encoding="utf-8")
    return tuple(Notebook(**each) for each in json.loads(text))


SERIES = read_series()


def link(text: str, to: str, start: str) -> str:
    """Return a link from the notebook `start` to a file in `notebooks`."""
    up = "../" * start.count("/")
    to = to.removeprefix("appendix/") if up and "appendix/" in to else up + to
    return f"[{text}]({to})"


def navigation(notebook: Notebook) -> str:
    """Return links to the notebook before, the contents, the one after."""
    at = SERIES.index(notebook)
    parts = []
    if at > 0:
        before = SERIES[at - 1]
        parts.append(link(f"← {before.label}", before.file, notebook.file))
    parts.append(link("Contents", INDEX, notebook.file))
    if at + 1 < len(SERIES):
        after = SERIES[at + 1]
        parts.append(link(f"{after.label} →", after.file, notebook.file))
    return " · ".join(parts)


def header(notebook: Notebook, times) -> str:
    """Return the text above the notebook's title."""
    solutions = link("solutions", notebook.solutions, notebook.file)
    return (
        f"{navigation(notebook)}\n\n"
        f"**Reading:** {times.minutes} minutes · **exercises:** "
        f"{times.practice} minutes ({solutions})\n\n"
        f"**After this notebook you can** {notebook.aims}"
    )


def footer(notebook: Notebook) -> str:
    """Return the text below the notebook's last cell."""
    parts = [navigation(notebook)]
    titles = {each.file: each.label for each in SERIES}
    deeper = [link(titles[f], f, notebook.file) for f in notebook.deeper]
    if deeper:
        parts.append(f"**Deeper:** {', '.join(deeper)}")
    solutions = link(notebook.solutions, notebook.solutions, notebook.file)
    parts.append(f"**Solutions:** {solutions}")
    return "\n\n".join(parts)


def framed(cells: list[dict], notebook: Notebook, times) -> list[dict]:
    """Return a notebook's cells with today's header and footer."""
    inner = [c for c in cells if "frame" not in c["metadata"].get("tags", ())]
    texts = header(notebook, times), footer(notebook)
    first, last = (
        {
            "cell_type": "markdown",
            "id": f"frame-{name}",
            "metadata": {"tags": ["frame"]},
            "source": text.splitlines(keepends=True),
        }
        for name, text in zip(("header", "footer"), texts, strict=True)
    )
    return [first, *inner, last]


def todays_notebook(each: Notebook) -> tuple[bytes, list[str]]:
    """Return a notebook as it should be, and the cells that must change.

    It has the library's cells as the modules have them, its header and its
    footer, and no trace of the machine that executed it.
    """
    text = (NOTEBOOKS / each.file).read_text(encoding="utf-8")
    notebook = json.loads(text)
    try:
        changed = quote(notebook)
    except ValueError as error:
        raise ValueError(f"{each.file}: {error}") from None
    times = reading(notebook)
    notebook["cells"] = framed(notebook["cells"], each, times)
    return clean(notebook), changed


def clean(notebook: dict) -> bytes:
    """Return a notebook's text without what names a machine."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            # It would need its kernel: only its still picture is kept.
            output.get("data", {}).pop(WIDGET, None)
    language = {"name": "python"}
    notebook["metadata"] = {"kernelspec": KERNEL, "language_info": language}
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    return text.encode()


ROUTES = (
    ("An evening", (4, 5, 9), "two ideas and the end, without exercises"),
    ("A weekend", range(10), "the main road, without exercises"),
    ("A term", range(len(SERIES)), "all, with the exercises"),
)


# The steps before the block, in it, and after it.
FLOW = (3, ""), (4, "┌─ a transformer block, L times ─┐"), (3, "")


def clickable_map() -> str:
    """Return the steps of the model as a row of links, in HTML."""
    steps = [f'<a href="{n.file}">{n.step}</a>' for n in SERIES if n.step]
    heads = [f'<th colspan="{n}">{text}</th>' for n, text in FLOW]
    first, *others = steps
    cells = [f"<td>{first}</td>", *(f"<td>→ {step}</td>" for step in others)]
    rows = ("".join(each) for each in (heads, cells))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def series_table(times: dict[str, tuple[int, int]], folder="") -> str:
    """Return the table of notebooks, in Markdown.

    times: by file, minutes of reading and of exercises.
    folder: where the notebooks are, for the links.
    """
    rows = [
        ("notebook", "afterwards you can", "reading", "exercises"),
        ("---", "---", "---:", "---:"),
    ]
    for each in SERIES:
        name = f"[{each.label}]({folder}{each.file})"
        rows.append((name, each.aims, *(f"{n} min" for n in times[each.file])))
    return table(rows)


def routes_table(times: dict[str, tuple[int, int]]) -> str:
    """Return the table of routes through the series, in Markdown."""
    rows = ["route notebooks time what".split(), "--- --- ---: ---".split()]
    for name, which, words in ROUTES:
        files = [SERIES[i].file for i in which]
        parts = 2 if name == "A term" else 1  # with the exercises
        minutes = sum(sum(times[f][:parts]) for f in files)
        numbers = [
            f"[{SERIES[i].label.split(' · ')[0]}]({SERIES[i].file})"
            for i in which
        ]
        if len(numbers) > 4:
            numbers = [numbers[0], "…", numbers[-1]]
        hours = f"{minutes / 60:.0f} hours"
        rows.append((name, " ".join(numbers), hours, words))
    return table(rows)


def contents(times: dict[str, tuple[int, int]]) -> str:
    """Return the map, the table of notebooks and the routes, in Markdown."""
    parts = series_table(times), "## Routes", routes_table(times)
    return "\n\n".join(("## Contents", clickable_map(), *parts))


def todays_times() -> dict[str, tuple[int, int]]:
    """Return by file the minutes of reading and of exercises."""
    times = {}
    for each in SERIES:
        text = (NOTEBOOKS / each.file).read_text(encoding="utf-8")
        found = reading(json.loads(text))
        times[each.file] = found.minutes, found.practice
    return times


def todays_index(times: dict[str, tuple[int, int]]) -> bytes:
    """Return the index with today's contents."""
    text = (NOTEBOOKS / INDEX).read_text(encoding="utf-8")
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if "frame" in cell["metadata"].get("tags", ()):
            cell["source"] = contents(times).splitlines(keepends=True)
    return clean(notebook)


def with_table(readme: str, times: dict[str, tuple[int, int]]) -> str:
    """Return the README with today's table of notebooks."""
    start, end = (f"<!-- series: {word} -->" for word in ("begin", "end"))
    before, rest = readme.split(start)
    lines = series_table(times, "notebooks/")
    return f"{before}{start}\n\n{lines}\n\n{end}{rest.split(end)[1]}"


def main(options: list[str]) -> int:
    """Write the frames, or only compare; return the exit status."""
    if set(options) - {"--check"}:
        print("usage: python -m tools frame [--check]")
        return 2
    check = "--check" in options
    try:
        changed = write_frames(check)
    except (OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    for line in changed:
        print(line if check else f"written: {line}")
    if not check:
        print(pace())
    return int(check and bool(changed))


def write_frames(check: bool = False) -> list[str]:
    """Write the library's cells, headers, footers, the index and README.

    check: whether only to compare.
    Returns a line for each cell of the library, and for each other part,
    that was not today's.
    """
    changed = []

    def put(file: Path, content: bytes) -> None:
        if file.read_bytes() != content:
            changed.append(file.relative_to(ROOT).as_posix())
            if not check:
                write(file, content)

    for each in SERIES:
        content, cells = todays_notebook(each)
        for names in cells:
            changed.append(f"{each.file}: the cell of {names}, as in llamalib")
        put(NOTEBOOKS / each.file, content)
    times = todays_times()
    put(NOTEBOOKS / INDEX, todays_index(times))
    for file, text in addressed().items():
        if file.name == "README.md":
            text = with_table(text, times)
        put(file, text.encode())
    return changed


def pace() -> str:
    """Return each notebook's minutes, and the share of code that verifies."""
    lines = []
    for each in SERIES:
        text = (NOTEBOOKS / each.file).read_text(encoding="utf-8")
        found = reading(json.loads(text))
        minutes, share = found.minutes, f"{found.share:.0%}"
        lines.append(f"{each.label:28} {minutes:3} minutes, {share:>4} verify")
    return "\n".join(lines)
