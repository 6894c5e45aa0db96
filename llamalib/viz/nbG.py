r"""Pictures of appendix G."""

from . import charts
from .base import COLOURS, array, canvas, plain
from .model_map import strip  # noqa: F401


def bytes_by_length(lengths, weights, caches):
    """Draw the bytes read by a step; caches: number of texts to bytes."""
    fig, ax = canvas(3.2)
    ax.axhline(weights / 1e6, color=COLOURS["plain"], lw=2)
    charts.note(ax, lengths[0], weights / 1e6, "weights")
    series = {}
    for n, sizes in caches.items():
        series[f"cache, {n} text{'s' if n > 1 else ''}"] = array(sizes) / 1e6
    looks = [("key", style) for style in ("-", "--", ":")]
    charts.lines(ax, series, looks, lengths)
    charts.log_axis(ax, "x", lengths[::2], "{:,}".format, base=2)
    charts.log_axis(ax, "y")
    name = "The weights once, the cache for every text"
    x, y = "positions of each text", "read for one step, MB"
    return charts.finish(ax, name, x, y, legend="best")


def roofline(bandwidth, peak, products, steps=()):
    r"""Draw speed by operations per byte, under a machine's two limits.

    Args:
        bandwidth: bytes a second from memory.
        peak: most operations a second that were measured.
        products: (rows, operations per byte, operations a second) each.
        steps: (name of a pass, operations per byte, operations a second).
    """
    fig, ax = canvas(4.2)
    _, xs, ys = zip(*products, *steps)
    lowest, highest = min(xs) / 4, max(xs) * 3
    _roof(ax, bandwidth, peak, lowest, highest)
    n, style = len(products), dict(fontsize=8, color=COLOURS["feed-forward"])
    line = {"one product, by rows": (xs[:n], array(ys[:n]) / 1e9)}
    charts.lines(ax, line, [("feed-forward", "o-", dict(lw=1))])
    for i, (rows, x, y) in enumerate(products):
        text = f"{rows}" if i else f"{rows} row"
        charts.note(ax, x, y / 1e9, text, 4, -11, **style)
    style = dict(color=COLOURS["probability"], mec=COLOURS["plain"], mew=0.6)
    for (name, x, y), mark in zip(steps, "*DsP^"):
        style |= dict(ms=11 if mark == "*" else 7, label=plain(name))
        ax.plot(x, y / 1e9, mark, **style)
    charts.log_axis(ax, "x")
    charts.log_axis(ax, "y", subs=(1, 2, 5))
    ax.set_ylim(min(*ys, lowest * bandwidth) / 2e9, 2 * peak / 1e9)
    x, y = "operations for each byte moved", "billion operations\na second"
    return charts.finish(ax, "", x, y, legend="above")


def _roof(ax, bandwidth, peak, lowest, highest):
    """Draw the two limits between two numbers of operations per byte."""
    ridge = min(max(peak / bandwidth, lowest), highest)
    xs = [lowest, (lowest * ridge) ** 0.5, ridge, highest]
    ys = [min(x * bandwidth, peak) / 1e9 for x in xs]
    ax.plot(xs, ys, color=COLOURS["other"], lw=2)
    style = dict(ha="right", color=COLOURS["plain"])
    text = f"memory-bound: {bandwidth / 1e9:,.0f} GB/s"
    if ridge > lowest:
        charts.note(ax, xs[1], ys[1], text, -8, **style)
    text = f"compute-bound, at most {peak / 1e9:,.0f} billion a second here"
    charts.note(ax, highest, peak / 1e9, text, 0, 5, **style)


def speed_by_batch(sizes, together, one):
    """Draw tokens a second of n texts decoded together, and of n free ones."""
    fig, ax = canvas(3.0)
    free = [n * one for n in sizes]
    series = {"if every further text were free": free, "here": together}
    charts.lines(ax, series, [("other", "-"), ("plain", "o-")], sizes)
    charts.log_axis(ax, "x", sizes, base=2)
    charts.log_axis(ax, "y", text="{:,.0f}".format, base=2)
    x, y = "texts decoded together", "tokens a second,\nall texts"
    return charts.finish(ax, "Speed of a batch", x, y, legend="best")
