"""The frame of each notebook: links, times, aims; and reading times."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import nbformat
import pytest

from llamalib.load import ROOT
from tools import counts
from tools import frame as series
from tools.notebooks import all_notebooks, llama_of


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


PATHS = all_notebooks()


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request):
    return request.param


def test_the_list_is_the_folder():
    files = [p.relative_to(series.NOTEBOOKS).as_posix() for p in PATHS]
    assert files == [each.file for each in series.SERIES]


def test_the_frame_is_todays(path):
    """`python -m tools frame` would change nothing."""
    cells, times = load(path)["cells"], counts.reading(load(path))
    name = path.relative_to(series.NOTEBOOKS).as_posix()
    (notebook,) = (each for each in series.SERIES if each.file == name)
    today = series.framed(cells, notebook, times)
    assert cells == today, f"{name}: run `python -m tools frame`"


def test_the_outputs_are_those_of_the_notebooks_model(path):
    """`make notebooks` and nbval run it on the model that its map names."""
    text = path.read_text(encoding="utf-8")
    (name,) = set(re.findall(r"LM head, sample, (\S+): +D = ", text))
    model = llama_of(path).name
    make = f"run `make notebooks FILES={path.relative_to(ROOT)}`"
    assert name.startswith(model), f"outputs of {name}, not {model}: {make}"


def test_the_index_is_todays():
    text = (series.NOTEBOOKS / series.INDEX).read_text(encoding="utf-8")
    times = series.todays_times()
    found = [
        "".join(cell["source"])
        for cell in json.loads(text)["cells"]
        if "frame" in cell["metadata"].get("tags", ())
    ]
    how = "run `python -m tools frame`"
    assert found == [series.contents(times)], f"{series.INDEX}: {how}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == series.with_table(readme, times), f"README.md: {how}"


def test_links_lead_to_files_in_the_labs_root():
    """The Lab's root is `notebooks`: a link that leaves it is dead there."""
    for path in [series.NOTEBOOKS / series.INDEX, *PATHS]:
        for cell in load(path)["cells"]:
            if cell["cell_type"] != "markdown":
                continue
            text = "".join(cell["source"])
            pattern = r'(?:\]\(|<a href=")([^)"\s]+)[)"]'
            for target in re.findall(pattern, text):
                if re.match(r"https?:|#", target):
                    continue
                file = (path.parent / target.split("#")[0]).resolve()
                assert file.exists(), f"{path.name}: {target}"
                inside = file.is_relative_to(series.NOTEBOOKS)
                assert inside, f"{path.name}: {target} is outside the Lab"


def test_reading_is_counted():
    def cell(kind, text, *tags, **more):
        metadata = {"tags": list(tags)}
        return dict(cell_type=kind, metadata=metadata, source=[text], **more)

    picture = {"data": {"text/html": ['<img alt="a" src="b">']}}
    printed = {"text": ["two\n", "lines\n"]}
    value = {"data": {"text/plain": ["[1,\n", " 2]"]}}
    bars = {"data": {"text/plain": ["VBox()"], "text/html": ["<table>"]}}
    notebook = {
        "cells": [
            cell("markdown", "not counted", "frame"),
            cell("markdown", "# Two words $$ x = 1 $$"),
            cell("code", "a = 1\n\nb = 2", outputs=[picture, printed]),
            cell("code", "assert 1", "check", outputs=[printed]),
            cell("code", "print(difference)", outputs=[value, bars]),
            cell("markdown", "one\n## Test yourself"),
            cell("code", "unread()", outputs=[picture]),
            cell("markdown", "## Exercises\n**Exercise 1** (15 minutes)"),
            cell("markdown", "**Exercise 2** (10 minutes): more"),
            cell("code", "...", outputs=[]),
        ]
    }
    found = counts.reading(notebook)
    assert (found.words, found.lines, found.pictures) == (8, 3, 1)
    assert (found.printed, found.share) == (4, 2 / 4)
    assert (found.cells, found.practice) == (10, 25)
    # 8 words, 3 lines of code, 4 of output, 1 picture: 4 + 12 + 4 + 30 s
    assert found.minutes == 1
    assert replace(found, printed=15).minutes == 2


CELL = """
import ipywidgets
from lessons import n07_lm_head as lesson
from lessons.play import Play

print("on the same")
print("stream")
Play(
    lambda n: lesson.next_token_bars(["a"] * n, [0.5] * n),
    n=ipywidgets.IntSlider(3, 1, 9),
)
"""


def test_an_executed_notebook_keeps_no_trace_of_the_machine(tmp_path):
    """As `make notebooks` does it; a still picture stands for a widget."""
    path = tmp_path / "mein Heft.ipynb"
    cell = nbformat.v4.new_code_cell(CELL)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    execute = "-m", "nbconvert", "--config", ROOT / ".ci" / "execute.json"
    done = subprocess.run([sys.executable, *execute, path])
    assert done.returncode == 0
    path.write_bytes(series.clean(load(path)))
    saved = nbformat.read(path, as_version=4)
    (cell,) = saved.cells
    said, play = cell.outputs
    assert cell.execution_count == 1 and not cell.metadata
    assert said["text"] == "on the same\nstream\n"
    assert set(play["data"]) == {"text/html", "text/plain"}
    assert set(saved.metadata) == {"kernelspec", "language_info"}
    assert saved.metadata.language_info == {"name": "python"}
