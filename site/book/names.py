"""Where each public name of llamalib is taught, and links that lead there.

The cells that show the library's definitions teach these names. All other
names are on the page of names.
"""

import ast
import re
from html import escape

import llamalib

INPUT = '<div class="cell_input docutils container">'
CALLED = r'<span class="n">(\w+)</span>(?=<span class="p">\()'
INLINE = r'<code class="docutils literal notranslate"><span class="pre">'
INLINE += r"(?:llamalib\.)?(?P<name>\w+)(?:\([^<]*\))?</span></code>"
KEPT = r"<a\b.*?</a>|<h[1-6]\b.*?</h[1-6]>"


def definitions(source: str) -> set[str]:
    """Return the names that a cell defines at its top level."""
    found = set()
    for node in ast.parse(source).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        named = (each.id for each in targets if isinstance(each, ast.Name))
        found |= {node.name} if hasattr(node, "name") else {*named}
    return found


def code_cells(notebook: dict) -> list[tuple[str, str, bool]]:
    """Return (id, source, whether it is the library's) of each code cell."""
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            tags = " ".join(cell["metadata"].get("tags", ()))
            source = "".join(cell["source"])
            found.append((cell["id"], source, "llamalib:" in tags))
    return found


def addresses(notebooks: dict[str, dict]) -> dict[str, str]:
    """Return the page, from the site's root, of each public name."""
    found = {name: f"names.html#{name}" for name in llamalib.__all__}
    for file, notebook in notebooks.items():
        for key, source, is_ours in code_cells(notebook):
            for name in definitions(source) if is_ours else ():
                if name in found:
                    found[name] = f"{file.removesuffix('.ipynb')}.html#{key}"
    return found


def about(name: str) -> str:
    """Return the first line of a name's docstring."""
    thing = getattr(llamalib, name)
    known = callable(thing) and thing.__doc__  # else it is of its type
    return known.strip().split("\n")[0] if known else "The 1B's settings."


def linked_page(body: str, notebook: dict, known: dict, root: str) -> str:
    """Return a page's body with links, and with an id for each code cell.

    A name that the notebook itself defines has no link in its code.
    """
    cells = code_cells(notebook)
    own = set().union(*(definitions(source) for _, source, _ in cells))
    front, *parts = body.split(INPUT)
    if len(parts) != len(cells):
        raise ValueError(f"{len(parts)} cells of {len(cells)} are shown")

    def link(html: str, name: str | None) -> str:
        if name not in known:
            return html
        title = escape(f"llamalib.{name}: {about(name)}")
        opened = f'<a class="name" href="{root}{known[name]}" title="{title}">'
        return f"{opened}{html}</a>"

    def words(html: str) -> str:
        found = re.compile(f"{KEPT}|{INLINE}", re.S)
        return found.sub(lambda match: link(match[0], match["name"]), html)

    def calls(html: str) -> str:
        def called(match):
            return match[0] if match[1] in own else link(match[0], match[1])

        return re.sub(CALLED, called, html)

    made = [words(front)]
    for (key, _, _), part in zip(cells, parts, strict=True):
        code, end, text = part.partition("</pre>")
        opened = INPUT.replace("<div", f'<div id="{key}"')
        made.append(f"{opened}{calls(code)}{end}{words(text)}")
    return "".join(made)
