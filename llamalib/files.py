"""Read the small files of a checkpoint and say what is wrong with them."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # the project's folder
LFS = b"version https://git-lfs.github.com/spec/"
AGAIN = "download it again"


def listing(folder: Path, most: int = 6) -> str:
    """Return the names in a folder, for an error message."""
    names = sorted(repr(p.name)[1:-1] for p in folder.iterdir())
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "nothing"


def require_file(folder: Path, name: str) -> Path:
    """Return folder/name, or raise FileNotFoundError."""
    path = folder / name
    if path.is_file():
        return path
    if path.is_symlink() or path.exists():
        raise FileNotFoundError(
            f"{path} is a folder, a pipe or a broken link; {AGAIN}"
        )
    raise FileNotFoundError(
        f"{folder} has no {name} (found: {listing(folder)}); {AGAIN}"
    )


def read_start(file: Path, size: int = 1024) -> bytes:
    """Return the first bytes, or raise OSError naming the file."""
    try:
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing, or is a folder")
        with open(file, "rb") as opened:
            return opened.read(size)
    except PermissionError:
        raise PermissionError(
            f"Permission denied: {file}. Try chmod u+r {file}"
        ) from None


def reject_lookalikes(file: Path) -> None:
    """Raise ValueError for an empty file, a Git LFS pointer or HTML.

    Such files are often saved under the name of the real one: the pointer by
    git without Git LFS, the page by a browser that had to log in.
    """
    start = read_start(file)
    shown = start.lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if not start:
        raise ValueError(f"{file} is empty (0 bytes): {AGAIN}")
    if start.startswith(LFS):
        size = re.search(rb"\nsize (\d+)", start)
        of = f" of {int(size[1]):,} bytes" if size else ""
        raise ValueError(
            f"{file} is not the file but a Git LFS pointer to one{of}: install "
            f"git-lfs and run `git lfs pull` in its folder, or {AGAIN}"
        )
    if shown.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        raise ValueError(
            f"{file} is an HTML page, which a server sends instead of a file "
            f"to log in or to say that there is none: log in and {AGAIN}"
        )


def read_text(file: Path, kind: str) -> str:
    """Return a text in UTF-8, or raise OSError or ValueError."""
    try:
        reject_lookalikes(file)
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"{file} is not {kind} in UTF-8: {error}") from None


def read_json(file: Path) -> dict:
    """Read a JSON object, or raise ValueError naming the file and problem."""
    reject_lookalikes(file)
    advice = "take the file that came with the weights"
    try:  # utf-8-sig: with or without a byte-order mark
        text = file.read_text(encoding="utf-8-sig")
        found = json.loads(text, object_pairs_hook=reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}; {advice}") from None
    if not isinstance(found, dict):
        problem = f"{file} holds a {type(found).__name__}"
        like = 'expected an object, like {"key": …}'
        raise ValueError(f"{problem}; {like}: {advice}")
    return found


def reject_duplicate_keys(pairs: list[tuple]) -> dict:
    """Return a dict of the pairs, or raise ValueError for a repeated key."""
    found = {}
    for key, value in pairs:  # JSON silently keeps the last of duplicate keys
        if key in found:
            raise ValueError(f"the key {key!r:.80} appears twice")
        found[key] = value
    return found
