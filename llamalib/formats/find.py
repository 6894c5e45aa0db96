r"""Find the folder of a checkpoint."""

import os
from pathlib import Path

from ..checks import expect
from ..files import ROOT, listing, require_file

POCKET = Path("data", "pocket-llama")  # the checkpoint that ships
REAL = Path("data", "Llama-3.2-1B", "original")
EXPECTED = (
    "expected a folder with Meta's original files (params.json, …) or Hugging "
    "Face's (config.json, …)"
)


def find_checkpoint(path=None, *, metas: bool = False) -> Path:
    r"""Return a checkpoint's folder, with `params.json` or `config.json`.

    This is `path`, else `$LLAMA_DIR`, else the real 1B in
    `data/Llama-3.2-1B/original`, else the pocket Llama in
    `data/pocket-llama`; `data` is next to this package, or in the current
    folder or a parent. The checkpoint may be in a subfolder of the one that
    is named, such as `original/`.
    metas: whether only Meta's format will do.
    Raises FileNotFoundError or PermissionError for a folder or checkpoint,
    ValueError for several checkpoints, or one in the wrong format.
    """
    ok = path is None or isinstance(path, (str, os.PathLike)) and path != ""
    expect(ok, "path", path, "a folder or None")
    named = path if path is not None else os.environ.get("LLAMA_DIR")
    if not named:
        return default_checkpoint()
    source = "path" if path is not None else "LLAMA_DIR"
    try:
        found = search(require_folder(named, source), source)
        os.listdir(found)  # its shards are counted
    except PermissionError as error:
        raise PermissionError(
            f"Permission denied: {error.filename}. Try chmod u+rx on its "
            "folder"
        ) from None
    if metas and not (found / "params.json").is_file():
        raise ValueError(
            f"{found} is in Hugging Face's format; expected Meta's: run "
            f"`python -m llamalib convert {found} "
            f"data/{found.name}-original` and name that folder"
        )
    return found


def search(folder: Path, source: str) -> Path:
    """Return the one checkpoint that is in a folder or in its subfolders."""
    found = checkpoints_in(folder)
    for name in () if found else ("params.json", "config.json"):
        if (folder / name).is_symlink() or (folder / name).exists():
            require_file(folder, name)  # which says what it is instead
    for place in [] if found else sorted(folder.iterdir()):
        if place.is_dir() and os.access(place, os.R_OK | os.X_OK):
            found += checkpoints_in(place)[:1]
    if not found:
        problem = f"has no params.json (found: {listing(folder)})"
        raise FileNotFoundError(f"{folder} ({source}) {problem}; {EXPECTED}")
    if len(found) > 1:
        names = " or ".join(str(p) for p in found[:3])
        raise ValueError(f"{folder} has several checkpoints: name {names}")
    return found[0]


def default_checkpoint() -> Path:
    """Return the real 1B's folder, else the pocket Llama's."""
    for root in (ROOT, Path.cwd(), *Path.cwd().parents):
        for folder in (root / REAL, root / POCKET):
            if (folder / "params.json").is_file():
                return folder
    advice = f"make it with `make pocket`, or set LLAMA_DIR; {EXPECTED}"
    raise FileNotFoundError(f"no checkpoint in {ROOT / POCKET}: {advice}")


def require_folder(named, source: str) -> Path:
    """Return a folder that was named, or raise FileNotFoundError."""
    try:
        folder = Path(named).expanduser()
        if folder.is_dir():
            return folder
        problem = "is a file, not a folder"
        if not folder.exists():
            problem = "does not exist"
    except PermissionError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        folder, problem = named, f"is not a valid folder name ({error})"
    name = str(folder)[:200]
    raise FileNotFoundError(f"{name} ({source}) {problem}; {EXPECTED}")


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder and in its `original/`."""
    places = [folder, folder / "original"]
    metas = [p for p in places if (p / "params.json").is_file()]
    if not (folder / "config.json").is_file():
        return metas
    if folder in metas:
        raise ValueError(
            f"{folder} has both params.json, Meta's, and config.json, "
            "Hugging Face's: keep the files of one format in a folder"
        )
    # a download of a whole page has both: Meta's, if it is complete
    return [p for p in metas if any(p.glob("consolidated.*.pth"))] or [folder]
