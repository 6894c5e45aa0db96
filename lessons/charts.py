r"""Charts that the notebooks share: they draw on an axes and return little.

A figure is usually `canvas` or `panels` (see `base`), one or two of these
charts, and `finish` for title, axis labels and legend. A colour is a role of
`COLOURS`, such as "query", or any colour of matplotlib's.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.ticker import LogLocator, NullLocator

from .theme import (
    AMOUNT,
    SIGNED,
    WIDTH,
    Picture,
    array,
    colour,
    default_font,
    plain,
    spaced,
    visible,
)

# -- titles, labels, legends, texts


def finish(ax, heading="", x="", y="", *, legend=None, **settings):
    """Set title, labels, a legend's place, `ax.set` settings; return fig."""
    ax.set(xlabel=x, ylabel=y, **settings)
    if heading:
        ax.set_title(plain(heading), loc="left", fontsize=11)
    if legend:
        add_legend(ax, legend)
    return ax.figure


def add_legend(ax, place="best", **style):
    """Draw a legend in one line "above", at the "right", or inside."""
    style = dict(frameon=False, fontsize=9) | style
    if place in ("above", "right"):
        style["bbox_to_anchor"] = 1, 1
    if place == "above":
        style["ncols"] = len(ax.get_legend_handles_labels()[0])
    place = {"above": "lower right", "right": "upper left"}.get(place, place)
    ax.legend(loc=place, **style)
    return ax.figure


def figure_legend(fig, place, colours=None, **style):
    """Draw a figure's legend: {name: colour}, or what all axes label."""
    handles = {}
    for name, value in (colours or {}).items():
        handles[name] = plt.Rectangle((0, 0), 1, 1, color=colour(value))
    if colours is None:
        for ax in fig.axes:
            labelled = ax.get_legend_handles_labels()
            for handle, name in zip(*labelled, strict=True):
                handles.setdefault(name, handle)
    style = dict(frameon=False, fontsize=9, ncols=len(handles)) | style
    fig.legend(handles.values(), handles, loc=place, **style)
    return fig


def write(ax, x, y, text, size=9, **style):
    """Write a text with its middle at a point of the axes."""
    style = dict(ha="center", va="center", fontsize=size) | style
    return ax.text(x, y, text, **style)


def note(ax, x, y, text, dx=0, dy=4, **style):
    """Write a text `dx` and `dy` points away from a point of the axes."""
    where = dict(xytext=(dx, dy), textcoords="offset points")
    return ax.annotate(text, (x, y), **where, **style)


def mark_x(ax, x, text="", end=False, size=9):
    """Draw a dotted vertical line; its text is at the top, left if `end`."""
    ax.axvline(x, color="#777777", ls=":", lw=1.2, zorder=0)
    where = dict(va="top", ha="right" if end else "left", fontsize=size)
    where["transform"] = ax.get_xaxis_transform()
    ax.text(x, 1.0, f"{text} " if end else f" {text}", **where)


def mark_y(ax, y, text="", end=False, dy=2, size=9, **style):
    """Draw a horizontal line; its text is `dy` points up, right if `end`."""
    ax.axhline(y, **dict(color="#777777", ls=":", lw=1.2, zorder=0) | style)
    x, ha = (1.0, "right") if end else (0.01, "left")
    where = dict(ha=ha, va="bottom" if dy >= 0 else "top", fontsize=size)
    note(ax, x, y, text, 0, dy, xycoords=ax.get_yaxis_transform(), **where)


def ink(background) -> str:
    """Return black or white, whichever is readable on a colour."""
    red, green, blue = to_rgb(colour(background))
    light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
    return "black" if light else "white"


# -- lines, bars, distributions


def lines(ax, series, looks, xs=None, **style):
    """Draw lines: name to n ys, or to (xs, ys) without `xs`.

    looks: (colour, format) of each, such as ("key", "o-"); perhaps a dict of
    further settings.
    """
    for (name, values), look in zip(series.items(), looks, strict=True):
        places, values = values if xs is None else (xs, values)
        own = dict(color=colour(look[0]), label=plain(name), lw=2) | style
        if len(look) > 2:
            own |= look[2]
        ax.plot(array(places), array(values), look[1], **own)


def log_axis(ax, which, ticks=None, text="{:,g}".format, base=10, subs=(1,)):
    """Make the "x" or "y" axis logarithmic, without minor ticks.

    ticks: None: at powers of `base` times each of `subs`.
    """
    getattr(ax, f"set_{which}scale")("log", base=base)
    axis = getattr(ax, f"{which}axis")
    axis.set_minor_locator(NullLocator())
    if ticks is None:
        axis.set_major_locator(LogLocator(base, subs))
        axis.set_major_formatter(lambda value, _: text(value))
    else:
        axis.set_ticks(ticks, [text(tick) for tick in ticks])


def grouped_bars(ax, series, colours, *, start=0, across=False):
    """Draw groups of bars, `across` with the first group at the top.

    series: name to its number in each group. start: where the bars begin.
    """
    thick = 0.8 / len(series)
    pairs = zip(series.items(), colours, strict=True)
    for i, ((name, values), tone) in enumerate(pairs):
        values, places = array(values), np.arange(len(values))
        shift = (i - (len(series) - 1) / 2) * thick
        draw = ax.barh if across else ax.bar
        places = places[::-1] - shift if across else places + shift
        style = dict(color=colour(tone), label=plain(name))
        draw(places, values - start, thick, start, **style)


def ranked_bars(ax, names, values, tone, texts=()):
    """Draw tokens' horizontal bars, the first at the top.

    texts: at the ends of the first bars.
    """
    rows, values = range(len(names)), array(values)
    tones = [tone] * len(rows) if isinstance(tone, str) else tone
    ax.barh(rows, values, color=[colour(each) for each in tones])
    ax.set_yticks(rows, [visible(name) for name in names])
    ax.invert_yaxis()
    for row, text in zip(rows, texts, strict=False):
        note(ax, max(values[row], 0), row, text, 4, 0, va="center", size=8)


def histograms(ax, series, edges, colours, *, share=False, **style):
    """Draw histograms' outlines; the outer bins count numbers outside, too.

    series: name to numbers. share: draw shares of them, not counts.
    """
    edges = array(edges)
    for (name, values), tone in zip(series.items(), colours, strict=True):
        inside = array(values).clip(edges[0], edges[-1])
        counts, _ = np.histogram(inside, edges)
        heights = counts / len(inside) if share else counts
        own = dict(color=colour(tone), lw=2, label=plain(name)) | style
        ax.stairs(heights, edges, **own)


# -- matrices with tokens on their sides


def heatmap(ax, values, rows=(), columns=(), *, signed=False, limit=None):
    """Draw a matrix from 0 up, or around 0 if `signed`; return the image.

    rows, columns: of `token_ticks`. limit: of the colours; None: the largest.
    """
    values = array(values)
    limit = float(abs(values).max()) if limit is None else limit
    low, colours = (-limit, SIGNED) if signed else (0, AMOUNT)
    style = dict(vmin=low, vmax=limit, cmap=colours, aspect="auto")
    image = ax.imshow(values, interpolation="nearest", **style)
    token_ticks(ax, rows, columns)
    ax.spines[:].set_visible(False)
    return image


def token_ticks(ax, rows=(), columns=(), most=200, size=9):
    """Write tokens on the axes; of more than `most` every n-th one."""
    for axis, names in ((ax.yaxis, rows), (ax.xaxis, columns)):
        if len(names):
            places = spaced(len(names), most)
            axis.set_ticks(places, [visible(names[i]) for i in places])
            axis.set_tick_params(length=0, labelsize=size)
    if len(columns):
        for label in ax.get_xticklabels():
            label.set(rotation=60, ha="right", rotation_mode="anchor")


def cell_texts(ax, texts, dark, size=8):
    """Write rows of texts on a `heatmap`, in white where it is dark."""
    for row, (line, behind) in enumerate(zip(texts, dark, strict=True)):
        cells = zip(line, behind, strict=False)  # of a short row the first
        for column, (text, is_dark) in enumerate(cells):
            tone = "white" if is_dark else "black"
            write(ax, column, row, text, size, color=tone)


# -- a text as boxes, in lines as wide as the notebook

PAGE = WIDTH * 72  # points


def page(height: float):
    """Return a figure and its axes, in points from the top left corner."""
    size = WIDTH, height / 72
    fig = plt.figure(figsize=size, FigureClass=Picture)
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, PAGE), ylim=(height, 0))
    ax.axis("off")
    return fig, ax


def text_width(text: str, size: float) -> float:
    """Return the width of a text, in points."""
    font = default_font()
    font.set_size(size, 72)
    font.set_text(text)
    return font.get_width_height()[0] / 64


def flow(widths):
    """Return (x, line, width) of boxes side by side, and how many lines."""
    places, x, line = [], 0.0, 0
    for width in widths:
        if x and x + width > PAGE:
            x, line = 0.0, line + 1
        places.append((x, line, width))
        x += width + 2
    return places, line + 1 if places else 0


def text_flow(texts, size):
    """Return visible texts, and the `flow` of their boxes."""
    names = [visible(text) for text in texts]
    return names, *flow([text_width(name, size) + 7 for name in names])


def boxes(ax, top, labels, places, colours, size=10, step=22, down=None):
    """Draw texts in boxes at `flow` places, a line each `step` points.

    down: points from a box's top to its text; None: half the box.
    """
    down = step / 2 - 2 if down is None else down
    columns = zip(labels, places, colours, strict=True)
    for label, (x, line, width), tone in columns:
        y = top + line * step
        ax.add_patch(plt.Rectangle((x, y), width, step - 3, fc=tone))
        write(ax, x + width / 2, y + down, label, size, color=ink(tone))
