r"""Pictures and widget of notebook 06."""

import ipywidgets as ipw
import numpy as np
from matplotlib.colors import LogNorm

from . import charts
from .base import COLOURS, array, canvas, panels, spaced
from .model_map import strip  # noqa: F401
from .play import Play

ZERO = dict(color=COLOURS["other"], lw=0.8)


def activations(z, curves, factors):
    """Draw functions f(z) by name, and f(z)/z; the network's own first."""
    fig, axes = panels(3.3, 2)
    tones = ("feed-forward", "black", "#777777", "other")
    looks = list(zip(tones, ("-", "--", "-.", ":")))
    names = "Activation functions f", "Each is z times a factor"
    ys = "f(z)", "f(z) / z, the factor"
    for ax, series, name, y in zip(axes, (curves, factors), names, ys):
        ax.axhline(0, **ZERO)
        ax.axvline(0, **ZERO)
        charts.lines(ax, series, looks, z)
        charts.finish(ax, name, "z", y, legend="upper left")
    axes[1].set_ylim(-0.05, 1.25)
    return fig


def one_gate() -> Play:
    """Return sliders of z and up of a neuron with the down column (1, -1)."""
    zs, tone = np.linspace(-5, 5, 201), COLOURS["feed-forward"]

    def draw(z, up):
        fig, (left, right) = panels(3.3, 2)
        gate, size = z / (1 + np.exp(-z)), z * up / (1 + np.exp(-z))
        left.plot(zs, zs / (1 + np.exp(-zs)), "-", z, gate, "o", color=tone)
        charts.finish(left, f"gate = silu({z:g}) = {gate:.3f}", "z", "silu(z)")
        ends = [0, size], [0, -size], "-", size, -size, "o"
        right.plot(*ends, color=tone, lw=3)
        right.grid(lw=0.5)
        right.set(xlim=(-10.5, 10.5), ylim=(-10.5, 10.5))
        name = f"added: gate · up · (1, −1) = ({size:.3f}, {-size:.3f})"
        return charts.finish(right, name, "first number", "second number")

    z = ipw.FloatSlider(1, min=-5, max=5, description="z")
    up = ipw.FloatSlider(2, min=-2, max=2, description="up")
    return Play(draw, z=z, up=up)


def gate_openness(share, quantiles):
    """Draw L layers' shares of open gates, and gates' quantiles (L, 5)."""
    layers, tone = np.arange(len(share)), COLOURS["feed-forward"]
    fig, (left, right) = panels(3.3, 2, sharex=True)
    left.bar(layers, array(share), color=tone)
    charts.mark_y(left, 0.5, "half of the gates")
    charts.finish(left, "Open gates", "layer", "share with z > 0", ylim=(0, 1))
    right.axhline(0, **ZERO)
    low, first, half, third, high = array(quantiles).T  # (L,) each
    right.vlines(layers, low, high, color=tone, lw=1.5)
    right.bar(layers, third - first, 0.6, first, color=tone)
    right.hlines(half, layers - 0.3, layers + 0.3, color="white", lw=2)
    right.set_xticks(spaced(len(share), 12))
    name = "Values: median, middle 50 %, 5 % to 95 %"
    return charts.finish(right, name, "layer", "value of the gate, silu(z)")


def stream_norms(norms, labels):
    """Draw lengths (2L + 1, T) of the residual stream after each sub-layer."""
    norms, parts = array(norms), ("attention", "feed-forward")
    layers = range(len(norms) // 2)
    rows = [f"layer {i}: + {part}" for i in layers for part in parts]
    rows = ["embedding", *rows]
    low, high = norms.min(), norms.max()
    fig, ax = canvas(1.2 + 0.24 * len(rows))
    image = charts.heatmap(ax, norms, columns=labels)
    image.set_norm(LogNorm(low, high))
    ax.set_yticks(range(len(rows)), rows)
    if len(labels) <= 12:
        short = np.vectorize(lambda x: f"{x:.3g}" if x < 1000 else f"{x:.0f}")
        charts.cell_texts(ax, short(norms), norms > (low * high) ** 0.5)
    charts.finish(ax, "Length of the residual stream, ‖x‖", "token")
    fig.colorbar(image, ax=ax, label="length (logarithmic)")
    return fig
