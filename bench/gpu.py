r"""Test and measure everything that needs a CUDA GPU, in nine minutes at most.

    python bench/gpu.py

It needs torch, and its parts need the other packages that llamalib imports.
Nothing is installed: the tests are left out where pytest or matplotlib is
missing. Each part is a process with a limit of time. What it found is written
to `bench/results/generation-cuda.json` before the next one starts.
"""

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout, suppress
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
PYTEST = "-m pytest -v -o addopts= -p no:cacheprovider -m cuda".split()
PARTS = {
    "tests": (0.25, ["pytest", "matplotlib"], PYTEST),
    "weights": (0.15, [], ["bench/generation.py", "--write"]),
    "cells": (0.2, [], ["bench/gpu.py", "--cells"]),
    "bench": (1, [], ["bench/generation.py", "--device", "cuda"]),
}


def run_gpu(minutes: float = 9, parts=None, rehearse: Path = None) -> int:
    """Run all parts, or those named; return 0 if all of them succeeded.

    rehearse: a folder for a run on the CPU with a tiny model.
    """
    import torch

    if not (rehearse or torch.cuda.is_available()):
        print("no CUDA GPU here: nothing was run or written", file=sys.stderr)
        return 1
    end, ok = time.monotonic() + 60 * minutes - RESERVE, True
    file = (rehearse or RESULTS).resolve() / "generation-cuda.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    for name in parts or PARTS:
        limit = min(60 * minutes * PARTS[name][0], end - time.monotonic())
        print(f"{name}, at most {max(0, limit):.0f} s", flush=True)
        found = run_part(name, limit, rehearse and file.parent)
        print(f"  {found['outcome']}, {found['seconds']} s", flush=True)
        ok = ok and found["outcome"] == "finished"
        keep(file, name, found)
    print(f"written: {file.with_suffix('.*')}")
    return int(not ok)


def run_part(name: str, limit: float, rehearse: Path | None) -> dict:
    """Run one part and return its outcome, its seconds and what it found."""
    _, packages, command = PARTS[name]
    lacking = [each for each in packages if not find_spec(each)]
    if lacking or limit <= 0:
        why = f"without {', '.join(lacking)}" if lacking else "too late"
        return {"outcome": f"left out: {why}", "seconds": 0}
    folder = rehearse / "build" / "1b" if rehearse else CHECKPOINT
    tiny = ["--rehearse", rehearse] if rehearse else []
    few = ["--only", "ours bfloat16", "transformers bfloat16"] if tiny else []
    minutes = ["--minutes", f"{max(0, limit - 10) / 60:.2f}"]
    given = {
        "tests": test_files(),
        "weights": tiny,
        "cells": [folder],
        "bench": [*minutes, *few, *tiny],
    }
    code, text, seconds = run_process([*command, *given[name]], limit)
    outcome = f"failed with exit status {code}" if code else "finished"
    outcome = f"stopped after {limit:.0f} s" if code is None else outcome
    if code != 0:
        print(text[-2000:])
    found = {"outcome": outcome, "seconds": round(seconds, 1)}
    return found | results(name, text)


def test_files() -> list[Path]:
    """Return the test files with tests for a GPU; others import more."""
    files = (ROOT / "tests").glob("test_*.py")
    return [f for f in files if "needs_cuda" in f.read_text(encoding="utf-8")]


def run_process(command: list, limit: float):
    """Run Python; return exit status (None: stopped), output and seconds."""
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
    return code, text, time.monotonic() - start


def results(name: str, text: str) -> dict:
    """Return the tests by outcome, or what each cell of 09 printed."""
    if name == "cells":
        found = map(json.loads, re.findall(r"^\{.*", text, re.M))
        return {"cells": list(found)}
    if name != "tests":
        return {}
    line = r"^(\S+::\S+) (PASSED|FAILED|ERROR|SKIPPED)"
    lines = re.findall(line, text, re.M)
    bad = [test for test, how in lines if how in ("FAILED", "ERROR")]
    return {"tests": Counter(how.lower() for _, how in lines), "bad": bad}


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
    """Run notebook 09 up to its widget; print a line of JSON for each cell.

    A cell that fails does not end the run. Pictures are left out where their
    packages are not installed.
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
    for source in takewhile(lambda x: "lesson.stream(" not in x, sources):
        printed, error = io.StringIO(), None
        with redirect_stdout(printed):
            try:
                exec(source, names)
            except Exception as problem:
                error, failed = f"{type(problem).__name__}: {problem}", 1
        found = dict(printed=printed.getvalue(), error=error)
        print(json.dumps(found, ensure_ascii=False), flush=True)
    return failed


def main(argv=None) -> int:
    """Run the parts that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--minutes", type=float, default=9, help="the most to take")
    add("--parts", nargs="*", choices=PARTS, help="only these")
    # on the CPU, with a tiny model; results in this folder
    add("--rehearse", type=Path, help=argparse.SUPPRESS)
    add("--cells", help=argparse.SUPPRESS)
    options = vars(parser.parse_args(argv))
    folder = options.pop("cells")
    return run_cells(folder) if folder else run_gpu(**options)


if __name__ == "__main__":
    sys.exit(main())
