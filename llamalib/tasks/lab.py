"""Open the series in JupyterLab, on the learner's own copy.

The copy keeps what the learner typed. `.copied.json` in it holds three
digests by file: of what was typed in it and of all its bytes when it was
copied, and of the project's file that was last offered.
"""

import hashlib
import json
import os
from itertools import chain, count
from pathlib import Path

from ..files import ROOT
from .notebooks import NOTEBOOKS

SETTINGS = ROOT / "llamalib" / "course" / "lab"
STATE = ".copied.json"
LEFT_OUT = {"waiting", "__pycache__"}


def open_lab(work: Path, copy: bool, flags: list[str]) -> int:
    """Bring the copy up to date, then open its index in JupyterLab."""
    from jupyterlab.labapp import main

    update_copy(NOTEBOOKS, work)
    if copy:  # for another editor
        return 0
    return main(lab_flags(work) + flags) or 0


def lab_flags(work: Path, settings: Path = SETTINGS) -> list[str]:
    """Return JupyterLab's flags for a folder, with the project's settings."""
    flags = [
        f"--ServerApp.root_dir={work.resolve()}",
        f"--LabApp.app_settings_dir={settings}",
        "--LabApp.default_url=/lab/tree/index.ipynb",
    ]
    # as in a container: JupyterLab refuses to run as root without this
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return flags + ["--allow-root"] * root


def update_copy(source: Path, work: Path) -> None:
    """Copy what is new in `source`; keep what the learner typed in `work`.

    Prints what a learner should know. Raises NotADirectoryError.
    """
    if work.exists() and not work.is_dir():
        raise NotADirectoryError(
            f"{work} is a file: name a folder for your copy, as in --work mine"
        )
    state = read_state(work / STATE)
    for file in sorted(source.rglob("*")):
        name = file.relative_to(source)
        hidden = any(part.startswith(".") for part in name.parts)
        if file.is_file() and not hidden and not LEFT_OUT & set(name.parts):
            update_file(file, name.as_posix(), work, state)
    write(work / STATE, json.dumps(state, indent=1).encode())


def update_file(file: Path, name: str, work: Path, state: dict) -> None:
    """Copy one file, unless the learner has it, and note that in `state`.

    If the learner typed in an earlier version, today's is put next to it.
    """
    offered, today = exact(file), digest(file)
    if (work / name).exists() and state["offered"].get(name) == offered:
        return
    for place in places(name):
        mine = digest(work / place) if (work / place).exists() else None
        if mine in (None, today, *state["typed"].values()):
            break
    state["offered"][name], state["typed"][place] = offered, today
    if mine == today and exact(work / place) != state["exact"].get(place):
        return  # the learner's own outputs
    write(work / place, file.read_bytes())
    state["exact"][place] = offered
    if place != name:
        print(f"You have changed {name}: its new version is {place}")
    elif mine:
        print(f"Updated {name}, where you have typed nothing")


def places(name: str):
    """Yield a file's name, then the names of new versions next to it."""
    start, dot, suffix = name.rpartition(".")
    new = (f"{start}.new{n}{dot}{suffix}" for n in chain([""], count(2)))
    return chain([name], new)


def exact(file: Path) -> str:
    """Return the SHA-256 of all bytes of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def digest(file: Path) -> str:
    """Return the SHA-256 of what is typed in a file: no outputs.

    Of a notebook that is its cells' texts; of any other file all of it.
    """
    content = file.read_bytes()
    if file.suffix == ".ipynb":
        try:
            cells = json.loads(content)["cells"]
            typed = [(c["cell_type"], "".join(c["source"])) for c in cells]
            typed = [pair for pair in typed if pair[1].strip()]
            content = json.dumps(typed).encode()
        except (ValueError, KeyError, TypeError):
            pass  # not a notebook: all of it counts
    return hashlib.sha256(content).hexdigest()


def read_state(file: Path) -> dict:
    """Return what was copied; nothing if the file is absent or damaged."""
    state = {"typed": {}, "exact": {}, "offered": {}}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {key: dict(found[key]) for key in state}
    except (OSError, ValueError, KeyError, TypeError):
        return state


def write(file: Path, content: bytes) -> None:
    """Write a file at once: a run that is killed leaves no half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(file)
