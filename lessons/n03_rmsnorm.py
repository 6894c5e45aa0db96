"""Pictures, widgets and checks of notebook 03."""

from collections.abc import Iterator

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from llamalib.model import rms_norm

from . import charts
from .judge import agree, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play, token_texts
from .theme import COLOURS, array, canvas, panels, spaced, visible

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
    for ax, (name, values) in zip(axes, states.items(), strict=True):
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
    for ax, (name, moves) in zip(axes, paths.items(), strict=True):
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


# -- the checks of the exercises --


def epsilon() -> float:
    """Return an ε that is large enough to be seen in the small vectors."""
    return vary(1e-3, 2e-3, 7e-4, 3e-3)


def small_vectors(seed: int) -> Iterator[tuple]:
    """Yield (x, weight, bias) with one to three leading dimensions."""
    g, n = draws(seed), vary(0, 2, 3, 4)
    for shape in ((2, 3, 8 + n), (2, 3 + n, 4, 6), (5 + n, 6)):
        x = 0.05 * torch.randn(shape, generator=g) + 0.1  # (..., D)
        yield x, *torch.randn(2, shape[-1], generator=g).unbind()


@exercise(1, "a tensor (..., D)")
def check_1(answer):
    for x, weight, bias in small_vectors(1):
        found = answer(x, weight, bias, epsilon())
        expected = F.layer_norm(x, weight.shape, weight, bias, epsilon())
        agree(found, expected, layer_norm_mistakes(x, weight, bias))


def layer_norm_mistakes(x: Tensor, g: Tensor, b: Tensor) -> Iterator[tuple]:
    mean, D = x.mean(-1, keepdim=True), x.shape[-1]
    var, eps = x.var(-1, keepdim=True, unbiased=False), epsilon()
    d, more = x - mean, var * D / (D - 1)
    words = "the variance is divided by D - 1, not D (unbiased=False)"
    yield "ε is outside the root", d / (var.sqrt() + eps) * g + b
    yield "ε is missing", d / var.sqrt() * g + b
    yield "eps is not used", d / (var + 1e-5).sqrt() * g + b
    yield "the mean is still in", x / (var + eps).sqrt() * g + b
    yield "this is RMSNorm: the mean is still in", rms_norm(x, g, eps) + b
    yield words, d / (more + eps).sqrt() * g + b
    both = f"ε is outside the root, and {words}"
    yield both, d / (more.sqrt() + eps) * g + b
    yield "the root is missing", d / (var + eps) * g + b
    yield "the shift is missing", d / (var + eps).sqrt() * g
    yield "the scale is missing", d / (var + eps).sqrt() + b
    yield "the shift is scaled too", (d / (var + eps).sqrt() + b) * g
    for i in range(x.dim() - 1):
        d, var = x - x.mean(i, True), x.var(i, False, keepdim=True)
        words = f"this is over dimension {i}; the features are the last"
        yield words, d / (var + eps).sqrt() * g + b


@exercise(2, "a tensor (..., D)")
def check_2(answer):
    for x, weight, _ in small_vectors(2):
        x = x * torch.arange(1.0, x.shape[-1] + 1)  # later ones are larger
        for k in (vary(3, 4, 5), 1, x.shape[-1]):
            expected = scaled(x, x[..., :k], weight)
            found = answer(x, weight, epsilon(), k)
            agree(found, expected, partial_mistakes(x, weight, k))
    return "with k = D it is RMSNorm"


def scaled(x: Tensor, part: Tensor, weight: Tensor, by=None) -> Tensor:
    """Divide x by the RMS of a part; `by` replaces the part's length."""
    total = part.pow(2).sum(-1, keepdim=True)  # (..., 1)
    mean = total / (by or part.shape[-1])
    return x * torch.rsqrt(mean + epsilon()) * weight


def partial_mistakes(x: Tensor, weight: Tensor, k: int) -> Iterator[tuple]:
    D, part = x.shape[-1], x[..., :k]
    right, whole = scaled(x, part, weight), scaled(x, x, weight)
    rms = part.pow(2).mean(-1, keepdim=True).sqrt()
    yield "the RMS is of all D features; expected the first k", whole
    words = "the sum is of k squares: divide it by k, not D"
    yield words, scaled(x, part, weight, by=D)
    yield "the sum is not divided by k", scaled(x, part, weight, by=1)
    yield "these are the last k features", scaled(x, x[..., D - k :], weight)
    words = "only the first k features are returned; scale all D"
    yield words, right[..., :k]
    words = "only the first k features are divided; divide all D"
    for rest in (x * weight, x, 0 * x):
        yield words, torch.cat([right[..., :k], rest[..., k:]], -1)
    yield "ε is outside the root", x / (rms + epsilon()) * weight
    yield "ε is missing", x / rms * weight
    yield "γ is missing", scaled(x, part, torch.ones(D))


@exercise(3, "a pair of matrices (F, D)")
def check_3(answer):
    g, D = draws(3), vary(12, 10, 14, 9)
    gamma = 1 + 0.3 * torch.randn(D, generator=g)  # (D,)
    for rows in (D, D + 8):  # with F = D the wrong axis raises no error
        w1, w3 = torch.randn(2, rows, D, generator=g)  # (F, D) each
        expected = w1 * gamma, w3 * gamma
        mistakes = fold_mistakes(gamma, w1, w3)
        found = answer(gamma, w1, w3)
        if isinstance(found, (tuple, list)):  # of arrays, or of tensors
            arrays = [isinstance(each, np.ndarray) for each in found]
            found = np.stack(found) if arrays and all(arrays) else found
        agree(found, torch.stack(expected), mistakes)
    return "γ needs no separate step"


def fold_mistakes(gamma: Tensor, w1: Tensor, w3: Tensor) -> Iterator[tuple]:
    both = torch.stack([w1, w3])  # (2, F, D)
    right = both * gamma
    yield "you divided by γ; expected a product", both / gamma
    yield "only w1 is folded", torch.stack([right[0], both[1]])
    yield "only w3 is folded", torch.stack([both[0], right[1]])
    yield "w3 is first; expected w1, then w3", right.flip(0)
    yield "nothing is changed", both
    yield "they are transposed", right.mT
    if w1.shape[0] == w1.shape[1]:
        words = "you scaled the rows; feature j belongs to column j"
        yield words, both * gamma[:, None]
