"""Diagnose broken checkpoint files."""

import ctypes
import mmap
import re
import zipfile
from pathlib import Path

from torch import Tensor

from ..files import AGAIN

DONTNEED = getattr(mmap, "MADV_DONTNEED", 4)


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
