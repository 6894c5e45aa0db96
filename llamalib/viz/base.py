r"""Palette, canvas and text helpers of every picture."""

import io

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager
from matplotlib.colors import LinearSegmentedColormap

WIDTH = 8.6  # inches: the width of a notebook's column
DPI = 100

# Each thing has one colour in the whole series. Colour-blind readers can tell
# them apart: Okabe and Ito's palette, and from Paul Tol's muted palette the
# indigo and wine of a block's two halves.
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
    "plain": "#444444",  # no role
}
# Colours of the groups of query heads that share a KV head, and of experts.
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

# Colour maps for amounts from 0 to the largest, and for values around 0.
AMOUNT = LinearSegmentedColormap.from_list(
    "amount", ["#ffffff", "#9ecae1", "#0072B2", "#08306b"]
)
SIGNED = LinearSegmentedColormap.from_list(
    "signed", ["#D55E00", "#fdd0a2", "#ffffff", "#9ecae1", "#0072B2"]
)


def colour(name: str) -> str:
    """Return the colour of a role in `COLOURS`, or `name` if it is none."""
    return COLOURS.get(name, name)


def visible(text: str) -> str:
    r"""Return a token's text as a label, with spaces and line ends visible.

    A long text loses its middle: the ends tell reserved tokens apart.
    """
    text = legible(text.replace(" ", "␣").replace("\n", "⏎"))
    if len(text) > 14:
        text = text[:8] + "…" + text[-5:]
    return plain(text) or "∅"


def legible(text: str) -> str:
    """Replace each character that has no glyph with its code point."""
    return "".join(c if drawable(c) else f"⟨{ord(c):X}⟩" for c in text)


def drawable(character: str) -> bool:
    """Return whether matplotlib's default font has a glyph for it."""
    return default_font().get_char_index(ord(character)) != 0


def default_font():
    """Return matplotlib's default font, loaded."""
    return font_manager.get_font(font_manager.findfont("DejaVu Sans"))


def plain(text: str) -> str:
    """Escape dollar signs: matplotlib reads them as mathematics."""
    return text.replace("$", r"\$")


def size_text(n_bytes: float) -> str:
    """Return a number of bytes in a readable unit; 1 GB is 10⁹ bytes."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


def spaced(n: int, most: int) -> range:
    """Return at most `most` evenly spaced indices from 0 to n - 1."""
    return range(0, n, max(1, -(-n // most)))


def array(values):
    """Return numbers, a tensor's too, as a numpy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    return np.asarray(values)


def png(fig) -> bytes:
    """Return a figure as a PNG's bytes, and close it."""
    buffer = io.BytesIO()
    # not bbox_inches="tight", which draws everything twice
    fig.savefig(buffer, format="png", dpi=DPI)
    plt.close(fig)
    return buffer.getvalue()


def canvas(
    height: float, rows: int = 1, columns: int = 1, *, margins=None, **options
):
    r"""Return a figure as wide as a notebook, and its axes or array of axes.

    Args:
        height: in inches.
        margins: left, bottom, right, top (and wspace, hspace), as for
            `subplots_adjust`: faster than a layout, for a widget.
        options: of `plt.subplots`.
    """
    fig, axes = plt.subplots(
        rows,
        columns,
        figsize=(WIDTH, height),
        layout=None if margins else "constrained",
        squeeze=False,
        **options,
    )
    if margins:
        fig.subplots_adjust(*margins)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    return fig, axes[0, 0] if rows == columns == 1 else axes


def panels(height: float, columns: int, rows: int = 1, **options):
    """Return a `canvas` figure, and a flat list of its axes."""
    fig, axes = canvas(height, rows, columns, **options)
    return fig, [axes] if rows == columns == 1 else list(axes.flat)


def title(ax, text: str) -> None:
    """Put a title at the left of an axes."""
    ax.set_title(plain(text), loc="left", fontsize=11)


def heading(fig, text: str):
    """Put a title at the left of a whole figure, and return the figure."""
    fig.suptitle(plain(text), x=0.01, ha="left", fontsize=11)
    return fig
