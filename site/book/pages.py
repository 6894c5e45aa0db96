"""The pages, as sources for Sphinx: made from the notebooks, never stored."""

import ast
import json
import os
import re
from html import escape
from pathlib import Path
from posixpath import basename

from lessons.counts import table
from lessons.frame import SERIES, routes_table, series_table, todays_times
from lessons.guide import guide_page
from llamalib.load import ROOT

from . import flow
from .names import about, addresses

SITE, FOLDER = ROOT / "site", ROOT / "notebooks"
FILES = [*(each.file for each in SERIES), "setup_colab.ipynb"]
# The notebooks whose widget has a part in llama.js, which needs no kernel.
PARTS = {
    "01_tokenize.ipynb": "tokens",
    "04_rope.ipynb": "rotation",
    "05_attention.ipynb": "attention",
    "07_lm_head.ipynb": "next",
    "08_sampling.ipynb": "sampling",
    "09_generate.ipynb": "generate",
}


def read_notebooks() -> dict[str, dict]:
    """Return the notebooks' JSON, by file."""
    return {file: json.loads(read_text(FOLDER / file)) for file in FILES}


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
    found["guide.md"] = guide_page().replace("](../notebooks/", "](")
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
        if file in PARTS and (widget := saved_widget(cell)):
            cells.append(markdown("llama", section(PARTS[file], widget)))
    title, *rest = cells[0]["source"].split("\n", 1)
    above = [title, downloads(file), *frame[1:2], *rest]
    first = markdown("title", "\n\n".join(above))
    cells[1:] += [markdown("frame", f"---\n\n{text}") for text in frame[2:]]
    return notebook | {"cells": [first, *cells[1:]]}


def markdown(key: str, text: str) -> dict:
    """Return a cell of Markdown."""
    kind = dict(cell_type="markdown", metadata={}, source=text)
    return kind | {"id": f"site-{key}"}


def downloads(file: str) -> str:
    """Return the line of links below a notebook's title."""
    root = "../" * file.count("/")
    here = f'<a class="download" href="{basename(file)}" download>'
    line = f"{here}Download this notebook</a>; to run it, "
    line += f'<a href="{root}index.html#run-it-yourself">get the project</a>.'
    part = ' Or <a href="#llama">try its Llama in this page</a>.'
    return line + part * (file in PARTS)


def saved_widget(cell: dict) -> str:
    """Return the widget that a cell shows, such as Play(k=3), or ""."""
    for output in cell.get("outputs", ()):
        text = "".join(output.get("data", {}).get("text/plain", ""))
        if text.startswith(("Play(", "Stream(")):
            return text
    return ""


def section(part: str, widget: str) -> str:
    """Return the place that llama.js fills, with the widget's own text."""
    data = f'data-part="{part}"'
    if given := re.search(r"(?:text|prompt)=('.*?'|\".*?\")", widget):
        data += f' data-prompt="{escape(ast.literal_eval(given[1]))}"'
    words = "This part needs JavaScript and a browser of 2022 or later."
    return f'<section class="llama" id="llama" {data}><p>{words}</p></section>'


def solutions(notebook) -> str:
    """Return the page of a notebook's solutions."""
    file = notebook.solutions
    return (
        f"# Solutions of {notebook.label}\n\n"
        f'<a class="download" href="{basename(file)}" download>Download this '
        f"file</a>\n\nBack to [{notebook.label}](../{notebook.file}).\n\n"
        f"````python\n{read_text(FOLDER / file).rstrip()}\n````\n"
    )


def names(notebooks: dict[str, dict]) -> str:
    """Return the page of all public names."""
    titles = {flow.page(each): each.label for each in SERIES}
    rows = [("name", "what it is", "taught in"), ("---",) * 3]
    for name, address in sorted(addresses(notebooks).items()):
        label = titles.get(address.partition("#")[0])
        link = f'<a href="{address}">{label}</a>' if label else "–"
        said = re.sub(r"([$<|])", r"\\\1", about(name))
        rows.append((f'<span id="{name}"></span>`{name}`', said, link))
    return f"{read_text(SITE / 'names.md')}\n{table(rows)}"


def first_page() -> str:
    """Return the page that the site opens with."""
    times, text = todays_times(), read_text(SITE / "index.md")
    address = os.environ.get("LLAMA_PROJECT")
    for name, words in {
        "project": f"<{address}>" if address else "whoever gave you this",
        "map": flow.picture(),
        "series": series_table(times),
        "routes": routes_table(times),
    }.items():
        text = text.replace(f"{{{name}}}", words, 1)
    return text
