"""Test, measure and train: the Makefile's targets, on every system."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from llamalib.load import ROOT

from .notebooks import NOTEBOOKS

POCKET = ROOT / "data" / "pocket-llama"
# The pocket Llama, whose outputs the notebooks hold. One file per CPU core,
# each in one thread: for models as small as the tests' this is twice as fast
# as one file on all cores. UTF-8 also where Windows has another encoding.
TESTED = {"LLAMA_DIR": str(POCKET), "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
TRAIN, SPEED = "data/recipe/make_pocket.py", "bench/generation.py"
SCRIPTS = {  # by command: what runs, and what that does
    "pocket": ([TRAIN], "train the pocket Llama from scratch"),
    "bench": (["bench/opening.py", SPEED], "measure the speed on the CPU"),
    "bench-gpu": ([f"{SPEED} --device cuda"], "measure it on a CUDA GPU"),
}


def python(*arguments, **variables) -> int:
    """Run this Python in the project's folder; return its exit status."""
    command = [sys.executable, *map(str, arguments)]
    environ = os.environ | variables
    return subprocess.run(command, cwd=ROOT, env=environ).returncode


def require(package: str, extra: str) -> None:
    """Raise RuntimeError, with what to do, if a package is missing."""
    if find_spec(package) is None:
        command = f'`python -m pip install -c constraints.txt -e ".[{extra}]"`'
        if extra == "bench":
            command += "; it compiles llama.cpp: if that fails, take .[dev]"
        raise RuntimeError(
            f"{package} is not installed here: in {ROOT} run {command}"
        )


def run_scripts(name: str) -> int:
    """Run a task's scripts, one after the other, until one fails."""
    require("transformers", "dev" if name == "pocket" else "bench")
    statuses = (python(*script.split()) for script in SCRIPTS[name][0])
    return next(filter(None, statuses), 0)


def run_pytest(*arguments, processes=8, **variables) -> int:
    """Run pytest in several processes if pytest-xdist is installed."""
    require("pytest", "dev")
    if processes and find_spec("xdist"):
        spread = "-n", "auto", "--maxprocesses", processes
        arguments = *spread, "--dist", "loadfile", *arguments
    return python("-m", "pytest", *arguments, **variables)


def run_tests(paths: list[Path]) -> int:
    """Run all tests, then compare all notebooks' outputs; or some of both."""
    paths = [path.resolve() for path in paths] or [ROOT / "tests", NOTEBOOKS]
    books = [p for p in paths if p == NOTEBOOKS or p.suffix == ".ipynb"]
    tests = [p for p in paths if p not in books]
    failed = run_pytest(*tests, **TESTED) if tests else 0
    if books and not failed:
        failed = run_pytest("--nbval", *books, **TESTED)
    return failed


def run_slow_tests() -> int:
    """Run the tests that need gigabytes or minutes."""
    return run_pytest("tests", "-m", "slow", processes=0)


def run_browser_tests() -> int:
    """Test the widgets in JupyterLab, and the site, in Chromium."""
    require("selenium", "browser")
    require("furo", "site")
    return run_pytest("tests", "-m", "browser", processes=4, **TESTED)


def clean() -> int:
    """Remove the environment .venv, if make made it, and what was built."""
    return python("-I", ".ci/environment.py", ROOT / ".venv", "clean")
