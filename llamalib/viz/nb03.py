r"""Pictures and widget of notebook 03."""

import ipywidgets as ipw
import numpy as np
import torch

from ..model import rms_norm
from . import charts
from .base import COLOURS, array, canvas, panels, spaced, visible
from .model_map import strip  # noqa: F401
from .play import Play, token_texts

SIZES = dict(x="RMS of the input", y="RMS of the output")


def rms_by_norm(rms, labels):
    """Draw the RMS (2L + 1, T) of T tokens at the input of each norm."""
    fig, ax = canvas(2.9)
    places, (first, *others) = np.arange(len(rms)) / 2, array(rms).T
    style = dict(color=COLOURS["residual"], label="the other tokens")
    span = np.min(others, 0), np.max(others, 0)
    ax.fill_between(places, *span, alpha=0.6, **style)
    charts.lines(ax, {visible(labels[0]): first}, [("plain", "o-")], places)
    _norm_ticks(ax, len(rms) // 2)
    x = "norm: two per block (attention, feed-forward), then the final one"
    labels = "Input of each norm", x, "RMS of the vector"
    charts.finish(ax, *labels, yscale="log")
    return charts.add_legend(ax, "right", fontsize=8)


def _norm_ticks(ax, n_layers, shift=0):
    """Name the blocks, and the final norm after them."""
    shown = spaced(n_layers, 8)
    names = [f"block {i}" for i in shown]
    ax.set_xticks([*(i + shift for i in shown), n_layers], [*names, "final"])


def before_and_after(states, labels):
    """Draw values of T tokens in several states: title to (T, n) values."""
    fig, axes = panels(1.3 + 0.28 * len(labels), len(states), sharey=True)
    for ax, (name, values) in zip(axes, states.items()):
        limit = float(np.quantile(abs(array(values)), 0.98))
        image = charts.heatmap(ax, values, labels, signed=True, limit=limit)
        charts.finish(ax, name, f"features 0 to {values.shape[1] - 1}")
        style = dict(location="bottom", extend="both", aspect=30)
        fig.colorbar(image, ax=ax, label="value", **style)
    return fig


def two_norms(paths):
    """Draw how norms move points of the plane: title to paths (k, 2)."""
    fig, axes = panels(4.0, len(paths))
    angles, line = np.linspace(0, 2 * np.pi, 200), np.array([-2.6, 2.6])
    style = dict(color=COLOURS["other"], lw=1)
    for ax, (name, moves) in zip(axes, paths.items()):
        ax.plot(2**0.5 * np.cos(angles), 2**0.5 * np.sin(angles), **style)
        ax.plot(line, -line, ":", **style)
        for move in map(array, moves):
            ax.plot(*move.T, color=COLOURS["plain"], lw=1)
            ax.plot(*move[0], "o", color="white", mec=COLOURS["plain"])
            ax.plot(*move[-1], "o", color=COLOURS["residual"], ms=8)
        labels = name, "first number", "second number"
        charts.finish(ax, *labels, aspect="equal", xlim=line, ylim=line)
    return fig


def epsilon_curves(sizes, curves, marks):
    """Draw RMS of outputs by RMS of inputs; marks: name to inputs."""
    fig, ax = canvas(3.0)
    charts.lines(ax, curves, [("residual", "-"), ("plain", "-")], sizes)
    for name, at in marks.items():
        ax.plot(at, [1.06] * len(at), "|", color="black", ms=12, label=name)
    limits = dict(xscale="log", ylim=(0, 1.14), legend="center right")
    return charts.finish(ax, "Where ε takes hold", **SIZES, **limits)


def error_histogram(errors, heading):
    """Draw how often each relative error occurs, for two names."""
    _, ax = canvas(2.8)
    edges = 2.0 ** np.arange(-13, -5.5, 0.5)
    tones = "residual", "plain"
    charts.histograms(ax, errors, edges, tones, share=True)
    ax.set_xscale("log", base=2)
    x = "relative error (the first step holds all smaller ones)"
    y = "share of the values"
    return charts.finish(ax, heading, x, y, legend="upper left")


def gamma_by_norm(gammas):
    """Draw each norm's learned scales (2L + 1, D), the final norm last."""
    _, ax = canvas(3.0)
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    found = np.quantile(array(gammas), levels, axis=1)  # (5, 2L + 1)
    norms = np.arange(len(gammas))
    places = norms // 2 + 0.3 * (norms % 2)
    for name, role, rows in (
        ("before attention", "attention", slice(0, -1, 2)),
        ("before feed-forward", "feed-forward", slice(1, -1, 2)),
        ("final", "other", slice(-1, None)),
    ):
        low, first, middle, third, high = found[:, rows]
        at, tone = places[rows], COLOURS[role]
        ax.vlines(at, low, high, color=tone, lw=1.2)
        ax.vlines(at, first, third, color=tone, lw=5, alpha=0.6)
        ax.plot(at, middle, "o", color=tone, ms=5, label=name)
    _norm_ticks(ax, len(gammas) // 2, 0.15)
    name = "Learned scales: median, middle half, 5 % to 95 % of features"
    return charts.finish(ax, name, y="γ of a feature", legend="right")


def norm_bars(before, after, curve, point, heading):
    """Draw a vector before and after RMSNorm, and its dot on ε's curve."""
    margins = 0.075, 0.16, 0.985, 0.91, 0.2
    _, axes = panels(3.0, 2, margins=margins, width_ratios=[1.5, 1])
    left, right = axes
    series = {"before": before, "after": after}
    charts.grouped_bars(left, series, ("other", "residual"))
    left.axhline(0, color="black", lw=0.6)
    labels = heading, "feature", "value (cut off at ±4)"
    charts.finish(left, *labels, ylim=(-4, 4))
    charts.add_legend(left, "upper right", ncols=2)
    right.plot(*curve, color=COLOURS["residual"], lw=2)
    right.plot(*point, "o", ms=9, color="black")
    return charts.finish(right, **SIZES, xscale="log", ylim=(0, 1.1))


def norm(llama, ids) -> Play:
    """Return a token's embedding, scaled, then normalized with a chosen ε."""
    table = llama.tok_embeddings.weight.detach()  # (V, D)
    vectors = table[ids].float().cpu()  # (n, D)
    texts = token_texts(llama, ids)
    sizes = torch.logspace(-6, 3, 120)

    def draw(token, scale, epsilon):
        x = scale * vectors[token]  # (D,)
        y = rms_norm(x, torch.ones_like(x), epsilon)  # (D,)
        point = [float(v.pow(2).mean().sqrt()) for v in (x, y)]
        heading = f"{texts[token]!r}: RMS {point[0]:.3g} to {point[1]:.3g}"
        curve = sizes, sizes / (sizes**2 + epsilon).sqrt()
        return norm_bars(x[:24], y[:24], curve, point, heading)

    def slider(value, low, high, text):
        style = dict(description=text, readout_format=".1e")
        return ipw.FloatLogSlider(value, min=low, max=high, **style)

    names = [(f"{i}: {text!r}", i) for i, text in enumerate(texts)]
    last = dict(options=names, value=len(ids) - 1)
    return Play(
        draw,
        token=ipw.Dropdown(description="token", **last),
        scale=slider(1.0, -4, 2, "factor of the vector"),
        epsilon=slider(1e-5, -8, 1, "ε"),
    )
