r"""Pictures and widget of appendix E."""

import ipywidgets as ipw
from matplotlib.patches import Rectangle

from ..load import tensor_shapes
from . import charts
from .base import COLOURS, canvas, size_text
from .model_map import strip  # noqa: F401
from .play import Play

MEMORY = {"24 GB": 24e9, "80 GB": 80e9, "141 GB": 141e9}  # of a device
TONES = "query", "key", "value", "token"


def memory_by_devices(sizes, weights, caches):
    """Draw bytes on a device; weights, caches: model to bytes by size."""
    fig, ax = canvas(4.2)
    for tone, name in zip(TONES, weights):
        with_cache = [a + b for a, b in zip(weights[name], caches[name])]
        series = {name: weights[name], f"{name} and cache": with_cache}
        looks = [(tone, "o-"), (tone, "o:", dict(mfc="white"))]
        charts.lines(ax, series, looks, sizes, ms=4, lw=1.5)
    charts.log_axis(ax, "x", sizes, base=2)
    charts.log_axis(ax, "y", text=size_text)
    for text, size in MEMORY.items():
        charts.mark_y(ax, size, text, end=True, size=8, ls="-", lw=0.6)
    labels = "devices", "bytes on each device"
    charts.finish(ax, "Memory of one device, in bfloat16", *labels)
    return charts.add_legend(ax, "right", fontsize=8)


def block_parts(config, part, rank, n, title):
    """Draw the matrices of a block to scale, a rank's part of each filled.

    part: from config, name, rank and n to (dimension cut, start, length).
    """
    fig, ax = canvas(3.6)
    shapes, x = tensor_shapes(config), 0
    gap, tall = config.dim * 0.35, config.hidden_dim
    for name, shape in shapes.items():
        if not name.startswith("layers.0.") or "norm" in name:
            continue
        rows, columns = shape
        dim, start, length = part(config, name, rank, n)
        at, size = [x, 0], [columns, rows]
        at[1 - dim], size[1 - dim] = start + (0 if dim == 0 else x), length
        style = dict(fc="#eeeeee", ec=COLOURS["plain"], lw=0.8)
        ax.add_patch(Rectangle((x, 0), columns, rows, **style))
        ax.add_patch(Rectangle(at, *size, fc=COLOURS["probability"]))
        label = f"{name.split('.')[3]}\n{rows:,} × {columns:,}"
        charts.write(ax, x + columns / 2, -0.1 * tall, label, 8)
        x += columns + gap
    ax.set(xlim=(-gap, x), ylim=(1.02 * tall, -0.2 * tall), aspect="equal")
    ax.axis("off")
    return charts.finish(ax, title)


def cuts(models, part, held) -> Play:
    """Return a widget: what a rank holds of a block of each model.

    models: name to config.  held: from it and n to a process's bytes.
    """

    def draw(model, n, rank):
        if rank >= n:
            raise ValueError(f"the last of {n} processes has rank {n - 1}")
        c = models[model]
        title = f"{model}, rank {rank} of {n} processes: "
        title += f"{size_text(held(c, n))} of weights in all"
        return block_parts(c, part, rank, n, title)

    sizes = dict(options=[1, 2, 4, 8, 16], value=8, description="processes")
    return Play(
        draw,
        model=ipw.Dropdown(options=list(models), value=list(models)[-2]),
        n=ipw.SelectionSlider(**sizes),
        rank=ipw.IntSlider(3, 0, 15, description="rank"),
    )
