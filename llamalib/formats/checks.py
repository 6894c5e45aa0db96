r"""Check the files of tensors, and say what is wrong with them."""

import re
import struct
import zipfile
from pathlib import Path

from torch import Tensor

from ..checks import expect
from ..files import AGAIN


def shown(name) -> str:
    """Return the start of a name from a file, in one line of plain text."""
    return repr(str(name)[:120])[1:-1]


def other_model(problem: str) -> ValueError:
    """Return the error for files of different models."""
    return ValueError(f"{problem}: they are not of the same model")


def unreadable(file: Path, error: Exception, kind: str) -> ValueError:
    """Return the error for a file that a library cannot open as a `kind`."""
    reason = shown(re.split(r"[\n.] ", str(error).strip() + "\n ")[0])
    return ValueError(
        f"{file} cannot be opened as {kind} ({reason or type(error)}). Its "
        f"{file.stat().st_size:,} bytes are incomplete, damaged, or another "
        f"kind of file: compare the size with the page's, and {AGAIN}"
    )


def check_archive(file: Path, *, numbers: bool) -> None:
    """Raise ValueError if a .pth, a zip archive, is damaged.

    The numbers are gigabytes: their checksums are checked only if `numbers`.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            check_records(archive, records)
            for record in records:
                if numbers or "/data/" not in record.filename:
                    with archive.open(record) as opened:
                        while opened.read(2**24):
                            pass
    except Exception as error:  # its type depends on the damage
        raise unreadable(file, error, "a PyTorch checkpoint") from None


def check_records(archive: zipfile.ZipFile, records: list) -> None:
    r"""Raise ValueError unless the records fill the archive, one by one.

    PyTorch finds a tensor by its record's own header, zipfile by the list at
    the end: where the two differ, one of them reads other numbers.
    """
    records = sorted(records, key=lambda record: record.header_offset)
    ends = [record.header_offset for record in records[1:]]
    start = 0
    for record, end in zip(records, [*ends, archive.start_dir]):
        stored = record.compress_type == zipfile.ZIP_STORED
        stored = stored and not record.external_attr & 0x10  # a folder
        expect(stored, record.filename, "compressed or a folder", "stored")
        ok = record.header_offset == start and fits(archive.fp, record, end)
        expect(ok, f"the header of {record.filename}", "another", "its own")
        start = end


def fits(opened, record: zipfile.ZipInfo, end: int) -> bool:
    """Whether a record has its name, and its data end where they should."""
    opened.seek(record.header_offset)
    signature, *lengths = struct.unpack("<4s22xHH", opened.read(30))
    is_utf8 = record.flag_bits & 0x800
    name = record.orig_filename.encode("utf-8" if is_utf8 else "cp437")
    named = opened.read(lengths[0]) == name
    # behind the data may be their checksum and sizes once more
    opened.seek(record.header_offset + 30 + sum(lengths) + record.file_size)
    gap, tails = end - opened.tell(), [b""]
    tail = opened.read(min(max(gap, 0), 99))
    if record.flag_bits & 8:
        sizes = record.CRC, record.compress_size, record.file_size
        short = struct.pack("<3L", *(n & 0xFFFFFFFF for n in sizes))
        tails = [short, struct.pack("<LQQ", *sizes)]
        tails += [b"PK\x07\x08" + each for each in tails]
    return signature == b"PK\x03\x04" and named and tail in tails


def check_content(folder: Path, tensors: dict[str, list[Tensor]]) -> None:
    """Raise ValueError for a wrong checksum, a NaN or an infinity."""
    for file in sorted(folder.glob("consolidated.*.pth")):
        check_archive(file, numbers=True)
    for name, parts in tensors.items():
        bad = sum(int((~part.isfinite()).sum()) for part in parts)
        what = f"{folder}: the number of NaN and infinities in {name}"
        expect(not bad, what, bad, "0: the training failed, or it is damaged")
