"""The extension of Sphinx: formulas, links from names, the Llama's script."""

import re
from functools import partial

from docutils import nodes
from sphinx.errors import ExtensionError

from .maths import mathml
from .names import addresses, linked_page
from .pages import read_notebooks


def visit(self, node, display=False):
    """Write a formula into the page, or stop the build with its place."""
    tex, tag = node.astext(), ""
    if found := re.search(r"\\tag\{(.*?)\}", tex):
        tex = tex.replace(found[0], "")
        tag = f'<span class="tag">({found[1]})</span>'
    try:
        formula = mathml(tex, display)
    except ValueError as error:
        page = self.builder.current_docname
        raise ExtensionError(f"{page}: formula not set: {error}") from None
    block = f'<div class="math" tabindex="0">{formula}{tag}</div>'
    self.body.append(block if display else formula)
    raise nodes.SkipNode


def finish(app, pagename, templatename, context, doctree):
    """Add to a page what Sphinx does not know."""
    if pagename == "search":
        app.add_js_file("search.js", loading_method="defer", priority=900)
    if doctree is None:
        return
    root = "../" * pagename.count("/")
    if notebook := app.llama_notebooks.get(f"{pagename}.ipynb"):
        try:
            known = app.llama_names, root
            context["body"] = linked_page(context["body"], notebook, *known)
        except ValueError as error:
            raise ExtensionError(f"{pagename}: {error}") from None
    if '<section class="llama"' in context["body"]:
        app.add_js_file("llama.js", loading_method="defer")
        app.add_css_file("llama.css")


def setup(app):
    """Register the extension."""
    app.llama_notebooks = read_notebooks()
    app.llama_names = addresses(app.llama_notebooks)
    block = partial(visit, display=True)
    app.add_html_math_renderer("mathml", (visit, None), (block, None))
    app.connect("html-page-context", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
