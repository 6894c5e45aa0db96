"""Functions that a notebook defines in its tagged cells, for the tests."""

import json
from functools import cache
from pathlib import Path

from llamalib.files import ROOT

TAGS = {"taught", "llamalib"}


def notebooks() -> list[Path]:
    """Return the notebooks that have a cell tagged `taught`."""
    folder = ROOT / "notebooks"
    paths = [*folder.glob("*.ipynb"), *folder.glob("appendix/*.ipynb")]
    return [path for path in sorted(paths) if any(tagged(path, {"taught"}))]


def tagged(path: Path, tags=TAGS) -> list[str]:
    """Return the source of each code cell with one of the tags, in order."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        "".join(cell["source"])
        for cell in cells
        if tags.intersection(cell["metadata"].get("tags", ()))
    ]


@cache
def namespace(stem: str) -> dict:
    """Return the names of a notebook after its tagged cells, and no others."""
    folder = ROOT / "notebooks"
    paths = *folder.glob(f"{stem}.ipynb"), *folder.glob(f"*/{stem}.ipynb")
    names = {"__name__": f"taught_in_{stem}"}
    for source in tagged(paths[0]):
        exec(compile(source, paths[0].name, "exec"), names)
    return names


def taught(stem: str, *names: str) -> list:
    """Return these names of a notebook's tagged cells, as a list."""
    return [namespace(stem)[name] for name in names]
