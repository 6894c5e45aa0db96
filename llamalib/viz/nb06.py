r"""Pictures and widget of notebook 06."""

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.colors import LogNorm

from ..model import record
from . import charts
from .base import COLOURS, array, canvas, heading, panels, spaced, visible
from .model_map import strip  # noqa: F401
from .play import Play, token_texts

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


def additions(relative, share, embedding):
    """Draw what each sub-layer adds in L layers, to the stream and the result."""
    fig, (left, right) = panels(3.3, 2)
    tone, ticks = COLOURS["residual"], spaced(len(share["attention"]), 12)
    charts.grouped_bars(left, relative, list(relative), start=1)
    left.axhline(1, color="black", lw=1)
    name, y = "Compared with the stream before", "length added / length before"
    charts.finish(left, name, "layer", y, yscale="log", xticks=ticks)
    charts.grouped_bars(right, share, list(share))
    right.bar(-1.5, float(embedding), color=tone, label="embedding")
    right.set_xticks([-1.5, *ticks], ["emb.", *ticks])
    right.axhline(0, **ZERO)
    name, y = "In the final vector (sum: 1)", "share of the final vector"
    charts.figure_legend(fig, "outside lower center")
    return charts.finish(right, name, "layer", y)


def neuron_on_text(labels, activation, gate, name, top=5):
    """Draw a neuron's T activations; name the tokens of the `top` largest."""
    # margins, vlines and texts: faster than a layout, bars and ticks
    fig, ax = canvas(3.3, margins=(0.08, 0.28, 0.99, 0.84))
    T = len(labels)
    tones = [COLOURS["feed-forward" if g > 0 else "other"] for g in gate]
    ax.vlines(range(T), 0, activation, colors=tones, lw=440 / T)
    ax.axhline(0, **ZERO)
    names = [visible(label) for label in labels]
    size = 8 if T <= 60 else 7 if T <= 90 else 5
    style = dict(rotation=90, va="top", transform=ax.get_xaxis_transform())
    for t, word in enumerate(names):
        charts.write(ax, t, -0.03, word, size, **style)
    order = sorted(range(T), key=lambda t: -abs(activation[t]))[:top]
    most = "   ".join(f"{names[t]} ({activation[t]:+.2f})" for t in order)
    ax.set_title(f"largest:   {most}", loc="left", fontsize=9)
    count = sum(g > 0 for g in gate)
    heading(fig, f"{name}: gate open (wine red) at {count} of {T} tokens")
    ax.set(xlim=(-0.7, T - 0.3), xticks=[])
    return charts.finish(ax, y="gate × up")


def neurons(llama, text) -> Play:
    r"""Return a browser of neurons: which tokens of a text open each gate.

    It opens with the most active neuron of the middle layer. "Selective
    first" sorts by the largest activation over the mean one. Only the first
    100 tokens are read.
    """
    ids = llama.tokenizer.encode(text, bos=True, eos=False)[:100]
    if len(ids) < 2:
        raise ValueError(f"the text {text!r} has no token; expected words")
    labels = token_texts(llama, ids)
    gates, activations = _neuron_activations(llama, ids)  # (L, T, F) each
    L, _, n_neurons = gates.shape
    sizes = activations[:, 1:].abs()  # (L, T - 1, F)
    first = sizes[L // 2].amax(0).argmax().item()
    selective = sizes.amax(1) / sizes.mean(1).clamp(min=1e-9)  # (L, F)
    ranked = selective.argsort(dim=-1, descending=True).tolist()

    def draw(layer, neuron, order):
        if order == "selective first":
            neuron = ranked[layer][neuron]
        chosen = activations[layer, :, neuron], gates[layer, :, neuron]
        name = f"layer {layer}, neuron {neuron}"
        return neuron_on_text(labels, *(x.tolist() for x in chosen), name)

    orders = ["by number", "selective first"]
    return Play(
        draw,
        layer=ipw.IntSlider(L // 2, 0, L - 1, description="layer"),
        neuron=ipw.IntSlider(first, 0, n_neurons - 1, description="neuron"),
        order=ipw.Dropdown(options=orders, description="order"),
    )


@torch.no_grad()
def _neuron_activations(llama, ids):
    """Return every neuron's gate, and gate times up: (L, T, F) each."""
    seen, gates, activations = record(llama, torch.tensor(ids)), [], []
    for i, layer in enumerate(llama.layers):
        x, ffn = seen[f"layers.{i}.feed_forward.in"], layer.feed_forward
        gates.append(F.silu(F.linear(x, ffn.w1.weight)))  # (T, F)
        activations.append(gates[-1] * F.linear(x, ffn.w3.weight))  # (T, F)
    return [torch.stack(each).float().cpu() for each in (gates, activations)]
