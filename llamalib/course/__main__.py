"""The course's command: python -m llamalib.course grade FOLDER."""

import argparse
import sys
from pathlib import Path


def main(argv=None) -> int:
    """Mark submissions and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m llamalib.course")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add = commands.add_parser("grade", help="mark submissions").add_argument
    add("folder", type=Path, help="STUDENT/05_attention.ipynb, …")
    add("--out", type=Path, help="the table (default: FOLDER/marks.csv)")
    add("--notebook", nargs="+", help="only these, such as 05")
    add("--jobs", type=int, default=1, help="submissions at the same time")
    add("--seconds", type=float, default=20, help="for one answer")
    add("--seed", type=int, help="of the hidden checks (default: random)")
    add("--unsafe", action="store_true", help="without a sandbox")
    try:
        from ..grading.marks import grade
        grade(**vars(parser.parse_args(argv)))
        return 0
    except (OSError, ValueError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
