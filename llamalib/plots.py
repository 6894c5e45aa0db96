r"""Pictures: the only file that imports matplotlib.

Every function draws one figure from arrays or lists that were prepared
before, and returns its matplotlib Figure.
"""

import io
import logging
import math
import re

# "Matplotlib is building the font cache" is no part of a lesson
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib import font_manager  # noqa: E402
from matplotlib.colors import LinearSegmentedColormap, to_rgb  # noqa: E402
from matplotlib.patches import FancyBboxPatch  # noqa: E402

WIDTH = 8.6  # inches: the width of a notebook's column
DPI = 100

# One colour for one thing in the whole series, which the colour-blind can
# tell apart: Okabe and Ito's palette, and for the halves of a block, dark
# beside it, indigo and wine of Paul Tol's muted palette.
COLOURS = {
    "query": "#0072B2",
    "key": "#D55E00",
    "value": "#009E73",
    "residual": "#56B4E9",
    "token": "#CC79A7",
    "probability": "#E69F00",
    "attention": "#332288",
    "feed-forward": "#882255",
    "other": "#999999",
}
# The groups of query heads that share a KV head, in turn: the palette whole.
GROUPS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#F0E442",
)

# Amounts from nothing to all (weights, probabilities) and values around 0.
AMOUNT = LinearSegmentedColormap.from_list(
    "amount", ["#ffffff", "#9ecae1", "#0072B2", "#08306b"]
)
SIGNED = LinearSegmentedColormap.from_list(
    "signed", ["#D55E00", "#fdd0a2", "#ffffff", "#9ecae1", "#0072B2"]
)


def visible(text: str) -> str:
    r"""A token's text as a label: spaces and line ends made visible.

    A character that matplotlib's own font lacks becomes its code point, and
    a long text loses its middle.
    """
    text = text.replace(" ", "␣").replace("\n", "⏎")
    text = "".join(c if drawable(c) else f"⟨{ord(c):X}⟩" for c in text)
    if len(text) > 14:  # the ends tell reserved tokens apart
        text = text[:8] + "…" + text[-5:]
    return plain(text) or "∅"


def drawable(character: str) -> bool:
    """Whether matplotlib's own font has a glyph for it."""
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    return font.get_char_index(ord(character)) != 0


def plain(text: str) -> str:
    """Text in which matplotlib reads no dollar sign as mathematics."""
    return text.replace("$", r"\$")


def png(fig) -> bytes:
    """A figure as the bytes of a PNG; the figure is closed."""
    buffer = io.BytesIO()
    # not bbox_inches="tight", which draws everything twice
    fig.savefig(buffer, format="png", dpi=DPI)
    plt.close(fig)
    return buffer.getvalue()


def array(values):
    """Numbers, a tensor's too, as a numpy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    return np.asarray(values)


def canvas(height: float, rows: int = 1, columns: int = 1, **options):
    """A figure of the notebook's width and its axes, without top and right."""
    fig, axes = plt.subplots(
        rows,
        columns,
        figsize=(WIDTH, height),
        layout="constrained",
        squeeze=False,
        **options,
    )
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    return fig, axes[0, 0] if rows == columns == 1 else axes


def title(ax, text: str) -> None:
    """A title at the left, in which dollar signs are plain."""
    ax.set_title(plain(text), loc="left", fontsize=11)


def heatmap(ax, values, rows=(), columns=(), *, signed=False, limit=None):
    r"""A matrix as colours: from 0 up, or around 0 where `signed`.

    Args:
        values: (n, m) numbers.
        rows, columns: token texts on the ticks, or none.
        limit: the value of the full colour; None: the largest there is.

    Returns:
        matplotlib's image, for a colour bar.
    """
    values = array(values)
    limit = float(abs(values).max()) if limit is None else limit
    image = ax.imshow(
        values,
        cmap=SIGNED if signed else AMOUNT,
        vmin=-limit if signed else 0,
        vmax=limit,
        aspect="auto",
        interpolation="nearest",
    )
    if len(rows):
        ax.set_yticks(range(len(rows)), [visible(r) for r in rows])
    if len(columns):
        names = [visible(c) for c in columns]
        ax.set_xticks(
            range(len(columns)),
            names,
            rotation=60,
            ha="right",
            rotation_mode="anchor",
        )
    ax.spines[:].set_visible(False)
    return image


# -- the map that opens every notebook --------------------------------------

# Name, x, y, width, of each part of the model; then for each notebook's part
# what is lit, what comes in and what goes out.
BOXES = {
    "files": ("files", 0.0, 0.5, 0.9),
    "tokenize": ("tokenize", 1.2, 0.5, 1.15),
    "embed": ("embed", 2.65, 0.5, 0.95),
    "norm 1": ("RMSNorm", 4.1, 0.5, 1.1),
    "rope": ("RoPE", 5.5, 1.15, 0.95),
    "attention": ("attention", 5.4, 0.5, 1.15),
    "norm 2": ("RMSNorm", 7.1, 0.5, 1.1),
    "feed-forward": ("feed-forward", 8.4, 0.5, 1.4),
    "norm 3": ("RMSNorm", 10.65, 0.5, 1.1),
    "LM head": ("LM head", 11.95, 0.5, 1.0),
    "sample": ("sample", 13.25, 0.5, 0.95),
}
PARTS = {
    "initialization": ("files", "a folder", "tensors by name"),
    "tokenize": ("tokenize", "text", "ids (T,)"),
    "embed": ("embed", "ids (T,)", "(T, D)"),
    "rmsnorm": ("norm 1, norm 2, norm 3", "(T, D)", "(T, D)"),
    "rope": ("rope", "queries (T, H, hd), keys (T, KV, hd)", "the same"),
    "attention": ("attention, rope", "(T, D)", "(T, D)"),
    "feed_forward": ("feed-forward", "(T, D)", "(T, D)"),
    "lm_head": ("norm 3, LM head", "(T, D)", "logits (T, V)"),
    "sampling": ("sample", "logits (V,)", "an id"),
    "generate": (", ".join(BOXES), "text", "text"),
}


def strip(part: str, llama, T: int | None = None):
    r"""The map of the model with one notebook's part lit.

    Args:
        part: a name of `PARTS`.
        llama: which checkpoint, and the numbers behind the letters.
        T: the prompt's tokens; None leaves the letter.
    """
    lit, comes, goes = PARTS[part]
    c = llama.config
    numbers = {
        "D": c.dim,
        "H": c.n_heads,
        "KV": c.n_kv_heads,
        "hd": c.head_dim,
        "F": c.hidden_dim,
        "V": c.vocab_size,
        "L": c.n_layers,
    }
    fig, ax = plt.subplots(figsize=(WIDTH, 1.75), layout="constrained")
    ax.set_xlim(-0.1, 14.3)
    ax.set_ylim(-0.55, 2.35)
    ax.axis("off")
    _draw_flow(ax, c.n_layers)
    for name, (label, x, y, width) in BOXES.items():
        on = name in lit.split(", ")
        box = FancyBboxPatch(
            (x, y - 0.25),
            width,
            0.5,
            boxstyle="round,pad=0.04",
            facecolor=COLOURS["probability"] if on else "white",
            edgecolor="black" if on else COLOURS["other"],
            lw=1.2,
            zorder=3,
        )
        ax.add_patch(box)
        ax.text(
            x + width / 2,
            y,
            label,
            ha="center",
            va="center",
            fontsize=8,
            weight="bold" if on else None,
            zorder=4,
            color="black" if on else "#555555",
        )
    shapes = f"in: {_numbered(comes, numbers, T)}   →   "
    shapes += f"out: {_numbered(goes, numbers, T)}"
    ax.text(0, -0.4, shapes, fontsize=9, va="center")
    sizes = " · ".join(f"{k} = {v}" for k, v in numbers.items())
    ax.text(0, 2.2, plain(f"{llama.name}:  {sizes}"), fontsize=9, va="center")
    return fig


def _draw_flow(ax, n_layers):
    """The residual stream, the frame around a block, the way back."""
    grey = COLOURS["other"]
    flow = dict(
        arrowprops=dict(arrowstyle="-|>", color=grey, lw=1.2), zorder=1
    )
    ax.annotate("", (13.2, 0.5), (0.9, 0.5), **flow)
    for start, end in ((3.85, 6.78), (6.78, 10.02)):  # around each half
        ax.plot(
            [start, start, end, end],
            [0.5, 0.0, 0.0, 0.42],
            color=COLOURS["residual"],
            lw=1.6,
            zorder=1,
        )
    for x in (6.78, 10.02):
        ax.text(
            x,
            0.5,
            "+",
            ha="center",
            va="center",
            fontsize=9,
            zorder=4,
            bbox=dict(
                boxstyle="circle,pad=0.1", fc="white", ec=COLOURS["residual"]
            ),
        )
    frame = FancyBboxPatch(
        (3.7, -0.1),
        6.55,
        1.65,
        boxstyle="round,pad=0.03",
        fc="#f5f5f5",
        ec=grey,
        ls="--",
        lw=1,
        zorder=0,
    )
    ax.add_patch(frame)
    ax.text(
        3.78,
        1.38,
        f"block, {n_layers} times",
        fontsize=8,
        va="center",
        color="#555555",
    )
    ax.plot([13.7, 13.7, 3.1], [0.8, 1.8, 1.8], color=grey, lw=1.2, zorder=0)
    ax.annotate("", (3.1, 0.8), (3.1, 1.82), **flow)
    ax.text(
        13.6,
        1.62,
        "the next token",
        fontsize=8,
        ha="right",
        va="center",
        color="#555555",
    )


def _numbered(shape: str, numbers: dict, T) -> str:
    """'(T, D)' as '(T, D) = (6, 256)', and what has no letters as it is."""
    values = {**numbers, "T": T or "T"}

    def number(letters):
        inside = re.sub(r"\w+", lambda m: str(values[m[0]]), letters[0])
        return f"{letters[0]} = {inside}"

    return re.sub(r"\([^)]*\)", number, shape)


# -- 00 initialization ------------------------------------------------------

# Where a parameter sits, in the order data flows, and its colour.
PLACES = {
    "embedding": COLOURS["token"],
    "attention": COLOURS["attention"],
    "feed-forward": COLOURS["feed-forward"],
    "norms": COLOURS["other"],
    "output": COLOURS["probability"],
}


def shares(models):
    r"""One bar a model, cut by the share of its parameters in each place.

    Args:
        models: name to {place: count}; places are keys of `PLACES`.
    """
    fig, ax = canvas(0.95 + 0.45 * len(models))
    rows = range(len(models))[::-1]
    for row, counts in zip(rows, models.values()):
        left, total = 0.0, sum(counts.values())
        for place, count in counts.items():
            share = 100 * count / total
            ax.barh(row, share, left=left, color=PLACES[place], height=0.7)
            if share >= 4:
                middle = left + share / 2
                style = dict(ha="center", va="center", size=9)
                dark = place in ("attention", "feed-forward")
                style["color"] = "white" if dark else "black"
                ax.text(middle, row, f"{share:.1f} %", **style)
            left += share
        ax.text(101, row, f"{total / 1e6:,.1f} M", va="center", size=9)
    ax.set_yticks(rows, [plain(name) for name in models])
    ax.set_xlim(0, 113)
    ax.spines["bottom"].set_bounds(0, 100)
    ax.set_xticks(range(0, 101, 25))
    ax.set_xlabel("share of the parameters in percent; at the right, how many")
    _places_legend(fig, models.values())
    return fig


def _places_legend(fig, counts):
    """The places that any model has a parameter in, above the axes."""
    drawn = [p for p in PLACES if any(p in each for each in counts)]
    handles = [plt.Rectangle((0, 0), 1, 1, color=PLACES[p]) for p in drawn]
    fig.legend(
        handles,
        drawn,
        loc="outside upper center",
        ncols=len(drawn),
        frameon=False,
        fontsize=9,
    )


def parameters_by_layer(models):
    r"""Parameters in the order data flows: embedding, layers, output.

    Args:
        models: name to (stops, tied); stops is a list of {place: count},
            the first the embedding, the last what follows the layers; tied
            draws the embedding's outline once more as the output.
    """
    fig, _ = canvas(3.1, 1, len(models))
    drawn = [stop for stops, _ in models.values() for stop in stops]
    for ax, (name, (stops, tied)) in zip(fig.axes, models.items()):
        layers = len(stops) - 2
        gap = 1 + layers / 16  # room for the labels of the two ends
        places = [-gap, *range(layers), layers - 1 + gap]
        for x, stop in zip(places, stops):
            bottom = 0.0
            for place, count in stop.items():
                height = count / 1e6
                ax.bar(x, height, bottom=bottom, color=PLACES[place])
                bottom += height
        if tied:
            height = sum(stops[0].values()) / 1e6
            edge = dict(ec=PLACES["embedding"], ls="--", lw=1.2)
            ax.bar(places[-1], height, fc="none", **edge)
        shown = range(0, layers, max(1, layers // 8))
        ticks = [places[0], *shown, places[-1]]
        ax.set_xticks(ticks, ["emb.", *shown, "out"])
        ax.set_xlabel("embedding, layers by number, output")
        title(ax, name)
    fig.axes[0].set_ylabel("parameters in millions")
    _places_legend(fig, drawn)
    return fig


def bits(rows):
    r"""Numbers as their bits: sign, exponent, mantissa, aligned at the left.

    Args:
        rows: name to (sign, exponent, mantissa), each a text of 0 and 1.
    """
    colours = (COLOURS["other"], COLOURS["probability"], COLOURS["residual"])
    parts = ("sign", "exponent", "mantissa")
    fig, ax = canvas(0.8 + 0.42 * len(rows))
    for y, fields in zip(range(len(rows))[::-1], rows.values()):
        x = 0
        for field, colour in zip(fields, colours):
            for bit in field:
                ax.bar(x, 0.8, 0.92, y - 0.4, color=colour)
                ax.text(x, y, bit, ha="center", va="center", size=9)
                x += 1
    ax.set_yticks(range(len(rows))[::-1], list(rows))
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in colours]
    place = dict(loc="outside upper center", ncols=3)
    fig.legend(handles, parts, frameon=False, fontsize=9, **place)
    return fig


def histograms(counts, edges, xlabel):
    r"""Outlines of histograms over the same bins, as shares of the numbers.

    Args:
        counts: name to n counts; the first in the colour of the query, the
            second grey, to compare with.
        edges: n + 1 borders of the bins.
        xlabel: what is counted.
    """
    fig, ax = canvas(2.6)
    for (name, values), role in zip(counts.items(), ("query", "other")):
        values = [100 * float(v) / float(sum(values)) for v in values]
        ax.stairs(values, edges, color=COLOURS[role], lw=1.8, label=name)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("weights in percent")
    ax.legend(frameon=False, fontsize=9)
    return fig


def tensor_card(heading, lines, counts, edges, spreads=(), layer=None):
    r"""A tensor's histogram, its figures, and its like in other layers.

    Args:
        heading: over the picture.
        lines: texts, shown at the histogram's right.
        counts, edges: n counts of numbers and the n + 1 borders of the bins.
        spreads: the standard deviation of this tensor in each layer; empty
            for a tensor that stands once.
        layer: which of them this one is.
    """
    fig, axes = canvas(3.2, 1, 2, width_ratios=[1.8, 1])
    ax, side = axes[0]
    ax.stairs(counts, edges, fill=True, color=COLOURS["query"])
    ax.set_xlabel("value of a weight")
    ax.set_ylabel("how many")
    title(ax, "\n".join([heading, *lines]))
    if not len(spreads):
        side.axis("off")
        return fig
    grey, blue = COLOURS["other"], COLOURS["query"]
    colours = [blue if i == layer else grey for i in range(len(spreads))]
    side.bar(range(len(spreads)), spreads, color=colours)
    side.set_xticks(range(0, len(spreads), max(1, len(spreads) // 6)))
    side.set_xlabel("layer")
    title(side, "standard deviation\nof this tensor in each layer")
    return fig


# -- 01 tokenize ------------------------------------------------------------

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


# -- 02 embed ---------------------------------------------------------------


def lookup(one_hot, table, rows):
    r"""One-hot rows times a small table, as three tables of numbers.

    Args:
        one_hot: (T, V) zeros and ones, as lists.
        table: (V, D) numbers.
        rows: (T, D), the product.
    """
    parts = [
        ("one-hot (T, V)", "position t", "token id", one_hot),
        ("table (V, D)", "token id", "dimension", table),
        ("result (T, D)", "position t", "dimension", rows),
    ]
    limit = max(abs(float(x)) for row in table for x in row)
    widths = [len(values[0]) for *_, values in parts]
    fig, axes = canvas(3.6, 1, 3, gridspec_kw={"width_ratios": widths})
    for ax, (name, down, across, values), sign in zip(axes[0], parts, "×= "):
        n, m = len(values), len(values[0])
        ones = values is one_hot
        heatmap(ax, values, signed=not ones, limit=1.5 if ones else limit)
        ax.set_aspect("equal")
        for i in range(n):
            for j in range(m):
                text = f"{values[i][j]:.0f}" if ones else f"{values[i][j]:.2f}"
                colour = "white" if ones and values[i][j] > 0 else "black"
                ax.text(
                    j, i, text, ha="center", va="center", size=8, color=colour
                )
        ax.set(xlabel=across, ylabel=down, xticks=range(m), yticks=range(n))
        title(ax, name)
        if sign != " ":
            ax.text(m, n / 2 - 0.5, sign, size=16, ha="center", va="center")
    return fig


def norm_histogram(norms, special, marks):
    r"""How long the embedding's rows are, ordinary and special tokens apart.

    Args:
        norms: n floats, of the ordinary tokens.
        special: m floats, of the special tokens.
        marks: (token text, norm) of those to be named.
    """
    fig, ax = canvas(3.8)
    low, high = float(min(*norms, *special)), float(max(*norms, *special))
    for values, name, role in (
        (norms, "ordinary tokens", "residual"),
        (special, "special tokens", "key"),
    ):
        ax.hist(
            values,
            bins=60,
            range=(low, high),
            color=COLOURS[role],
            label=name,
            alpha=0.85,
        )
    ax.set_yscale("log")
    top = ax.get_ylim()[1]
    ax.set_ylim(0.7, top * 150)
    marks = sorted(marks, key=lambda mark: mark[1])
    places = _apart([x for _, x in marks], (high - low) / 32, low, high)
    for (text, x), place in zip(marks, places):
        ax.plot([x, x, place], [0.7, top, top * 2], c=COLOURS["other"], lw=0.8)
        ax.text(
            place, top * 2.6, visible(text), rotation=90, ha="center", size=8
        )
    ax.legend(
        frameon=False,
        fontsize=9,
        ncols=2,
        loc="lower right",
        bbox_to_anchor=(1, 1),
    )
    ax.set_xlabel("norm of the row (square root of the sum of squares)")
    ax.set_ylabel("tokens (log scale)")
    return fig


def _apart(places, gap, low, high):
    """Sorted places, moved as little as need be to stand `gap` apart."""
    places = list(places)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    places = [min(p, high) for p in places]
    for i in range(len(places) - 2, -1, -1):
        places[i] = min(places[i], places[i + 1] - gap)
    return [max(p, low) for p in places]


def neighbours(panels):
    r"""For each of a few tokens, its nearest tokens as bars.

    Args:
        panels: (token text, names, cosines) for each token; the names and
            cosines nearest first, as many for each token.
    """
    n = len(panels[0][1])
    fig, axes = canvas(0.8 + 0.26 * n, 1, len(panels), sharex=True)
    axes = axes.flat if len(panels) > 1 else [axes]
    for ax, (token, names, cosines) in zip(axes, panels):
        ax.barh(range(n), cosines, color=COLOURS["token"])
        ax.set_yticks(range(n), [visible(name) for name in names], fontsize=8)
        ax.invert_yaxis()
        ax.set_xlim(0, 1)
        ax.set_xlabel("cosine")
        title(ax, f"nearest to {visible(token)}")
    return fig


def nearest(token, names, cosines, every):
    r"""One token's nearest tokens as bars, among the cosines of all tokens.

    Args:
        token: its text.
        names, cosines: n texts and floats, nearest first.
        every: the cosine with each token of the vocabulary, itself left out.
    """
    import numpy

    n = len(names)
    height = 0.9 + 0.27 * n
    fig, axes = canvas(height, 1, 2)
    # fixed places: the widget draws this often, and a layout takes its time
    fig.set_layout_engine(None)
    low, high = 0.5 / height, 1 - 0.3 / height
    fig.subplots_adjust(0.16, low, 0.98, high, wspace=0.28)
    ax, crowd = axes[0]
    ax.barh(range(n), cosines, color=COLOURS["token"])
    ax.set_yticks(range(n), [visible(name) for name in names])
    ax.invert_yaxis()
    for row, cosine in enumerate(cosines):
        ax.text(
            max(cosine, 0) + 0.01, row, f"{cosine:.2f}", va="center", size=8
        )
    ax.set_xlim(min(0, *cosines), 1.12)
    ax.set_xlabel("cosine (1: the same direction)")
    title(ax, f"nearest to {visible(token)}")
    counts, edges = numpy.histogram(every, bins=60, range=(-1, 1))
    crowd.stairs(counts, edges, fill=True, color=COLOURS["residual"])
    crowd.plot(cosines, [0.7] * n, "|", color=COLOURS["token"], ms=14)
    crowd.set_yscale("log")
    crowd.set_xticks([-1, -0.5, 0, 0.5, 1])
    crowd.set_xlabel("cosine with every other token")
    crowd.set_ylabel("tokens (log scale)")
    crowd.minorticks_off()
    title(crowd, "the whole vocabulary")
    return fig


def word_map(points, words, groups, shares):
    r"""Words as points in a plane, each with its text beside it.

    Args:
        points: (n, 2) coordinates.
        words: n token texts.
        groups: n names of groups, at most six; one colour each.
        shares: of the variance, that each of the two axes holds (0 to 1).
    """
    fig, ax = canvas(5.6)
    names = list(dict.fromkeys(groups))
    for name, colour in zip(names, GROUPS):
        mine = [p for p, g in zip(points, groups) if g == name]
        x, y = zip(*mine)
        ax.scatter(x, y, s=18, color=colour, label=name)
    ax.margins(0.08)
    ax.set_xlabel(f"first axis ({shares[0]:.0%} of the variance)")
    ax.set_ylabel(f"second axis ({shares[1]:.0%} of the variance)")
    ax.legend(
        frameon=False,
        fontsize=9,
        ncols=len(names),
        loc="lower left",
        bbox_to_anchor=(0, 1),
    )
    colours = [GROUPS[names.index(g)] for g in groups]
    fig.canvas.draw()  # so that the size of a label is known
    _write_beside(ax, points, [visible(word) for word in words], colours)
    return fig


def _write_beside(ax, points, texts, colours):
    """Each text beside its point, where it covers no other if it can."""
    from matplotlib.transforms import Bbox

    renderer = ax.figure.canvas.get_renderer()
    at = ax.transData.transform([[float(x), float(y)] for x, y in points])
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in at]
    turns = [(1, 0), (-1, 0), (0, 1), (0, -1)]
    turns += [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    for own, ((x, y), text, colour) in enumerate(zip(at, texts, colours)):
        label = ax.text(0, 0, text, size=8, color=colour)
        box = label.get_window_extent(renderer)
        w, h = box.width, box.height
        best = None
        for far in (5, 9, 14, 20, 28):
            for right, up in turns:
                left = x + right * (far + w / 2) - w / 2
                low = y + up * (far + h / 2) - h / 2
                place = Bbox.from_bounds(left, low, w, h)
                others = taken[:own] + taken[own + 1 :]
                hits = place.count_overlaps(others)
                hits += 5 * (not ax.bbox.fully_containsx(left + w))
                hits += 5 * (not ax.bbox.fully_containsx(left))
                if best is None or hits < best[0]:
                    best = hits, place
        taken.append(best[1])
        corner = ax.transData.inverted().transform(best[1].p0)
        label.set_position(corner)
        label.set_verticalalignment("bottom")


def order_by_layer(changes):
    r"""How far the last row moves when the words are reordered, by layer.

    Args:
        changes: name of a model to L numbers: the change of the last row
            of the residual stream after each block, relative to its norm.
    """
    fig, ax = canvas(3.4)
    roles = ("other", "query", "key")
    for (name, values), role in zip(changes.items(), roles, strict=True):
        values = [max(float(v), 1e-9) for v in values]
        layers = range(1, len(values) + 1)
        ax.plot(layers, values, "o-", color=COLOURS[role], label=name, lw=2)
    ax.set_yscale("log")
    ax.set_ylim(1e-9, 30)
    ax.set_xticks(layers)
    ax.set_xlabel("after how many blocks")
    ax.set_ylabel("relative change\nof the last row (log)")
    ax.legend(frameon=False, fontsize=9, ncols=3, loc="upper left")
    return fig


def position_table(table, title_text=""):
    r"""A position embedding: one row a position.

    Args:
        table: (T, D) numbers.
        title_text: over the picture.
    """
    fig, ax = canvas(2.9)
    image = heatmap(ax, table, signed=True)
    fig.colorbar(image, ax=ax, label="value", pad=0.01)
    ax.set_xlabel("dimension (sine and cosine of each pair side by side)")
    ax.set_ylabel("position")
    title(ax, title_text)
    return fig


# -- 03 rmsnorm -------------------------------------------------------------


def rms_by_norm(rms, labels):
    r"""How large the vectors are that come into each norm, on a log scale.

    Args:
        rms: (2L + 1, T) root mean squares, in the order of the model: for
            each layer before attention and before the feed-forward network,
            then the final norm.
        labels: T token texts.
    """
    fig, ax = canvas(2.9)
    rms = array(rms)
    places = [i / 2 for i in range(len(rms))]
    shades = AMOUNT(
        [0.35 + 0.65 * t / len(labels) for t in range(len(labels))]
    )
    for t, label in enumerate(labels):
        ax.plot(
            places,
            rms[:, t],
            "o-",
            ms=4,
            lw=1.2,
            color=shades[t],
            label=visible(label),
        )
    ax.set_yscale("log")
    n_layers = len(rms) // 2
    step = max(1, n_layers // 8)
    ticks = list(range(0, n_layers, step))
    ax.set_xticks(
        ticks + [n_layers], [f"layer {i}" for i in ticks] + ["final"]
    )
    ax.set_ylabel("RMS of the vector")
    ax.set_xlabel(
        "norm: two a layer (attention, then feed-forward), then the final one"
    )
    ax.legend(
        frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1)
    )
    title(ax, "What comes into each norm")
    return fig


def before_and_after(panels, labels):
    r"""Values of each token in several states, one colour scale for all.

    Args:
        panels: title to (T, n) values.
        labels: T token texts.
    """
    fig, axes = canvas(0.9 + 0.28 * len(labels), 1, len(panels), sharey=True)
    limit = max(float(abs(values).max()) for values in panels.values())
    limit = min(limit, 3.0)  # the strongest may be over it
    for ax, (name, values) in zip(axes.flat, panels.items()):
        image = heatmap(ax, values, labels, signed=True, limit=limit)
        ax.set_xlabel(f"features 0 to {values.shape[1] - 1}")
        title(ax, name)
    fig.colorbar(image, ax=axes, label="value", shrink=0.9, extend="both")
    return fig


def epsilon_curves(sizes, curves, marks):
    r"""The size of a normalized vector against the size of what came in.

    Args:
        sizes: n root mean squares of the input, drawn on a log scale.
        curves: two names with n root mean squares of the output each.
        marks: name to input sizes to be marked on the first curve's axis.
    """
    fig, ax = canvas(3.0)
    for (name, values), role in zip(
        curves.items(), ("residual", "key"), strict=True
    ):
        ax.plot(
            array(sizes), array(values), color=COLOURS[role], lw=2, label=name
        )
    for name, at in marks.items():
        ax.plot(
            array(at), [1.06] * len(at), "|", ms=12, color="black", label=name
        )
    ax.set_xscale("log")
    ax.set_ylim(0, 1.14)
    ax.set_xlabel("RMS of what comes in")
    ax.set_ylabel("RMS of what goes out")
    ax.legend(frameon=False, fontsize=9, loc="center right")
    title(ax, "Where ε takes hold")
    return fig


def error_histogram(errors, heading):
    r"""How often each relative error occurs, on a log scale.

    Args:
        errors: up to three names with relative errors each.
        heading: over the picture.
    """
    fig, ax = canvas(2.8)
    edges = [2.0 ** (e / 2) for e in range(-26, -5)]
    for (name, values), role in zip(
        errors.items(), ("residual", "probability", "key")
    ):
        kept = [min(max(v, edges[0]), edges[-1]) for v in values.tolist()]
        share = [1 / len(kept)] * len(kept)
        ax.hist(
            kept,
            edges,
            weights=share,
            histtype="step",
            lw=2,
            color=COLOURS[role],
            label=name,
        )
    ax.set_xscale("log", base=2)
    ax.set_xlabel("relative error (the first step holds all smaller ones)")
    ax.set_ylabel("share of the values")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    title(ax, heading)
    return fig


def gamma_by_norm(gammas):
    r"""The learned scales of every norm: median, middle half, 5 % to 95 %.

    Args:
        gammas: (2L + 1, D), in the order of the model, the final norm last.
    """
    fig, ax = canvas(3.0)
    gammas = array(gammas)
    n_layers = len(gammas) // 2
    sorts = {
        "before attention": (gammas[:-1:2], 0.0, "attention"),
        "before feed-forward": (gammas[1:-1:2], 0.3, "feed-forward"),
        "final": (gammas[-1:], n_layers, "other"),
    }
    for name, (rows, offset, role) in sorts.items():
        at = [i + offset for i in range(len(rows))]
        marks = [sorted(row.tolist()) for row in rows]
        low, first, middle, third, high = (
            [row[int(q * (len(row) - 1))] for row in marks]
            for q in (0.05, 0.25, 0.5, 0.75, 0.95)
        )
        ax.vlines(at, low, high, color=COLOURS[role], lw=1.2)
        ax.vlines(at, first, third, color=COLOURS[role], lw=5, alpha=0.6)
        ax.plot(at, middle, "o", color=COLOURS[role], ms=5, label=name)
    step = max(1, n_layers // 8)
    ticks = list(range(0, n_layers, step))
    ax.set_xticks(
        [i + 0.15 for i in ticks] + [n_layers],
        [f"layer {i}" for i in ticks] + ["final"],
    )
    ax.set_ylabel("γ of a feature")
    ax.legend(
        frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1)
    )
    title(ax, "Learned scales: median, middle half, 5 % to 95 % of features")
    return fig


def norm_bars(before, after, sizes, curve, point, heading):
    r"""A vector before and after RMSNorm, and where it lies on ε's curve.

    Args:
        before, after: n values of the same features.
        sizes, curve: what goes out against what comes in, as RMS.
        point: (RMS in, RMS out) of this vector.
        heading: over the picture.
    """
    fig, axes = canvas(3.0, 1, 2, width_ratios=[1.5, 1])
    left, right = axes.flat
    before, after = array(before), array(after)
    places = range(len(before))
    left.bar(
        [i - 0.2 for i in places],
        before,
        0.4,
        color=COLOURS["other"],
        label="before",
    )
    left.bar(
        [i + 0.2 for i in places],
        after,
        0.4,
        color=COLOURS["residual"],
        label="after",
    )
    left.axhline(0, color="black", lw=0.6)
    left.set_ylim(-4, 4)
    left.set_xlabel("feature")
    left.set_ylabel("value (cut off at ±4)")
    left.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)
    title(left, heading)
    right.plot(array(sizes), array(curve), color=COLOURS["residual"], lw=2)
    right.plot(*point, "o", ms=9, color="black")
    right.set_xscale("log")
    right.set_ylim(0, 1.1)
    right.set_xlabel("RMS of what comes in")
    right.set_ylabel("RMS of what goes out")
    return fig


# -- 04 rope ----------------------------------------------------------------


def _circle(ax, x=0.0, y=0.0, radius=1.0):
    """The circle on which an arrow turns."""
    ax.add_patch(
        plt.Circle((x, y), radius, fc="none", ec="#dddddd", lw=1, zorder=0)
    )


def _arrow(ax, tip, colour, start=(0, 0), **style):
    """An arrow from start, by tip."""
    end = (start[0] + tip[0], start[1] + tip[1])
    style = dict(arrowstyle="-|>", color=colour, lw=2) | style
    style |= dict(shrinkA=0, shrinkB=0)
    ax.annotate("", end, start, arrowprops=style)


def _plane(ax, radius: float) -> None:
    """A plane with its origin in the middle, and nothing around it."""
    ax.set_xlim(-1.28 * radius, 1.28 * radius)
    ax.set_ylim(-1.28 * radius, 1.28 * radius)
    ax.set_aspect("equal")
    ax.axhline(0, color="#dddddd", lw=0.8, zorder=0)
    ax.axvline(0, color="#dddddd", lw=0.8, zorder=0)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def _arc(ax, start, sweep, radius):
    """The arc from an angle on, in radians, counter-clockwise."""
    steps = [start + sweep * i / 60 for i in range(61)]
    xs = [radius * math.cos(a) for a in steps]
    ys = [radius * math.sin(a) for a in steps]
    ax.plot(xs, ys, color="black", lw=1.4)


def turning(vectors, heading=""):
    r"""One pair of numbers at successive positions: as arrows, as waves.

    Args:
        vectors: (M, 2) numbers, row m as turned by position m, M from 2.
        heading: over the picture.
    """
    vectors = [[float(v) for v in row] for row in vectors]
    count = len(vectors)
    radius = max(math.hypot(*v) for v in vectors)
    shades = [AMOUNT(0.3 + 0.7 * m / (count - 1)) for m in range(count)]
    fig, axes = canvas(3.5, 1, 2, width_ratios=[1, 1.45])
    circle, waves = axes[0]
    _plane(circle, radius)
    _circle(circle, radius=radius)
    for m, (v, shade) in enumerate(zip(vectors, shades)):
        _arrow(circle, v, shade)
        x, y = (1.15 * a for a in v)
        circle.text(x, y, str(m), ha="center", va="center", fontsize=9)
    title(circle, heading)
    for i, (style, name) in enumerate((("-", "first"), ("--", "second"))):
        heights = [v[i] for v in vectors]
        waves.plot(heights, style, color="#777777", lw=1, zorder=1)
        waves.scatter(range(count), heights, color=shades, s=34, zorder=2)
        end = (count - 1, heights[-1])
        waves.annotate(
            f"{name} number",
            end,
            (8, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    waves.set_xlim(-0.4, (count - 1) * 1.32)
    waves.set_xticks(range(0, count, max(1, count // 9)))
    waves.set_xlabel("position m")
    waves.set_ylabel("value")
    return fig


def kept_angle(shots):
    r"""A query and a key turned by several pairs of positions, side by side.

    Only directions are drawn: each arrow has its role's fixed length.

    Args:
        shots: (heading, query, key, score) for each panel; query and key
            are two numbers each.
    """
    fig, axes = canvas(3.3, 1, len(shots))
    for ax, (heading, *vectors, score) in zip(axes.flat, shots):
        _plane(ax, 1)
        _circle(ax)
        angles = [math.atan2(float(y), float(x)) for x, y in vectors]
        for role, angle in zip(("query", "key"), angles):
            x, y = math.cos(angle), math.sin(angle)
            _arrow(ax, (x, y), COLOURS[role])
            ax.text(
                1.15 * x,
                1.15 * y,
                role,
                color=COLOURS[role],
                ha="center",
                va="center",
                fontsize=9,
            )
        sweep = math.remainder(angles[1] - angles[0], math.tau)
        _arc(ax, angles[0], sweep, 0.35)
        ax.set_title(heading, fontsize=10)
        ax.set_xlabel(
            f"angle {math.degrees(sweep):.1f}°, score {score:.4f}", fontsize=9
        )
    return fig


def clocks(vectors, positions, pairs, heading=""):
    r"""A grid of small circles: how far each pair has turned by a position.

    Args:
        vectors: (P, K, 2) numbers; of each the direction is drawn.
        positions: P numbers, from left to right.
        pairs: K row labels, from top to bottom.
        heading: over the picture.
    """
    P, K = len(positions), len(pairs)
    fig, ax = canvas(0.9 + 0.6 * K)
    for i in range(P):
        shade = AMOUNT(0.35 + 0.65 * i / max(P - 1, 1))
        for j in range(K):
            x, y = float(vectors[i][j][0]), float(vectors[i][j][1])
            size = math.hypot(x, y) / 0.44
            x0, y0 = (float(a) for a in vectors[0][j])
            _circle(ax, i, j, 0.44)
            ax.plot(
                [i, i + x0 / size], [j, j - y0 / size], color="#bbbbbb", lw=1
            )
            _arrow(ax, (x / size, -y / size), shade, (i, j), mutation_scale=9)
    ax.set_xlim(-0.55, P - 0.45)
    ax.set_ylim(K - 0.45, -0.55)
    ax.set_aspect("equal")
    ax.set_xticks(range(P), [f"{m:,}" for m in positions], fontsize=9)
    ax.set_yticks(range(K), pairs, fontsize=9)
    ax.set_xlabel("position m")
    ax.set_ylabel("pair k")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    title(ax, heading)
    return fig


def bands(cos, sin):
    r"""The cosine and sine of every position's angle for every pair.

    Args:
        cos, sin: (T, hd/2) tensors.
    """
    fig, axes = canvas(4.4, 2, 1, sharex=True)
    for ax, values, name in zip(axes.flat, (cos, sin), ("cos", "sin")):
        image = heatmap(ax, values.T.numpy(), signed=True, limit=1.0)
        title(ax, f"{name} of m · Θₖ")
        ax.set_ylabel("pair k")
    axes.flat[-1].set_xlabel("position m")
    fig.colorbar(image, ax=axes, shrink=0.6, ticks=[-1, 0, 1])
    return fig


def wavelengths(series, limits=(), heading=""):
    r"""Positions to a full turn, by pair, on a logarithmic scale.

    Args:
        series: name to hd/2 numbers; at most four.
        limits: (name, positions) of each horizontal line.
        heading: over the picture.
    """
    fig, ax = canvas(3.9)
    looks = (
        dict(color="#bbbbbb", marker="o", lw=5, ms=9),
        dict(color="black", marker="^", ls="--"),
        dict(color="black", marker="s"),
        dict(color=COLOURS["other"], marker="v", ls=":"),
    )
    for (name, values), look in zip(series.items(), looks):
        ax.plot(values, label=name, **dict(ms=4, lw=1.4) | look)
    count = len(values)
    for name, value in limits:
        ax.axhline(value, color="#777777", ls=":", lw=1.2)
        ax.text(0, value * 1.15, name, fontsize=9)
    ax.set_yscale("log")
    ax.set_xticks(range(0, count, max(1, count // 16)))
    ax.set_xlabel("pair k")
    ax.set_ylabel("positions to a full turn")
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    title(ax, heading)
    return fig


def score_by_distance(distances, real, alike, spread, unlike, heading=""):
    r"""How a score changes with the distance between query and key.

    Args:
        distances: n numbers, the x axis.
        real: n scores of one query and key, as cosines.
        alike: n means over random vectors, key and query the same.
        spread: two times n numbers, below and above most of those.
        unlike: n means over independent random queries and keys.
        heading: over the picture.
    """
    fig, ax = canvas(3.7)
    query, grey = COLOURS["query"], COLOURS["other"]
    ax.fill_between(distances, *spread, color=query, alpha=0.15, lw=0)
    ax.plot(
        distances,
        alike,
        color=query,
        lw=2,
        label="random, key = query: mean, and 8 of 10 (shaded)",
    )
    ax.plot(
        distances,
        real,
        color="black",
        lw=1,
        label="one query and key of the model",
    )
    ax.plot(
        distances,
        unlike,
        color=grey,
        ls="--",
        lw=2,
        label="random, key and query independent: mean",
    )
    ax.axhline(0, color="#dddddd", lw=0.8, zorder=0)
    ax.set_xlabel("distance m − n between query and key, in positions")
    ax.set_ylabel("score / (length of query\n· length of key)")
    ax.set_ylim(top=1.35)
    ax.legend(frameon=False, fontsize=9, loc="upper right")
    title(ax, heading)
    return fig


def by_position(series, ylabel, heading="", mark=None, *, log=False):
    r"""Lines along the positions of a text.

    Args:
        series: name to (positions, values); at most three.
        ylabel: what the values are, with their unit.
        heading: over the picture.
        mark: (position, text) of a vertical line, or None.
        log: whether the values are on a logarithmic scale.
    """
    fig, ax = canvas(3.3)
    looks = (("black", "-"), (COLOURS["other"], "--"), ("black", ":"))
    for (name, (xs, ys)), (colour, style) in zip(series.items(), looks):
        ax.plot(xs, ys, style, color=colour, label=name, lw=1.6)
    if mark:
        ax.axvline(mark[0], color="#777777", ls=":", lw=1.2)
        ax.text(
            mark[0],
            1.0,
            f" {mark[1]}",
            fontsize=9,
            va="top",
            transform=ax.get_xaxis_transform(),
        )
    if log:
        ax.set_yscale("log")
    if len(series) > 1:
        ax.legend(frameon=False, fontsize=9, loc="upper left")
    ax.set_xlabel("position m")
    ax.set_ylabel(ylabel)
    title(ax, heading)
    return fig


def turned(before, after, m, angle, wave, heading=""):
    r"""One pair before and after its turn, and its angle along the text.

    Args:
        before, after: two numbers each.
        m: the position.
        angle: m · Θₖ, in radians; counter-clockwise.
        wave: (positions, cosines) of the pair's angle along the text.
        heading: over the picture.
    """
    fig, axes = canvas(3.4, 1, 2, width_ratios=[1, 1.5])
    circle, along = axes[0]
    x, y = (float(a) for a in before)
    radius = math.hypot(x, y)
    _plane(circle, radius)
    _circle(circle, radius=radius)
    turned_to = [float(a) for a in after]
    for tip, colour, label in (
        ((x, y), COLOURS["other"], "before"),
        (turned_to, COLOURS["query"], "after"),
    ):
        _arrow(circle, tip, colour)
        at = [1.07 * a for a in tip]
        side = "left" if tip[0] > 0 else "right"
        circle.text(*at, label, color=colour, ha=side, va="center", fontsize=9)
    start, sweep = math.atan2(y, x), math.fmod(angle, math.tau)
    _arc(circle, start, sweep, 0.4 * radius)
    turns = int(angle / math.tau)
    circle.set_xlabel(
        f"m · Θₖ = {angle:.4f} radians\n"
        f"= {turns:,} full turns and {math.degrees(sweep):.1f}°",
        fontsize=10,
    )
    title(circle, heading)
    along.plot(*wave, color=COLOURS["other"], lw=1.2)
    along.plot(m, math.cos(angle), "o", color=COLOURS["query"], ms=8)
    along.set_ylim(-1.15, 1.15)
    along.set_xlabel("position m")
    along.set_ylabel("cos of m · Θₖ")
    return fig


# -- 05 attention -----------------------------------------------------------


def group_colour(kv_head: int) -> str:
    """The colour of the group that shares this KV head."""
    return GROUPS[kv_head % len(GROUPS)]


def _frame(ax, colour, lw=2.0):
    """A frame around a picture, in a group's colour."""
    ax.spines[:].set(visible=True, color=colour, linewidth=lw)


def masks(squares):
    r"""Which query may look at which key, 0 or -inf in every cell.

    Args:
        squares: (title, mask, query labels, key labels) each; a mask is
            (T, S), 0 or -inf.
    """
    widths = [max(len(keys), 3) for *_, keys in squares]
    fig, axes = canvas(4.1, 1, len(squares), width_ratios=widths)
    axes = [axes] if len(squares) == 1 else list(axes.flat)
    for ax, (name, mask, queries, keys) in zip(axes, squares):
        seen = [[float(cell == 0) for cell in row] for row in mask.tolist()]
        ax.imshow(seen, cmap="Blues", vmin=0, vmax=2.2)
        ax.set_anchor("N")
        heatmap_ticks(ax, queries, keys)
        for t, row in enumerate(seen if len(keys) <= 12 else ()):
            for s, sees in enumerate(row):
                text, colour = ("0", "black") if sees else ("−∞", "#777777")
                middle = dict(ha="center", va="center", fontsize=9)
                ax.text(s, t, text, color=colour, **middle)
        _frame(ax, COLOURS["other"], 1)
        title(ax, name)
        ax.set_xlabel("key: who is looked at")
    axes[0].set_ylabel("query: who looks")
    return fig


def heatmap_ticks(ax, rows, columns, most=20, size=9):
    """Token texts on both axes, at most so many: every n-th, if need be."""
    for axis, names in ((ax.yaxis, rows), (ax.xaxis, columns)):
        step = max(1, -(-len(names) // most))
        places = range(0, len(names), step)
        axis.set_ticks(places, [visible(names[i]) for i in places])
        axis.set_tick_params(length=0, labelsize=size)
    across = dict(rotation=60, ha="right", rotation_mode="anchor")
    for label in ax.get_xticklabels():
        label.set(**across)


def attention_map(ax, weights, labels, name, colour=None):
    r"""One head's map on an axes: rows look, columns are looked at.

    Args:
        weights: (T, T) from 0 to 1.
        labels: T token texts.
        name: the title; colour: of the frame, the group's.
    """
    image = heatmap(ax, weights.tolist(), limit=1.0)
    heatmap_ticks(ax, labels, labels)
    if len(labels) <= 12:
        for t, row in enumerate(weights.tolist()):
            for s, weight in enumerate(row[: t + 1]):
                ink = "white" if weight > 0.55 else "black"
                at = dict(ha="center", va="center", fontsize=8)
                ax.text(s, t, f"{weight:.2f}", color=ink, **at)
    if colour:
        _frame(ax, colour)
    title(ax, name)
    return image


def attention_maps_of(panels, height=4.2):
    r"""Maps of some heads, beside each other, each over its own tokens.

    Args:
        panels: (title, (T, T) weights, T token texts, KV head) each.
    """
    fig, axes = canvas(height, 1, len(panels))
    axes = [axes] if len(panels) == 1 else list(axes.flat)
    for ax, (name, weights, labels, kv_head) in zip(axes, panels):
        colour = group_colour(kv_head)
        image = attention_map(ax, weights, labels, name, colour)
        ax.set_xlabel("key: the token looked at")
    axes[0].set_ylabel("query: the token that looks")
    fig.colorbar(image, ax=axes, label="weight", shrink=0.8, aspect=30)
    return fig


def layer_heads(maps, labels, n_kv_heads, name=""):
    r"""All heads of a layer, side by side; a group has one colour.

    Args:
        maps: (H, T, T) weights from 0 to 1.
        labels: T token texts.
        n_kv_heads: KV; heads h with one h // (H/KV) share a KV head.
        name: over the picture.
    """
    H = len(maps)
    columns = 4 if H <= 12 else 8
    rows = -(-H // columns)
    fig, axes = canvas(0.9 + rows * 8 / columns, rows, columns)
    axes = axes.reshape(rows, columns) if rows * columns > 1 else [[axes]]
    for place, ax in enumerate(ax for row in axes for ax in row):
        if place >= H:
            ax.axis("off")
            continue
        kv_head = place // (H // n_kv_heads)
        heatmap(ax, maps[place].tolist(), limit=1.0)
        colour = group_colour(kv_head)
        _frame(ax, colour, 2.5)
        ax.set_title(
            f"head {place} · KV {kv_head}",
            fontsize=9 if columns == 4 else 7,
            weight="bold",
        )
        bottom = place + columns >= H
        most, size = (12, 7.5) if columns == 4 else (7, 5.5)
        heatmap_ticks(ax, labels, labels, most, size)
        left = place % columns == 0
        ax.tick_params(labelleft=left, labelbottom=bottom)
    fig.suptitle(plain(name), x=0.01, ha="left", fontsize=11)
    fig.supxlabel("key: the token looked at", fontsize=9)
    fig.supylabel("query: the token that looks", fontsize=9)
    return fig


def sharing(n_heads, kinds):
    r"""Which query head uses which KV head, for each kind of attention.

    Args:
        n_heads: H.
        kinds: name to KV, the KV heads there are of that kind.
    """
    fig, axes = canvas(1.25 * len(kinds), len(kinds), 1)
    axes = [axes] if len(kinds) == 1 else list(axes.flat)
    half = min(0.4, 0.4 * 12 / n_heads)
    for ax, (name, KV) in zip(axes, kinds.items()):
        n_rep = n_heads // KV
        for h in range(n_heads):
            kv_head = h // n_rep
            at = kv_head * n_rep + (n_rep - 1) / 2
            colour = group_colour(kv_head)
            ax.plot([h, at], [1, 0], color=colour, lw=1.2, zorder=1)
            ax.scatter([h], [1], marker="s", s=130, color=colour, zorder=2)
            ax.scatter([at], [0], marker="s", s=130, color=colour, zorder=2)
            if h % n_rep == 0:
                _number(ax, at, 0, kv_head, colour)
            _number(ax, h, 1, h, colour)
        ax.set_yticks([0, 1], [f"{KV} KV", f"{n_heads} query"])
        ax.set_xlim(-0.6 - half, n_heads - 0.4 + half)
        ax.set_ylim(-0.45, 1.45)
        ax.set_xticks([])
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        title(ax, name)
    return fig


def _number(ax, x, y, number, colour):
    """A head's number on its square, in black where the square is pale."""
    red, green, blue = to_rgb(colour)
    pale = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
    ink = "black" if pale else "white"
    middle = dict(ha="center", va="center", color=ink, weight="bold")
    ax.text(x, y, str(number), fontsize=8, zorder=3, **middle)


def weights_by_scale(labels, weights, name=""):
    r"""One query's weights under several scalings, as grouped bars.

    Args:
        labels: S token texts, on the x axis.
        weights: name of the scaling to S weights.
        name: over the picture.
    """
    fig, ax = canvas(3.0)
    width = 0.8 / len(weights)
    colours = ("#bbbbbb", COLOURS["probability"], "#666666")
    for i, (scaling, values) in enumerate(weights.items()):
        x = [
            s + (i - (len(weights) - 1) / 2) * width
            for s in range(len(labels))
        ]
        ax.bar(x, values, width, label=scaling, color=colours[i % 3])
    ax.set_xticks(range(len(labels)), [visible(text) for text in labels])
    if len(labels) > 10:
        ax.tick_params(axis="x", rotation=60)
    ax.set_xlabel("key: the token looked at")
    ax.set_ylabel("weight")
    ax.set_ylim(0, 1)
    ax.legend(frameon=False, fontsize=9)
    title(ax, name)
    return fig


def cache_bytes(positions, panels):
    r"""Bytes of keys and values against length, on two logarithmic axes.

    Args:
        positions: n lengths in tokens.
        panels: a panel's title to {kind of attention: n numbers of bytes}.
    """
    fig, axes = canvas(3.6, 1, len(panels), sharey=True)
    axes = [axes] if len(panels) == 1 else list(axes.flat)
    for ax, (name, series) in zip(axes, panels.items()):
        for i, (kind, values) in enumerate(series.items()):
            style = dict(color=COLOURS["value"], ls=("--", "-", ":")[i % 3])
            ax.plot(positions, values, label=kind, lw=2, **style)
            ax.text(
                positions[-1] * 1.15,
                values[-1],
                size_text(values[-1]),
                va="center",
                fontsize=9,
                bbox=dict(fc="white", ec="none", pad=1),
            )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=10)
        ax.set_xlim(positions[0], positions[-1] * 12)
        ticks = [p for p in (256, 2048, 16384, 131072) if p <= positions[-1]]
        ax.set_xticks(ticks, [f"{p:,}" for p in ticks])
        ax.yaxis.set_major_formatter(lambda value, _: size_text(value))
        ax.grid(axis="y", color="#e5e5e5", lw=0.8)
        ax.set_xlabel("tokens in the text")
        ax.legend(frameon=False, fontsize=8, loc="upper left")
        title(ax, name)
    axes[0].set_ylabel("keys and values of one text")
    return fig


def size_text(n_bytes: float) -> str:
    """Bytes in the unit that reads best: 1 GB is 10⁹ bytes."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


# -- 06 feed_forward --------------------------------------------------------


def activations(z, curves, gates):
    r"""Activation functions, and beside them the share each lets through.

    Args:
        z: n numbers, the x axis.
        curves: name to n values f(z); first the feed-forward network's own.
        gates: name to n values f(z)/z; drawn in the order of `curves`.
    """
    colours = (COLOURS["feed-forward"], "black", "#777777", COLOURS["other"])
    fig, ((left, right),) = canvas(3.3, 1, 2)
    styles = ("-", "--", "-.", ":")
    for ax, lines in ((left, curves), (right, gates)):
        ax.axhline(0, color=COLOURS["other"], lw=0.8)
        ax.axvline(0, color=COLOURS["other"], lw=0.8)
        for (name, values), c, style in zip(lines.items(), colours, styles):
            ax.plot(z, values, style, label=name, color=c, lw=2)
        ax.set_xlabel("z")
        ax.legend(frameon=False, fontsize=9, loc="upper left")
    left.set_ylabel("f(z)")
    right.set_ylabel("f(z) / z, the share let through")
    right.set_ylim(-0.05, 1.25)
    title(left, "Activation functions f")
    title(right, "Each is z times a gate")
    return fig


def gate_openness(share, quantiles):
    r"""How many gates are open in each layer, and how far.

    Args:
        share: (L, T) numbers from 0 to 1: of the neurons, for each token.
        quantiles: (L, 5): 5, 25, 50, 75 and 95 % of the gates' values.
    """
    layers, colour = range(len(share)), COLOURS["feed-forward"]
    fig, ((left, right),) = canvas(3.3, 1, 2)
    left.bar(layers, [float(s.mean()) for s in share], color=colour)
    for layer, row in enumerate(share):
        inside = ["white" if value < row.mean() else "black" for value in row]
        at = [layer] * len(row)
        left.scatter(at, row, 50, inside, marker="_", alpha=0.4, lw=1)
    left.axhline(0.5, color=COLOURS["other"], ls="--", lw=1)
    left.set_ylim(0, 1)
    left.set_ylabel("share of open gates")
    title(left, "Open gates: mean, and each token")
    right.axhline(0, color=COLOURS["other"], lw=0.8)
    for layer, row in enumerate(quantiles):
        low, first, half, third, high = (float(value) for value in row)
        right.plot([layer] * 2, [low, high], color=colour, lw=1.5)
        right.bar(layer, third - first, 0.6, first, color=colour)
        right.plot([layer - 0.3, layer + 0.3], [half] * 2, color="white", lw=2)
    right.set_ylabel("value of the gate, silu(z)")
    title(right, "Values: median, middle half, 5 % to 95 %")
    for ax in (left, right):
        ax.set_xlabel("layer")
        ax.set_xticks(_some(layers))
    return fig


def _some(layers, most=12):
    """Every layer's number, or every other … where they are many."""
    return list(layers)[:: -(-len(layers) // most)]


def stream_norms(norms, labels):
    r"""The length of each token's vector, from the embedding down.

    Args:
        norms: (2L + 1, T) numbers over 0: the embedding, then after
            attention and after feed-forward of each layer.
        labels: T token texts.
    """
    rows = ["embedding"] + [
        f"layer {layer}: + {half}"
        for layer in range(len(norms) // 2)
        for half in ("attention", "feed-forward")
    ]
    fig, ax = canvas(1.2 + 0.24 * len(rows))
    image = heatmap(ax, norms, columns=labels)
    low, high = float(norms.min()), float(norms.max())
    image.set_clim(low, high)  # first: a logarithm has no 0
    image.norm = "log"
    image.set_clim(low, high)
    ax.set_yticks(range(len(rows)), rows)
    middle = (low * high) ** 0.5  # from here on the colour is dark
    for row, values in enumerate(norms if len(labels) <= 12 else ()):
        for column, value in enumerate(values):
            ax.text(
                column,
                row,
                f"{value:.3g}" if value < 1000 else f"{value:.0f}",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if value > middle else "black",
            )
    ax.set_xlabel("token")
    title(ax, "Length of the residual stream, ‖x‖")
    fig.colorbar(image, ax=ax, label="length (logarithmic)")
    return fig


def additions(relative, share, embedding):
    r"""What the two halves of each layer add to the stream.

    Args:
        relative: name of a half to L numbers: the length of what it adds
            over that of what it adds to.
        share: name of a half to L shares of the final vector.
        embedding: the share of the embedding.
    """
    fig, ((left, right),) = canvas(3.3, 1, 2)
    for ax, bars, start in ((left, relative, 1), (right, share, 0)):
        for place, (name, values) in zip((-0.2, 0.2), bars.items()):
            up = [float(value) - start for value in values]
            at = [layer + place for layer in range(len(up))]
            ax.bar(at, up, 0.4, start, color=COLOURS[name], label=name)
        ax.set_xticks(_some(range(len(values))))
        ax.set_xlabel("layer")
    left.axhline(1, color=COLOURS["residual"], lw=1.5)
    left.set_yscale("log")
    left.set_ylabel("length added / length before")
    title(left, "Beside what is there already")
    right.bar(
        -1.5, float(embedding), color=COLOURS["residual"], label="embedding"
    )
    ticks = _some(range(len(values)))
    right.set_xticks([-1.5, *ticks], ["emb.", *ticks])
    right.axhline(0, color=COLOURS["other"], lw=0.8)
    right.set_ylabel("share of the final vector")
    title(right, "In the final vector (sum: 1)")
    handles = right.get_legend_handles_labels()
    fig.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
    return fig


def loss_left_out(losses, as_it_is, blind):
    r"""The loss with one layer's feed-forward network left out.

    Args:
        losses: L losses in nats a token, by the layer left out.
        as_it_is: the loss with all layers.
        blind: the loss of a guess among all tokens alike, ln V.
    """
    fig, ax = canvas(2.8)
    layers = range(len(losses))
    ax.bar(layers, losses, color=COLOURS["feed-forward"])
    for layer, value in zip(layers, losses):
        ax.text(layer, value, f"{value:.2f}", ha="center", va="bottom", size=8)
    ax.axhline(as_it_is, color="black", lw=1.2, label="as it is", zorder=0)
    ax.axhline(blind, color=COLOURS["other"], ls="--", label="a blind guess")
    ax.set_ylim(0, 1.12 * max(blind, as_it_is, *losses))
    ax.set_xticks(_some(layers, most=24))
    ax.set_xlabel("layer whose feed-forward network is left out")
    ax.set_ylabel("loss (nats a token)")
    ax.legend(
        frameon=False,
        fontsize=9,
        ncols=2,
        loc="lower right",
        bbox_to_anchor=(1, 1),
    )
    return fig


def neuron_on_text(labels, activation, gate, name, top=5):
    r"""One neuron over the tokens of a text: where its gate opens.

    Args:
        labels: T token texts.
        activation: (T,) gate times content.
        gate: (T,) the gate alone.
        name: of the neuron, for the title.
        top: so many tokens with the largest activation are named.
    """
    fig, ax = plt.subplots(figsize=(WIDTH, 3.3))
    fig.subplots_adjust(left=0.08, right=0.99, top=0.84, bottom=0.28)
    places = range(len(labels))
    opened = COLOURS["feed-forward"]
    shut = COLOURS["other"]
    ax.vlines(  # drawn faster than as many bars
        places,
        0,
        activation,
        colors=[opened if g > 0 else shut for g in gate],
        lw=440 / len(labels),
    )
    ax.axhline(0, color=shut, lw=0.8)
    size = 8 if len(labels) <= 60 else 7 if len(labels) <= 90 else 5
    names = [visible(label) for label in labels]
    ax.set_xticks([])  # words as texts are drawn faster than as ticks
    below = ax.get_xaxis_transform()
    style = dict(rotation=90, size=size, ha="center", va="top")
    for place, word in enumerate(names):
        ax.text(place, -0.03, word, transform=below, **style)
    ax.set_xlim(-0.7, len(labels) - 0.3)
    ax.set_ylabel("gate × content")
    ax.spines[["top", "right"]].set_visible(False)
    order = sorted(places, key=lambda t: -abs(activation[t]))[:top]
    most = "   ".join(f"{names[t]} ({activation[t]:+.2f})" for t in order)
    count = sum(bool(g > 0) for g in gate)
    head = f"{name}: gate open (wine red) at {count} of {len(labels)} tokens"
    fig.suptitle(plain(head), x=0.01, ha="left", fontsize=11)
    ax.set_title(f"largest:   {most}", loc="left", fontsize=9)
    return fig


# -- 07 lm_head -------------------------------------------------------------


def next_token_bars(labels, probabilities, title=""):
    r"""The likeliest next tokens as bars, the likeliest on top.

    Args:
        labels: token texts, n of them.
        probabilities: n floats, from 0 to 1.
        title: over the picture.
    """
    n = len(labels)
    fig, ax = plt.subplots(figsize=(7, 0.6 + 0.32 * n))
    rows = range(n)[::-1]
    ax.barh(rows, probabilities, color=COLOURS["probability"])
    ax.set_yticks(rows, [visible(label) for label in labels])
    for row, p in zip(rows, probabilities):
        # nothing is said to be certain, or impossible, by rounding
        text = f"{p:.2f}" if 0.005 <= p <= 0.995 else f"{p:.4f}"
        text = {"0.0000": "<0.0001", "1.0000": ">0.9999"}.get(text, text)
        ax.text(p + 0.01, row, text, va="center", fontsize=9)
    ax.set_xlim(0, 1.15)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel("probability of being the next token")
    ax.set_title(plain(title), loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    return fig


def lens_map(words, probabilities, columns, title_text=""):
    r"""The logit lens: the top token of every layer at every position.

    Args:
        words: L+1 lists of T token texts, the embedding's first; drawn from
            the bottom up.
        probabilities: (L+1, T), of those tokens, from 0 to 1: the colour.
        columns: T texts, the prompt's tokens.
        title_text: over the picture.
    """
    n, T = len(words), len(columns)
    fig, ax = canvas(1.3 + 0.3 * n)
    image = heatmap(ax, probabilities, (), columns, limit=1.0)
    ax.invert_yaxis()
    ax.set_yticks(range(n), ["embedding: 0", *map(str, range(1, n))])
    size = min(8.5, 58 / T)
    for row in range(n):
        for column in range(T):
            ax.text(
                column,
                row,
                visible(words[row][column]),
                ha="center",
                va="center",
                fontsize=size,
                color="white" if probabilities[row][column] > 0.5 else "black",
            )
    ax.set_xlabel("token of the prompt")
    ax.set_ylabel("blocks done")
    fig.colorbar(image, ax=ax, label="probability of the top token", pad=0.01)
    title(ax, title_text)
    return fig


def answer_by_layer(probabilities, ranks, answer):
    r"""How the final answer comes up through the layers, at one position.

    Args:
        probabilities: L+1 floats, the answer's probability through the lens.
        ranks: L+1 ints from 1, its place among all tokens.
        answer: its text.
    """
    fig, axes = canvas(2.8, columns=2)
    panels = (
        (probabilities, "probability", "linear"),
        (ranks, "rank (1 is the top)", "log"),
    )
    layers = range(len(ranks))
    for ax, (values, label, scale) in zip(axes[0], panels):
        ax.plot(layers, values, "o-", color=COLOURS["probability"], ms=5)
        ax.set_yscale(scale)
        ax.set_xticks(layers, [str(i) for i in layers])
        ax.set_xlabel("blocks done")
        ax.set_ylabel(label)
        ax.yaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.set_title(f"the answer {visible(answer)}", loc="left", fontsize=11)
    axes[0, 0].set_ylim(-0.03, 1.03)
    axes[0, 1].set_ylim(max(*ranks, 2) * 1.6, 0.8)
    return fig


def logit_by_block(names, leads):
    r"""What the embedding and each block add to the lead of a logit.

    Args:
        names: L+1 texts for the ticks, from the left.
        leads: two texts (of tokens as `visible` gives them), each with L+1
            floats that sum to a lead.
    """
    fig, ax = canvas(2.8)
    colours = (COLOURS["residual"], COLOURS["query"])
    pairs = zip(leads.items(), colours, (-0.2, 0.2), strict=True)
    for (label, parts), colour, shift in pairs:
        label = f"{label}: {sum(parts):.2f} in all"
        places = [i + shift for i in range(len(parts))]
        ax.bar(places, parts, 0.4, color=colour, label=label)
    ax.axhline(0, color="black", lw=0.8)
    ax.set_xticks(range(len(names)), names)
    if len(names) > 9:
        ax.tick_params(axis="x", rotation=60)
    ax.set_ylabel("added to the lead")
    ax.legend(frameon=False, fontsize=9)
    return fig


# -- 08 sampling ------------------------------------------------------------


def unit_interval(labels, probabilities, draws, title=""):
    r"""The interval from 0 to 1 cut into lengths that are probabilities.

    Args:
        labels: n token texts.
        probabilities: n floats; what they leave of 1 is one grey piece.
        draws: numbers from 0 to 1, drawn as marks under the interval.
        title: over the picture.
    """
    fig, ax = canvas(1.9)
    start = 0.0
    for i, (label, p) in enumerate(zip(labels, probabilities, strict=True)):
        colour = COLOURS["probability"] if i % 2 else "#F5CC73"
        ax.barh(0, p, left=start, color=colour, ec="white", lw=1)
        if p > 0.025:
            name, upright = visible(label), p < 0.011 * len(visible(label))
            ax.text(
                start + p / 2,
                0,
                name,
                ha="center",
                va="center",
                fontsize=9,
                rotation=90 if upright else 0,
            )
        start += p
    ax.barh(0, max(1 - start, 0), left=start, color=COLOURS["other"])
    ax.plot(draws, [-0.5] * len(draws), "^", color="black", ms=6)
    ax.set_xlim(-0.005, 1.005)
    ax.set_ylim(-0.65, 0.45)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("u, uniform from 0 to 1: ▲ the numbers drawn")
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def frequencies(labels, wanted, found, n, title=""):
    r"""How often each token was drawn, beside its probability.

    Args:
        labels: m token texts.
        wanted: m probabilities, the bars.
        found: m shares of the draws, the dots.
        n: draws; the whiskers are 3 standard deviations, √(p(1-p)/n).
        title: over the picture.
    """
    fig, ax = canvas(3.0)
    places = range(len(labels))
    ax.bar(places, wanted, color=COLOURS["probability"], label="probability")
    ax.errorbar(
        places,
        found,
        yerr=[3 * (p * (1 - p) / n) ** 0.5 for p in wanted],
        fmt="o",
        ms=4,
        color="black",
        capsize=3,
        label="share of the draws, ±3 standard deviations",
    )
    names = [visible(label) for label in labels]
    ax.set_xticks(
        places, names, rotation=30, ha="right", rotation_mode="anchor"
    )
    ax.set_ylabel("probability, share")
    ax.legend(frameon=False, fontsize=9)
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def entropy_by_temperature(temperatures, series, limit, title=""):
    r"""Entropy against temperature, from sure to uniform.

    Args:
        temperatures: m numbers over 0, the x axis.
        series: up to three names with m entropies each, in nats.
        limit: the entropy of the uniform distribution, ln V.
        title: over the picture.
    """
    fig, ax = canvas(3.2)
    ax.axhline(limit, color=COLOURS["other"], ls="--", lw=1.2)
    ax.text(temperatures[0], limit, "uniform: ln V ", va="bottom", fontsize=9)
    ax.axvline(1, color=COLOURS["other"], ls=":", lw=1.2)
    roles = ("query", "key", "value")
    for role, (name, values) in zip(roles, series.items()):
        ax.plot(
            temperatures, values, color=COLOURS[role], lw=2, label=plain(name)
        )
    ax.set_xscale("log")
    ticks = [t for t in (0.1, 0.3, 1, 3, 10, 30, 100) if t >= temperatures[0]]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 1.12 * limit)
    ax.set_xlabel("temperature T (logarithmic)")
    ax.set_ylabel("entropy (nats)")
    ax.legend(frameon=False, fontsize=9, loc="center right")
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def reshaped(labels, panels, rest, title=""):
    r"""One distribution in several shapes, side by side.

    Args:
        labels: n token texts, the likeliest first.
        panels: name to (n + 1 probabilities before, n + 1 after); the last
            is that of all other tokens together. Where after is 0 and
            before is not, the token is cut off: its bar is grey.
        rest: what to call all other tokens together.
        title: over the picture.
    """
    fig, axes = canvas(
        1.1 + 0.25 * len(labels), 1, len(panels), sharey=True, sharex=True
    )
    names = [visible(label) for label in labels] + [plain(rest)]
    rows = range(len(names))[::-1]
    axes = [axes] if len(panels) == 1 else axes[0]
    for ax, (name, (before, after)) in zip(axes, panels.items()):
        cut = [b if a == 0 else 0 for b, a in zip(before, after)]
        ax.barh(rows, cut, color=COLOURS["other"], alpha=0.6, height=0.7)
        ax.barh(rows, after, color=COLOURS["probability"], height=0.7)
        for row, a in zip(rows, after):
            if a >= 0.005:
                ax.text(a, row, f" {a:.2f}", va="center", fontsize=8)
        ax.set_title(plain(name), loc="left", fontsize=9)
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=4)
    most = max(max(*b, *a) for b, a in panels.values())
    axes[0].set_xlim(0, 1.3 * most)
    axes[0].set_yticks(rows, names)
    fig.supxlabel("probability of being drawn (grey: cut off)", fontsize=9)
    fig.suptitle(plain(title), x=0.01, ha="left", fontsize=11)
    return fig


def sample_tree(paths, root, title=""):
    r"""Several samples of one prompt as a tree that branches.

    Args:
        paths: each sample's token texts; lines are as thick as the number of
            samples that share them.
        root: the end of the prompt, at the left.
        title: over the picture.
    """
    lines, leaves = _branches(sorted(paths))
    shared = {place: count for _, place, count, _ in lines}
    depth = max(map(len, paths))
    fig, ax = canvas(0.7 + 0.36 * leaves)
    ax.axis("off")
    ax.set_xlim(-0.5, depth + 0.5)
    ax.set_ylim(-leaves + 0.4, 0.6)
    for start, (x, y), count, label in lines:
        if start is not None:
            middle = (start[0] + x) / 2
            stem = [start[0], middle], [start[1], start[1]]
            branch = [middle, middle + 0.1, x], [start[1], y, y]
            for line, n in ((stem, shared[start]), (branch, count)):
                ax.plot(
                    *line,
                    color=COLOURS["token"],
                    lw=n + 0.5,
                    solid_capstyle="butt",
                    zorder=1,
                )
        name = visible(label if x else root)
        name += f" ×{count}" if count > 1 else ""
        box = dict(boxstyle="round,pad=0.25", fc="white", ec="#bbbbbb")
        ax.text(x, y, name, ha="center", va="center", fontsize=8, bbox=box)
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def _branches(paths, depth=0, top=0):
    """The tree of sorted paths: its lines, and how many leaves it has.

    A line is (from, to, samples, text), the root's first and from None; a
    place is (depth, height), the leaves 1 apart from -top down.
    """
    deeper = {}
    for path in paths:
        if len(path) > depth:
            deeper.setdefault(path[depth], []).append(path)
    branches, leaves = [], 0
    for group in deeper.values():
        lines, more = _branches(group, depth + 1, top + leaves)
        branches.append(lines)
        leaves += more
    heights = [lines[0][1][1] for lines in branches] or [-top]
    here = (depth, sum(heights) / len(heights))
    text = paths[0][depth - 1] if depth else ""
    found = [(None, here, len(paths), text)]
    for (_, *child), *others in branches:
        found += [(here, *child), *others]
    return found, max(leaves, 1)


# -- 09 generate ------------------------------------------------------------


def cost_by_position(positions, series, title=""):
    r"""Lines that grow, or do not, with the position in the text.

    Args:
        positions: n ints, the x axis.
        series: two names with n numbers each; the first is drawn in the
            colour of the query, the second in that of the key.
        title: over the picture.
    """
    fig, ax = plt.subplots(figsize=(7, 3.2))
    for (name, values), role in zip(
        series.items(), ("query", "key"), strict=True
    ):
        ax.plot(positions, values, label=name, color=COLOURS[role], lw=2)
    ax.set_xlabel("position of the new token")
    ax.set_ylabel("positions run\nthrough the model")
    ax.set_title(plain(title), loc="left", fontsize=11)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    return fig
