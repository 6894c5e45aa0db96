"""Name the model in a folder, and compare its files' checksums."""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from ..files import read_start

PASSED, FAILED, UNKNOWN = "passed", "failed", "not known"
WEIGHTS = re.compile(r"consolidated\.\d\d\.pth|model.*\.safetensors")


class Row(NamedTuple):
    """A line of the report: PASSED, FAILED or UNKNOWN, of what, and why."""

    result: str
    what: str
    words: str


def judge(ok: bool, what: str, passed: str, failed: str) -> Row:
    """Return a row that passed or failed, with its words."""
    return Row(PASSED, what, passed) if ok else Row(FAILED, what, failed)


def checksum(file: Path, kind: str = "sha256") -> str:
    """Return a file's checksum."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, kind).hexdigest()


def name_model(folder: Path, models: dict, found: dict) -> tuple:
    """Return the model's name or None, and a row. found: SHA-256 by file."""
    named, how = name_in_path(folder, models), "the folder's name"
    for name, facts in models.items():
        for file, fact in facts["files"].items():
            if found.get(file) == fact["sha256"]:
                bad = f"wrong file: {file} is that of {name}, the folder's "
                bad += f"name says {named}. Rename the folder or download it"
                ok = named in (None, name)
                return name, judge(ok, "model", f"{name}, by {file}", bad)
    if len(models) == 1:
        (named,), how = models, "its shapes"
    words = f"not known which: {' or '.join(models)}. Name the folder like one"
    words = words if models else "no published model has these shapes"
    known = Row(PASSED, "model", f"{named}, by {how}")
    return named, known if named else Row(UNKNOWN, "model", words)


def name_in_path(folder: Path, models: dict) -> str | None:
    """Return the model whose name ends a part of the path: the innermost."""
    for part in folder.resolve().parts[::-1]:
        for name in models:
            if plain(part).endswith(plain(name)):
                return name
    return None


def plain(text: str) -> str:
    """Return a name's letters and digits, without "original" at its end."""
    return re.sub("[^a-z0-9]|original$", "", text.lower())


def file_rows(folder: Path, facts: dict, found: dict) -> list[Row]:
    """Compare files with published checksums and Meta's checklist.chk."""
    known, rows = dict(facts.get("files", {})), []
    known["tokenizer.model"] = facts.get("tokenizer")
    here = sorted(p.name for p in folder.iterdir())
    for name in here:
        if known.get(name):
            rows.append(file_row(folder / name, found[name], known[name]))
        elif WEIGHTS.fullmatch(name):
            rows.append(Row(UNKNOWN, name, "its checksum was not published"))
    if "checklist.chk" in here:
        text = (folder / "checklist.chk").read_text(errors="replace")
        for md5, name in re.findall(r"^(\w{32}) +\*?(.+?)\s*$", text, re.M):
            file = folder / Path(name).name  # never outside the folder
            ok = file.is_file() and checksum(file, "md5") == md5.lower()
            bad = "missing, damaged or of another model: download it again"
            good = "as in Meta's checklist.chk"
            rows.append(judge(ok, f"{file.name}, MD5", good, bad))
    return rows


def file_row(file: Path, found: str, fact: dict) -> Row:
    """Compare the SHA-256 of a file with the published one."""
    size, what, right = file.stat().st_size, file.name, fact["sha256"]
    own = f"{what}/".encode() in read_start(file, 64)  # as `save` writes it
    if found != right and own and not fact.get("own"):
        words = "written by `convert`: no published checksum applies"
        return Row(UNKNOWN, what, words)
    words, most = f"{size:,} bytes, SHA-256 {found[:8]}…", fact.get("bytes", 0)
    why = "cut short" if size < most else "damaged, or of another model"
    bad = f"wrong file: {words}, published {most or size:,} bytes, "
    bad += f"{right[:8]}…: {why}. Download it again"
    return judge(found == right, what, f"{words} as published", bad)
