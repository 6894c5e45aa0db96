"""Formulas as MathML, set when the site is built.

latex2mathml writes more than browsers read: they draw no `mathvariant`, no
`rowlines`, and take a minus after a bracket for a difference. So its tree is
tidied before it is written.
"""

import re
from xml.etree import ElementTree

from latex2mathml.converter import convert

from .plain import plain

# What latex2mathml does not know, as what it does.
INSTEAD = {
    r"\arg": r"\operatorname{arg}",
    r"\lceil": "⌈",
    r"\rceil": "⌉",
    r"\lfloor": "⌊",
    r"\rfloor": "⌋",
}
OPERAND = "mi", "mn", "msub", "msup", "msubsup", "mfrac", "mover", "mrow"
LIMITS = "max", "min"  # in a line of its own, what is below them
CLOSED = tuple(")]}′!|‖…⋯")  # after these a minus subtracts
ElementTree.register_namespace("", "http://www.w3.org/1998/Math/MathML")
SPACE = "{http://www.w3.org/1998/Math/MathML}"


def mathml(tex: str, display=False) -> str:
    """Return a formula as MathML.

    Raises ValueError for a formula that cannot be set, or only in part.
    """
    words = "|".join(map(re.escape, INSTEAD))
    known = re.sub(f"(?:{words})(?![a-zA-Z])", lambda m: INSTEAD[m[0]], tex)
    known = re.sub(r"\\(mathbf|mathcal) (\w)", r"\\\1{\2}", known)
    known = known.replace("{,}", r"\text{,}")  # in 1{,}000
    try:
        found = convert(known, display="block" if display else "inline")
        tree = ElementTree.fromstring(found)
    except Exception as error:  # its type depends on what is wrong
        raise ValueError(f"{type(error).__name__} in {tex!r}") from None
    for each in tree.iter():
        if "\\" in (each.text or "") or each.tag == f"{SPACE}merror":
            raise ValueError(f"{each.text!r} is not set in {tex!r}")
    for each in [*tree.iter()]:
        tidy(each, display)
    tree.set("alttext", plain(tree).strip())  # for a search's excerpts
    return ElementTree.tostring(tree, encoding="unicode")


def tidy(parent, display: bool) -> None:
    """Make an element's children what browsers draw as TeX does."""
    kind = parent.tag.removeprefix(SPACE)
    if kind == "msub" and display and parent[0].text in LIMITS:
        parent.tag = f"{SPACE}munder"
    if kind == "mover" and parent[1].text == "―":  # which does not stretch
        parent.remove(parent[1])
        parent.tag = f"{SPACE}mrow"
        parent.set("class", "overline")
    if lines := parent.get("rowlines"):
        # a line below each row, perhaps none below the last
        for row, line in zip(parent, lines.split(), strict=False):
            row.set("class", line)
    before = term = None  # a term is what is no space
    for child in [*parent]:
        name = is_name(child)
        if child.tag == f"{SPACE}mo":
            operator(child, term)
        if name and child.tag == f"{SPACE}mo":
            child.tag = f"{SPACE}mi"  # without an operator's wide spaces
        if kind in ("math", "mrow", "mtd"):
            after = is_operand(before) if name else is_name(before)
            if after and (name or is_operand(child)):
                thin = ElementTree.Element(f"{SPACE}mspace", width="0.1667em")
                parent.insert([*parent].index(child), thin)
        before = child
        term = term if child.tag == f"{SPACE}mspace" else child


def operator(element, before) -> None:
    """Set an operator's spaces: of a sign before a number, and of a norm."""
    after_value = before is not None and (
        before.tag != f"{SPACE}mo" or before.text in CLOSED
    )
    if element.text in "−+" and not after_value:
        element.set("form", "prefix")
    if element.text in "|‖":
        element.attrib |= dict(stretchy="false", lspace="0", rspace="0")


def is_name(element) -> bool:
    """Return whether an element is a function's name, such as ln or max_i."""
    if element is None:
        return False
    if element.tag in (f"{SPACE}msub", f"{SPACE}munder", f"{SPACE}msup"):
        return is_name(element[0])
    text = element.text or ""
    return element.tag in (f"{SPACE}mi", f"{SPACE}mo") and (
        len(text) > 1 and text.isascii() and text.isalpha()
    )


def is_operand(element) -> bool:
    """Return whether an element is a value, which needs a space at a name."""
    kinds = [SPACE + kind for kind in OPERAND]
    return element is not None and element.tag in kinds
