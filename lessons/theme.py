r"""Palette, canvas and text helpers of every picture."""

import base64
import html
import io
import logging
import re

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image

# "Matplotlib is building the font cache" is no part of a lesson
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

WIDTH = 8.6  # inches: the width of a notebook's column
DPI = 100  # points of a page per inch; a saved picture has twice as many

# Each thing has one colour in the whole series. Colour-blind readers can tell
# them apart: Okabe and Ito's palette, and from Paul Tol's muted palette the
# indigo and wine of the sub-layers.
COLOURS = {
    "query": "#0072B2",
    "key": "#D55E00",
    "value": "#009E73",
    "token": "#CC79A7",
    "probability": "#E69F00",
    "residual": "#56B4E9",
    "attention": "#332288",
    "feed-forward": "#882255",
    "other": "#999999",
    "plain": "#444444",  # no role
}
# Colours of the groups of query heads that share a KV head, and of experts.
GROUPS = *list(COLOURS.values())[:6], "#000000", "#F0E442"

# The colours of scales: for amounts from 0 to the largest, and for values
# around 0. The explorer's page has the same.
SCALES = {
    "amount": ["#ffffff", "#9ecae1", "#0072B2", "#08306b"],
    "signed": ["#D55E00", "#fdd0a2", "#ffffff", "#9ecae1", "#0072B2"],
}
AMOUNT = LinearSegmentedColormap.from_list("amount", SCALES["amount"])
SIGNED = LinearSegmentedColormap.from_list("signed", SCALES["signed"])


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
    has = default_font().get_char_index
    codes = (c if has(ord(c)) or c == "\n" else f"⟨{ord(c):X}⟩" for c in text)
    return "".join(codes)


def default_font():
    """Return the font that matplotlib writes with, loaded."""
    font = font_manager.FontProperties()
    return font_manager.get_font(font_manager.findfont(font))


def plain(text: str) -> str:
    """Make legible; escape dollar signs, once: they begin mathematics."""
    return re.sub(r"(?<!\\)\$", r"\\$", legible(text))


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


NUMBER = re.compile(r"[-−]?[\d.]+e[-−+]?\d+")  # as matplotlib writes it


class Picture(Figure):
    """A figure that a notebook shows in HTML, with an alternative text.

    JupyterLab drops the alternative text of an image/png output.
    """

    def _ipython_display_(self) -> None:
        from IPython.display import display  # charts do without it

        alt = alt_text(self)
        data = {"text/html": image_tag(sharp_png(self), alt)}
        words = {"text/html": {"alt": alt}}
        display(data | {"text/plain": alt}, raw=True, metadata=words)


def alt_text(fig) -> str:
    """Return a figure's titles, axes, series and tick names in words.

    The attribute `subject`, if the figure has it, comes first.
    Raise ValueError if the figure has no words at all: readers who cannot
    see it need some.
    """
    parts = [getattr(fig, "subject", ""), fig.get_suptitle()]
    parts += [t.get_text() for each in fig.legends for t in each.get_texts()]
    for ax in fig.axes:
        names, title = ax.get_legend(), ax.get_title("left") or ax.get_title()
        names = [t.get_text() for t in names.get_texts()] if names else []
        if not ax.axison:  # a drawing: what is written in it
            names = [t.get_text().strip(" +") for t in ax.texts][:40]
        else:  # tokens and other names on the axes
            names += [*tick_names(ax, "y"), *tick_names(ax, "x")][:15]
        axes = " by ".join(filter(None, (ax.get_ylabel(), ax.get_xlabel())))
        names = ", ".join(filter(None, names))
        parts.append(": ".join(filter(None, (title, axes, names))))
    text = ". ".join(filter(None, parts)).replace(r"\$", "$")
    if not text:
        raise ValueError("the figure has no title, no axis label and no text")
    return " ".join(text.split())[:500]


def tick_names(ax, which) -> list[str]:
    """Return the tick labels inside the limits that have a word.

    A number has none, nor do formulas: "1e-06" and "$10^{-6}$".
    """
    low, high = sorted(getattr(ax, f"get_{which}lim")())
    found = []
    for label in getattr(ax, f"get_{which}ticklabels")():
        text, place = label.get_text(), label.get_position()["xy".index(which)]
        named = re.match(r"[^$]*[^\W\d]", text) and not NUMBER.fullmatch(text)
        if named and low <= place <= high:
            found.append(text)
    return found


# In JupyterLab's dark theme a picture's light and dark change places, and its
# hues stay. The site's own style says the same of its pages.
DARK = (
    '<style>[data-jp-theme-light="false"] .picture '
    "{ filter: invert(0.9) hue-rotate(180deg) }</style>"
)


def image_tag(data: bytes, alt: str) -> str:
    """Return a PNG as HTML, as wide as a notebook's column."""
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    width = f'width="{WIDTH * DPI:.0f}" style="max-width: 100%"'
    words = f'alt="{html.escape(alt)}" class="picture"'
    return f'{DARK}<img {words} {width} src="{source}">'


def png(fig, dpi=DPI) -> bytes:
    """Return a figure as a PNG's bytes, and close it."""
    for text in fig.findobj(lambda artist: hasattr(artist, "set_text")):
        text.set_text(legible(text.get_text()))
    buffer = io.BytesIO()
    # not bbox_inches="tight", which draws everything twice
    fig.savefig(buffer, format="png", dpi=dpi)
    plt.close(fig)
    return buffer.getvalue()


def sharp_png(fig) -> bytes:
    """Return a PNG with twice the resolution and few colours, and close it."""
    colours = 256 if any(ax.images for ax in fig.axes) else 64
    image = Image.open(io.BytesIO(png(fig, 2 * DPI))).convert("RGB")
    buffer = io.BytesIO()
    image.quantize(colours).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def panels(height: float, columns=1, rows=1, *, margins=None, **options):
    r"""Return a figure as wide as a notebook, and a flat list of its axes.

    margins: left, bottom, right, top (and wspace), as for `subplots_adjust`:
    faster than a layout, for a widget. options: of `plt.subplots`.
    """
    options |= dict(figsize=(WIDTH, height), FigureClass=Picture)
    options |= dict(layout=None if margins else "constrained", squeeze=False)
    fig, axes = plt.subplots(rows, columns, **options)
    if margins:
        fig.subplots_adjust(*margins)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    return fig, list(axes.flat)


def canvas(height: float, **options):
    """Return a figure as wide as a notebook, and its only axes."""
    fig, (ax,) = panels(height, **options)
    return fig, ax


def heading(fig, text: str):
    """Put a title at the left of a whole figure, and return the figure."""
    fig.suptitle(plain(text), x=0.01, ha="left", fontsize=11)
    return fig
