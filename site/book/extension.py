"""The extension of Sphinx: what it adds to each page, and to the site."""

import re
from functools import partial

from docutils import nodes
from sphinx.errors import ExtensionError

from tools import explorer
from tools.rooms import name_on_github

from . import head
from .font import write_font
from .lines import with_lines
from .maths import mathml
from .names import addresses, linked_page
from .pages import project, read_notebooks
from .pictures import with_files


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
    body = context["body"]
    if notebook := app.llama_notebooks.get(f"{pagename}.ipynb"):
        try:
            body = linked_page(body, notebook, app.llama_names, root)
        except ValueError as error:
            raise ExtensionError(f"{pagename}: {error}") from None
    body = with_files(body, app.outdir / "_images", f"{root}_images")
    about = pagename, context["title"], body, name_on_github(project())
    context |= dict(body=with_lines(body), metatags=head.tags(*about))
    if '<section class="llama"' in body:
        context["metatags"] += explorer.head(app.llama_modules, root)


def add_font(app, error):
    """Write the formulas' font, once their letters are known."""
    if error is None:
        pages = app.outdir.rglob("*.html")
        texts = [page.read_text(encoding="utf-8") for page in pages]
        write_font(app.outdir / "_static", texts)


def write_explorer(app):
    """Write the explorer, before pages refer to it."""
    folder = app.outdir / "_static"
    folder.mkdir(parents=True, exist_ok=True)
    app.llama_modules = explorer.write_files(folder)


def setup(app):
    """Register the extension."""
    app.connect("builder-inited", write_explorer)
    app.llama_notebooks = read_notebooks()
    app.llama_names = addresses(app.llama_notebooks)
    block = partial(visit, display=True)
    app.add_html_math_renderer("mathml", (visit, None), (block, None))
    app.connect("html-page-context", finish)
    app.connect("build-finished", add_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
