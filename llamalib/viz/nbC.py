r"""The pictures of appendix C."""

import ipywidgets as ipw
import torch

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb

from .base import (
    COLOURS,
    GROUPS,
    array,
    canvas,
    cell_texts,
    heatmap,
    plain,
    title,
    visible,
)
from .nb01 import _flow, _page, _text_width
from ..course.experiment import replaced
from ..swiglu import feed_forward
from .play import Play
from .model_map import strip  # noqa: F401


def expert_colour(expert: int) -> str:
    """Of an expert, by its number: the palette in turn."""
    return GROUPS[expert % len(GROUPS)]


def _ink(colour: str) -> str:
    """Black or white, whichever can be read on it."""
    red, green, blue = to_rgb(colour)
    light = 0.3 * red + 0.59 * green + 0.11 * blue
    return "black" if light > 0.5 else "white"


def router_weights(weights, labels):
    r"""What part each expert has in each token's result.

    Args:
        weights: (T, E) numbers from 0 to 1; 0 where it was not chosen.
        labels: T token texts.
    """
    weights = array(weights).T  # (E, T)
    fig, ax = canvas(1.5 + 0.22 * len(weights))
    image = heatmap(ax, weights, columns=labels, limit=1.0)
    ax.set_yticks(range(len(weights)))
    ax.set_ylabel("expert")
    ax.set_xlabel("token")
    title(ax, "Weight of each expert at each token (white: not chosen, 0)")
    fig.colorbar(image, ax=ax, label="weight")
    return fig


def error_by_chosen(errors):
    r"""What is missing of a network's result when only k experts are run.

    Args:
        errors: name of a way to choose, to the errors for k = 1, 2, … E.
    """
    fig, ax = canvas(3.0)
    styles = zip(("other", "feed-forward"), ("o--", "o-"))
    for (name, values), (role, style) in zip(errors.items(), styles):
        ks = range(1, len(values) + 1)
        ax.plot(ks, values, style, color=COLOURS[role], label=name, lw=2)
    ax.axhline(0, color=COLOURS["other"], lw=0.8)
    ax.set_xticks(ks)
    ax.set_xlabel("experts chosen, k")
    ax.set_ylabel("missing: ‖y − FFN‖² / ‖FFN‖²")
    title(ax, "The network's own neurons, of which only some are run")
    ax.legend(frameon=False, fontsize=9)
    return fig


def active_parameters(models, batches, read, drawn=None):
    r"""Parameters that a token meets, and experts that a step reads.

    Args:
        models: name to (others, chosen experts, other experts), counts of
            parameters.
        batches: n ints, tokens of one decode step.
        read: n numbers: experts of a layer that they need, as expected.
        drawn: n numbers, the same counted in random choices, or None.
    """
    fig, ((left, right),) = canvas(3.1, 1, 2)
    parts = (
        ("all else", COLOURS["other"]),
        ("chosen experts", COLOURS["feed-forward"]),
        ("other experts", "#e3c6d2"),
    )
    rows = range(len(models))[::-1]
    for row, (name, counts) in zip(rows, models.items()):
        total, start = sum(counts), 0.0
        for count, (label, colour) in zip(counts, parts):
            share = count / total
            label = label if row == rows[0] else None
            left.barh(row, share, 0.42, start, color=colour, label=label)
            start += share
        active = counts[0] + counts[1]
        text = f"{name}: {_short(active)} of {_short(total)} active"
        left.text(0, row + 0.27, plain(text), fontsize=8.5, va="bottom")
    left.set_yticks([])
    left.set_xlim(0, 1)
    left.set_ylim(-0.4, len(models) - 0.3)
    left.set_xlabel("share of the parameters")
    right.plot(batches, read, color=COLOURS["feed-forward"], lw=2)
    if drawn is not None:
        name = "drawn at random"
        right.plot(batches, drawn, "o", color="black", ms=5, label=name)
        right.legend(frameon=False, fontsize=9, loc="lower right")
    right.set_xscale("log", base=2)
    right.set_xticks(batches, [str(n) for n in batches])
    right.minorticks_off()
    right.set_ylim(bottom=0)
    right.set_xlabel("tokens in one step")
    right.set_ylabel("experts of a layer read")
    title(left, "One token")
    title(right, "Several tokens together")
    handles = left.get_legend_handles_labels()
    fig.legend(
        *handles, loc="outside lower left", ncols=3, frameon=False, fontsize=9
    )
    return fig


def _short(count: int) -> str:
    """A count of parameters in millions or billions."""
    for unit, name in ((1e9, "B"), (1e6, "M")):
        if count >= unit:
            return f"{count / unit:.1f}{name}"
    return f"{count:,}"


def loads_over_training(panels, steps):
    r"""Which experts take the tokens, step by step, run by run.

    Args:
        panels: name of a run to (S, E) shares, each row with the sum 1; two
            or four runs.
        steps: S ints.
    """
    rows = len(panels) // 2
    fig, axes = canvas(0.9 + 1.75 * rows, rows, 2, sharex=True, sharey=True)
    for ax, (name, loads) in zip(axes.flat, panels.items(), strict=True):
        loads = array(loads).T  # (E, S)
        colours = [expert_colour(e) for e in range(len(loads))]
        ax.stackplot(steps, loads, colors=colours, lw=0)
        ax.set_xlim(steps[0], steps[-1])
        ax.set_ylim(0, 1)
        title(ax, name)
    for ax in axes[-1]:
        ax.set_xlabel("step of training")
    for ax in axes[:, 0]:
        ax.set_ylabel("share of the choices")
    patches = [plt.Rectangle((0, 0), 1, 1, color=c) for c in colours]
    fig.legend(
        patches,
        [f"{e}" for e in range(len(colours))],
        title="expert",
        loc="outside right center",
        frameon=False,
        fontsize=9,
        reverse=True,
    )
    return fig


def taken(panels, rows, line_after=None):
    r"""To which experts each kind of token goes, before and after, in %.

    Args:
        panels: name to (n, E) shares, each row with the sum 1.
        rows: n names of kinds.
        line_after: a line below so many rows; None: no line.
    """
    panels = {name: 100 * array(values) for name, values in panels.items()}
    fig, axes = canvas(1.1 + 0.28 * len(rows), 1, len(panels), sharey=True)
    limit = max(float(values.max()) for values in panels.values())
    for ax, (name, values) in zip(axes[0], panels.items()):
        image = heatmap(ax, values, limit=limit)
        texts = [[f"{value:.0f}" for value in row] for row in values]
        cell_texts(ax, texts, values > 0.45 * limit, size=7.5)
        if line_after is not None:
            ax.axhline(line_after - 0.5, color="black", lw=1.5)
        ax.set_xticks(range(values.shape[1]))
        ax.set_xlabel("expert")
        title(ax, name)
    axes[0, 0].set_yticks(range(len(rows)), [plain(row) for row in rows])
    fig.colorbar(image, ax=axes, label="% of the row")
    return fig


def routed_tokens(labels, rows, heading=""):
    r"""A text, several times, each token in the colour of its first expert.

    Args:
        labels: T token texts.
        rows: name to T experts' numbers.
        heading: over the picture.
    """
    size, step = 10, 20
    names = [visible(label) for label in labels]
    widths = [_text_width(name, size) + 7 for name in names]
    places, lines = _flow(widths)
    above = 20 if heading else 0
    fig, ax = _page(above + len(rows) * (24 + lines * step) + 20)
    ax.text(0, 8, plain(heading), fontsize=11, va="center")
    top = above
    for name, experts in rows.items():
        ax.text(0, top + 10, plain(name), fontsize=9, va="center")
        _token_boxes(ax, top + 20, names, widths, places, experts, size, step)
        top += 24 + lines * step
    _key(ax, top + 8)
    return fig


def _token_boxes(ax, top, names, widths, places, experts, size, step):
    """Boxes in the experts' colours, from `top` down."""
    for name, width, (x, line), expert in zip(names, widths, places, experts):
        colour, y = expert_colour(int(expert)), top + line * step
        ax.add_patch(plt.Rectangle((x, y), width, step - 3, fc=colour))
        ax.text(
            x + width / 2,
            y + step / 2 - 2,
            name,
            ha="center",
            va="center",
            fontsize=size,
            color=_ink(colour),
        )


def _key(ax, y, n=len(GROUPS)):
    """The experts' colours, in a line."""
    ax.text(0, y, "expert", fontsize=9, va="center", color="#555555")
    for expert in range(n):
        x, colour = 44 + 22 * expert, expert_colour(expert)
        ax.add_patch(plt.Rectangle((x, y - 7), 18, 14, fc=colour))
        ax.text(
            x + 9,
            y,
            str(expert),
            ha="center",
            va="center",
            fontsize=9,
            color=_ink(colour),
        )


def dropped_by_capacity(factors, shares):
    r"""How many choices find no place, by the room that experts have.

    Args:
        factors: n capacities, as multiples of an even share.
        shares: name of a run to n shares from 0 to 1; up to four runs.
    """
    fig, ax = canvas(2.9)
    roles = "feed-forward", "plain", "plain", "other"
    styles = zip(roles, ("o-", "s--", "D-.", "^:"))
    for (name, values), (role, style) in zip(shares.items(), styles):
        ax.plot(factors, values, style, color=COLOURS[role], label=name, lw=2)
    ax.set_ylim(bottom=-0.01)
    ax.set_xlabel("capacity of an expert, in even shares T·k/E")
    ax.set_ylabel("share of choices dropped")
    ax.legend(frameon=False, fontsize=9)
    return fig


def routing_picture(labels, weights, heading, most=110):
    r"""A text in the colours of its tokens' first experts, and their loads.

    Args:
        labels: T token texts; of more than `most` the first are drawn.
        weights: (T, E): each token's weights, 0 where not chosen.
        heading: over the picture.
    """
    weights = array(weights)
    names = [visible(label) for label in labels[:most]]
    size, step = (10, 20) if len(names) <= 60 else (8, 17)
    widths = [_text_width(name, size) + 6 for name in names]
    places, lines = _flow(widths)
    height = 24 + lines * step + 118
    fig, ax = _page(height)
    ax.text(0, 9, plain(heading), fontsize=10, va="center")
    first = weights[: len(names)].argmax(axis=1)
    _token_boxes(ax, 22, names, widths, places, first, size, step)
    loads = (weights > 0).mean(axis=0) / (weights > 0).sum(axis=1).mean()
    bars = fig.add_axes((0.08, 30 / height, 0.9, 70 / height))
    colours = [expert_colour(e) for e in range(len(loads))]
    bars.bar(range(len(loads)), loads, color=colours)
    bars.axhline(1 / len(loads), color="black", ls="--", lw=1)
    bars.set_xticks(range(len(loads)))
    bars.set_ylim(0, max(0.55, loads.max()))
    bars.tick_params(labelsize=8)
    bars.set_xlabel("expert (dashed: even shares)", fontsize=8, labelpad=1)
    bars.set_ylabel("share of choices", fontsize=8)
    bars.spines[["top", "right"]].set_visible(False)
    return fig


# -- the widget

MOST_ROUTED = 110  # tokens: as many as the picture holds


def routing(llama, runs, text: str, top_k: int = 2, *, route) -> Play:
    r"""A text, and the experts to which a router gives its tokens.

    The text runs through the model as it is; the routers look at what the
    feed-forward network of their layer is given there.

    Args:
        llama: with its tokenizer.
        runs: name of a run to (layer, steps, routers): S ints, and the
            router after each of them, (S, E, D).
        text: to begin with; of a long one the first tokens are read.
        top_k: k, the experts of a token.
        route: the notebook's router, called as route(x, router, top_k).

    Returns:
        a Play of `text`, `run` and `stage`, from 0 to S - 1.
    """
    known = {}

    def inputs(text):
        """Token texts, and (L, T, D): each layer's network's input."""
        if text not in known:
            ids = llama.tokenizer.encode(text, bos=True, eos=False)
            ids, seen, own = ids[:MOST_ROUTED], [], feed_forward

            def noting(x, w1, w2, w3):
                seen.append(x[0])  # (T, D)
                return own(x, w1, w2, w3)

            with torch.no_grad(), replaced(feed_forward=noting):
                tokens = torch.tensor(ids, device=llama.device)
                llama(tokens, last_only=True)
            known.clear()
            labels = [llama.tokenizer.decode([i]) for i in ids]
            known[text] = labels, torch.stack(seen)
        return known[text]

    def draw(text, run, stage):
        labels, x = inputs(text)
        layer, steps, routers = runs[run]
        weights, chosen, logits = route(x[layer], routers[stage], top_k)
        shares = torch.zeros_like(logits).scatter(-1, chosen, weights.float())
        said = f"{run}, after {steps[stage]} of {steps[-1]} steps"
        return routing_picture(labels, shares.cpu(), said)

    stages = {len(steps) for _, steps, _ in runs.values()}
    if len(stages) != 1:
        raise ValueError(
            f"the runs have {sorted(stages)} stages; wanted as many in each"
        )
    last = stages.pop() - 1
    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        run=ipw.Dropdown(options=list(runs), description="run"),
        stage=ipw.IntSlider(last, 0, last, description="stage of training"),
    )
