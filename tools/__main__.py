"""The commands of the series: python -m tools lab, course, execute, frame."""

import sys
from pathlib import Path

from . import frame
from .notebooks import ROOT


def main(argv=None) -> int:
    """Run one command and return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["frame"]:  # needs the standard library alone
        return frame.main(words[1:])
    try:  # imports torch
        from llamalib import __main__ as commands
    except KeyboardInterrupt:
        return 130

    library = commands.parser().commands
    elsewhere = {name: f"python -m llamalib {name}" for name in library}
    return commands.execute(parser(), elsewhere, words)


def parser():
    """Return the parser; each command's arguments are its function's."""
    from llamalib.__main__ import later, new_parser

    whole, add = new_parser("python -m tools")
    lab = add("lab", later("tools.lab.open_lab"), "open the notebooks")
    lab("--work", type=Path, default=ROOT / "work", help="your copy")
    lab("--copy", action="store_true", help="only bring the copy up to date")
    lab("flags", nargs="*", help="for JupyterLab, after --")
    course = later("tools.course.write_course")
    course = add("course", course, "write a course's assignments")
    course("notebooks", nargs="*", help="like 03_rmsnorm (default: all)")
    course("--out", type=Path, default=ROOT / "build" / "course")
    runs = later("tools.execute.execute")
    runs = add("execute", runs, "execute notebooks in place")
    runs("notebooks", nargs="*", type=Path, help="files (default: all)")
    frames = add("frame", frame.main, "write the library's cells, the frames")
    frames("--check", action="store_true", help="only compare")
    return whole


if __name__ == "__main__":
    sys.exit(main())
