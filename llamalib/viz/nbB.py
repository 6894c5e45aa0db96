r"""Pictures and widget of appendix B."""

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F

from .base import COLOURS, array, canvas, colour, panels, spaced
from .charts import add_legend, finish, heatmap, histograms, lines
from .charts import log_axis, note
from .model_map import strip  # noqa: F401
from .play import Play

KINDS = {"int8": "query", "int4": "key"}
DOUBLES = (1, 2, 5)  # the ticks of a power of ten


def percent(share) -> str:
    """Return a share as a text in percent."""
    return f"{100 * share:.3g} %"


def stairs(numbers, kept, steps, name=""):
    r"""Draw numbers, the steps they are rounded to, and the errors.

    Args:
        numbers, kept: n numbers each, before and after rounding.
        steps: all values that can be kept; more than 40 are not drawn.
        name: the title.
    """
    numbers, kept, steps = array(numbers), array(kept), array(steps)
    options = dict(sharex=True, height_ratios=(2, 1))
    fig, (ax, below) = panels(4.0, 1, 2, **options)
    for step in steps if len(steps) <= 40 else ():
        ax.axhline(step, color=COLOURS["other"], lw=0.5, zorder=0)
    _kept(ax, numbers, kept, 12)
    finish(ax, name, "", "value", legend="above")
    at = range(len(numbers))
    below.bar(at, kept - numbers, color=COLOURS["token"], width=0.5)
    below.axhline(0, color=COLOURS["plain"], lw=0.8)
    height = steps[1] - steps[0]
    for half in (-height / 2, height / 2):
        below.axhline(half, color=COLOURS["other"], lw=0.8, ls="--")
    finish(below, "", "number of the row", "error, and\nhalf a step")
    return fig


def _kept(ax, numbers, kept, size):
    """Draw numbers as dots, and what is kept of them as dashes."""
    dash, dot = dict(ms=size, mew=2), dict(ms=3)
    looks = ("query", "_", dash), ("plain", "o", dot)
    lines(ax, dict(kept=kept, number=numbers), looks, range(len(numbers)))


def error_by_bits(curves):
    r"""Draw the rounding error by the bits that are kept.

    Args:
        curves: name to (bits per number, relative error) each.
    """
    fig, ax = canvas(3.4)
    tones = "plain", "query", "value", "key", "token"
    looks = [(tone, f"{mark}-") for tone, mark in zip(tones, "osD^v")]
    series = {name: tuple(zip(*points)) for name, points in curves.items()}
    lines(ax, series, looks, lw=1.5)
    log_axis(ax, "y", text=percent, subs=DOUBLES)
    halved = "From four bits on every bit halves the error"
    bits = "bits a number, its share of the scales counted"
    finish(ax, halved, bits, "error, ‖ŵ − w‖ / ‖w‖")
    add_legend(ax, title="numbers to a scale")
    return fig


def error_maps(names, maps):
    r"""Draw the relative error of every matrix, one panel per kind.

    Args:
        names: m names of matrices, the rows.
        maps: kind to (m, L) numbers.
    """
    fig, axes = panels(3.0, len(maps), sharey=True)
    for ax, (kind, values) in zip(axes, maps.items()):
        image = heatmap(ax, values, names)
        ticks = spaced(array(values).shape[1], 8)
        finish(ax, f"{kind}: error of each matrix", "layer", xticks=ticks)
        bar = fig.colorbar(image, ax=ax)
        bar.ax.yaxis.set_major_formatter(lambda share, _: percent(share))
    return fig


def drift(errors):
    r"""Draw how far the residual stream has moved.

    Args:
        errors: kind to L + 1 numbers, after the embedding and each layer.
    """
    fig, ax = canvas(2.9)
    n = len(next(iter(errors.values())))
    lines(ax, errors, [(KINDS[kind], "o-") for kind in errors], range(n))
    log_axis(ax, "y", text=percent, subs=DOUBLES)
    far = "How far the residual stream has moved", "blocks run"
    median = "error of a token's\nvector, median"
    finish(ax, *far, median, xticks=spaced(n, 18), legend="best")
    return fig


def speed_by_rows(rows, times, bytes_less):
    r"""Draw the speed of a product in times bfloat16's.

    Args:
        rows: n ints, how many rows are multiplied.
        times: kind to n numbers.
        bytes_less: kind to bfloat16's bytes divided by its own.
    """
    fig, ax = canvas(3.0)
    ax.axhline(1, color=COLOURS["plain"], lw=2)
    note(ax, rows[-1], 1, "bfloat16", ha="right")
    lines(ax, times, [(KINDS[kind], "o-") for kind in times], rows)
    for kind in times:
        tone = colour(KINDS[kind])
        ax.axhline(bytes_less[kind], color=tone, lw=1, ls="--")
    log_axis(ax, "x", rows, base=2)
    name = "One product with a matrix of the 1B's size"
    labels = "rows multiplied at once", "times as fast"
    finish(ax, name, *labels, ylim=(0, None), legend="best")
    return fig


def loss_by_matrix(names, losses, base, bits):
    r"""Draw the loss with one kind of matrix at few bits.

    Args:
        names: n kinds of matrix.
        losses: n numbers, in nats a token.
        base: the unchanged model's loss.
        bits: for the title.
    """
    fig, ax = canvas(2.9)
    feed = dict.fromkeys(("w1", "w2", "w3"), "feed-forward")
    roles = feed | {"tok_embeddings": "token"}
    tones = [colour(roles.get(name, "attention")) for name in names]
    ax.bar(names, [loss - base for loss in losses], color=tones)
    ax.axhline(0, color=COLOURS["plain"], lw=0.8)
    heading = f"The loss, with one kind of matrix at {bits} bits"
    finish(ax, heading, "", "nats a token more")
    return fig


def outlier(steps, errors, labels):
    r"""Draw steps and errors of a row without and with a large number.

    Args:
        steps: the two widths of a step.
        errors: the two relative errors of the other numbers.
        labels: the two names.
    """
    fig, (left, right) = panels(2.6, 2)
    for ax, values, form, name in (
        (left, steps, "{:.2g}", "Width of a step"),
        (right, errors, "{:.1%}", "Error of all other numbers"),
    ):
        tones = COLOURS["other"], COLOURS["token"]
        bars = ax.bar(labels, values, color=tones, width=0.6)
        ax.bar_label(bars, fmt=form.format, fontsize=9, padding=2)
        finish(ax, name, ylim=(0, 1.2 * max(values)), yticks=[])
        ax.spines["left"].set_visible(False)
    return fig


def largest_activations(shares, names):
    r"""Draw how much the largest inputs of each matrix stand out.

    Args:
        shares: m lists of largest / typical number, one per token.
        names: m kinds of input.
    """
    fig, ax = canvas(2.9)
    for at, values in enumerate(shares):
        values = np.sort(array(values))
        spread = at + np.linspace(-0.3, 0.3, len(values))
        ax.plot(spread, values, ".", ms=3, color=COLOURS["residual"])
        ends = at - 0.3, at + 0.3
        ax.hlines(np.median(values), *ends, color=COLOURS["plain"], lw=2)
    log_axis(ax, "y", subs=DOUBLES)
    ax.set_xticks(range(len(names)), names)
    heading = "What a matrix reads: every token of every layer, and median"
    finish(ax, heading, "", "largest number\n÷ root mean square")
    return fig


def quantized_row(numbers, kept, values, errors, name):
    r"""Draw a row before and after rounding, and all numbers' errors.

    Args:
        numbers, kept: n numbers each, of one row.
        values, errors: of all rows, any number each.
        name: the title.
    """
    fig, (left, right) = panels(3.0, 2, width_ratios=(2, 1))
    at, numbers, kept = range(len(numbers)), array(numbers), array(kept)
    left.vlines(at, numbers, kept, color=COLOURS["token"], lw=1.5)
    _kept(left, numbers, kept, 7)
    finish(left, name, "number of the row")
    add_legend(left, "lower right", ncols=2)
    limit = float(abs(array(values)).max())
    edges = np.linspace(-limit, limit, 41)
    both, tones = dict(numbers=values, errors=errors), ("other", "token")
    histograms(right, both, edges, tones, fill=True, alpha=0.7)
    finish(right, "", "value", "how many", yscale="log", legend="best")
    return fig


# -- the widget

SHOWN = 48  # numbers of a row that can be told apart
ROWS_SHOWN = 256  # of a matrix, for its errors


def quantization(llama) -> Play:
    r"""Return a widget that rounds a matrix: one row, and all errors.

    Returns:
        a Play of `name`, a matrix; `bits` per number; and `g`, how many
        numbers share a scale, 0 for a whole row. The errors are those of the
        first 256 rows.
    """
    weights = {n: w for n, w in llama.weights().items() if w.dim() == 2}

    def draw(name, bits, g):
        w = weights[name][:ROWS_SHOWN].detach().float().cpu()  # (M, K)
        kept = kept_at(w, bits, g or w.shape[1])  # (M, K)
        errors = kept - w
        lost = (errors.norm() / w.norm()).item()
        heading = f"error {100 * lost:.2g} % of the matrix"
        row = w[0, :SHOWN], kept[0, :SHOWN]
        return quantized_row(*row, w.flatten(), errors.flatten(), heading)

    sizes = [("a row", 0), ("128", 128), ("32", 32), ("8", 8)]
    first = dict(options=list(weights), value="layers.0.attention.wq.weight")
    return Play(
        draw,
        name=ipw.Dropdown(description="matrix", **first),
        bits=ipw.IntSlider(4, 2, 8, description="bits"),
        g=ipw.Dropdown(options=sizes, description="numbers to a scale"),
    )


def kept_at(w, bits: int, g: int):
    """Return (M, K) numbers after rounding, `g` numbers to a scale."""
    top, K = 2 ** (bits - 1) - 1, w.shape[-1]
    # zeros after a row's last number do not change the scale
    groups = F.pad(w, (0, -K % g)).unflatten(-1, (-1, g))  # (M, n, g)
    scale = groups.abs().amax(dim=-1, keepdim=True) / top  # (M, n, 1)
    scale = torch.where(scale > 0, scale, 1)
    kept = (groups / scale).round() * scale  # (M, n, g)
    return kept.flatten(-2)[:, :K]  # (M, K)
