"""Functions that a notebook defines in its tagged cells, for the tests."""

import json
from functools import cache
from pathlib import Path

from llamalib.load import ROOT

TAGS = ("taught", "llamalib")


def notebooks() -> list[Path]:
    """Return the notebooks that have a tagged cell."""
    folder = ROOT / "notebooks"
    paths = [*folder.glob("*.ipynb"), *folder.glob("appendix/*.ipynb")]
    return [path for path in sorted(paths) if any(tagged(path))]


def tagged(path: Path, tags=TAGS) -> list[str]:
    """Return the source of each cell whose tag begins so, in order."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        "".join(cell["source"])
        for cell in cells
        if any(
            tag.startswith(tags)  # such as llamalib:model
            for tag in cell["metadata"].get("tags", ())
        )
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
