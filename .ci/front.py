"""Write the README's picture and the address to clone.

    python .ci/front.py

The picture is one of notebook 05's; the address is `Repository` under
`[project.urls]` in pyproject.toml, or the word ADDRESS without it.
"""

import base64
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "notebooks" / "05_attention.ipynb"
PICTURE = ROOT / ".github" / "attention.png"
README = ROOT / "README.md"


def picture() -> bytes:
    """Return the PNG that notebook 05 saved of layer 0's eight heads."""
    text = NOTEBOOK.read_text(encoding="utf-8")
    pattern = r"layer 0: 8 query heads.{1,2000}?base64,([\w+/=]+)"
    return base64.b64decode(re.search(pattern, text)[1])


def with_address(readme: str) -> str:
    """Return the README with the address of the project in its first step."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    urls = tomllib.loads(text)["project"].get("urls", {})
    address = urls.get("Repository", "ADDRESS")
    return re.sub(r"(?<=`git clone )\S+", lambda _: address, readme, count=1)


if __name__ == "__main__":
    PICTURE.write_bytes(picture())
    text = with_address(README.read_text(encoding="utf-8"))
    README.write_text(text, encoding="utf-8", newline="\n")
