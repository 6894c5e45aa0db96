"""Write the README's picture, which is one of notebook 05's.

python .ci/front.py
"""

import base64
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "notebooks" / "05_attention.ipynb"
PICTURE = ROOT / ".github" / "attention.png"


def picture() -> bytes:
    """Return the PNG that notebook 05 saved of layer 0's eight heads."""
    text = NOTEBOOK.read_text(encoding="utf-8")
    pattern = r"layer 0: 8 query heads.{1,2000}?base64,([\w+/=]+)"
    return base64.b64decode(re.search(pattern, text)[1])


if __name__ == "__main__":
    PICTURE.write_bytes(picture())
