r"""Pictures and widget of notebook 01."""

from itertools import cycle

import ipywidgets as ipw

from . import charts
from .base import canvas, plain, visible
from .model_map import strip  # noqa: F401
from .play import Play, token_texts

TINTS = ("#f6e3ee", "#e6b8d1")  # of the token's colour, alternating
CONTROL = "#dddddd"  # behind a control token


def token_rows(rows, title=""):
    """Draw one text as tokens: name of a tokenizer to its tokens' texts."""
    step, parts = 22, []
    for name, tokens in rows.items():
        labels = [visible(token) for token in tokens]
        widths = [charts.text_width(each, 10) + 7 for each in labels]
        places, lines = charts.flow(widths)
        name = f"{name}: {len(tokens)} tokens"
        parts.append((name, labels, places, 30 + step * lines))
    fig, ax = charts.page(14 + sum(height for *_, height in parts))
    charts.write(ax, 0, 8, plain(title), 11, ha="left")
    top = 34
    for name, labels, places, height in parts:
        charts.write(ax, 0, top, name, ha="left", color="#555555")
        charts.boxes(ax, top + 10, labels, places, cycle(TINTS), 10, step)
        top += height
    return fig


def token_boxes(tokens, ids, codes, title="", left_out=0):
    """Draw n tokens as boxes: text, id, bytes (None: a control token)."""
    labels = [visible(token) for token in tokens]
    below = ["control" if c is None else _hex(c) for c in codes]
    columns = zip(labels, map(str, ids), below, strict=True)
    sizes = 11, 8, 7  # points
    widths = [9 + max(map(charts.text_width, c, sizes)) for c in columns]
    places, lines = charts.flow(widths)
    height = 50
    total = 26 + max(lines, 1) * height + (18 if left_out else 0)
    fig, ax = charts.page(total)
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


def token_counts(labels, series, title="", xlabel="tokens"):
    """Draw n texts' counts of tokens: name of a tokenizer to n counts."""
    n, m = len(labels), len(series)
    fig, ax = canvas(0.8 + 0.18 * m + n * (0.1 + 0.12 * m))
    shades = ("#e6b8d1", "token", "#7a2d5a")[-m:]
    charts.grouped_bars(ax, series, shades, across=True)
    for bar in ax.patches:
        count, y = bar.get_width(), bar.get_y() + bar.get_height() / 2
        style = dict(va="center", fontsize=7.5)
        charts.note(ax, count, y, f"{count:g}", 2, 0, **style)
    ax.set_yticks(range(n)[::-1], [plain(label) for label in labels])
    ax.margins(y=0.01)
    charts.finish(ax, title, xlabel)
    charts.figure_legend(fig, "outside upper left", ncols=1)
    return fig


MOST_TOKENS = 40  # drawn; of a longer text the rest is counted


def tokens(llama, text: str = "Hello, llama! 你好 🦙") -> Play:
    """Return a text field, and the tokens that the text is cut into."""
    t = llama.tokenizer
    control = set(t.special_tokens.values())

    def draw(text, special):
        allowed = "all" if special else ()
        ids = t.encode(text, bos=False, eos=False, allowed_special=allowed)
        shown = ids[:MOST_TOKENS]
        heading = (
            f"{len(text):,} characters · {len(text.encode()):,} bytes · "
            f"{len(ids):,} tokens: text, id, bytes"
        )
        return token_boxes(
            token_texts(llama, shown),
            shown,
            [None if i in control else t.decode_bytes([i]) for i in shown],
            heading if ids else "no text, no tokens: write something",
            left_out=len(ids) - len(shown),
        )

    return Play(
        draw,
        text=ipw.Textarea(text, description="text", rows=3),
        special=ipw.Checkbox(
            description="names of special tokens become control tokens"
        ),
    )
