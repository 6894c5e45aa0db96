r"""Test and measure everything that needs a CUDA GPU, in nine minutes at most.

    python bench/gpu.py

It needs torch, and its parts need the other packages that llamalib imports.
Nothing is installed: the tests are left out where pytest or matplotlib is
missing. Each part is a process with a limit of time. What it printed is
written to `bench/results/generation-cuda.json` before the next one starts.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from unittest.mock import MagicMock

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
CHECKPOINT = ROOT / "data" / "build" / "bench" / "1b"
RESERVE = 5  # seconds to stop the last part
# A part's share of all minutes (the last one's: what is left), the packages
# that it needs, its command. The project's options for pytest need nbval.
# The bench writes the weights, which the cells of notebook 09 load.
PYTEST = "-m pytest -v -o addopts= -p no:cacheprovider -m cuda".split()
PARTS = {
    "tests": (0.25, ["pytest", "matplotlib"], PYTEST),
    "bench": (0.65, [], ["bench/generation.py", "--device", "cuda"]),
    "cells": (1, [], ["bench/gpu.py", "--cells"]),
}


def run_gpu(minutes: float, rehearse: Path | None) -> int:
    """Run all parts; return 0 if all of them succeeded.

    rehearse: a folder for a run on the CPU with a tiny model.
    """
    import torch

    if not (rehearse or torch.cuda.is_available()):
        print("no CUDA GPU here: nothing was run or written", file=sys.stderr)
        return 1
    end, ok = time.monotonic() + 60 * minutes - RESERVE, True
    file = (rehearse or RESULTS).resolve() / "generation-cuda.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, (share, packages, command) in PARTS.items():
        limit = min(60 * minutes * share, end - time.monotonic())
        lacking = [each for each in packages if not find_spec(each)]
        if lacking or limit <= 0:
            why = f"without {', '.join(lacking)}" if lacking else "too late"
            found = {"outcome": f"left out: {why}"}
        else:
            print(f"{name}, at most {limit:.0f} s", flush=True)
            more = arguments(name, limit, rehearse and file.parent)
            found = run_process([*command, *more], limit)
            print(*found["printed"][-20:], sep="\n")
        print(f"{name}: {found['outcome']}", flush=True)
        ok = ok and found["outcome"] == "finished"
        keep(file, name, found)
    print(f"written: {file.with_suffix('.*')}")
    return int(not ok)


def arguments(name: str, limit: float, rehearse: Path | None) -> list:
    """Return what a part's command is given."""
    if name == "tests":
        return test_files()
    if name == "cells":
        return [rehearse / "build" / "1b" if rehearse else CHECKPOINT]
    given = ["--minutes", f"{max(0, limit - 10) / 60:.2f}"]
    if rehearse:
        given += ["--rehearse", rehearse]
        given += ["--only", "ours bfloat16", "transformers bfloat16"]
    return given


def test_files() -> list[Path]:
    """Return the test files with tests for a GPU; others import more."""
    files = (ROOT / "tests").glob("test_*.py")
    return [f for f in files if "needs_cuda" in f.read_text(encoding="utf-8")]


def run_process(command: list, limit: float) -> dict:
    """Run Python; return its outcome, its seconds and what it printed."""
    start, code = time.monotonic(), None
    with tempfile.TemporaryFile() as out:
        command = [sys.executable, *map(str, command)]
        how = dict(cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        # in a session of its own: what it starts ends with it
        process = subprocess.Popen(command, start_new_session=True, **how)
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(limit)
        finally:
            if code is None and hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        out.seek(0)
        text = out.read().decode(errors="replace").replace(str(ROOT), "")
    outcome = f"failed with exit status {code}" if code else "finished"
    outcome = f"stopped after {limit:.0f} s" if code is None else outcome
    seconds = round(time.monotonic() - start, 1)
    return dict(outcome=outcome, seconds=seconds, printed=text.splitlines())


def keep(file: Path, name: str, found: dict) -> None:
    """Add a part to the results, which the bench writes, too."""
    text = file.read_text(encoding="utf-8") if file.is_file() else "{}"
    whole = {"device": "cuda", "parts": {}} | json.loads(text)
    whole["parts"][name] = found
    text = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    part = file.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def run_cells(folder: str) -> int:
    """Run notebook 09 up to its widget; return 1 if a cell fails.

    The next ones run nevertheless. Pictures are left out where their packages
    are not installed.
    """
    os.environ |= {"LLAMA_DIR": folder, "MPLBACKEND": "agg"}
    sys.path[0] = str(ROOT)
    with suppress(ImportError):
        import lessons.n09_generate  # noqa: F401
    sys.modules.setdefault("lessons.n09_generate", MagicMock())
    notebook = ROOT / "notebooks" / "09_generate.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names, failed = {"__name__": "__main__", "display": print}, 0
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    sources = takewhile(lambda source: "lesson.chat(" not in source, sources)
    for number, source in enumerate(sources, 1):
        print(f"-- cell {number}", flush=True)
        try:
            exec(source, names)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            failed = 1
    return failed


def main(argv=None) -> int:
    """Run all parts, or the cells alone; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--minutes", type=float, default=9, help="the most to take")
    # on the CPU, with a tiny model; results in this folder
    add("--rehearse", type=Path, help=argparse.SUPPRESS)
    add("--cells", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.cells:
        return run_cells(options.cells)
    return run_gpu(options.minutes, options.rehearse)


if __name__ == "__main__":
    sys.exit(main())
