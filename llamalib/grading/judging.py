r"""Judge one submission: run it in a sandbox, and our checks outside it.

`python -m llamalib.grading.judging` does so in a process of its own, with
limits, and prints the result as JSON.
"""

import ast
import contextlib
import json
import sys
import tempfile
import time
from importlib import import_module
from itertools import islice
from pathlib import Path

import torch

from ..course.judge import variant
from ..load import ROOT, load
from .assignments import exercises
from .sandbox import Sandbox, write_package
from .wire import Failed, Lost, masked
from .worker import limit

START, CELL, CELLS = 120, 120, 300  # seconds: of the sandbox, one cell, all
RESTARTS = 3  # for cells that hang
SIZE = 30 * 2**20  # bytes of a notebook
MEMORY = 8 * 2**30  # address space of the judge
HIDDEN = 3  # checks with other seeds and shapes
NOTES = 20  # errors of cells that are told
FAILED = "the judge failed, please report it"


def code_of(notebook: dict) -> list[tuple[list, str]]:
    """Return (tags, source) of the code cells of a notebook's JSON."""
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            tags = cell.get("metadata", {}).get("tags", ())
            found.append(([*tags], "".join(cell["source"])))
    return found


def value_of(name: str, notebook: dict):
    """Return what our notebook's check is given by this name."""
    if name == "llama":
        folder = ROOT / "data" / "pocket-llama"
        return load(folder, device="cpu", dtype=torch.float32)
    names = {"torch": torch, "F": torch.nn.functional}
    for _, source in code_of(notebook):
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign):
                if ast.unparse(node.targets[0]) == name:
                    return eval(ast.unparse(node.value), names)
    raise ValueError(f"no cell of the notebook assigns {name}")


def read_cells(path: Path) -> list[tuple[list, str]]:
    """Return a submission's code cells; ValueError if it is no notebook."""
    if path.is_symlink() or not path.is_file():
        raise ValueError("not a file but a link or a folder: hand in the file")
    if path.stat().st_size > SIZE:
        raise ValueError(f"larger than {SIZE:,} bytes: clear its outputs")
    try:
        return code_of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        words = f"{type(error).__name__}: {error}"[:100]
        raise ValueError(f"not a notebook that Jupyter can open ({words})")
    except RecursionError:
        raise ValueError("not a notebook: nested too deep") from None


class Submission:
    r"""A learner's cells, run in a sandbox that is started when needed.

    Attributes:
        notes: errors of the learner's cells.
    """

    def __init__(self, cells, ours, package: Path, unsafe=False):
        self.package, self.unsafe, self.box = package, unsafe, None
        own = {source for _, source in ours}
        long = {source for tags, source in ours if "long" in tags}
        self.cells = [
            (f"code cell {n}", source, source in own)
            for n, (tags, source) in enumerate(cells, 1)
            if "long" not in tags and source not in long
        ]
        self.notes, self.skipped = {}, set()

    def ready(self) -> Sandbox:
        """Return the sandbox in which the cells have run."""
        while self.box is None:
            box, name = Sandbox(self.package, self.unsafe), ""
            try:
                with box.within(START):
                    box.run("start", "")
                end = time.monotonic() + CELLS
                for name, source, ours in self.cells:
                    if name not in self.skipped:
                        left = max(1, min(CELL, end - time.monotonic()))
                        with box.within(left):
                            error = box.run(name, source)
                        if error and not ours:
                            self.notes[name] = masked(str(error))
                self.box = box
            except Lost as lost:
                box.close()
                if not name:  # none of the learner's code has run
                    raise Lost(f"{FAILED}: its sandbox {lost}") from None
                self.notes[name] = str(lost)
                self.skipped.add(name)
                if len(self.skipped) > RESTARTS:
                    raise Lost("its cells do not run to the end") from None
        return self.box

    def why_no(self, function: str) -> str:
        """Return that a function is not defined, and its cell's error."""
        own = {n for n, source, _ in self.cells if f"def {function}" in source}
        found = [note for n, note in self.notes.items() if n in own]
        return ": ".join([f"the notebook defines no {function}", *found])

    def close(self) -> None:
        """End the sandbox; the next `ready` starts another."""
        if self.box:
            self.box.close()
            self.box = None


def judged(submission, exercise, check, given, variants, seconds) -> tuple:
    """Return (whether the answer is right, words) of one exercise."""
    words = ""
    for n in variants:
        try:
            with submission.ready().within(seconds), variant(n):
                answer = submission.box.find(exercise.name)
                right, said = verdict_on(answer, check, given)
        except Lost as lost:
            submission.close()
            right, said = False, str(lost)
        except Failed:
            return False, submission.why_no(exercise.name)
        words = words or said
        if not right:
            return False, f"in a hidden check: {said}" if n else said
    return True, words


def verdict_on(answer, check, given) -> tuple[bool | None, str]:
    """Return a check's verdict; a check that fails itself says so."""
    try:
        return check.verdict(answer, *given)
    except Exception as error:
        return False, f"{FAILED}: {type(error).__name__}: {error}"[:300]


def judge(path: str, stem: str, variants, seconds=20, unsafe=False) -> dict:
    r"""Return a submission's marks and notes, and why it has no marks.

    Marks: by exercise the points, the most there can be, and words.
    """
    (source,) = (ROOT / "notebooks").rglob(f"{stem}.ipynb")
    notebook = json.loads(source.read_text(encoding="utf-8"))
    checks = f"llamalib.course.nb{stem.split('_')[0]}"
    checks, marks = import_module(checks), {}
    with tempfile.TemporaryDirectory() as folder:
        write_package(Path(folder))
        try:
            cells, problem = read_cells(Path(path)), ""
        except (OSError, ValueError) as error:
            cells, problem = [], str(error)
        work = Submission(cells, code_of(notebook), Path(folder), unsafe)
        with contextlib.closing(work):
            for each in exercises(source):
                check = getattr(checks, f"check_{each.number}")
                given = [value_of(name, notebook) for name in each.given]
                right, words = False, ""
                if not problem:
                    case = work, each, check, given, variants, seconds
                    right, words = judged(*case)
                marks[each.title] = each.points * right, each.points, words
    notes = dict(islice(work.notes.items(), NOTES))
    if len(notes) < len(work.notes):
        notes[f"and {len(work.notes) - NOTES:,} more cells"] = "errors"
    return dict(marks=marks, notes=notes, problem=problem)


def main() -> None:
    """Print the result of one submission, given and told as JSON."""
    limit(MEMORY)
    json.dump(judge(**json.loads(sys.argv[1])), sys.stdout)


if __name__ == "__main__":
    main()
