r"""The pictures of notebook 01."""

import ipywidgets as ipw

import matplotlib.pyplot as plt
from matplotlib import font_manager

from .base import COLOURS, WIDTH, canvas, plain, visible
from .play import Play
from .model_map import strip  # noqa: F401

PAGE = WIDTH * 72  # a notebook's column in points, for text set in lines
TINTS = ("#f6e3ee", "#e6b8d1")  # of the token's colour, in turn
CONTROL = "#dddddd"  # behind a token that is no text


def token_rows(rows, title=""):
    r"""One text cut into tokens by several tokenizers, one under another.

    Args:
        rows: name of a tokenizer to its tokens' texts, a list of str.
        title: over the picture.
    """
    size, step = 10, 22
    parts = []
    for name, tokens in rows.items():
        labels = [visible(token) for token in tokens]
        widths = [_text_width(label, size) + 7 for label in labels]
        name = f"{name}: {len(tokens)} tokens"
        parts.append((name, labels, widths, *_flow(widths)))
    fig, ax = _page(14 + sum(30 + step * lines for *_, lines in parts))
    ax.text(0, 8, plain(title), fontsize=11, va="center")
    top = 34
    for name, labels, widths, places, lines in parts:
        ax.text(0, top, name, fontsize=9, va="center", color="#555555")
        for n, (x, line) in enumerate(places):
            y = top + 10 + line * step
            _box(ax, x, y, widths[n], step - 3, TINTS[n % 2])
            middle = x + widths[n] / 2
            ax.text(middle, y + step / 2 - 2, labels[n], **_centred(size))
        top += 30 + step * lines
    return fig


def token_boxes(tokens, ids, codes, title="", left_out=0):
    r"""Tokens as boxes: the text, under it the id, under that the bytes.

    Args:
        tokens: texts, n of them.
        ids: n ints.
        codes: n bytes objects; None for a control token, which has none.
        title: over the picture.
        left_out: how many more tokens there are that are not drawn.
    """
    labels = [visible(token) for token in tokens]
    below = ["control" if c is None else _hex(c) for c in codes]
    widths = [
        max(_text_width(a, 11), _text_width(str(i), 8), _text_width(b, 7)) + 9
        for a, i, b in zip(labels, ids, below, strict=True)
    ]
    places, lines = _flow(widths)
    height = 50
    fig, ax = _page(26 + max(lines, 1) * height + (18 if left_out else 0))
    ax.text(0, 8, plain(title), fontsize=10, va="center")
    for n, (x, line) in enumerate(places):
        y, middle = 24 + line * height, x + widths[n] / 2
        tint = CONTROL if codes[n] is None else TINTS[n % 2]
        _box(ax, x, y, widths[n], height - 5, tint)
        ax.text(middle, y + 11, labels[n], **_centred(11))
        ax.text(middle, y + 26, ids[n], **_centred(8))
        ax.text(middle, y + 37, below[n], **_centred(7), color="#555555")
    if left_out:
        more = f"… and {left_out:,} more tokens, not drawn"
        ax.text(0, 32 + lines * height, more, fontsize=9, va="center")
    return fig


def token_counts(labels, series, title="", xlabel="tokens"):
    r"""How many tokens texts take, as bars, a group of them a text.

    Args:
        labels: one for each text, n of them, the first on top.
        series: name of a tokenizer to n counts, three names at most.
        title: over the picture.
        xlabel: what is counted.
    """
    n, m = len(labels), len(series)
    thick = 0.8 / m
    fig, ax = canvas(0.8 + 0.18 * m + n * (0.1 + 0.12 * m))
    shades = ("#e6b8d1", COLOURS["token"], "#7a2d5a")[-m:]
    for k, (name, counts) in enumerate(series.items()):
        rows = [n - 1 - i + (m - 1 - 2 * k) * thick / 2 for i in range(n)]
        ax.barh(rows, counts, thick, color=shades[k], label=name)
        for row, count in zip(rows, counts, strict=True):
            ax.text(count, row, f" {count}", va="center", fontsize=7.5)
    ax.set_yticks(range(n)[::-1], [plain(label) for label in labels])
    ax.margins(y=0.01)
    ax.set_xlabel(xlabel)
    fig.legend(frameon=False, fontsize=9, loc="outside upper left")
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def _text_width(text: str, size: float) -> float:
    """In points, in matplotlib's own font."""
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    font.set_size(size, 72)
    font.set_text(text)
    return font.get_width_height()[0] / 64


def _flow(widths):
    """(x, line) of boxes one after another, and how many lines they take."""
    places, x, line = [], 0.0, 0
    for width in widths:
        if x and x + width > PAGE:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += width + 2
    return places, line + 1 if places else 0


def _page(height: float):
    """A figure of the notebook's width, its axes in points from the top."""
    fig = plt.figure(figsize=(WIDTH, height / 72))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, PAGE)
    ax.set_ylim(height, 0)
    ax.axis("off")
    return fig, ax


def _box(ax, x, y, width, height, colour):
    ax.add_patch(plt.Rectangle((x, y), width, height, facecolor=colour))


def _centred(size):
    return {"ha": "center", "va": "center", "fontsize": size}


def _hex(code: bytes) -> str:
    """Bytes as hexadecimal pairs, eight at most."""
    return code[:8].hex(" ") + (" …" if len(code) > 8 else "")


# -- the widget

MOST_TOKENS = 40  # drawn at once; the rest of a long text is counted


def tokens(llama, text: str = "Hello, llama! 你好 🦙") -> Play:
    r"""A text, and the tokens that the checkpoint's tokenizer cuts it into.

    Controls: `text`; `special`: whether names such as `<|eot_id|>` in the
    text become control tokens.

    Args:
        llama: its tokenizer is used.
        text: to begin with.
    """
    t = llama.tokenizer
    control = set(t.special_tokens.values())

    def draw(text, special):
        allowed = "all" if special else ()
        ids = t.encode(text, bos=False, eos=False, allowed_special=allowed)
        some = ids[:MOST_TOKENS]
        return token_boxes(
            [t.decode([i]) for i in some],
            some,
            [None if i in control else t.decode_bytes([i]) for i in some],
            f"{len(text):,} characters · {len(text.encode()):,} bytes · "
            f"{len(ids):,} tokens: text, id, bytes"
            if ids
            else "no text, no tokens: write something",
            left_out=len(ids) - len(some),
        )

    return Play(
        draw,
        text=ipw.Textarea(text, description="text", rows=3),
        special=ipw.Checkbox(
            description="names of special tokens become control tokens"
        ),
    )
