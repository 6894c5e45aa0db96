"""Name the model in a folder, and compare its files' checksums."""

import hashlib
import re
from collections import namedtuple
from pathlib import Path

from ..files import read_start
from ..formats.meta import tensor_shapes
from ..formats.params import config_of
from ..model import ModelArgs

PASSED, FAILED, UNKNOWN = "passed", "failed", "not known"
WEIGHTS = re.compile(r"consolidated\.\d\d\.pth|model.*\.safetensors")
Row = namedtuple("Row", "result what words")  # a line of the report


def judge(ok: bool, what: str, passed: str, failed: str) -> Row:
    """Return a row that passed or failed, with its words."""
    return Row(PASSED, what, passed) if ok else Row(FAILED, what, failed)


def models_like(config: ModelArgs, published: dict) -> dict[str, dict]:
    """Return the published models whose tensors have the same shapes."""
    made = {n: config_of(m["params"]) for n, m in published.items()}
    most = max(m.n_layers for m in made.values())  # not a billion
    shapes = tensor_shapes(config) if config.n_layers <= most else None
    return {n: published[n] for n in made if tensor_shapes(made[n]) == shapes}


def checksums(folder: Path, names, kind: str = "sha256") -> dict[str, str]:
    """Return the checksums of those of the files that the folder has."""
    found = {}
    for file in filter(Path.is_file, map(folder.joinpath, names)):
        read_start(file, 1)  # its error says how to get the right
        with open(file, "rb") as opened:
            found[file.name] = hashlib.file_digest(opened, kind).hexdigest()
    return found


def name_model(folder: Path, models: dict, found: dict) -> tuple:
    """Return the model's name or None, and a row. found: SHA-256 by file."""
    path = f"{folder.resolve().as_posix().lower()}/"
    path = re.sub("[^a-z0-9/]|original(?=/)", "", path)
    plain = {n: re.sub("[^a-z0-9]", "", n.lower()) for n in models}
    at = {n: path.rfind(f"{plain[n]}/") for n in models}  # the innermost
    named = max(at, key=at.get) if max(at.values(), default=-1) >= 0 else None
    for name, facts in models.items():
        for file, fact in facts["files"].items():
            if found.get(file) == fact["sha256"]:
                bad = f"wrong file: {file} is that of {name}, the folder's "
                bad += f"name says {named}. Rename the folder or download it"
                ok = named in (None, name)
                return name, judge(ok, "model", f"{name}, by {file}", bad)
    if named or len(models) == 1:
        named = named or next(iter(models))
        return named, Row(PASSED, "model", f"{named}, by name and shapes")
    words = f"which of {', '.join(models)}? Name the folder like it"
    none = "no published model has these shapes"
    return None, Row(UNKNOWN, "model", words if models else none)


def file_rows(folder: Path, facts: dict, found: dict) -> list[Row]:
    """Compare files with published checksums and Meta's checklist.chk."""
    rows, known = [], dict(facts.get("files", {}))
    known["tokenizer.model"] = facts.get("tokenizer")
    for file in sorted(filter(Path.is_file, folder.iterdir())):
        if fact := known.get(file.name):
            rows.append(file_row(file, found[file.name], fact))
        elif WEIGHTS.fullmatch(file.name):
            rows.append(Row(UNKNOWN, file.name, "no checksum was published"))
    file = folder / "checklist.chk"
    data = read_start(file, -1) if file.is_file() else b""
    text = data.decode(errors="replace")
    listed = re.findall(r"^(\w{32}) +\*?(.+?)\s*$", text, re.M)
    listed = {Path(n).name: md5.lower() for md5, n in listed}  # all in folder
    if file.exists() and not listed:
        rows.append(Row(FAILED, file.name, "no MD5 list. Download it again"))
    made, good = checksums(folder, listed, "md5"), f"as in Meta's {file.name}"
    for name, md5 in listed.items():
        bad = f"{made.get(name, 'missing')}, not {md5}. Download it again"
        rows.append(judge(made.get(name) == md5, f"{name}, MD5", good, bad))
    return rows


def file_row(file: Path, found: str, fact: dict) -> Row:
    """Compare the SHA-256 of a file with the published one."""
    size, what, right = file.stat().st_size, file.name, fact["sha256"]
    own = f"{what}/".encode() in read_start(file, 64)  # as `save` writes it
    if found != right and own and not fact.get("own"):
        return Row(UNKNOWN, what, "written by `convert`: no checksum applies")
    words = f"{size:,} bytes, SHA-256 {found[:8]}…"
    bad = f"wrong file: {words}, published {fact.get('bytes', size):,} bytes, "
    bad += f"{right[:8]}…: cut short, damaged or another. Download it again"
    return judge(found == right, what, f"{words} as published", bad)
