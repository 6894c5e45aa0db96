r"""The pictures of appendix B."""

import ipywidgets as ipw
import torch
import torch.nn.functional as F

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator

from .base import (
    COLOURS,
    WIDTH,
    array,
    canvas,
    heatmap,
    legend_above,
    title,
)
from .play import Play
from .model_map import strip  # noqa: F401

KINDS = {"int8": COLOURS["query"], "int4": COLOURS["key"]}


def _log_axis(ax, percent=False):
    """Powers and their doubles, written out."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_minor_formatter("")
    ax.yaxis.set_major_formatter(
        lambda y, _: f"{100 * y:.3g} %" if percent else f"{y:g}"
    )


def stairs(numbers, kept, steps, name=""):
    r"""Numbers of a row, and the steps on which they are kept.

    Args:
        numbers, kept: n numbers each.
        steps: the values that there are to choose from; of more than 40
            none is drawn.
        name: over the picture.
    """
    numbers, kept, steps = array(numbers), array(kept), array(steps)
    fig, ((ax,), (below,)) = canvas(
        4.0, 2, 1, sharex=True, height_ratios=(2, 1)
    )
    if len(steps) <= 40:
        for step in steps:
            ax.axhline(step, color=COLOURS["other"], lw=0.5, zorder=0)
    at = np.arange(len(numbers))
    ax.plot(at, kept, "_", ms=12, mew=2, color=COLOURS["query"], label="kept")
    ax.plot(at, numbers, "o", ms=3, color=COLOURS["plain"], label="number")
    below.bar(at, kept - numbers, color=COLOURS["token"], width=0.5)
    below.axhline(0, color=COLOURS["plain"], lw=0.8)
    height = steps[1] - steps[0]
    for half in (-height / 2, height / 2):
        below.axhline(half, color=COLOURS["other"], lw=0.8, ls="--")
    below.set_xlabel("number of the row")
    below.set_ylabel("error, and\nhalf a step")
    ax.set_ylabel("value")
    title(ax, name)
    legend_above(ax, 2)
    return fig


def error_by_bits(curves):
    r"""What is lost against what is kept.

    Args:
        curves: name to a list of (bits a number, relative error), by how many
            numbers share a scale.
    """
    fig, ax = canvas(3.4)
    colours = [COLOURS[c] for c in ("plain", "query", "value", "key", "token")]
    marks = "osD^v"
    for (name, points), colour, mark in zip(curves.items(), colours, marks):
        bits, errors = zip(*points)
        ax.plot(bits, errors, mark + "-", color=colour, lw=1.5, label=name)
    _log_axis(ax, percent=True)
    ax.set_xlabel("bits a number, its share of the scales counted")
    ax.set_ylabel("error, ‖ŵ − w‖ / ‖w‖")
    ax.legend(frameon=False, fontsize=9, title="numbers to a scale")
    title(ax, "From four bits on every bit halves the error")
    return fig


def error_maps(names, maps):
    r"""The relative error of every matrix, a panel for each kind.

    Args:
        names: m matrices' names, the rows.
        maps: kind to (m, L) numbers.
    """
    fig, (axes,) = canvas(3.0, 1, len(maps))
    for ax, (kind, values) in zip(axes, maps.items()):
        image = heatmap(ax, values, names if ax is axes[0] else ())
        if ax is not axes[0]:
            ax.set_yticks([])
        many = array(values).shape[1]
        ax.set_xticks(range(0, many, -(-many // 8)))
        ax.set_xlabel("layer")
        title(ax, f"{kind}: error of each matrix")
        bar = fig.colorbar(image, ax=ax)
        bar.ax.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.3g} %")
    return fig


def drift(errors):
    r"""How far the residual stream has come from what it was.

    Args:
        errors: kind to L + 1 numbers, after the embedding and each layer.
    """
    fig, ax = canvas(2.9)
    for kind, values in errors.items():
        at = range(len(values))
        ax.plot(at, array(values), "o-", color=KINDS[kind], lw=2, label=kind)
    _log_axis(ax, percent=True)
    many = len(next(iter(errors.values())))
    ax.set_xticks(range(0, many, -(-many // 18)))
    ax.set_xlabel("blocks run")
    ax.set_ylabel("error of a token's\nvector, median")
    ax.legend(frameon=False)
    title(ax, "How far the residual stream has moved")
    return fig


def speed_by_rows(rows, times, bytes_less):
    r"""How many times as fast as bfloat16, by rows that are multiplied.

    Args:
        rows: n ints.
        times: kind to n numbers.
        bytes_less: kind to how many times fewer bytes it has.
    """
    fig, ax = canvas(3.0)
    ax.axhline(1, color=COLOURS["plain"], lw=2)
    ax.annotate(
        "bfloat16",
        (rows[-1], 1),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
    )
    for kind, values in times.items():
        ax.plot(rows, values, "o-", color=KINDS[kind], lw=2, label=kind)
        ax.axhline(bytes_less[kind], color=KINDS[kind], lw=1, ls="--")
    ax.set_xscale("log", base=2)
    ax.set_xticks(rows, [str(n) for n in rows])
    ax.minorticks_off()
    ax.set_ylim(bottom=0)
    ax.set_xlabel("rows multiplied at once")
    ax.set_ylabel("times as fast")
    ax.legend(frameon=False)
    title(ax, "One product with a matrix of the 1B's size")
    return fig


def loss_by_matrix(names, losses, base, bits):
    r"""The loss with one kind of matrix at few bits, the others as they are.

    Args:
        names: n kinds of matrix.
        losses: n numbers, in nats a token.
        base: the loss of the model as it is.
        bits: for the title.
    """
    fig, ax = canvas(2.9)
    colour = {"e": "token", "w": "attention", "f": "feed-forward"}
    roles = [
        colour["e" if "tok" in n else "f" if n[-1] in "123" else "w"]
        for n in names
    ]
    added = [loss - base for loss in losses]
    ax.bar(range(len(names)), added, color=[COLOURS[r] for r in roles])
    ax.axhline(0, color=COLOURS["plain"], lw=0.8)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylabel("nats a token more")
    title(ax, f"The loss, with one kind of matrix at {bits} bits")
    return fig


def outlier(steps, errors, labels):
    r"""A row with and without one large number: steps and errors.

    Args:
        steps: two numbers, the width of a step.
        errors: two numbers, the relative error of the other numbers.
        labels: names of the two.
    """
    fig, ((left, right),) = canvas(2.6, 1, 2)
    colours = [COLOURS["other"], COLOURS["token"]]
    for ax, values, name in (
        (left, steps, "Width of a step"),
        (right, errors, "Error of all other numbers"),
    ):
        bars = ax.bar(labels, values, color=colours, width=0.6)
        form = "%.2g" if ax is left else lambda v: f"{100 * v:.1f} %"
        ax.bar_label(bars, fmt=form, fontsize=9, padding=2)
        ax.set_ylim(0, 1.2 * max(values))
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        title(ax, name)
    return fig


def largest_activations(shares, names):
    r"""How far the largest numbers stand out, in what each matrix reads.

    Args:
        shares: m lists of numbers, largest / typical, a token each.
        names: m kinds of input.
    """
    fig, ax = canvas(2.9)
    for at, values in enumerate(shares):
        values = np.sort(array(values))
        spread = at + np.linspace(-0.3, 0.3, len(values))
        ax.plot(spread, values, ".", ms=3, color=COLOURS["residual"])
        ax.plot(
            [at - 0.3, at + 0.3],
            [np.median(values)] * 2,
            color=COLOURS["plain"],
            lw=2,
        )
    _log_axis(ax)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylabel("largest number\n÷ root mean square")
    title(ax, "What a matrix reads: every token of every layer, and median")
    return fig


def quantized_row(numbers, kept, values, errors, name):
    r"""For the widget: a row and its steps; where all numbers' errors lie.

    Args:
        numbers, kept: n numbers each, of one row.
        values: all numbers.
        errors: of each of them, what is kept less what it is.
        name: over the picture.
    """
    fig, (left, right) = plt.subplots(
        1,
        2,
        figsize=(WIDTH, 3.0),
        width_ratios=(2, 1),
        layout="constrained",
    )
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    at = np.arange(len(numbers))
    numbers, kept = array(numbers), array(kept)
    left.vlines(at, numbers, kept, color=COLOURS["token"], lw=1.5)
    left.plot(at, numbers, "o", ms=3, color=COLOURS["plain"], label="number")
    left.plot(at, kept, "_", ms=7, mew=2, color=COLOURS["query"], label="kept")
    left.set_xlabel("number of the row")
    left.legend(frameon=False, fontsize=9, ncols=2, loc="lower right")
    title(left, name)
    limit = float(abs(array(values)).max())
    right.hist(
        [array(values), array(errors)],
        bins=np.linspace(-limit, limit, 41),
        histtype="stepfilled",
        alpha=0.7,
        color=[COLOURS["other"], COLOURS["token"]],
        label=["numbers", "errors"],
    )
    right.set_yscale("log")
    right.set_ylabel("how many")
    right.set_xlabel("value")
    right.legend(frameon=False, fontsize=9)
    return fig


# -- the widget

SHOWN = 48  # numbers of a row that can be told apart
ROWS_SHOWN = 256  # of a matrix, for its errors


def quantization(llama) -> Play:
    r"""A matrix at fewer bits: its first row, and all errors.

    Args:
        llama: a Llama.

    Returns:
        a Play of `name`, a matrix; `bits` for each number; `g`, how many
        numbers share a scale, of which a row's rest may be fewer: 0 stands
        for a row. Errors are those of the matrix's first 256 rows.
    """
    weights = {n: w for n, w in llama.weights().items() if w.dim() == 2}

    def draw(name, bits, g):
        w = weights[name][:ROWS_SHOWN].detach().float().cpu()  # (M, K)
        kept = kept_at(w, bits, g or w.shape[1])  # (M, K)
        lost = ((kept - w).norm() / w.norm()).item()
        return quantized_row(
            w[0, :SHOWN],
            kept[0, :SHOWN],
            w.flatten(),
            (kept - w).flatten(),
            f"error {100 * lost:.2g} % of the matrix",
        )

    return Play(
        draw,
        name=ipw.Dropdown(
            options=list(weights),
            value="layers.0.attention.wq.weight",
            description="matrix",
        ),
        bits=ipw.IntSlider(4, 2, 8, description="bits"),
        g=ipw.Dropdown(
            options=[("a row", 0), ("128", 128), ("32", 32), ("8", 8)],
            value=0,
            description="numbers to a scale",
        ),
    )


def kept_at(w, bits: int, g: int):
    """What is kept of (M, K) floats, at g numbers to a scale."""
    top, K = 2 ** (bits - 1) - 1, w.shape[-1]
    # zeros behind the row's rest: they set no scale
    groups = F.pad(w, (0, -K % g)).unflatten(-1, (-1, g))  # (M, n, g)
    scale = groups.abs().amax(dim=-1, keepdim=True) / top  # (M, n, 1)
    scale = torch.where(scale > 0, scale, 1)
    kept = (groups / scale).round() * scale  # (M, n, g)
    return kept.flatten(-2)[:, :K]  # (M, K)
