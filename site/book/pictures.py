"""Saved pictures as files, which a browser loads when a reader comes near."""

import base64
import re
from hashlib import sha256
from html import unescape
from pathlib import Path

from lessons.map import BOXES

SAVED = re.compile(
    r"(?:<style>[^<]*</style>)?"  # which is for JupyterLab
    r'<img ([^>]*?)\bsrc="data:image/png;base64,([^"]+)"([^>]*)>'
)
MAP = r'alt="Map of the model\. Highlighted: ([^".]+)'
LEFT, RIGHT = -0.1, 14.3  # the map's ends, where BOXES are measured


def with_files(body: str, folder: Path, address: str) -> str:
    """Write a page's pictures into a folder; return the page with links.

    address: the folder's, from the page.
    """

    def linked(match):
        data = base64.b64decode(match[2])
        name = f"{sha256(data).hexdigest()[:16]}.png"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        words = f"{match[1]}{match[3]}".strip()
        size = [int.from_bytes(data[at : at + 4]) for at in (16, 20)]
        width = int(re.search(r'\bwidth="(\d+)"', words)[1])
        words += f' height="{width * size[1] / size[0]:.0f}"'
        words += f' decoding="async" src="{address}/{name}"'
        if found := re.search(MAP, words):
            return strip(f"<img {words}", unescape(found[1]))
        return f'<img {words} loading="lazy">'

    return SAVED.sub(linked, body)


def strip(image: str, lit: str) -> str:
    """Return the map that opens a notebook, in a box that may scroll.

    There it shows its first lit part at once.
    """
    _, x, _, width = BOXES[lit.split(", ")[0]]
    at = (x + width / 2 - LEFT) / (RIGHT - LEFT)
    box = "this.parentNode"
    code = f"{box}.scrollLeft=this.width*{at:.2f}-{box}.clientWidth/2"
    return f'<div class="strip">{image} onload="{code}"></div>'
