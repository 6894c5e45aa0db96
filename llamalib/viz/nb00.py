r"""The pictures of notebook 00."""

import functools
import ipywidgets as ipw
import torch

import matplotlib.pyplot as plt

from .base import COLOURS, canvas, plain, title
from .play import Play
from .model_map import strip  # noqa: F401

# Where a parameter sits, in the order data flows, and its colour.
PLACES = {
    "embedding": COLOURS["token"],
    "attention": COLOURS["attention"],
    "feed-forward": COLOURS["feed-forward"],
    "norms": COLOURS["other"],
    "output": COLOURS["probability"],
}


def shares(models):
    r"""One bar a model, cut by the share of its parameters in each place.

    Args:
        models: name to {place: count}; places are keys of `PLACES`.
    """
    fig, ax = canvas(0.95 + 0.45 * len(models))
    rows = range(len(models))[::-1]
    for row, counts in zip(rows, models.values()):
        left, total = 0.0, sum(counts.values())
        for place, count in counts.items():
            share = 100 * count / total
            ax.barh(row, share, left=left, color=PLACES[place], height=0.7)
            if share >= 4:
                middle = left + share / 2
                style = dict(ha="center", va="center", size=9)
                dark = place in ("attention", "feed-forward")
                style["color"] = "white" if dark else "black"
                ax.text(middle, row, f"{share:.1f} %", **style)
            left += share
        ax.text(101, row, f"{total / 1e6:,.1f} M", va="center", size=9)
    ax.set_yticks(rows, [plain(name) for name in models])
    ax.set_xlim(0, 113)
    ax.spines["bottom"].set_bounds(0, 100)
    ax.set_xticks(range(0, 101, 25))
    ax.set_xlabel("share of the parameters in percent; at the right, how many")
    _places_legend(fig, models.values())
    return fig


def _places_legend(fig, counts):
    """The places that any model has a parameter in, above the axes."""
    drawn = [p for p in PLACES if any(p in each for each in counts)]
    handles = [plt.Rectangle((0, 0), 1, 1, color=PLACES[p]) for p in drawn]
    fig.legend(
        handles,
        drawn,
        loc="outside upper center",
        ncols=len(drawn),
        frameon=False,
        fontsize=9,
    )


def parameters_by_layer(models):
    r"""Parameters in the order data flows: embedding, layers, output.

    Args:
        models: name to (stops, tied); stops is a list of {place: count},
            the first the embedding, the last what follows the layers; tied
            draws the embedding's outline once more as the output.
    """
    fig, _ = canvas(3.1, 1, len(models))
    drawn = [stop for stops, _ in models.values() for stop in stops]
    for ax, (name, (stops, tied)) in zip(fig.axes, models.items()):
        layers = len(stops) - 2
        gap = 1 + layers / 16  # room for the labels of the two ends
        places = [-gap, *range(layers), layers - 1 + gap]
        for x, stop in zip(places, stops):
            bottom = 0.0
            for place, count in stop.items():
                height = count / 1e6
                ax.bar(x, height, bottom=bottom, color=PLACES[place])
                bottom += height
        if tied:
            height = sum(stops[0].values()) / 1e6
            edge = dict(ec=PLACES["embedding"], ls="--", lw=1.2)
            ax.bar(places[-1], height, fc="none", **edge)
        shown = range(0, layers, max(1, layers // 8))
        ticks = [places[0], *shown, places[-1]]
        ax.set_xticks(ticks, ["emb.", *shown, "out"])
        ax.set_xlabel("embedding, layers by number, output")
        title(ax, name)
    fig.axes[0].set_ylabel("parameters in millions")
    _places_legend(fig, drawn)
    return fig


def bits(rows):
    r"""Numbers as their bits: sign, exponent, mantissa, aligned at the left.

    Args:
        rows: name to (sign, exponent, mantissa), each a text of 0 and 1.
    """
    colours = (COLOURS["other"], COLOURS["probability"], COLOURS["residual"])
    parts = ("sign", "exponent", "mantissa")
    fig, ax = canvas(0.8 + 0.42 * len(rows))
    for y, fields in zip(range(len(rows))[::-1], rows.values()):
        x = 0
        for field, colour in zip(fields, colours):
            for bit in field:
                ax.bar(x, 0.8, 0.92, y - 0.4, color=colour)
                ax.text(x, y, bit, ha="center", va="center", size=9)
                x += 1
    ax.set_yticks(range(len(rows))[::-1], list(rows))
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in colours]
    place = dict(loc="outside upper center", ncols=3)
    fig.legend(handles, parts, frameon=False, fontsize=9, **place)
    return fig


def histograms(counts, edges, xlabel):
    r"""Outlines of histograms over the same bins, as shares of the numbers.

    Args:
        counts: name to n counts; the first in the colour of the query, the
            second grey, to compare with.
        edges: n + 1 borders of the bins.
        xlabel: what is counted.
    """
    fig, ax = canvas(2.6)
    for (name, values), role in zip(counts.items(), ("plain", "other")):
        values = [100 * float(v) / float(sum(values)) for v in values]
        ax.stairs(values, edges, color=COLOURS[role], lw=1.8, label=name)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("weights in percent")
    ax.legend(frameon=False, fontsize=9)
    return fig


def tensor_card(heading, lines, counts, edges, spreads=(), layer=None):
    r"""A tensor's histogram, its figures, and its like in other layers.

    Args:
        heading: over the picture.
        lines: texts, shown at the histogram's right.
        counts, edges: n counts of numbers and the n + 1 borders of the bins.
        spreads: the standard deviation of this tensor in each layer; empty
            for a tensor that stands once.
        layer: which of them this one is.
    """
    fig, axes = canvas(3.2, 1, 2, width_ratios=[1.8, 1])
    ax, side = axes[0]
    ax.stairs(counts, edges, fill=True, color=COLOURS["plain"])
    ax.set_xlabel("value of a weight")
    ax.set_ylabel("how many")
    title(ax, "\n".join([heading, *lines]))
    if not len(spreads):
        side.axis("off")
        return fig
    grey, dark = COLOURS["other"], COLOURS["plain"]
    colours = [dark if i == layer else grey for i in range(len(spreads))]
    side.bar(range(len(spreads)), spreads, color=colours)
    side.set_xticks(range(0, len(spreads), max(1, len(spreads) // 6)))
    side.set_xlabel("layer")
    title(side, "standard deviation\nof this tensor in each layer")
    return fig


# -- the widget

EXACT = 2**20  # a tensor of more numbers is described by a sample
SAMPLE = 2**18  # of as many


def tensors(llama) -> Play:
    r"""A browser of a model's tensors: shape, figures, histogram.

    A tensor of more than `EXACT` numbers is described by a seeded sample.

    Args:
        llama: a Llama.

    Returns:
        a Play of `name`, a tensor's name, and `log`, whether the counts
        stand on a logarithmic scale, which shows the rare large numbers.
    """
    weights = llama.weights()
    total = sum(weight.numel() for weight in llama.parameters())

    @functools.cache
    def figures(name):
        """Mean, std, min, max, counts and borders, and how many numbers."""
        flat = weights[name].detach().flatten()  # (n,)
        if len(flat) > EXACT:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randint(len(flat), (SAMPLE,), generator=generator)
            flat = flat[drawn.to(flat.device)]  # (SAMPLE,)
        flat = flat.float().cpu()
        std = flat.std(correction=0).item()
        ends = [end.item() for end in flat.aminmax()]
        if ends[0] == ends[1]:  # a histogram needs some width
            ends = [ends[0] - 0.5, ends[1] + 0.5]
        counts = flat.histc(60, *ends)  # (60,)
        edges = torch.linspace(*ends, 61)  # (61,)
        smallest, largest = flat.aminmax()
        limits = smallest.item(), largest.item()
        return flat.mean().item(), std, *limits, counts, edges, len(flat)

    def draw(name, log):
        if name not in weights:
            raise ValueError(
                f"{name!r} is no tensor of this model; wanted one of its "
                f"{len(weights)}, such as 'norm.weight'"
            )
        weight = weights[name]
        mean, std, low, high, counts, edges, n = figures(name)
        share = 100 * weight.numel() / total
        shape = " × ".join(str(size) for size in weight.shape)
        dtype = str(weight.dtype).removeprefix("torch.")
        lines = [
            f"{shape} {dtype}, {share:.3g} % of the parameters",
            f"mean {round(mean, 4) + 0:.4f}, std {std:.4f}, "
            f"from {low:.3f} to {high:.3f}",
        ]
        if n < weight.numel():
            lines.append(f"figures of {n:,} of its numbers, drawn at random")
        if name == "output.weight" and llama.tied:
            lines.append("the same numbers as tok_embeddings.weight")
        spreads, layer = (), None
        if name.startswith("layers."):
            _, layer, part = name.split(".", 2)
            layer = int(layer)
            spreads = [
                figures(f"layers.{i}.{part}")[1]
                for i in range(llama.config.n_layers)
            ]
        fig = tensor_card(name, lines, counts, edges, spreads, layer)
        if log:
            fig.axes[0].set_yscale("log")
        return fig

    first = "layers.0.attention.wq.weight"
    return Play(
        draw,
        name=ipw.Dropdown(options=list(weights), value=first),
        log=ipw.Checkbox(value=False, description="logarithmic counts"),
    )
