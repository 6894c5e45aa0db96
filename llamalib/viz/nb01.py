r"""Pictures and widget of notebook 01."""

from itertools import cycle

import ipywidgets as ipw

from . import charts
from .base import canvas, plain, visible
from .model_map import strip  # noqa: F401
from .play import Play, token_texts

TINTS = ("#f6e3ee", "#e6b8d1")  # of the token's colour, alternating
CONTROL = "#dddddd"  # behind a special token


def token_rows(rows, title):
    """Draw one text as tokens: name of a tokenizer to its tokens' texts."""
    flows = [charts.text_flow(tokens, 10) for tokens in rows.values()]
    lines = sum(lines for *_, lines in flows)
    fig, ax = charts.page(14 + 30 * len(rows) + 22 * lines)
    charts.write(ax, 0, 8, plain(title), 11, ha="left")
    top = 34
    for name, (labels, places, lines) in zip(rows, flows):
        name = f"{name}: {len(labels)} tokens"
        charts.write(ax, 0, top, name, ha="left", color="#555555")
        charts.boxes(ax, top + 10, labels, places, cycle(TINTS))
        top += 30 + 22 * lines
    return fig


def token_boxes(tokens, ids, codes, title="", left_out=0):
    """Draw n tokens as boxes: text, id, bytes (None: a special token)."""
    labels = [visible(token) for token in tokens]
    below = ["special" if c is None else _hex(c) for c in codes]
    columns = zip(labels, map(str, ids), below, strict=True)
    sizes = 11, 8, 7  # points
    widths = [9 + max(map(charts.text_width, c, sizes)) for c in columns]
    places, lines = charts.flow(widths)
    height = 50
    fig, ax = charts.page(26 + max(lines, 1) * height + 18 * bool(left_out))
    charts.write(ax, 0, 8, plain(title), 10, ha="left")
    tints = [CONTROL if c is None else t for c, t in zip(codes, cycle(TINTS))]
    charts.boxes(ax, 24, labels, places, tints, 11, height, 11)
    for (x, line, width), i, code in zip(places, ids, below):
        y = 24 + line * height
        charts.write(ax, x + width / 2, y + 26, i, 8)
        charts.write(ax, x + width / 2, y + 37, code, 7, color="#555555")
    if left_out:
        more = f"… and {left_out:,} more tokens, not drawn"
        charts.write(ax, 0, 32 + lines * height, more, ha="left")
    return fig


def _hex(code: bytes) -> str:
    """Return bytes as hexadecimal pairs, at most eight."""
    return code[:8].hex(" ") + (" …" if len(code) > 8 else "")


def token_counts(labels, series, title):
    """Draw n texts' counts of tokens: name of a tokenizer to n counts."""
    n, m = len(labels), len(series)
    fig, ax = canvas(0.8 + 0.18 * m + n * (0.1 + 0.12 * m))
    shades = ("#e6b8d1", "token", "#7a2d5a")[-m:]
    charts.grouped_bars(ax, series, shades, across=True)
    for bars in ax.containers:
        ax.bar_label(bars, fmt="{:g}", padding=2, fontsize=7.5)
    ax.set_yticks(range(n)[::-1], [plain(label) for label in labels])
    ax.margins(y=0.01)
    charts.finish(ax, title, "tokens")
    return charts.figure_legend(fig, "outside upper left", ncols=1)


MOST_TOKENS = 40  # drawn; of a longer text the rest is counted


def tokens(llama, text="Hello, llama! 你好 🦙") -> Play:
    """Return a text field, and the tokens that the text is cut into."""
    t = llama.tokenizer
    control = set(t.special_tokens.values())

    def draw(text, special):
        allowed = "all" if special else ()
        ids = t.encode(text, bos=False, eos=False, allowed_special=allowed)
        shown = ids[:MOST_TOKENS]
        sizes = f"{len(text):,} characters · {len(text.encode()):,} bytes"
        heading = f"{sizes} · {len(ids):,} tokens: text, id, bytes"
        heading = heading if ids else "no text, no tokens: write something"
        codes = [None if i in control else t.decode_bytes([i]) for i in shown]
        tokens, left_out = token_texts(llama, shown), len(ids) - len(shown)
        return token_boxes(tokens, shown, codes, heading, left_out)

    description = "a special token's name becomes that token"
    return Play(
        draw,
        text=ipw.Textarea(text, description="text", rows=3),
        special=ipw.Checkbox(description=description),
    )
