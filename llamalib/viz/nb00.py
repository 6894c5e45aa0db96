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
    """Draw the share of each place: name of a model to {place: count}."""
    fig, ax = canvas(0.95 + 0.45 * len(models))
    rows = range(len(models))[::-1]
    for row, counts in zip(rows, models.values()):
        left, total = 0.0, sum(counts.values())
        for place, count in counts.items():
            share, tone = 100 * count / total, colour(PLACES[place])
            ax.barh(row, share, 0.7, left, color=tone, label=place)
            if share >= 4:
                text = f"{share:.1f} %"
                write(ax, left + share / 2, row, text, color=ink(tone))
            left += share
        write(ax, 101, row, f"{total / 1e6:,.1f} M", ha="left")
    ax.spines["bottom"].set_bounds(0, 100)
    ax.set_yticks(rows, [plain(name) for name in models])
    label = "share of the parameters in percent; at the right, how many"
    finish(ax, "", label, xlim=(0, 113), xticks=range(0, 101, 25))
    return figure_legend(fig, "outside upper center")


def parameters_by_layer(models):
    """Draw parameters along models: name to (list of {place: count}, tied)."""
    fig, axes = panels(3.1, len(models))
    for ax, (name, (stops, tied)) in zip(axes, models.items()):
        layers = len(stops) - 2
        gap = 1 + layers / 16  # room for the labels of the two ends
        places = [-gap, *range(layers), layers - 1 + gap]
        for x, stop in zip(places, stops):
            bottom = 0.0
            for place, count in stop.items():
                style = dict(color=colour(PLACES[place]), label=place)
                ax.bar(x, count / 1e6, bottom=bottom, **style)
                bottom += count / 1e6
        if tied:
            height, edge = stops[0]["embedding"] / 1e6, COLOURS["token"]
            ax.bar(x, height, fc="none", ec=edge, ls="--", lw=1.2)
        shown = spaced(layers, 9)
        ax.set_xticks([places[0], *shown, places[-1]], ["emb.", *shown, "out"])
        finish(ax, name, "embedding, blocks by number, output")
    axes[0].set_ylabel("parameters in millions")
    return figure_legend(fig, "outside upper center")


def bits(rows):
    """Draw bits: name to texts of 0 and 1, for sign, exponent and mantissa."""
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
    ax.set_xticks([])
    return figure_legend(fig, "outside upper center", FIELDS)


def tensor_card(heading, counts, edges, spreads, layer, yscale):
    """Draw a tensor's histogram, and its spread in each layer if in one."""
    fig, (ax, side) = panels(3.2, 2, width_ratios=[1.8, 1])
    ax.stairs(counts, edges, fill=True, color=COLOURS["plain"])
    finish(ax, heading, "value of a weight", "how many", yscale=yscale)
    if not spreads:
        side.axis("off")
        return fig
    grouped_bars(side, {"": spreads}, ["other"])
    side.patches[layer].set_color(COLOURS["plain"])
    name = "standard deviation\nof this tensor in each layer"
    return finish(side, name, "layer", xticks=spaced(len(spreads), 8))


EXACT = 2**20  # the figures of a larger tensor are those of a sample
SAMPLE = 2**18  # numbers


def tensors(llama) -> Play:
    """Return a browser of a model's tensors: shape, figures, histogram."""
    weights = llama.state_dict()
    figures = functools.cache(lambda name: _figures(weights[name]))

    def draw(name, log):
        counts, edges, _, text = figures(name)
        spreads, layer = [], 0
        if name.startswith("layers."):
            _, layer, part = name.split(".", 2)
            layers = range(llama.config.n_layers)
            spreads = [figures(f"layers.{i}.{part}")[2] for i in layers]
        card = _heading(llama, name, text), counts, edges, spreads, int(layer)
        return tensor_card(*card, "log" if log else "linear")

    first = "layers.0.attention.wq.weight"
    return Play(
        draw,
        name=ipw.Dropdown(options=list(weights), value=first),
        log=ipw.Checkbox(value=False, description="logarithmic counts"),
    )


def _figures(weight):
    """Return a tensor's counts, bin edges, std, and its figures as a text."""
    flat = weight.detach().flatten()  # (n,)
    if len(flat) > EXACT:
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(len(flat), (SAMPLE,), generator=generator)
        flat = flat[drawn.to(flat.device)]  # (SAMPLE,)
    flat = flat.float().cpu()
    low, high = flat.min().item(), flat.max().item()
    half = 0.5 if low == high else 0  # a histogram needs some width
    ends = low - half, high + half
    mean, std = flat.mean().item(), flat.std(correction=0).item()
    text = f"mean {round(mean, 4) + 0:.4f}, std {std:.4f}, "  # + 0: no -0
    text += f"from {low:.3f} to {high:.3f}"
    if len(flat) < weight.numel():
        text += f"\nof {len(flat):,} of its numbers, drawn at random"
    return flat.histc(60, *ends), torch.linspace(*ends, 61), std, text


def _heading(llama, name, text) -> str:
    """Return the lines over a tensor's picture."""
    weight = llama.state_dict()[name]
    share = weight.numel() / sum(p.numel() for p in llama.parameters())
    shape = " × ".join(str(size) for size in weight.shape)
    dtype = str(weight.dtype).removeprefix("torch.")
    text = f"{shape} {dtype}, {100 * share:.3g} % of the parameters\n{text}"
    if name == "output.weight" and llama.tied:
        text += "\nthe same numbers as tok_embeddings.weight"
    return f"{name}\n{text}"
