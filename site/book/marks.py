"""Links from llamalib's names in a page that Sphinx has written."""

import re
from html import escape, unescape

PRE = (
    r'(<div class="cell_input docutils container">\s*<div) '
    r'(class="highlight-.*?<pre>)(.*?)</pre>'
)
INLINE = r'<code class="docutils literal notranslate">(.*?)</code>'
KEPT = r"<a\b.*?</a>|<h[1-6]\b.*?</h[1-6]>|<pre\b.*?</pre>"


def linked_code(page: str, links, root: str) -> str:
    """Return highlighted code with links at (line, column, name)."""
    ends = {(line, column): name for line, column, name in links}
    line, column, parts, close = 1, 0, [], 0
    for piece in re.findall(r"<[^>]*>|&[#\w]+;|.", page, re.S):
        name = piece[0] != "<" and ends.pop((line, column), None)
        if name:
            parts.append(opening(name, root))
            close = column + len(name.name)
        parts.append(piece)
        if piece == "\n":
            line, column = line + 1, 0
        elif piece[0] != "<":
            column += 1
            if column == close:
                parts.append("</a>")
                close = 0
    return "".join(parts)


def opening(name, root: str) -> str:
    """Return the opening tag of a link to where a name is taught."""
    title = escape(f"{name.anchor}: {name.about}")
    return f'<a class="name" href="{root}{name.address}" title="{title}">'


def linked_page(body: str, links, root: str) -> str:
    """Return a page's body with links and, for each code cell, its id.

    Raises ValueError if the page shows other code than the notebook.
    """
    left = iter(links.cells.items())

    def cell(match):
        key, (source, places) = next(left, ("", ("", ())))
        shown = unescape(re.sub("<[^>]*>", "", match[3]))
        if shown.strip("\n") != source.strip("\n"):
            raise ValueError(f"the page has no code of cell {key!r}")
        code = linked_code(match[3], places, root)
        return f'{match[1]} id="{key}" {match[2]}{code}</pre>'

    body = re.sub(PRE, cell, body, flags=re.S)
    if missing := [key for key, _ in left]:
        raise ValueError(f"the page has no code of cells {missing}")
    return linked_words(body, links.words, root)


def linked_words(body: str, words: dict, root: str) -> str:
    """Return a page's body with links at names in its text."""

    def word(match):
        code = unescape(re.sub("<[^>]*>", "", match[1] or ""))
        name = words.get(re.sub(r"\(.*\)$", "", code))
        return f"{opening(name, root)}{match[0]}</a>" if name else match[0]

    return re.sub(f"{KEPT}|{INLINE}", word, body, flags=re.S)
