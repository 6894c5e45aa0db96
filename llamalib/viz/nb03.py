r"""Pictures and widget of notebook 03."""

import ipywidgets as ipw
import numpy as np
import torch

from ..rmsnorm import rms_norm
from .base import AMOUNT, array, canvas, panels, spaced, visible
from .charts import (
    add_legend,
    finish,
    grouped_bars,
    heatmap,
    histograms,
    lines,
    spreads,
)
from .model_map import strip  # noqa: F401
from .play import Play, log_slider, token_texts

SIZES = dict(x="RMS of the input", y="RMS of the output")


def rms_by_norm(rms, labels):
    r"""Draw the RMS of each token's vector at the input of each norm.

    Args:
        rms: (2L + 1, T), in the order of the model: for each layer before
            attention and before the feed-forward network; the final norm.
        labels: T token texts.
    """
    fig, ax = canvas(2.9)
    shades = AMOUNT(0.35 + 0.65 * np.arange(len(labels)) / len(labels))
    places, style = np.arange(len(rms)) / 2, dict(ms=4, lw=1.2)
    for values, shade, label in zip(array(rms).T, shades, labels):
        style |= dict(color=shade, label=visible(label))
        ax.plot(places, values, "o-", **style)
    _norm_ticks(ax, len(rms) // 2)
    x = "norm: two a layer (attention, then feed-forward), then the final one"
    finish(ax, "Input of each norm", x, "RMS of the vector", yscale="log")
    add_legend(ax, "right", fontsize=8)
    return fig


def _norm_ticks(ax, n_layers, shift=0):
    """Name the layers, and the final norm behind them."""
    shown = spaced(n_layers, 8)
    names = [f"layer {i}" for i in shown]
    ax.set_xticks([*(i + shift for i in shown), n_layers], [*names, "final"])


def before_and_after(states, labels):
    r"""Draw values of each token in several states, in the same colours.

    Args:
        states: title to (T, n) values.
        labels: T token texts.
    """
    fig, axes = panels(0.9 + 0.28 * len(labels), len(states), sharey=True)
    limit = max(float(abs(values).max()) for values in states.values())
    limit = min(limit, 3.0)  # a few values are larger
    for ax, (name, values) in zip(axes, states.items()):
        image = heatmap(ax, values, labels, signed=True, limit=limit)
        finish(ax, name, f"features 0 to {values.shape[1] - 1}")
    fig.colorbar(image, ax=axes, label="value", shrink=0.9, extend="both")
    return fig


def epsilon_curves(sizes, curves, marks):
    r"""Draw the size of a normalized vector by the size of its input.

    Args:
        sizes: n root mean squares of the input.
        curves: two names with n root mean squares of the output each.
        marks: name to input sizes, marked over the curves.
    """
    fig, ax = canvas(3.0)
    lines(ax, curves, [("residual", "-"), ("plain", "-")], sizes)
    points = {n: (at, [1.06] * len(at)) for n, at in marks.items()}
    lines(ax, points, [("black", "|", dict(ms=12))] * len(points))
    limits = dict(xscale="log", ylim=(0, 1.14), legend="center right")
    finish(ax, "Where ε takes hold", **SIZES, **limits)
    return fig


def error_histogram(errors, heading):
    """Draw how often each relative error occurs; up to three names."""
    fig, ax = canvas(2.8)
    edges = 2.0 ** np.arange(-13, -2.5, 0.5)
    tones = ("residual", "other", "plain")
    histograms(ax, errors, edges, tones, share=True)
    ax.set_xscale("log", base=2)
    label = "relative error (the first step holds all smaller ones)"
    finish(ax, heading, label, "share of the values", legend="upper left")
    return fig


def gamma_by_norm(gammas):
    r"""Draw the learned scales of every norm.

    Args:
        gammas: (2L + 1, D), in the order of the model, the final norm last.
    """
    fig, ax = canvas(3.0)
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    found = np.quantile(array(gammas), levels, axis=1).T  # (2L + 1, 5)
    L = len(found) // 2
    layers = np.arange(L)
    spreads(ax, layers, found[:-1:2], "attention", "before attention")
    rows = found[1:-1:2]
    spreads(ax, layers + 0.3, rows, "feed-forward", "before feed-forward")
    spreads(ax, [L], found[-1:], "other", "final")
    _norm_ticks(ax, L, 0.15)
    name = "Learned scales: median, middle half, 5 % to 95 % of features"
    finish(ax, name, y="γ of a feature", legend="right")
    return fig


def norm_bars(before, after, curve, point, heading):
    r"""Draw a vector before and after RMSNorm, and its place on ε's curve.

    Args:
        before, after: n values of the same features.
        curve: RMS of inputs, and of their outputs.
        point: (RMS in, RMS out) of this vector.
    """
    fig, (left, right) = panels(3.0, 2, width_ratios=[1.5, 1])
    series = {"before": before, "after": after}
    grouped_bars(left, series, ("other", "residual"))
    left.axhline(0, color="black", lw=0.6)
    finish(left, heading, "feature", "value (cut off at ±4)", ylim=(-4, 4))
    add_legend(left, "upper right", ncols=2)
    lines(right, {"": curve}, [("residual", "-")])
    right.plot(*point, "o", ms=9, color="black")
    finish(right, **SIZES, xscale="log", ylim=(0, 1.1))
    return fig


def norm(llama, ids) -> Play:
    r"""Return a token's embedding, scaled, then normalized with a chosen ε.

    Args:
        llama: the model whose embeddings are used.
        ids: a prompt's token ids.
    """
    vectors = llama.weights()["tok_embeddings.weight"][ids].float().cpu()
    texts = token_texts(llama, ids)
    sizes = torch.logspace(-6, 3, 120)

    def draw(token, scale, epsilon):
        x = scale * vectors[token]  # (D,)
        y = rms_norm(x, torch.ones_like(x), epsilon)  # (D,)
        point = [float(v.pow(2).mean().sqrt()) for v in (x, y)]
        heading = f"{texts[token]!r}: RMS {point[0]:.3g} to {point[1]:.3g}"
        curve = sizes, sizes / (sizes**2 + epsilon).sqrt()
        return norm_bars(x[:24], y[:24], curve, point, heading)

    return Play(
        draw,
        token=ipw.Dropdown(
            options=[(f"{i}: {t!r}", i) for i, t in enumerate(texts)],
            value=len(ids) - 1,
            description="token",
        ),
        scale=log_slider("scale of the vector", 1.0, -4, 2),
        epsilon=log_slider("ε", 1e-5, -8, 1),
    )
