r"""Check the files of tensors, and say what is wrong with them."""

import re
import zipfile
from pathlib import Path

from torch import Tensor

from ..checks import expect
from ..files import AGAIN


def other_model(problem: str) -> ValueError:
    """Return the error for files of different models."""
    return ValueError(f"{problem}: they are not of the same model")


def unreadable(file: Path, error: Exception, kind: str) -> ValueError:
    """Return the error for a file that a library cannot open as a `kind`."""
    reason = re.split(r"[\n.] ", str(error).strip() + "\n ")[0][:160]
    return ValueError(
        f"{file} cannot be opened as {kind} ({reason or type(error)}). Its "
        f"{file.stat().st_size:,} bytes are incomplete, damaged, or another "
        f"kind of file: compare the size with the page's, and {AGAIN}"
    )


def check_archive(file: Path, *, numbers: bool) -> None:
    """Raise ValueError if a .pth, a zip archive, has a wrong checksum.

    The numbers are gigabytes: they are checked only if `numbers`.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            for record in records:  # numbers are mapped, as they are stored
                is_stored = record.compress_type == zipfile.ZIP_STORED
                expect(is_stored, record.filename, "compressed", "stored")
            names = {record.filename for record in records}
            held = sum(record.file_size for record in records)
            if len(names) < len(records) or held > file.stat().st_size:
                raise ValueError("its records overlap")
            for record in records:
                if numbers or "/data/" not in record.filename:
                    with archive.open(record) as opened:
                        while opened.read(2**24):
                            pass
    except Exception as error:  # its type depends on the damage
        raise unreadable(file, error, "a PyTorch checkpoint") from None


def check_content(folder: Path, tensors: dict[str, list[Tensor]]) -> None:
    """Raise ValueError for a wrong checksum, a NaN or an infinity."""
    for file in sorted(folder.glob("consolidated.*.pth")):
        check_archive(file, numbers=True)
    for name, parts in tensors.items():
        bad = sum(int((~part.isfinite()).sum()) for part in parts)
        what = f"{folder}: the number of NaN and infinities in {name}"
        expect(not bad, what, bad, "0: the training failed, or it is damaged")
