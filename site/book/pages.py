"""The pages, as sources for Sphinx: made from the notebooks, never stored."""

import json
import os
import re
from pathlib import Path
from posixpath import basename

from lessons.tables import table
from llamalib.load import ROOT
from tools import rooms
from tools.explorer import NEEDS
from tools.frame import SERIES, routes_table, series_table, todays_times
from tools.guide import guide_page

from .names import about, addresses

SITE, FOLDER = ROOT / "site", ROOT / "notebooks"
SETUP = rooms.SETUP.removeprefix("notebooks/")
FILES = [*(each.file for each in SERIES), SETUP]
# The station of the explorer that a notebook's page opens.
STATIONS = {
    "00_initialization.ipynb": "weights",
    "01_tokenize.ipynb": "tokens",
    "02_embed.ipynb": "embed",
    "03_rmsnorm.ipynb": "norm",
    "04_rope.ipynb": "rope",
    "05_attention.ipynb": "attention",
    "06_feed_forward.ipynb": "swiglu",
    "07_lm_head.ipynb": "logits",
    "08_sampling.ipynb": "sample",
    "09_generate.ipynb": "text",
}
# of these notebooks, no widget shows what the station shows
WITHOUT_WIDGET = "weights", "embed", "norm", "swiglu"


def read_notebooks() -> dict[str, dict]:
    """Return the notebooks' JSON, by file."""
    found = {file: json.loads(read_text(FOLDER / file)) for file in FILES}
    return found | {SETUP: setup_notebook()}


def setup_notebook() -> dict:
    """Return the JSON of the notebook for Colab, with the address in it."""
    text = rooms.with_address(read_text(FOLDER / SETUP), project())
    notebook = json.loads(text)
    if project():  # its saved output asks for the address
        for cell in notebook["cells"]:
            if "nbval-skip" in cell["metadata"].get("tags", ()):
                cell["outputs"] = []
    return notebook


def read_text(path: Path) -> str:
    """Return a file's text."""
    return path.read_text(encoding="utf-8")


def sources() -> dict[str, str]:
    """Return what Sphinx reads: the text of each page by its file's name."""
    notebooks = read_notebooks()
    found = {
        file: json.dumps(page(notebook, file), ensure_ascii=False)
        for file, notebook in notebooks.items()
    }
    for each in SERIES:
        found[each.solutions.replace(".py", ".md")] = solutions(each)
    found["solutions.md"] = read_text(SITE / "solutions.md")
    found["names.md"] = names(notebooks)
    found["data.md"] = read_text(ROOT / "data" / "README.md")
    guide = guide_page().replace("](../notebooks/", "](")
    found["guide.md"] = guide.replace("ADDRESS", project() or "ADDRESS")
    index = json.loads(read_text(FOLDER / "index.ipynb"))["cells"]
    (terms,) = ("".join(c["source"]) for c in index if c["id"] == "glossary")
    found["glossary.md"] = terms.replace("## ", "# ", 1)
    found["index.md"] = first_page()
    return found


def page(notebook: dict, file: str) -> dict:
    """Return a notebook as a page, without the links that the theme has."""
    frame, cells = [""], []
    for cell in notebook["cells"]:
        tags = cell["metadata"].setdefault("tags", [])
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":  # to the page of the solutions
            text = re.sub(r"(\(\S*solutions/\w+)\.py\)", r"\1.md)", text)
            cell["source"] = text
        if "frame" in tags:
            frame.append(text.partition("\n\n")[2])
            continue
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            tags.append("hide-input")
        cells.append(cell)
    title, *rest = cells[0]["source"].split("\n", 1)
    times, _, aims = "".join(frame[1:2]).partition("\n\n")
    above = [title, unsearched(downloads(file), times), aims, *rest]
    first = markdown("title", "\n\n".join(above))
    if file in STATIONS:
        at = place_of_explorer(cells, STATIONS[file])
        cells.insert(at, markdown("llama", section(STATIONS[file], file)))
    cells[1:] += [markdown("frame", f"---\n\n{text}") for text in frame[2:]]
    return notebook | {"cells": [first, *cells[1:]]}


def markdown(key: str, text: str) -> dict:
    """Return a cell of Markdown."""
    kind = dict(cell_type="markdown", metadata={}, source=text)
    return kind | {"id": f"site-{key}"}


def unsearched(*texts: str) -> str:
    """Return texts that the search leaves out."""
    return "\n\n".join(("```{container} no-search", *texts, "```"))


def downloads(file: str) -> str:
    """Return the line of links below a notebook's title."""
    root = "../" * file.count("/")
    found = [f'<a class="download" href="{basename(file)}" download>']
    found[0] += "Download this notebook</a>"
    url = rooms.colab(project(), f"notebooks/{file}")
    colab = f'<a href="{url}">open it in Colab</a>'
    if file == SETUP:
        if url:
            found.append(f"Or {colab}.")
        return " ".join(found)
    words = f'To run it, <a href="{root}index.html#run-it-yourself">get the '
    words += "project</a>"
    if url:
        words += f', or {colab} and begin with the <a href="{root}'
        words += 'setup_colab.html">setup cell</a>'
    found.append(f"{words}.")
    if file in STATIONS:
        found.append(
            '<a href="#llama">Try its step on your own prompt</a>, in this page.'
        )
    return " ".join(found)


def place_of_explorer(cells: list[dict], station: str) -> int:
    """Return where a page shows the explorer.

    It follows the widget of the same name, or else the last section.
    """
    ends = "## Common mistakes", "## What to remember", "## Test yourself"
    for i, cell in enumerate(cells):
        if station not in WITHOUT_WIDGET and shows_widget(cell):
            return i + 1
        if "".join(cell["source"]).startswith(ends):
            return i
    raise ValueError(f"no cell begins with one of {ends}")


def shows_widget(cell: dict) -> bool:
    """Return whether a cell's output is a Play or a Chat."""
    for output in cell.get("outputs", ()):
        text = "".join(output.get("data", {}).get("text/plain", ""))
        if text.startswith(("Play(", "Chat(")):
            return True
    return False


def section(station: str, file: str) -> str:
    """Return the place that the explorer fills."""
    page = f"{'../' * file.count('/')}explorer.html?station={station}"
    return (
        f'<p id="llama"><b>The explorer.</b> Your own prompt at this step, in '
        f'this page; or <a href="{page}">on a page of its own</a>.</p>'
        f'<section class="llama" data-station="{station}"><p>{NEEDS}</p>'
        "</section>"
    )


def solutions(notebook) -> str:
    """Return the page of a notebook's solutions."""
    file = notebook.solutions
    download = f'<a class="download" href="{basename(file)}" download>'
    download += "Download this file</a>"
    back = f"Back to [{notebook.label}](../{notebook.file})."
    return (
        f"# Solutions of {notebook.label}\n\n{unsearched(download, back)}\n\n"
        f"````python\n{read_text(FOLDER / file).rstrip()}\n````\n"
    )


def names(notebooks: dict[str, dict]) -> str:
    """Return the page of all public names."""
    titles = {
        each.file.replace(".ipynb", ".html"): each.label for each in SERIES
    }
    rows = [("name", "what it is", "taught in"), ("---",) * 3]
    for name, address in sorted(addresses(notebooks).items()):
        label = titles.get(address.partition("#")[0])
        link = f'<a href="{address}">{label}</a>' if label else "–"
        said = re.sub(r"([$<|])", r"\\\1", about(name))
        rows.append((f'<span id="{name}"></span>`{name}`', said, link))
    return f"{read_text(SITE / 'names.md')}\n{table(rows)}"


def project() -> str:
    """Return the project's public address, or "" while there is none."""
    given = os.environ.get("LLAMA_PROJECT")
    found = rooms.address() if given is None else given
    return re.sub(r"//[^/]*@", "//", found)  # without a password


def first_page() -> str:
    """Return the page that the site opens with."""
    times, text = todays_times(), read_text(SITE / "index.md")
    known = project()
    for name, words in {
        "project": f"<{known}>" if known else "whoever gave you this",
        "series": series_table(times),
        "routes": routes_table(times),
        "needs": NEEDS,
    }.items():
        text = text.replace(f"{{{name}}}", words, 1)
    return text
