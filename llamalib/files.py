"""What a file of a checkpoint is when it is not what it should be."""

import ctypes
import json
import mmap
import re
import zipfile
from pathlib import Path

from torch import Tensor

LFS = b"version https://git-lfs.github.com/spec/"
AGAIN = "download it again"
DONTNEED = getattr(mmap, "MADV_DONTNEED", 4)


def listing(folder: Path, most: int = 6) -> str:
    """The names in a folder, for a message."""
    names = sorted(p.name for p in folder.iterdir())
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "nothing"


def existing(folder: Path, name: str) -> Path:
    """folder/name, or FileNotFoundError."""
    place = folder / name
    try:
        if place.is_file():
            return place
        said = f"{folder} has no {name}, it holds: {listing(folder)}"
        if place.is_dir():
            said = f"{place} is a folder; wanted the file of that name"
    except OSError as error:  # a name that no file can have
        said = f"{folder} can have no {name[:60]!r} ({error.strerror})"
    raise FileNotFoundError(f"{said}. Download the folder again")


def read_start(file: Path, size: int = 1024) -> bytes:
    """The first bytes, or PermissionError naming the file."""
    try:
        with open(file, "rb") as opened:
            return opened.read(size)
    except PermissionError:
        raise PermissionError(
            f"{file} may not be read by you: give yourself the right, on "
            f"Linux and macOS by `chmod u+r {file.name}` in its folder"
        ) from None


def refuse_stand_ins(file: Path) -> None:
    r"""ValueError for what often lies in a file's place.

    Nothing at all; the pointer that git leaves without Git LFS; the page that
    a browser saves where a login was wanted.
    """
    start = read_start(file)
    if not start:
        raise ValueError(f"{file} is empty (0 bytes): {AGAIN}")
    if start.startswith(LFS):
        size = re.search(rb"\nsize (\d+)", start)
        of = f" of {int(size[1]):,} bytes" if size else ""
        raise ValueError(
            f"{file} is not the file but a Git LFS pointer to one{of}: "
            "install git-lfs and run `git lfs pull` in its folder, or "
            f"{AGAIN}"
        )
    shown = start.lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if shown.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        raise ValueError(
            f"{file} is an HTML page, which a server sends in place of a "
            "file, to log in or to say that there is none: log in and "
            f"{AGAIN}"
        )


def not_tensors(file: Path, error: Exception, kind: str) -> ValueError:
    """What to raise for a file that a library could not open as a `kind`."""
    reason = re.split(r"[\n.] ", str(error).strip() + "\n ")[0][:160]
    return ValueError(
        f"{file} cannot be opened as {kind} ({reason or type(error)}). It has "
        f"{file.stat().st_size:,} bytes: cut short or damaged on the way, or "
        f"another kind of file. Compare its size with the page's, and {AGAIN}"
    )


def check_small_records(file: Path) -> None:
    r"""ValueError if what says where a .pth's tensors lie was damaged.

    It is a zip archive: everything but the numbers is read, and compared with
    its checksums. (The numbers are gigabytes: see `check_all_records`.)
    """
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            for record in records:
                # as numbers they are read where they lie
                if record.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{record.filename} is compressed")
            names = {record.filename for record in records}
            held = sum(record.file_size for record in records)
            if len(names) < len(records) or held > file.stat().st_size:
                raise ValueError("records lie upon one another")
            for record in records:
                if "/data/" not in record.filename:
                    archive.read(record)
    except Exception as error:  # of what kind, depends on what is broken
        raise not_tensors(file, error, "a PyTorch checkpoint") from None


def check_all_records(file: Path) -> None:
    """ValueError if a .pth is not as it was written, by its checksums."""
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
    except Exception as error:
        raise not_tensors(file, error, "a PyTorch checkpoint") from None
    if broken is not None:
        raise ValueError(
            f"{file}: {broken} is not as it was written, its checksum "
            f"differs: the file is damaged, {AGAIN}"
        )


def read_json(file: Path) -> dict:
    r"""A JSON file that holds an object.

    Raises:
        FileNotFoundError, PermissionError.
        ValueError: naming the file and what is wrong with it; also for a key
            that stands there twice, for one value of the two is wrong.
    """
    refuse_stand_ins(file)
    try:  # utf-8-sig: with or without a byte-order mark
        text = file.read_text(encoding="utf-8-sig")
        found = json.loads(text, object_pairs_hook=once)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            f"{file} is not JSON ({error}); take the file that came with the "
            "weights"
        ) from None
    except ValueError as error:  # of `once`
        raise ValueError(f"{file}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(
            f"{file} holds a {type(found).__name__}; wanted an object, "
            'like {"key": …}: take the file that came with the weights'
        )
    return found


def once(pairs: list[tuple]) -> dict:
    """A dict of pairs, no key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))
        raise ValueError(
            f"{twice!r} stands there twice; take the file that came with the "
            "weights"
        )
    return found


class Pages:
    r"""The memory into which a folder's files are mapped.

    What was read of a mapped file stays in memory until someone needs the
    room. A tensor that has been copied out of it counts twice until then,
    and so its pages are given back, where the system says which they are
    (Linux). Read again, they come from the file again.

    Args:
        folder: whose files are mapped by now.
    """

    def __init__(self, folder: Path):
        files = {str(p.resolve()) for p in folder.iterdir()}
        self.ranges, maps = [], Path("/proc/self/maps")
        if not maps.is_file():
            return
        for line in maps.read_text(errors="replace").splitlines():
            where, *_, file = line.split(maxsplit=5)
            if file in files:
                start, end = (int(x, 16) for x in where.split("-"))
                self.ranges.append((start, end))

    def give_back(self, tensor: Tensor) -> None:
        """Those of a tensor that nobody has written to, nor will."""
        start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        if not any(a <= start and end <= b for a, b in self.ranges):
            return
        start += -start % mmap.PAGESIZE  # whole pages: the others are shared
        size = (end - start) // mmap.PAGESIZE * mmap.PAGESIZE
        if size > 0:
            give_back = ctypes.CDLL(None).madvise
            give_back(ctypes.c_void_p(start), ctypes.c_size_t(size), DONTNEED)
