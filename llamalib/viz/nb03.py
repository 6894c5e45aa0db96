r"""The pictures of notebook 03."""

import ipywidgets as ipw
import torch

from .base import AMOUNT, COLOURS, array, canvas, heatmap, title, visible
from ..rmsnorm import rms_norm
from .play import Play
from .play import log_slider
from .model_map import strip  # noqa: F401


def rms_by_norm(rms, labels):
    r"""How large the vectors are that come into each norm, on a log scale.

    Args:
        rms: (2L + 1, T) root mean squares, in the order of the model: for
            each layer before attention and before the feed-forward network,
            then the final norm.
        labels: T token texts.
    """
    fig, ax = canvas(2.9)
    rms = array(rms)
    places = [i / 2 for i in range(len(rms))]
    shades = AMOUNT(
        [0.35 + 0.65 * t / len(labels) for t in range(len(labels))]
    )
    for t, label in enumerate(labels):
        ax.plot(
            places,
            rms[:, t],
            "o-",
            ms=4,
            lw=1.2,
            color=shades[t],
            label=visible(label),
        )
    ax.set_yscale("log")
    n_layers = len(rms) // 2
    step = max(1, n_layers // 8)
    ticks = list(range(0, n_layers, step))
    ax.set_xticks(
        ticks + [n_layers], [f"layer {i}" for i in ticks] + ["final"]
    )
    ax.set_ylabel("RMS of the vector")
    ax.set_xlabel(
        "norm: two a layer (attention, then feed-forward), then the final one"
    )
    ax.legend(
        frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1)
    )
    title(ax, "What comes into each norm")
    return fig


def before_and_after(panels, labels):
    r"""Values of each token in several states, one colour scale for all.

    Args:
        panels: title to (T, n) values.
        labels: T token texts.
    """
    fig, axes = canvas(0.9 + 0.28 * len(labels), 1, len(panels), sharey=True)
    limit = max(float(abs(values).max()) for values in panels.values())
    limit = min(limit, 3.0)  # the strongest may be over it
    for ax, (name, values) in zip(axes.flat, panels.items()):
        image = heatmap(ax, values, labels, signed=True, limit=limit)
        ax.set_xlabel(f"features 0 to {values.shape[1] - 1}")
        title(ax, name)
    fig.colorbar(image, ax=axes, label="value", shrink=0.9, extend="both")
    return fig


def epsilon_curves(sizes, curves, marks):
    r"""The size of a normalized vector against the size of what came in.

    Args:
        sizes: n root mean squares of the input, drawn on a log scale.
        curves: two names with n root mean squares of the output each.
        marks: name to input sizes to be marked on the first curve's axis.
    """
    fig, ax = canvas(3.0)
    for (name, values), role in zip(
        curves.items(), ("residual", "plain"), strict=True
    ):
        ax.plot(
            array(sizes), array(values), color=COLOURS[role], lw=2, label=name
        )
    for name, at in marks.items():
        ax.plot(
            array(at), [1.06] * len(at), "|", ms=12, color="black", label=name
        )
    ax.set_xscale("log")
    ax.set_ylim(0, 1.14)
    ax.set_xlabel("RMS of what comes in")
    ax.set_ylabel("RMS of what goes out")
    ax.legend(frameon=False, fontsize=9, loc="center right")
    title(ax, "Where ε takes hold")
    return fig


def error_histogram(errors, heading):
    r"""How often each relative error occurs, on a log scale.

    Args:
        errors: up to three names with relative errors each.
        heading: over the picture.
    """
    fig, ax = canvas(2.8)
    edges = [2.0 ** (e / 2) for e in range(-26, -5)]
    for (name, values), role in zip(
        errors.items(), ("residual", "other", "plain")
    ):
        kept = [min(max(v, edges[0]), edges[-1]) for v in values.tolist()]
        share = [1 / len(kept)] * len(kept)
        ax.hist(
            kept,
            edges,
            weights=share,
            histtype="step",
            lw=2,
            color=COLOURS[role],
            label=name,
        )
    ax.set_xscale("log", base=2)
    ax.set_xlabel("relative error (the first step holds all smaller ones)")
    ax.set_ylabel("share of the values")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    title(ax, heading)
    return fig


def gamma_by_norm(gammas):
    r"""The learned scales of every norm: median, middle half, 5 % to 95 %.

    Args:
        gammas: (2L + 1, D), in the order of the model, the final norm last.
    """
    fig, ax = canvas(3.0)
    gammas = array(gammas)
    n_layers = len(gammas) // 2
    sorts = {
        "before attention": (gammas[:-1:2], 0.0, "attention"),
        "before feed-forward": (gammas[1:-1:2], 0.3, "feed-forward"),
        "final": (gammas[-1:], n_layers, "other"),
    }
    for name, (rows, offset, role) in sorts.items():
        at = [i + offset for i in range(len(rows))]
        marks = [sorted(row.tolist()) for row in rows]
        low, first, middle, third, high = (
            [row[int(q * (len(row) - 1))] for row in marks]
            for q in (0.05, 0.25, 0.5, 0.75, 0.95)
        )
        ax.vlines(at, low, high, color=COLOURS[role], lw=1.2)
        ax.vlines(at, first, third, color=COLOURS[role], lw=5, alpha=0.6)
        ax.plot(at, middle, "o", color=COLOURS[role], ms=5, label=name)
    step = max(1, n_layers // 8)
    ticks = list(range(0, n_layers, step))
    ax.set_xticks(
        [i + 0.15 for i in ticks] + [n_layers],
        [f"layer {i}" for i in ticks] + ["final"],
    )
    ax.set_ylabel("γ of a feature")
    ax.legend(
        frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1)
    )
    title(ax, "Learned scales: median, middle half, 5 % to 95 % of features")
    return fig


def norm_bars(before, after, sizes, curve, point, heading):
    r"""A vector before and after RMSNorm, and where it lies on ε's curve.

    Args:
        before, after: n values of the same features.
        sizes, curve: what goes out against what comes in, as RMS.
        point: (RMS in, RMS out) of this vector.
        heading: over the picture.
    """
    fig, axes = canvas(3.0, 1, 2, width_ratios=[1.5, 1])
    left, right = axes.flat
    before, after = array(before), array(after)
    places = range(len(before))
    left.bar(
        [i - 0.2 for i in places],
        before,
        0.4,
        color=COLOURS["other"],
        label="before",
    )
    left.bar(
        [i + 0.2 for i in places],
        after,
        0.4,
        color=COLOURS["residual"],
        label="after",
    )
    left.axhline(0, color="black", lw=0.6)
    left.set_ylim(-4, 4)
    left.set_xlabel("feature")
    left.set_ylabel("value (cut off at ±4)")
    left.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)
    title(left, heading)
    right.plot(array(sizes), array(curve), color=COLOURS["residual"], lw=2)
    right.plot(*point, "o", ms=9, color="black")
    right.set_xscale("log")
    right.set_ylim(0, 1.1)
    right.set_xlabel("RMS of what comes in")
    right.set_ylabel("RMS of what goes out")
    return fig


# -- the widget

def norm(llama, ids) -> Play:
    r"""One token's embedding, scaled, then normalized with a chosen ε.

    Args:
        llama: whose embeddings.
        ids: a prompt's token ids.
    """
    vectors = llama.weights()["tok_embeddings.weight"][ids].float().cpu()
    texts = [llama.tokenizer.decode([i]) for i in ids]
    sizes = torch.logspace(-6, 3, 120)

    def draw(token, scale, epsilon):
        x = scale * vectors[token]  # (D,)
        y = rms_norm(x, torch.ones_like(x), epsilon)  # (D,)
        point = [float(v.pow(2).mean().sqrt()) for v in (x, y)]
        heading = f"{texts[token]!r}: RMS {point[0]:.3g} to {point[1]:.3g}"
        curve = sizes / (sizes**2 + epsilon).sqrt()
        return norm_bars(x[:24], y[:24], sizes, curve, point, heading)

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
