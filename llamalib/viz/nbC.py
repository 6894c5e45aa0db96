r"""Pictures and widget of appendix C."""

from functools import lru_cache

import ipywidgets as ipw
import torch

from ..model import record
from .base import GROUPS, array, canvas, colour, panels, plain, visible
from .charts import boxes, cell_texts, figure_legend, finish, flow, heatmap
from .charts import lines, log_axis, page, text_width, write
from .model_map import strip  # noqa: F401
from .play import Play

PARTS = {  # of a model's parameters
    "all else": "other",
    "chosen experts": "feed-forward",
    "other experts": "#e3c6d2",
}


def expert_colour(expert) -> str:
    """Return the colour of an expert, by its number."""
    return GROUPS[int(expert) % len(GROUPS)]


def router_weights(weights, labels):
    r"""Draw the weight of each expert at each token.

    Args:
        weights: (T, E), 0 for an expert that was not chosen.
        labels: T token texts.
    """
    weights = array(weights).T  # (E, T)
    fig, ax = canvas(1.5 + 0.22 * len(weights))
    image = heatmap(ax, weights, columns=labels, limit=1.0)
    heading = "Weight of each expert at each token (white: not chosen, 0)"
    finish(ax, heading, "token", "expert", yticks=range(len(weights)))
    fig.colorbar(image, ax=ax, label="weight")
    return fig


def error_by_chosen(errors):
    r"""Draw the error of a network of which only k experts run.

    Args:
        errors: way to choose, to the errors for k = 1, 2, …, E; two ways.
    """
    fig, ax = canvas(3.0)
    ks = range(1, len(next(iter(errors.values()))) + 1)
    lines(ax, errors, (("other", "o--"), ("feed-forward", "o-")), ks)
    ax.axhline(0, color=colour("other"), lw=0.8)
    heading = "The network's own neurons, of which only some are run"
    labels = "experts chosen, k", "missing: ‖y − FFN‖² / ‖FFN‖²"
    finish(ax, heading, *labels, xticks=ks, legend="best")
    return fig


def active_parameters(models, batches, read, drawn):
    r"""Draw the parameters a token uses, and the experts a step reads.

    Args:
        models: name to numbers of parameters, in the order of `PARTS`.
        batches: n ints, tokens of one decode step.
        read: n expected numbers of experts that they need in a layer.
        drawn: n numbers, the same counted in random choices.
    """
    fig, (left, right) = panels(3.1, 2)
    for row, (name, counts) in enumerate(models.items()):
        total, start = sum(counts), 0.0
        for count, tone in zip(counts, PARTS.values()):
            bar = dict(height=0.42, left=start, color=colour(tone))
            left.barh(-row, count / total, **bar)
            start += count / total
        active = f"{_short(counts[0] + counts[1])} of {_short(total)} active"
        at = dict(size=8.5, ha="left", va="bottom")
        write(left, 0, 0.27 - row, plain(f"{name}: {active}"), **at)
    limits = dict(xlim=(0, 1), ylim=(0.6 - len(models), 0.7), yticks=[])
    finish(left, "One token", "share of the parameters", **limits)
    lines(right, {"": read}, [("feed-forward", "-")], batches)
    lines(right, {"drawn at random": drawn}, [("black", "o")], batches, ms=5)
    log_axis(right, "x", batches, base=2)
    labels = "tokens in one step", "experts of a layer read"
    limits = dict(ylim=(0, None), legend="lower right")
    finish(right, "Several tokens together", *labels, **limits)
    figure_legend(fig, "outside lower left", PARTS)
    return fig


def _short(count: int) -> str:
    """Return a number of parameters in millions or billions."""
    for unit, name in ((1e9, "B"), (1e6, "M")):
        if count >= unit:
            return f"{count / unit:.1f}{name}"
    return f"{count:,}"


def loads_over_training(runs, steps):
    r"""Draw each expert's share of the tokens during training.

    Args:
        runs: name to (S, E) shares, each row with the sum 1; two or four.
        steps: S ints.
    """
    rows = len(runs) // 2
    options = dict(sharex=True, sharey=True)
    fig, axes = panels(0.9 + 1.75 * rows, 2, rows, **options)
    for n, (ax, (name, loads)) in enumerate(zip(axes, runs.items())):
        loads = array(loads).T  # (E, S)
        tones = {f"{e}": expert_colour(e) for e in range(len(loads))}
        ax.stackplot(steps, loads, colors=tones.values(), lw=0)
        x = "" if n < len(runs) - 2 else "step of training"
        y = "" if n % 2 else "share of the choices"
        finish(ax, name, x, y, xlim=(steps[0], steps[-1]), ylim=(0, 1))
    style = dict(title="expert", reverse=True, ncols=1)
    figure_legend(fig, "outside right center", tones, **style)
    return fig


def taken(tables, rows, line_after=None):
    r"""Draw which experts each kind of token goes to, in %.

    Args:
        tables: name to (n, E) shares, each row with the sum 1.
        rows: n names of kinds.
        line_after: number of rows above a line; None: no line.
    """
    tables = {name: 100 * array(values) for name, values in tables.items()}
    fig, axes = panels(1.1 + 0.28 * len(rows), len(tables), sharey=True)
    limit = max(float(values.max()) for values in tables.values())
    for ax, (name, values) in zip(axes, tables.items()):
        image = heatmap(ax, values, limit=limit)
        texts = [[f"{value:.0f}" for value in row] for row in values]
        cell_texts(ax, texts, values > 0.45 * limit, size=7.5)
        if line_after is not None:
            ax.axhline(line_after - 0.5, color="black", lw=1.5)
        finish(ax, name, "expert", xticks=range(values.shape[1]))
    axes[0].set_yticks(range(len(rows)), [plain(row) for row in rows])
    fig.colorbar(image, ax=axes, label="% of the row")
    return fig


def routed_tokens(labels, rows):
    r"""Draw a text several times, each token in its first expert's colour.

    Args:
        labels: T token texts.
        rows: name to T numbers of experts.
    """
    names, places, n_lines = _flow(labels, 10)
    height = 24 + 20 * n_lines
    fig, ax = page(len(rows) * height + 20)
    left = dict(ha="left")
    for n, (name, experts) in enumerate(rows.items()):
        top, tones = n * height, map(expert_colour, experts)
        write(ax, 0, top + 10, plain(name), **left)
        boxes(ax, top + 20, names, places, tones, step=20)
    top = len(rows) * height
    write(ax, 0, top + 8, "expert", color="#555555", **left)
    places = [(44 + 22 * expert, 0, 18) for expert in range(len(GROUPS))]
    boxes(ax, top, range(len(GROUPS)), places, GROUPS, 9, 17)
    return fig


def _flow(labels, size):
    """Return labels, places of their boxes, and the number of lines."""
    names = [visible(label) for label in labels]
    return names, *flow([text_width(name, size) + 7 for name in names])


def dropped_by_capacity(factors, shares):
    r"""Draw how many choices are dropped, by the experts' capacity.

    Args:
        factors: n capacities, as multiples of an even share.
        shares: name of a run to n shares from 0 to 1; up to four runs.
    """
    fig, ax = canvas(2.9)
    looks = ("feed-forward", "o-"), ("plain", "s--"), ("plain", "D-.")
    lines(ax, shares, (*looks, ("other", "^:")), factors)
    capacity = "capacity of an expert, in even shares T·k/E"
    limits = dict(ylim=(-0.01, None), legend="best")
    finish(ax, "", capacity, "share of choices dropped", **limits)
    return fig


def routing_picture(labels, weights, heading):
    r"""Draw tokens in their first experts' colours, and the experts' loads.

    Args:
        labels: T token texts.
        weights: (T, E), 0 for an expert that was not chosen.
        heading: over the picture.
    """
    weights = array(weights)
    size, step = (10, 20) if len(labels) <= 60 else (8, 17)
    names, places, n_lines = _flow(labels, size)
    height = 24 + n_lines * step + 118
    fig, ax = page(height)
    write(ax, 0, 9, plain(heading), 10, ha="left")
    first = map(expert_colour, weights.argmax(axis=1))
    boxes(ax, 22, names, places, first, size, step)
    loads = (weights > 0).sum(axis=0) / (weights > 0).sum()
    bars = fig.add_axes((0.08, 30 / height, 0.9, 70 / height))
    ticks = range(len(loads))
    bars.bar(ticks, loads, color=[expert_colour(e) for e in ticks])
    bars.axhline(1 / len(loads), color="black", ls="--", lw=1)
    bars.tick_params(labelsize=8)
    top = max(0.55, loads.max())
    bars.set(xticks=ticks, ylim=(0, top))
    bars.set_xlabel("expert (dashed: even shares)", fontsize=8, labelpad=1)
    bars.set_ylabel("share of choices", fontsize=8)
    bars.spines[["top", "right"]].set_visible(False)
    return fig


# -- the widget

MOST_ROUTED = 110  # tokens that the picture has room for


def routing(llama, runs, text: str, top_k: int = 2, *, route) -> Play:
    r"""Return a widget that shows which experts a text's tokens go to.

    The text runs through the unchanged model. A router reads the input of
    its layer's feed-forward network.

    Args:
        llama: a Llama with its tokenizer.
        runs: name to (layer, steps, routers): S ints, and the (S, E, D)
            router at each of them.
        text: at the start; only its first tokens are read.
        top_k: k, experts per token.
        route: from (T, D), (E, D), k to (T, k) weights, (T, k) experts and
            (T, E) logits.

    Returns:
        a Play of `text`, `run` and `stage`, from 0 to S - 1.
    """
    stages = {len(steps) for _, steps, _ in runs.values()}
    if len(stages) != 1:
        raise ValueError(
            f"the runs have {sorted(stages)} stages; expected the same "
            "number in each"
        )

    @lru_cache(maxsize=1)
    def read(text):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)[:MOST_ROUTED]
        labels = [llama.tokenizer.decode([i]) for i in ids]
        return labels, record(llama, torch.tensor(ids))

    def draw(text, run, stage):
        layer, steps, routers = runs[run]
        labels, seen = read(text)
        x = seen[f"layers.{layer}.feed_forward.in"]  # (T, D)
        weights, chosen, logits = route(x, routers[stage], top_k)
        shares = torch.zeros_like(logits).scatter(-1, chosen, weights.float())
        heading = f"{run}, after {steps[stage]} of {steps[-1]} steps"
        return routing_picture(labels, shares, heading)

    last = stages.pop() - 1
    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        run=ipw.Dropdown(options=list(runs), description="run"),
        stage=ipw.IntSlider(last, 0, last, description="stage of training"),
    )
