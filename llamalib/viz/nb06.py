r"""The pictures of notebook 06."""

import ipywidgets as ipw
import torch
import torch.nn.functional as F

import matplotlib.pyplot as plt

from .base import (
    COLOURS,
    WIDTH,
    canvas,
    cell_texts,
    heatmap,
    legend_above,
    plain,
    title,
    visible,
)
from ..course.experiment import replaced
from .play import Play
from .model_map import strip  # noqa: F401


def activations(z, curves, gates):
    r"""Activation functions, and beside them the share each lets through.

    Args:
        z: n numbers, the x axis.
        curves: name to n values f(z); first the feed-forward network's own.
        gates: name to n values f(z)/z; drawn in the order of `curves`.
    """
    colours = (COLOURS["feed-forward"], "black", "#777777", COLOURS["other"])
    fig, ((left, right),) = canvas(3.3, 1, 2)
    styles = ("-", "--", "-.", ":")
    for ax, lines in ((left, curves), (right, gates)):
        ax.axhline(0, color=COLOURS["other"], lw=0.8)
        ax.axvline(0, color=COLOURS["other"], lw=0.8)
        for (name, values), c, style in zip(lines.items(), colours, styles):
            ax.plot(z, values, style, label=name, color=c, lw=2)
        ax.set_xlabel("z")
        ax.legend(frameon=False, fontsize=9, loc="upper left")
    left.set_ylabel("f(z)")
    right.set_ylabel("f(z) / z, the share let through")
    right.set_ylim(-0.05, 1.25)
    title(left, "Activation functions f")
    title(right, "Each is z times a gate")
    return fig


def gate_openness(share, quantiles):
    r"""How many gates are open in each layer, and how far.

    Args:
        share: (L, T) numbers from 0 to 1: of the neurons, for each token.
        quantiles: (L, 5): 5, 25, 50, 75 and 95 % of the gates' values.
    """
    layers, colour = range(len(share)), COLOURS["feed-forward"]
    fig, ((left, right),) = canvas(3.3, 1, 2)
    left.bar(layers, [float(s.mean()) for s in share], color=colour)
    for layer, row in enumerate(share):
        inside = ["white" if value < row.mean() else "black" for value in row]
        at = [layer] * len(row)
        left.scatter(at, row, 50, inside, marker="_", alpha=0.4, lw=1)
    left.axhline(0.5, color=COLOURS["other"], ls="--", lw=1)
    left.set_ylim(0, 1)
    left.set_ylabel("share of open gates")
    title(left, "Open gates: mean, and each token")
    right.axhline(0, color=COLOURS["other"], lw=0.8)
    for layer, row in enumerate(quantiles):
        low, first, half, third, high = (float(value) for value in row)
        right.plot([layer] * 2, [low, high], color=colour, lw=1.5)
        right.bar(layer, third - first, 0.6, first, color=colour)
        right.plot([layer - 0.3, layer + 0.3], [half] * 2, color="white", lw=2)
    right.set_ylabel("value of the gate, silu(z)")
    title(right, "Values: median, middle half, 5 % to 95 %")
    for ax in (left, right):
        ax.set_xlabel("layer")
        ax.set_xticks(_some(layers))
    return fig


def _some(layers, most=12):
    """Every layer's number, or every other … where they are many."""
    return list(layers)[:: -(-len(layers) // most)]


def stream_norms(norms, labels):
    r"""The length of each token's vector, from the embedding down.

    Args:
        norms: (2L + 1, T) numbers over 0: the embedding, then after
            attention and after feed-forward of each layer.
        labels: T token texts.
    """
    rows = ["embedding"] + [
        f"layer {layer}: + {half}"
        for layer in range(len(norms) // 2)
        for half in ("attention", "feed-forward")
    ]
    fig, ax = canvas(1.2 + 0.24 * len(rows))
    image = heatmap(ax, norms, columns=labels)
    low, high = float(norms.min()), float(norms.max())
    image.set_clim(low, high)  # first: a logarithm has no 0
    image.norm = "log"
    image.set_clim(low, high)
    ax.set_yticks(range(len(rows)), rows)
    middle = (low * high) ** 0.5  # from here on the colour is dark
    if len(labels) <= 12:
        texts = [
            [f"{x:.3g}" if x < 1000 else f"{x:.0f}" for x in row]
            for row in norms
        ]
        cell_texts(ax, texts, [[x > middle for x in row] for row in norms])
    ax.set_xlabel("token")
    title(ax, "Length of the residual stream, ‖x‖")
    fig.colorbar(image, ax=ax, label="length (logarithmic)")
    return fig


def additions(relative, share, embedding):
    r"""What the two halves of each layer add to the stream.

    Args:
        relative: name of a half to L numbers: the length of what it adds
            over that of what it adds to.
        share: name of a half to L shares of the final vector.
        embedding: the share of the embedding.
    """
    fig, ((left, right),) = canvas(3.3, 1, 2)
    for ax, bars, start in ((left, relative, 1), (right, share, 0)):
        for place, (name, values) in zip((-0.2, 0.2), bars.items()):
            up = [float(value) - start for value in values]
            at = [layer + place for layer in range(len(up))]
            ax.bar(at, up, 0.4, start, color=COLOURS[name], label=name)
        ax.set_xticks(_some(range(len(values))))
        ax.set_xlabel("layer")
    left.axhline(1, color=COLOURS["residual"], lw=1.5)
    left.set_yscale("log")
    left.set_ylabel("length added / length before")
    title(left, "Beside what is there already")
    right.bar(
        -1.5, float(embedding), color=COLOURS["residual"], label="embedding"
    )
    ticks = _some(range(len(values)))
    right.set_xticks([-1.5, *ticks], ["emb.", *ticks])
    right.axhline(0, color=COLOURS["other"], lw=0.8)
    right.set_ylabel("share of the final vector")
    title(right, "In the final vector (sum: 1)")
    handles = right.get_legend_handles_labels()
    fig.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
    return fig


def loss_left_out(losses, as_it_is, blind):
    r"""The loss with one layer's feed-forward network left out.

    Args:
        losses: L losses in nats a token, by the layer left out.
        as_it_is: the loss with all layers.
        blind: the loss of a guess among all tokens alike, ln V.
    """
    fig, ax = canvas(2.8)
    layers = range(len(losses))
    ax.bar(layers, losses, color=COLOURS["feed-forward"])
    for layer, value in zip(layers, losses):
        ax.text(layer, value, f"{value:.2f}", ha="center", va="bottom", size=8)
    ax.axhline(as_it_is, color="black", lw=1.2, label="as it is", zorder=0)
    ax.axhline(blind, color=COLOURS["other"], ls="--", label="a blind guess")
    ax.set_ylim(0, 1.12 * max(blind, as_it_is, *losses))
    ax.set_xticks(_some(layers, most=24))
    ax.set_xlabel("layer whose feed-forward network is left out")
    ax.set_ylabel("loss (nats a token)")
    legend_above(ax, 2)
    return fig


def neuron_on_text(labels, activation, gate, name, top=5):
    r"""One neuron over the tokens of a text: where its gate opens.

    Args:
        labels: T token texts.
        activation: (T,) gate times content.
        gate: (T,) the gate alone.
        name: of the neuron, for the title.
        top: so many tokens with the largest activation are named.
    """
    fig, ax = plt.subplots(figsize=(WIDTH, 3.3))
    fig.subplots_adjust(left=0.08, right=0.99, top=0.84, bottom=0.28)
    places = range(len(labels))
    opened = COLOURS["feed-forward"]
    shut = COLOURS["other"]
    ax.vlines(  # drawn faster than as many bars
        places,
        0,
        activation,
        colors=[opened if g > 0 else shut for g in gate],
        lw=440 / len(labels),
    )
    ax.axhline(0, color=shut, lw=0.8)
    size = 8 if len(labels) <= 60 else 7 if len(labels) <= 90 else 5
    names = [visible(label) for label in labels]
    ax.set_xticks([])  # words as texts are drawn faster than as ticks
    below = ax.get_xaxis_transform()
    style = dict(rotation=90, size=size, ha="center", va="top")
    for place, word in enumerate(names):
        ax.text(place, -0.03, word, transform=below, **style)
    ax.set_xlim(-0.7, len(labels) - 0.3)
    ax.set_ylabel("gate × content")
    ax.spines[["top", "right"]].set_visible(False)
    order = sorted(places, key=lambda t: -abs(activation[t]))[:top]
    most = "   ".join(f"{names[t]} ({activation[t]:+.2f})" for t in order)
    count = sum(bool(g > 0) for g in gate)
    head = f"{name}: gate open (wine red) at {count} of {len(labels)} tokens"
    fig.suptitle(plain(head), x=0.01, ha="left", fontsize=11)
    ax.set_title(f"largest:   {most}", loc="left", fontsize=9)
    return fig


# -- the widget

def neurons(llama, text):
    r"""A browser of neurons: which tokens of a text open each.

    Args:
        llama: a Llama with its tokenizer.
        text: what the model reads behind `<|begin_of_text|>`; of a long one
            the first 100 tokens, so that every bar can be seen.

    Returns:
        a Play with the sliders `layer` and `neuron`, which count from 0, and
        `order`: neurons by number, or the selective first, those whose
        largest activation is most times their mean. It opens with the middle
        layer and the neuron that is most active at any token but the first.

    Raises:
        ValueError: for a text without a token.
    """
    ids = llama.tokenizer.encode(text, bos=True, eos=False)[:100]
    if len(ids) < 2:
        raise ValueError(f"the text {text!r} has no token; wanted some words")
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
        return neuron_on_text(
            labels,
            activations[layer, :, neuron].tolist(),
            gates[layer, :, neuron].tolist(),
            f"layer {layer}, neuron {neuron}",
        )

    return Play(
        draw,
        layer=ipw.IntSlider(layer, 0, n_layers - 1, description="layer"),
        neuron=ipw.IntSlider(neuron, 0, n_neurons - 1, description="neuron"),
        order=ipw.Dropdown(
            options=["by number", "selective first"], description="order"
        ),
    )


def _neuron_activations(llama, ids):
    """Gate, and gate times content, of every neuron: (L, T, F) each."""
    gates, activations = [], []

    def noting(x, w1, w2, w3):
        gate = F.silu(F.linear(x, w1))  # (1, T, F)
        activation = gate * F.linear(x, w3)  # (1, T, F)
        gates.append(gate[0].float().cpu())
        activations.append(activation[0].float().cpu())
        return F.linear(activation, w2)  # (1, T, D)

    with torch.no_grad(), replaced(feed_forward=noting):
        llama(torch.tensor(ids, device=llama.device), last_only=True)
    return torch.stack(gates), torch.stack(activations)
