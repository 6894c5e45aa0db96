"""Open the series in JupyterLab, on the learner's own copy.

The copy keeps what the learner typed. `.copied.json` in it holds three
digests by file: of what was typed in it and of all its bytes when it was
copied, and of the project's file that was last offered.
"""

import errno
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain, count
from pathlib import Path

from .notebooks import NOTEBOOKS, ROOT, read_notebook, write

SETTINGS = Path(__file__).parent / "jupyterlab"
STATE = ".copied.json"
DAMAGED = OSError, ValueError, KeyError, TypeError, RecursionError
LEFT_OUT = re.compile(r"(^|/)(\.|__pycache__/|explorer\.html$)")


def open_lab(work: Path, copy: bool, flags: list[str]) -> int:
    """Bring the copy up to date, then open its index in JupyterLab."""
    from jupyterlab.labapp import main

    update_copy(NOTEBOOKS, work)
    write_explorer(work)
    sign(NOTEBOOKS)
    print(f"Your copy is in {work}", flush=True)
    return 0 if copy else main(lab_flags(work) + flags) or 0


def lab_flags(work: Path) -> list[str]:
    """Return JupyterLab's flags for a folder, with the project's settings.

    They hold for this start alone: the reader's own settings go before
    them, and no file of the reader's is written.
    """
    flags = [
        f"--ServerApp.root_dir={work.resolve()}",
        f"--LabApp.app_settings_dir={SETTINGS}",
        # a style sheet for text; JupyterLab has no setting for its width
        f"--LabApp.extra_labextensions_path={SETTINGS / 'labextensions'}",
        "--LabApp.default_url=/lab/tree/index.ipynb",
    ]
    # as in a container: JupyterLab refuses to run as root without this
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--allow-root")
    return flags


def update_copy(source: Path, work: Path, option: str = "--work") -> None:
    """Copy what is new in `source`; keep what the learner typed in `work`.

    option: of the command, which names another folder.
    """
    place, what = work.resolve(), ""
    if os.path.lexists(work) and not work.is_dir():
        what = "no folder"
    elif any(place.is_relative_to(f.resolve()) for f in (source, NOTEBOOKS)):
        what = "in the project's notebooks"
    elif place == ROOT:  # also an empty name
        what = "the project's own folder"
    if what:
        raise ValueError(
            f"{work} is {what}: name another, as in {option} mine"
        )
    state = read_state(work / STATE)
    try:
        for file, name in files(source):
            update_file(file, name, work, state)
        if state != read_state(work / STATE):  # work may be read-only
            write(work / STATE, json.dumps(state, indent=1).encode())
    except OSError as error:
        full = error.errno == errno.ENOSPC
        advice = f"make room for {work}" if full else "move it away"
        raise OSError(f"{error}: {advice}, or take {option} mine") from None


def files(source: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file of the series and its name in a copy."""
    for file in sorted(source.rglob("*")):
        name = file.relative_to(source).as_posix()
        if file.is_file() and not LEFT_OUT.search(name):
            yield file, name


def update_file(file: Path, name: str, work: Path, state: dict) -> None:
    """Copy one file, unless the learner has it, and note that in `state`.

    If the learner typed in an earlier version, today's is put next to it.
    """
    offered, today = digest(file), digest(file, typed=True)
    if (work / name).exists() and state["offered"].get(name) == offered:
        return
    start, dot, suffix = name.rpartition(".")
    new = (f"{start}.new{n}{dot}{suffix}" for n in chain([""], count(2)))
    for place in chain([name], new):
        mine = digest(work / place, typed=True)
        if mine in (None, today, *state["typed"].values()):
            break
    state["offered"][name], state["typed"][place] = offered, today
    if mine == today and digest(work / place) != state["exact"].get(place):
        return  # the learner's own outputs
    write(work / place, file.read_bytes())
    state["exact"][place] = offered
    if place != name:
        print(f"You have changed {name}: its new version is {place}")
    elif mine:
        print(f"Updated {name}, where you have typed nothing")


def write_explorer(work: Path) -> None:
    """Write the explorer if it is absent or old: the trusted index shows it.

    Without it the index would show a missing page until its cell is run.
    """
    page = work / "explorer.html"
    folders = "site", "site/explorer", "tools", "llamalib"
    parts = [part for name in folders for part in (ROOT / name).glob("*.*")]
    parts += (ROOT / "data").glob("SmolLM2-*/*.gguf")  # its runs are in it
    newest = max(part.stat().st_mtime for part in parts)
    if page.exists() and page.stat().st_mtime > newest:
        return
    print("Preparing the explorer, once: some seconds", flush=True)
    from .explorer import whole_page  # imports torch

    try:
        write(page, whole_page().encode())
    except OSError as error:  # a full disk, or a folder that is read-only
        print(f"The index cannot show the explorer: {error}")


def sign(source: Path) -> None:
    """Let JupyterLab trust the notebooks in a folder of the project.

    It drops styles and frames from saved outputs that it does not trust: a
    picture would not be dark in the dark theme until its cell is run.

    A signature is of a notebook's whole content, wherever it lies. So the
    project's files are signed, never a copy: what a learner brought, typed
    or ran has another content, and only JupyterLab may come to trust it.
    What lies in the project's folder is trusted as its code is, which runs.
    Each start signs again: this may be another machine, or another home.
    """
    from jupyter_core.paths import jupyter_data_dir
    from nbformat.sign import NotebookNotary

    data = Path(jupyter_data_dir())
    base = data / "nbsignatures.db"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        # the notary moves a database away that it cannot use: ask first
        with closing(sqlite3.connect(base, timeout=2)) as found:
            found.execute("BEGIN IMMEDIATE")
        notary = NotebookNotary(data_dir=str(data))
        with closing(notary.store):
            for file, name in files(source):
                if name.endswith(".ipynb"):
                    with suppress(ValueError):  # JupyterLab names its fault
                        notary.sign(read_notebook(file))
    except (OSError, sqlite3.Error) as error:
        print(
            "In the dark theme a picture stays light until its cell is run: "
            f"JupyterLab's signatures in {data} cannot be written ({error})"
        )


def digest(file: Path, typed: bool = False) -> str | None:
    """Return the SHA-256 of a file's bytes; None if there is no file.

    typed: of what is typed in a notebook, its cells' texts without outputs.
    """
    if not file.exists():
        return None
    content = file.read_bytes()
    if typed and file.suffix == ".ipynb":
        with suppress(*DAMAGED):  # not a notebook
            cells = json.loads(content)["cells"]
            texts = [(c["cell_type"], "".join(c["source"])) for c in cells]
            content = json.dumps([t for t in texts if t[1].strip()]).encode()
    return hashlib.sha256(content).hexdigest()


def read_state(file: Path) -> dict:
    """Return what was copied; nothing if the file is absent or damaged."""
    state = {"typed": {}, "exact": {}, "offered": {}}
    with suppress(*DAMAGED):
        found = json.loads(file.read_text(encoding="utf-8"))
        state = {key: dict(found[key]) for key in state}
    return state
