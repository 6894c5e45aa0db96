r"""What all pictures share: the palette, the canvas, labels, heat maps."""

import io

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager
from matplotlib.colors import LinearSegmentedColormap

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
    "plain": "#444444",  # what has no role of its own
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
    text = legible(text)
    if len(text) > 14:  # the ends tell reserved tokens apart
        text = text[:8] + "…" + text[-5:]
    return plain(text) or "∅"


def legible(text: str) -> str:
    """Text in which a character that the font lacks is its code point."""
    return "".join(c if drawable(c) else f"⟨{ord(c):X}⟩" for c in text)


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


def legend_above(ax, columns: int) -> None:
    """The legend in one line over the axes, at the right."""
    ax.legend(
        frameon=False,
        fontsize=9,
        ncols=columns,
        loc="lower right",
        bbox_to_anchor=(1, 1),
    )


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


def cell_texts(ax, texts, dark, size=8):
    r"""A text in the middle of each cell of a `heatmap`.

    Args:
        texts: rows of texts, which need not be as long as the matrix is wide.
        dark: rows of booleans, where the colour behind asks for white.
        size: of the letters, in points.
    """
    style = dict(ha="center", va="center", fontsize=size)
    for row, (line, behind) in enumerate(zip(texts, dark)):
        for column, (text, is_dark) in enumerate(zip(line, behind)):
            ink = "white" if is_dark else "black"
            ax.text(column, row, text, color=ink, **style)
