"""Lines that a narrow window can break without losing their indent."""

import re
from html import unescape

BLOCK = re.compile(
    r'(<div class="[^"]*highlight-(ipython3|python|myst-ansi)[^>]*>'
    r'<div class="highlight"><pre>)(?:<span></span>)?(.*?)(?=</pre>)',
    re.S,
)


def with_lines(body: str) -> str:
    """Return a page with a span for each line of code, with its indent.

    What code printed has one if it is a single line. More may be a table,
    which must not break.
    """

    def spans(match):
        start, language, text = match.groups()
        lines = text.splitlines(keepends=True)
        if language == "myst-ansi" and len(lines) > 1:
            return match[0]
        return start + "".join(map(line, lines))

    return BLOCK.sub(spans, body)


def line(html: str) -> str:
    """Return a line in a span, for the style sheet."""
    text = unescape(re.sub(r"<[^>]+>", "", html)).rstrip()
    indent = len(text) - len(text.lstrip())
    style = f' style="--in:{indent}ch"' if indent else ""
    return f'<span class="line"{style}>{html}</span>'
