"""The font of the formulas, with the letters that the site needs."""

import logging
import re
import unicodedata
from html import unescape
from importlib.util import find_spec
from pathlib import Path

from fontTools import subset

SOURCE = "STIXTwoMath-Regular.ttf"
FILE = "stix-two-math.woff"
logging.getLogger("fontTools").setLevel(logging.WARNING)


def letters(pages: list[str]) -> set[str]:
    """Return what browsers write the formulas of pages, in HTML, with.

    They set a name of one letter in the italic letters of mathematics.
    """
    text = re.findall(r"<math\b.*?</math>", "".join(pages), re.S)
    found = {*unescape(re.sub(r"<[^>]+>", "", "".join(text)))}
    drawn = {"ℎ", "√"}  # which a root is drawn with
    for letter in map(chr, range(0x1D434, 0x1D722)):
        italic = unicodedata.name(letter, "").startswith("MATHEMATICAL ITALIC")
        if italic and unicodedata.normalize("NFKC", letter) in found:
            drawn.add(letter)
    return found | drawn


def write_font(folder: Path, pages: list[str]) -> None:
    """Write the font into a folder, for pages in HTML."""
    options = subset.Options(flavor="woff", layout_features=["*"])
    options.name_IDs = ["*"]  # with its licence
    source = Path(find_spec("ziamath").origin).parent / "fonts" / SOURCE
    font = subset.load_font(source, options)
    cut = subset.Subsetter(options)
    cut.populate(text="".join(letters(pages)))
    cut.subset(font)
    subset.save_font(font, folder / FILE, options)
