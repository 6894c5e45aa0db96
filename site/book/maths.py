"""Formulas as MathML, set when the site is built."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError

# What latex2mathml does not know, as what it does.
INSTEAD = {
    r"\arg": r"\operatorname{arg}",
    **dict(zip((r"\lceil", r"\rceil", r"\lfloor", r"\rfloor"), "⌈⌉⌊⌋")),
}


def mathml(tex: str, display=False) -> str:
    """Return a formula as MathML.

    Raises ValueError for a formula that cannot be set, or only in part.
    """
    words = "|".join(map(re.escape, INSTEAD))
    known = re.sub(f"(?:{words})(?![a-zA-Z])", lambda m: INSTEAD[m[0]], tex)
    try:
        found = convert(known, display="block" if display else "inline")
    except Exception as error:  # its type depends on what is wrong
        raise ValueError(f"{type(error).__name__} in {tex!r}") from None
    left = re.findall(r">([^<]*\\[^<]*)<|<merror", found)
    if left:
        raise ValueError(f"{left[0]!r} is not set in {tex!r}")
    return found


def visit(self, node, display=False):
    """Write a formula into the page, or stop the build with its place."""
    try:
        found = mathml(node.astext(), display)
    except ValueError as error:
        page = self.builder.current_docname
        raise ExtensionError(f"{page}: formula not set: {error}") from None
    number = node.get("number")
    tag = f'<span class="tag">({number})</span>' if number else ""
    block = f'<div class="math" tabindex="0">{found}{tag}</div>'
    self.body.append(block if display else found)
    raise nodes.SkipNode


def visit_block(self, node):
    """Write a formula on a line of its own."""
    visit(self, node, display=True)


def setup(app):
    """Register the renderer."""
    both = (visit, None), (visit_block, None)
    app.add_html_math_renderer("mathml", *both)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
