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
from .play import Play


def activations(z, curves, gates):
    r"""Draw activation functions, and the share of z that each lets through.

    Args:
        z: n numbers, the x axis.
        curves: name to n values f(z); first the feed-forward network's own.
        gates: name to n values f(z)/z, in the order of `curves`.
    """
    fig, (left, right) = panels(3.3, 2)
    tones = ("feed-forward", "black", "#777777", "other")
    looks = list(zip(tones, ("-", "--", "-.", ":")))
    for ax, series in ((left, curves), (right, gates)):
        ax.axhline(0, color=COLOURS["other"], lw=0.8)
        ax.axvline(0, color=COLOURS["other"], lw=0.8)
        charts.lines(ax, series, looks, z)
    charts.finish(
        left, "Activation functions f", "z", "f(z)", legend="upper left"
    )
    charts.finish(
        right,
        "Each is z times a gate",
        "z",
        "f(z) / z, the share let through",
        legend="upper left",
        ylim=(-0.05, 1.25),
    )
    return fig


def gate_openness(share, quantiles):
    r"""Draw how many gates are open in each layer, and how far.

    Args:
        share: (L, T) shares of open gates, for each token.
        quantiles: (L, 5): 5, 25, 50, 75 and 95 % of the gates' values.
    """
    share, (L, T) = array(share), share.shape
    layers, tone = np.arange(L), COLOURS["feed-forward"]
    fig, (left, right) = panels(3.3, 2)
    mean = share.mean(1)  # (L,)
    left.bar(layers, mean, color=tone)
    inside = np.where(share < mean[:, None], "white", "black").ravel()
    style = dict(marker="_", alpha=0.4, lw=1)
    left.scatter(layers.repeat(T), share.ravel(), 50, inside, **style)
    left.axhline(0.5, color=COLOURS["other"], ls="--", lw=1)
    low, first, half, third, high = array(quantiles).T  # (L,) each
    right.axhline(0, color=COLOURS["other"], lw=0.8)
    right.vlines(layers, low, high, color=tone, lw=1.5)
    right.bar(layers, third - first, 0.6, first, color=tone)
    right.hlines(half, layers - 0.3, layers + 0.3, color="white", lw=2)
    name, y = "Open gates: mean, and each token", "share of open gates"
    ticks = spaced(L, 12)
    charts.finish(left, name, "layer", y, ylim=(0, 1), xticks=ticks)
    name = "Values: median, middle half, 5 % to 95 %"
    y = "value of the gate, silu(z)"
    charts.finish(right, name, "layer", y, xticks=ticks)
    return fig


def stream_norms(norms, labels):
    r"""Draw the length of each token's vector in the residual stream.

    Args:
        norms: (2L + 1, T) lengths: the embedding's, then after attention and
            after feed-forward of each layer.
        labels: T tokens.
    """
    rows = ["embedding"]
    for layer in range(len(norms) // 2):
        rows.append(f"layer {layer}: + attention")
        rows.append(f"layer {layer}: + feed-forward")
    norms = array(norms)
    low, high = norms.min(), norms.max()
    fig, ax = canvas(1.2 + 0.24 * len(rows))
    image = charts.heatmap(ax, norms, columns=labels)
    image.set_norm(LogNorm(low, high))
    ax.set_yticks(range(len(rows)), rows)
    if len(labels) <= 12:
        texts = [
            [f"{x:.3g}" if x < 1000 else f"{x:.0f}" for x in row]
            for row in norms
        ]
        charts.cell_texts(ax, texts, norms > (low * high) ** 0.5)
    charts.finish(ax, "Length of the residual stream, ‖x‖", "token")
    fig.colorbar(image, ax=ax, label="length (logarithmic)")
    return fig


def additions(relative, share, embedding):
    r"""Draw how much the two halves of each layer add to the stream.

    Args:
        relative: half ("attention", "feed-forward") to L numbers: the length
            of the addition over the length of what it is added to.
        share: half to L shares of the final vector.
        embedding: the embedding's share.
    """
    fig, (left, right) = panels(3.3, 2)
    charts.grouped_bars(left, relative, list(relative), start=1)
    charts.grouped_bars(right, share, list(share))
    ticks = spaced(len(share["attention"]), 12)
    left.axhline(1, color=COLOURS["residual"], lw=1.5)
    name, y = "Beside what is there already", "length added / length before"
    charts.finish(left, name, "layer", y, yscale="log", xticks=ticks)
    tone = COLOURS["residual"]
    right.bar(-1.5, float(embedding), color=tone, label="embedding")
    right.set_xticks([-1.5, *ticks], ["emb.", *ticks])
    right.axhline(0, color=COLOURS["other"], lw=0.8)
    name, y = "In the final vector (sum: 1)", "share of the final vector"
    charts.finish(right, name, "layer", y)
    charts.figure_legend(fig, "outside lower center", fontsize=10)
    return fig


def loss_left_out(losses, as_it_is, blind):
    r"""Draw the loss without one layer's feed-forward network.

    Args:
        losses: L losses in nats a token, by the layer left out.
        as_it_is: the loss with all layers.
        blind: the loss of a uniform guess, ln V.
    """
    fig, ax = canvas(2.8)
    layers = range(len(losses))
    ax.bar(layers, losses, color=COLOURS["feed-forward"])
    for layer, value in zip(layers, losses):
        charts.write(ax, layer, value, f"{value:.2f}", 8, va="bottom")
    ax.axhline(as_it_is, color="black", lw=1.2, label="as it is", zorder=0)
    ax.axhline(blind, color=COLOURS["other"], ls="--", label="a blind guess")
    charts.finish(
        ax,
        x="layer whose feed-forward network is left out",
        y="loss (nats a token)",
        legend="above",
        ylim=(0, 1.12 * max(blind, as_it_is, *losses)),
        xticks=spaced(len(losses), 24),
    )
    return fig


def neuron_on_text(labels, activation, gate, name, top=5):
    r"""Draw one neuron over the tokens of a text.

    Args:
        labels: T tokens.
        activation: T numbers, gate times up.
        gate: T numbers.
        name: of the neuron, for the title.
        top: number of tokens with the largest activations that are named.
    """
    # margins, vlines and texts: faster than layout, bars and ticks
    fig, ax = canvas(3.3, margins=(0.08, 0.28, 0.99, 0.84))
    T, shut = len(labels), COLOURS["other"]
    tones = [COLOURS["feed-forward"] if g > 0 else shut for g in gate]
    ax.vlines(range(T), 0, activation, colors=tones, lw=440 / T)
    ax.axhline(0, color=shut, lw=0.8)
    names = [visible(label) for label in labels]
    size = 8 if T <= 60 else 7 if T <= 90 else 5
    style = dict(rotation=90, va="top", transform=ax.get_xaxis_transform())
    for t, word in enumerate(names):
        charts.write(ax, t, -0.03, word, size, **style)
    y = "gate × content"
    charts.finish(ax, y=y, xticks=[], xlim=(-0.7, T - 0.3))
    order = sorted(range(T), key=lambda t: -abs(activation[t]))[:top]
    most = "   ".join(f"{names[t]} ({activation[t]:+.2f})" for t in order)
    ax.set_title(f"largest:   {most}", loc="left", fontsize=9)
    count = sum(g > 0 for g in gate)
    heading(fig, f"{name}: gate open (wine red) at {count} of {T} tokens")
    return fig


# -- the widget


def neurons(llama, text) -> Play:
    r"""Return a browser of neurons: which tokens of a text open each gate.

    It opens with the middle layer's neuron that is most active after the
    first token. "Selective first" sorts a layer's neurons by their largest
    activation over their mean one.

    Args:
        llama: with its tokenizer.
        text: read after `<|begin_of_text|>`, up to 100 tokens in all.

    Raises:
        ValueError: if the text has no token.
    """
    ids = llama.tokenizer.encode(text, bos=True, eos=False)[:100]
    if len(ids) < 2:
        raise ValueError(f"the text {text!r} has no token; expected words")
    labels = [llama.tokenizer.decode([i]) for i in ids]
    gates, activations = _neuron_activations(llama, ids)  # (L, T, F) each
    n_layers, _, n_neurons = gates.shape
    sizes = activations[:, 1:].abs()  # (L, T - 1, F)
    layer = n_layers // 2
    neuron = sizes[layer].amax(0).argmax().item()
    selective = sizes.amax(1) / sizes.mean(1).clamp(min=1e-9)  # (L, F)
    ranked = selective.argsort(dim=-1, descending=True).tolist()

    def draw(layer, neuron, order):
        if order == "selective first":
            neuron = ranked[layer][neuron]
        activation = activations[layer, :, neuron].tolist()
        gate = gates[layer, :, neuron].tolist()
        name = f"layer {layer}, neuron {neuron}"
        return neuron_on_text(labels, activation, gate, name)

    orders = ["by number", "selective first"]
    return Play(
        draw,
        layer=ipw.IntSlider(layer, 0, n_layers - 1, description="layer"),
        neuron=ipw.IntSlider(neuron, 0, n_neurons - 1, description="neuron"),
        order=ipw.Dropdown(options=orders, description="order"),
    )


@torch.no_grad()
def _neuron_activations(llama, ids):
    """Return every neuron's gate, and gate times up: (L, T, F) each."""
    seen, gates, activations = record(llama, torch.tensor(ids)), [], []
    for i, layer in enumerate(llama.layers):
        x, ffn = seen[f"layers.{i}.feed_forward.in"], layer.feed_forward
        gate = F.silu(F.linear(x, ffn.w1.weight))  # (T, F)
        activation = gate * F.linear(x, ffn.w3.weight)  # (T, F)
        gates.append(gate.float().cpu())
        activations.append(activation.float().cpu())
    return torch.stack(gates), torch.stack(activations)
