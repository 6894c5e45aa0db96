"""The commands of the series: python -m lessons export."""

import sys

from . import export

if __name__ == "__main__":
    if sys.argv[1:2] != ["export"]:
        sys.exit("usage: python -m lessons export [--check]")
    sys.exit(export.main(sys.argv[2:]))
