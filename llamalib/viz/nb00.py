r"""Pictures and widget of notebook 00."""

import functools

import ipywidgets as ipw
import torch

from .base import COLOURS, canvas, colour, panels, plain, spaced
from .charts import figure_legend, finish, grouped_bars, ink, write
from .model_map import strip  # noqa: F401
from .play import Play

# Where a parameter is, in the order data flows, and its colour.
PLACES = {
    "embedding": "token",
    "attention": "attention",
    "feed-forward": "feed-forward",
    "norms": "other",
    "output": "probability",
}
FIELDS = {"sign": "other", "exponent": "probability", "mantissa": "residual"}


def shares(models):
    r"""Draw one bar per model: the share of its parameters in each place.

    Args:
        models: name to {place: count}; places are keys of `PLACES`.
    """
    fig, ax = canvas(0.95 + 0.45 * len(models))
    rows = range(len(models))[::-1]
    for row, counts in zip(rows, models.values()):
        left, total = 0.0, sum(counts.values())
        for place, count in counts.items():
            share, tone = 100 * count / total, colour(PLACES[place])
            ax.barh(row, share, left=left, color=tone, height=0.7)
            if share >= 4:
                text = f"{share:.1f} %"
                write(ax, left + share / 2, row, text, color=ink(tone))
            left += share
        write(ax, 101, row, f"{total / 1e6:,.1f} M", ha="left")
    ax.spines["bottom"].set_bounds(0, 100)
    ax.set_yticks(rows, [plain(name) for name in models])
    label = "share of the parameters in percent; at the right, how many"
    finish(ax, x=label, xlim=(0, 113), xticks=range(0, 101, 25))
    _places_legend(fig, models.values())
    return fig


def _places_legend(fig, counts):
    """Draw a legend of the places in which any model has a parameter."""
    found = {p: c for p, c in PLACES.items() if any(p in n for n in counts)}
    figure_legend(fig, "outside upper center", found)


def parameters_by_layer(models):
    r"""Draw parameters in the order data flows: embedding, layers, output.

    Args:
        models: name to (stops, tied); stops is a list of {place: count}, the
            first the embedding, the last what follows the layers; tied draws
            the embedding's outline a second time, as the output.
    """
    fig, axes = panels(3.1, len(models))
    for ax, (name, (stops, tied)) in zip(axes, models.items()):
        layers = len(stops) - 2
        gap = 1 + layers / 16  # room for the labels of the two ends
        places = [-gap, *range(layers), layers - 1 + gap]
        for x, stop in zip(places, stops):
            bottom = 0.0
            for place, count in stop.items():
                tone = colour(PLACES[place])
                ax.bar(x, count / 1e6, bottom=bottom, color=tone)
                bottom += count / 1e6
        if tied:
            height = sum(stops[0].values()) / 1e6
            edge = dict(ec=COLOURS["token"], ls="--", lw=1.2)
            ax.bar(places[-1], height, fc="none", **edge)
        shown = spaced(layers, 9)
        ticks = [places[0], *shown, places[-1]]
        ax.set_xticks(ticks, ["emb.", *shown, "out"])
        finish(ax, name, "embedding, layers by number, output")
    axes[0].set_ylabel("parameters in millions")
    _places_legend(fig, [s for stops, _ in models.values() for s in stops])
    return fig


def bits(rows):
    r"""Draw numbers as their bits: sign, exponent, mantissa, left-aligned.

    Args:
        rows: name to (sign, exponent, mantissa), each a text of 0 and 1.
    """
    fig, ax = canvas(0.8 + 0.42 * len(rows))
    heights = range(len(rows))[::-1]
    for y, fields in zip(heights, rows.values()):
        tones = [t for f, t in zip(fields, FIELDS.values()) for _ in f]
        for x, (bit, tone) in enumerate(zip("".join(fields), tones)):
            ax.bar(x, 0.8, 0.92, y - 0.4, color=colour(tone))
            write(ax, x, y, bit)
    ax.set_yticks(heights, list(rows))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    finish(ax, xticks=[])
    figure_legend(fig, "outside upper center", FIELDS)
    return fig


def histograms(counts, edges, xlabel):
    r"""Draw histograms over the same bins, as percent of the numbers.

    Args:
        counts: two names with n counts each; the second is drawn in grey.
        edges: n + 1 borders of the bins.
        xlabel: the quantity that is counted.
    """
    fig, ax = canvas(2.6)
    for (name, values), tone in zip(counts.items(), ("plain", "other")):
        percent = [100 * float(v) / float(sum(values)) for v in values]
        style = dict(color=colour(tone), lw=1.8, label=name)
        ax.stairs(percent, edges, **style)
    finish(ax, "", xlabel, "weights in percent", legend="best")
    return fig


def tensor_card(heading, counts, edges, spreads=(), layer=None, log=False):
    r"""Draw a tensor's histogram, and its spread in each layer.

    Args:
        heading: one or more lines over the picture.
        counts, edges: n counts of numbers and the n + 1 borders of the bins.
        spreads: the standard deviation of this tensor in each layer; empty
            for a tensor outside of the layers.
        layer: which of them this one is.
        log: whether counts are on a logarithmic scale.
    """
    fig, (ax, side) = panels(3.2, 2, width_ratios=[1.8, 1])
    ax.stairs(counts, edges, fill=True, color=COLOURS["plain"])
    if log:
        ax.set_yscale("log")
    finish(ax, heading, "value of a weight", "how many")
    if not len(spreads):
        side.axis("off")
        return fig
    grouped_bars(side, {"": spreads}, ["other"])
    side.patches[layer].set_color(COLOURS["plain"])
    name = "standard deviation\nof this tensor in each layer"
    finish(side, name, "layer", xticks=spaced(len(spreads), 8))
    return fig


EXACT = 2**20  # the figures of a larger tensor are those of a sample
SAMPLE = 2**18  # numbers


def tensors(llama) -> Play:
    r"""Return a browser of a model's tensors: shape, figures, histogram.

    The figures of a tensor of more than `EXACT` numbers are those of a seeded
    sample.

    Args:
        llama: a Llama.

    Returns:
        a Play of `name`, a tensor's name, and `log`, whether the counts are
        on a logarithmic scale, which shows the rare large numbers.
    """
    weights = llama.weights()

    @functools.cache
    def figures(name):
        return _figures(weights[name])

    def draw(name, log):
        if name not in weights:
            raise ValueError(
                f"{name!r} is no tensor of this model; expected one of its "
                f"{len(weights)}, such as 'norm.weight'"
            )
        heading = "\n".join(_describe(llama, name, figures(name)))
        spreads, layer = (), None
        if name.startswith("layers."):
            _, layer, part = name.split(".", 2)
            layers = range(llama.config.n_layers)
            spreads = [figures(f"layers.{i}.{part}")["std"] for i in layers]
            layer = int(layer)
        counts, edges = figures(name)["histogram"]
        return tensor_card(heading, counts, edges, spreads, layer, log)

    first = "layers.0.attention.wq.weight"
    return Play(
        draw,
        name=ipw.Dropdown(options=list(weights), value=first),
        log=ipw.Checkbox(value=False, description="logarithmic counts"),
    )


def _figures(weight) -> dict:
    """Return a tensor's mean, std, ends, histogram and count of numbers."""
    flat = weight.detach().flatten()  # (n,)
    if len(flat) > EXACT:
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(len(flat), (SAMPLE,), generator=generator)
        flat = flat[drawn.to(flat.device)]  # (SAMPLE,)
    flat = flat.float().cpu()
    low, high = (end.item() for end in flat.aminmax())
    half = 0.5 if low == high else 0  # a histogram needs some width
    ends = low - half, high + half
    return {
        "mean": flat.mean().item(),
        "std": flat.std(correction=0).item(),
        "ends": (low, high),
        "histogram": (flat.histc(60, *ends), torch.linspace(*ends, 61)),
        "n": len(flat),
    }


def _describe(llama, name: str, figures: dict) -> list[str]:
    """Return the lines over a tensor's picture."""
    weight = llama.weights()[name]
    total = sum(each.numel() for each in llama.parameters())
    shape = " × ".join(str(size) for size in weight.shape)
    dtype = str(weight.dtype).removeprefix("torch.")
    low, high = figures["ends"]
    lines = [
        name,
        f"{shape} {dtype}, {100 * weight.numel() / total:.3g} % of the "
        "parameters",
        f"mean {round(figures['mean'], 4) + 0:.4f}, "
        f"std {figures['std']:.4f}, from {low:.3f} to {high:.3f}",
    ]
    if figures["n"] < weight.numel():
        lines.append(f"figures of a random sample of {figures['n']:,} numbers")
    if name == "output.weight" and llama.tied:
        lines.append("the same numbers as tok_embeddings.weight")
    return lines
