r"""Pictures and widget of appendix G."""

import ipywidgets as ipw

from ..probe import bytes_per_step
from . import charts
from .base import COLOURS, canvas, panels
from .model_map import strip  # noqa: F401
from .play import Play

LOOKS = [("plain", "o-"), ("probability", "D--"), ("residual", "s:")]
LOOKS += [("token", "^-"), ("black", "v-")]  # of all machines' series
SIZES = {"4, float32": 4, "2, bfloat16": 2, "1, int8": 1, "0.5, int4": 0.5}
SPEEDS = 10, 20, 50, 100, 200, 500, 1000, 2000, 3350, 4800, 8000  # GB/s
TEXTS = [2**p for p in range(10)]
CONTEXTS = 0, *(2**p for p in range(8, 18))


def roofline(machines):
    r"""Draw speed by operations per byte, under each machine's two limits.

    machines: title to (bytes per second, most operations per second, series);
    a series: name to points (label, operations per byte, operations/s).
    """
    fig, axes = panels(3.9, len(machines))
    looks = iter(LOOKS)
    for ax, (title, (bandwidth, peak, series)) in zip(axes, machines.items()):
        points = [point for each in series.values() for point in each]
        xs = [x for _, x, _ in points] + [peak / bandwidth]
        _roof(ax, bandwidth, peak, min(xs) / 2, max(xs) * 4)
        found = {}
        for name, each in series.items():
            found[name] = [x for _, x, _ in each], [y / 1e9 for *_, y in each]
        charts.lines(ax, found, [next(looks) for _ in found], lw=1, ms=6)
        charts.log_axis(ax, "x")
        charts.log_axis(ax, "y", text="{:,.0f}".format)
        low = min([y for *_, y in points] + [min(xs) * bandwidth / 2])
        ax.set_ylim(low / 2e9, 5 * peak / 1e9)
        for text, x in {text: x for text, x, _ in points}.items():
            charts.mark_x(ax, x, text, size=8)
        y = "" if fig.axes[0] is not ax else "billion operations per second"
        charts.finish(ax, title, "operations per byte", y)
        charts.add_legend(ax, "lower right", fontsize=8)
    return fig


def _roof(ax, bandwidth, peak, lowest, highest):
    """Draw the two limits between two numbers of operations per byte."""
    corner = peak / bandwidth
    xs = lowest, (lowest * corner**2) ** (1 / 3), corner, highest
    ys = [min(x * bandwidth, peak) / 1e9 for x in xs]
    ax.plot(xs, ys, color=COLOURS["other"], lw=2)
    style = dict(ha="right", fontsize=8, color=COLOURS["plain"])
    text = f"memory-bound:\n{bandwidth / 1e9:,.0f} GB/s"
    charts.note(ax, xs[1], ys[1], text, -6, 4, **style)
    text = f"compute-bound: {ys[3]:,.0f}"
    charts.note(ax, highest, ys[3], text, 0, 5, **style)


def bound(llama):
    """Return a widget: tokens per second at most, of a model in bfloat16."""
    numbers = bytes_per_step(llama, 0) // 2
    position = bytes_per_step(llama, 1) - 2 * numbers  # bytes

    def draw(size, bandwidth, batch, context):
        weights, cache = size * numbers, context * position  # bytes
        speed = 1e9 * bandwidth
        most = {n: n * speed / (weights + n * cache) for n in TEXTS}
        series = {"without caches": [n * speed / weights for n in TEXTS]}
        series["at most"] = list(most.values())
        fig, ax = canvas(3.3)
        charts.lines(ax, series, [("other", "--"), ("plain", "-")], TEXTS)
        ax.plot(batch, most[batch], "o", ms=9, color=COLOURS["probability"])
        charts.log_axis(ax, "x", TEXTS, base=2)
        charts.log_axis(ax, "y", text="{:,.0f}".format)
        ax.set_ylim(0.9, 1e7)  # the same for all values: a slider moves lines
        read = f"{weights / 1e9:.2f} + {batch * cache / 1e9:,.2f} GB per step"
        title = f"{read}: at most {most[batch]:,.0f} tokens per second"
        x, y = "texts per step", "tokens per second, all texts"
        return charts.finish(ax, title, x, y, legend="upper left")

    def choose(options, value, text):
        style = dict(options=options, value=value, description=text)
        return ipw.SelectionSlider(**style)

    names = "bytes per weight", "GB/s of the memory", "texts", "positions each"
    chosen = zip((SIZES.items(), SPEEDS, TEXTS, CONTEXTS), (2, 100, 8, 4096))
    controls = [choose(*each, n) for each, n in zip(chosen, names)]
    keys = "size", "bandwidth", "batch", "context"
    return Play(draw, **dict(zip(keys, controls)))
