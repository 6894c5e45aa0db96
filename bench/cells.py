r"""Run the cells of 09_generate on one checkpoint, and say what each prints.

    python bench/cells.py FOLDER [the number of cells to run]

Prints a line of JSON for each cell: its number, its tags, its seconds, what it
prints, and its error or None; with a continuation or a speed, the greedy ids of
the naive loop, too. A cell that fails does not end the run. Pictures and widgets are left out
where their packages are not installed.
"""

import contextlib
import io
import json
import os
import re
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds `llamalib`
    sys.path[0] = str(ROOT)
NOTEBOOK = ROOT / "notebooks" / "09_generate.ipynb"


def without_pictures() -> str | None:
    """Return the missing package if pictures cannot be drawn, or None."""
    try:
        import lessons.n09_generate  # noqa: F401
    except ImportError as error:
        sys.modules["lessons.n09_generate"] = MagicMock()
        return error.name
    return None


def run(source: str, names: dict) -> dict:
    """Run a cell and return what there is to say of it."""
    printed, error, start = io.StringIO(), None, time.perf_counter()
    with contextlib.redirect_stdout(printed):
        try:
            exec(source, names)
        except Exception as problem:
            line = (str(problem).splitlines() or [""])[0]
            error = f"{type(problem).__name__}: {line[:200]}"
    seconds = round(time.perf_counter() - start, 2)
    return {"seconds": seconds, "printed": printed.getvalue(), "error": error}


def main(folder, most=None) -> int:
    os.environ["LLAMA_DIR"] = str(folder)
    os.environ["MPLBACKEND"] = "agg"  # draw pictures without showing them
    os.environ.pop("LLAMA_PROMPT", None)
    missing = without_pictures()
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    names = {"__name__": "__main__", "display": lambda *_: None}
    failed = False
    for number, cell in enumerate(cells[: int(most or len(cells))], 1):
        found = run("".join(cell["source"]), names)
        found |= {"cell": number, "tags": cell["metadata"].get("tags", [])}
        if re.search(r"^(continuation|speed) +\|", found["printed"], re.M):
            found["ids"] = names.get("naive")
        if number == 1:
            found["without"] = missing
        failed = failed or found["error"] is not None
        print(json.dumps(found, ensure_ascii=False), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
