r"""Pictures and widget of notebook 03."""

import ipywidgets as ipw
import numpy as np
import torch

from ..rmsnorm import rms_norm
from . import charts
from .base import AMOUNT, array, canvas, panels, spaced, visible
from .model_map import strip  # noqa: F401
from .play import Play, log_slider, token_texts

SIZES = dict(x="RMS of the input", y="RMS of the output")


def rms_by_norm(rms, labels):
    """Draw the RMS (2L + 1, T) of T tokens at the input of each norm."""
    fig, ax = canvas(2.9)
    shades = AMOUNT(0.35 + 0.65 * np.arange(len(labels)) / len(labels))
    places, style = np.arange(len(rms)) / 2, dict(ms=4, lw=1.2)
    for values, shade, label in zip(array(rms).T, shades, labels):
        style |= dict(color=shade, label=visible(label))
        ax.plot(places, values, "o-", **style)
    _norm_ticks(ax, len(rms) // 2)
    x = "norm: two a layer (attention, then feed-forward), then the final one"
    labels = dict(x=x, y="RMS of the vector")
    charts.finish(ax, "Input of each norm", **labels, yscale="log")
    charts.add_legend(ax, "right", fontsize=8)
    return fig


def _norm_ticks(ax, n_layers, shift=0):
    """Name the layers, and the final norm behind them."""
    shown = spaced(n_layers, 8)
    names = [f"layer {i}" for i in shown]
    ax.set_xticks([*(i + shift for i in shown), n_layers], [*names, "final"])


def before_and_after(states, labels):
    """Draw values of T tokens in several states: title to (T, n) values."""
    fig, axes = panels(0.9 + 0.28 * len(labels), len(states), sharey=True)
    limit = max(float(abs(values).max()) for values in states.values())
    limit = min(limit, 3.0)  # a few values are larger
    for ax, (name, values) in zip(axes, states.items()):
        image = charts.heatmap(ax, values, labels, signed=True, limit=limit)
        charts.finish(ax, name, f"features 0 to {values.shape[1] - 1}")
    fig.colorbar(image, ax=axes, label="value", shrink=0.9, extend="both")
    return fig


def epsilon_curves(sizes, curves, marks):
    """Draw RMS of outputs by RMS of inputs; marks: name to inputs."""
    fig, ax = canvas(3.0)
    charts.lines(ax, curves, [("residual", "-"), ("plain", "-")], sizes)
    points = {n: (at, [1.06] * len(at)) for n, at in marks.items()}
    charts.lines(ax, points, [("black", "|", dict(ms=12))] * len(points))
    limits = dict(xscale="log", ylim=(0, 1.14), legend="center right")
    return charts.finish(ax, "Where ε takes hold", **SIZES, **limits)


def error_histogram(errors, heading):
    """Draw how often each relative error occurs; up to three names."""
    fig, ax = canvas(2.8)
    edges = 2.0 ** np.arange(-13, -2.5, 0.5)
    tones = ("residual", "other", "plain")
    charts.histograms(ax, errors, edges, tones, share=True)
    ax.set_xscale("log", base=2)
    x = "relative error (the first step holds all smaller ones)"
    y = "share of the values"
    return charts.finish(ax, heading, x, y, legend="upper left")


def gamma_by_norm(gammas):
    """Draw each norm's learned scales (2L + 1, D), the final norm last."""
    fig, ax = canvas(3.0)
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    found = np.quantile(array(gammas), levels, axis=1).T  # (2L + 1, 5)
    L = len(found) // 2
    layers = np.arange(L)
    for places, rows, role, name in (
        (layers, found[:-1:2], "attention", "before attention"),
        (layers + 0.3, found[1:-1:2], "feed-forward", "before feed-forward"),
        ([L], found[-1:], "other", "final"),
    ):
        charts.spreads(ax, places, rows, role, name)
    _norm_ticks(ax, L, 0.15)
    name = "Learned scales: median, middle half, 5 % to 95 % of features"
    return charts.finish(ax, name, y="γ of a feature", legend="right")


def norm_bars(before, after, curve, point, heading):
    """Draw a vector before and after RMSNorm, and its dot on ε's curve."""
    margins = 0.075, 0.16, 0.985, 0.91, 0.2
    options = dict(margins=margins, width_ratios=[1.5, 1])
    fig, (left, right) = panels(3.0, 2, **options)
    series = {"before": before, "after": after}
    charts.grouped_bars(left, series, ("other", "residual"))
    left.axhline(0, color="black", lw=0.6)
    y = "value (cut off at ±4)"
    charts.finish(left, heading, "feature", y, ylim=(-4, 4))
    charts.add_legend(left, "upper right", ncols=2)
    charts.lines(right, {"": curve}, [("residual", "-")])
    right.plot(*point, "o", ms=9, color="black")
    return charts.finish(right, **SIZES, xscale="log", ylim=(0, 1.1))


def norm(llama, ids) -> Play:
    """Return a token's embedding, scaled, then normalized with a chosen ε."""
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
