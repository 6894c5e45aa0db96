"""The pages, as sources for Sphinx: made from the notebooks, never stored.

A link in a source names a file of the project. In a page it leads to the
page of that file, or to a copy of it.
"""

import ast
import json
import os
import re
import shutil
from html import escape
from importlib import resources
from pathlib import Path
from posixpath import basename, dirname, join, normpath, relpath

from fontTools.ttLib import TTFont

from lessons.counts import table
from lessons.frame import (
    SERIES,
    routes_table,
    series_table,
    todays_times,
)
from llamalib.load import ROOT

from . import flow
from .names import about, addresses
from .pocket import write_pocket

NOTEBOOKS = {n.file: ROOT / "notebooks" / n.file for n in SERIES}
NOTEBOOKS["setup_colab.ipynb"] = ROOT / "notebooks" / "setup_colab.ipynb"
# The cell whose widget needs a kernel, and the part of llama.js for it.
PARTS = {
    "01_tokenize.ipynb": ("c81", "tokens"),
    "04_rope.ipynb": ("c43", "rotation"),
    "05_attention.ipynb": ("c99", "attention"),
    "07_lm_head.ipynb": ("c73", "next"),
    "08_sampling.ipynb": ("c90", "sampling"),
    "09_generate.ipynb": ("c34", "generate"),
}
# What a widget's saved output says, and what it says above a live part.
STILL = re.compile(r"A (still picture|saved text)\. Run the notebook[^.<]*\.")
LIVE = r"A \1. Below is a live one."
SITE = ROOT / "site"
FONT = "STIXTwoMath-Regular.ttf"  # SIL Open Font License, version 1.1
# Where a file of the project is in the site.
PLACES = {f"notebooks/{file}": file for file in NOTEBOOKS}
for n in SERIES:
    PLACES[f"notebooks/{n.solutions}"] = n.solutions.replace(".py", ".md")
PLACES |= {"notebooks/index.ipynb": "index.md", "data/README.md": "data.md"}
PLACES["site/guide.md"] = "guide.md"


def read_text(name: str) -> str:
    """Return a file of the project; of the teacher's guide, all of it."""
    if name == "site/guide.md":
        from lessons.guide import guide_page

        return guide_page()
    return (ROOT / name).read_text(encoding="utf-8")


def read_notebooks() -> dict[str, dict]:
    """Return the notebooks' JSON, by file."""
    return {
        file: json.loads(path.read_text(encoding="utf-8"))
        for file, path in NOTEBOOKS.items()
    }


class Pages:
    """The folder of sources that Sphinx reads."""

    def __init__(self, folder: Path):
        self.folder, self.notebooks = folder, read_notebooks()

    def write(self) -> None:
        """Write all sources into the empty folder."""
        for file, path in NOTEBOOKS.items():
            self.put(file, json.dumps(self.page(file), ensure_ascii=False))
            self.put(f"_extra/{file}", path)
        for each in SERIES:
            self.solutions(each)
        names = "\n".join(Path(n.solutions).stem for n in SERIES)
        names = f"```{{toctree}}\n:maxdepth: 1\n\n{names}\n```\n"
        self.put("solutions/index.md", f"# Solutions\n\n{names}")
        self.put("glossary.md", self.glossary())
        self.put("names.md", self.names())
        for name, to in PLACES.items():
            if name.endswith(".md"):
                self.put(to, self.linked(read_text(name), name))
        self.put("index.md", self.first_page())
        self.static()

    def static(self) -> None:
        """Copy the scripts and styles, the font, and the pocket Llama."""
        for file in (*SITE.glob("*.js"), *SITE.glob("*.css")):
            self.put(f"_static/{file.name}", file)
        with resources.as_file(resources.files("ziamath") / "fonts") as fonts:
            self.put(f"_static/fonts/{FONT}", fonts / FONT)
            said = TTFont(fonts / FONT)["name"].getDebugName
        notice = "\n".join(map(said, (4, 0, 13)))  # name, copyright, licence
        self.put("_static/fonts/OFL.txt", f"{notice}\n")
        write_pocket(self.folder / "_static" / "pocket")

    def put(self, name: str, content: str | Path) -> None:
        """Write a source: a text, or a copy of a file."""
        to = self.folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, to)
        else:
            to.write_text(content, encoding="utf-8")

    def target(self, href: str, start: str) -> str:
        """Return a link of the project's file `start` as the page's.

        Raises ValueError for a file that does not exist.
        """
        if re.match(r"[a-z]+:|#|$", href):
            return href
        path, mark, anchor = href.partition("#")
        file = normpath(join(dirname(start), path))
        to = PLACES.get(file)
        if to is None:
            if not (ROOT / file).is_file():
                raise ValueError(f"{start}: the link {href} leads to no file")
            to = f"files/{file}"
            self.put(to, ROOT / file)
        to = relpath(to, dirname(PLACES[start]) or ".")
        return to + mark + anchor

    def linked(self, text: str, start: str) -> str:
        """Return Markdown of the project's file `start` with page's links."""

        def replace(match):
            if match[1]:  # code
                return match[0]
            to = self.target(match[3], start)
            if match[2] == 'href="':  # which Sphinx leaves as it is
                to = re.sub(r"\.(ipynb|md)(?=#|$)", ".html", to)
            return match[2] + to

        code = r"(```.*?```|`[^`\n]+`)"
        link = r"(\]\(|href=\")([^)\"\s]+)"
        return re.sub(f"{code}|{link}", replace, text, flags=re.S)

    def page(self, file: str) -> dict:
        """Return a notebook as a page: the frame's cells as the theme's."""
        notebook = json.loads(json.dumps(self.notebooks[file]))
        frame, cells = [""], []
        start = f"notebooks/{file}"
        for cell in notebook["cells"]:
            tags = cell["metadata"].setdefault("tags", [])
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                cell["source"] = text = self.linked(text, start)
            if "frame" in tags:  # without the links that the theme has
                frame.append("\n\n".join(text.split("\n\n")[1:]))
                continue
            if cell["metadata"].get("jupyter", {}).get("source_hidden"):
                tags.append("hide-input")
            for output in cell.get("outputs", ()):
                if found := output.get("data", {}).get("text/markdown"):
                    found = self.linked("".join(found), start)
                    output["data"]["text/markdown"] = found
            cells.append(cell)
            if cell["id"] == PARTS.get(file, ("",))[0]:
                cells.append(markdown("llama", section(notebook, file)))
                say_live(cell)
        title, *rest = cells[0]["source"].split("\n", 1)
        above = [title, downloads(file), *frame[1:2], *rest]
        cells[0]["source"] = "\n\n".join(above)
        if frame[2:]:
            cells.append(markdown("frame", f"---\n\n{frame[2]}"))
        notebook["cells"] = cells
        return notebook

    def solutions(self, notebook) -> None:
        """Write the page of a notebook's solutions, and their file."""
        path = ROOT / "notebooks" / notebook.solutions
        code = path.read_text(encoding="utf-8")
        name = Path(notebook.solutions).name
        self.put(
            notebook.solutions.replace(".py", ".md"),
            f"# Solutions of {notebook.label}\n\n"
            f'<a class="download" href="{name}" download>Download this file'
            f"</a>\n\nBack to [{notebook.label}](../{notebook.file}).\n\n"
            f"````python\n{code.rstrip()}\n````\n",
        )
        self.put(f"_extra/{notebook.solutions}", path)

    def glossary(self) -> str:
        """Return the glossary of the index, as a page."""
        start = "notebooks/index.ipynb"
        cells = json.loads(read_text(start))["cells"]
        (cell,) = (c for c in cells if c["id"] == "glossary")
        text = self.linked("".join(cell["source"]), start)
        return text.replace("## ", "# ", 1)

    def names(self) -> str:
        """Return the page of all public names."""
        titles = {
            Path(n.file).with_suffix(".html").as_posix(): n.label
            for n in SERIES
        }
        rows = [("name", "what it is", "taught in"), ("---",) * 3]
        for name, address in sorted(addresses(self.notebooks).items()):
            label = titles.get(address.partition("#")[0])
            link = f'<a href="{address}">{label}</a>' if label else "–"
            said = re.sub(r"([$<|])", r"\\\1", about(name))
            rows.append((f'<span id="{name}"></span>`{name}`', said, link))
        text = (SITE / "names.md").read_text(encoding="utf-8")
        return f"{text}\n{table(rows)}"

    def first_page(self) -> str:
        """Return the page that the site opens with."""
        times = todays_times()
        text = (SITE / "index.md").read_text(encoding="utf-8")
        main, more = (
            [Path(n.file).with_suffix("").as_posix() for n in found]
            for found in (flow.ROAD, flow.APPENDICES)
        )
        others = "glossary names guide solutions/index data setup_colab"
        parts = {
            int(file[:2]): f'<a href="{file[:-6]}.html#llama">{file[:2]}</a>'
            for file in PARTS
        }
        trees = (
            tree("Main road", main),
            tree("Appendices", more),
            tree("More", others.split()),
        )
        address = os.environ.get("LLAMA_PROJECT")
        return text.format(
            project=f"<{address}>" if address else "whoever gave you this",
            map=flow.picture(),
            series=series_table(times),
            routes=routes_table(times),
            parts=parts,
            trees="\n\n".join(trees),
        )


def tree(caption: str, files: list[str]) -> str:
    """Return a list of pages for the sidebar."""
    names = "\n".join(files)
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```"


def downloads(file: str) -> str:
    """Return the line of links below a notebook's title."""
    root = "../" * file.count("/")
    here = f'<a class="download" href="{basename(file)}" download>'
    line = f"{here}Download this notebook</a>; to run it, "
    line += f'<a href="{root}index.html#run-it-yourself">get the project</a>.'
    part = ' Or <a href="#llama">try its Llama in this page</a>.'
    return line + part * (file in PARTS)


def markdown(key: str, text: str) -> dict:
    """Return a cell of Markdown."""
    kind = dict(cell_type="markdown", metadata={}, source=text)
    return kind | {"id": f"site-{key}"}


def section(notebook: dict, file: str) -> str:
    """Return the place that llama.js fills, with the widget's own text."""
    key, part = PARTS[file]
    (cell,) = (c for c in notebook["cells"] if c["id"] == key)
    shown = "".join(cell["outputs"][0]["data"]["text/plain"])
    data = f'data-part="{part}"'
    if given := re.search(r"(?:text|prompt)=('.*?'|\".*?\")", shown):
        data += f' data-prompt="{escape(ast.literal_eval(given[1]))}"'
    words = "This part needs JavaScript and a browser of 2022 or later."
    return f'<section class="llama" id="llama" {data}><p>{words}</p></section>'


def say_live(cell: dict) -> None:
    """Let a saved widget lead to the part of the page that is live."""
    for output in cell["outputs"]:
        if html := output.get("data", {}).get("text/html"):
            output["data"]["text/html"] = STILL.sub(LIVE, "".join(html))
