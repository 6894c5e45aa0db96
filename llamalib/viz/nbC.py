r"""Pictures and widget of appendix C."""

from functools import lru_cache

import ipywidgets as ipw
import torch

from ..model import record
from .base import GROUPS, array, canvas, colour, panels, plain, visible
from .charts import boxes, cell_texts, figure_legend, finish, flow, heatmap
from .charts import lines, log_axis, page, text_width, write
from .model_map import strip  # noqa: F401
from .play import Play, token_texts

PARTS = {  # of a model's parameters
    "all else": "other",
    "chosen experts": "feed-forward",
    "other experts": "#e3c6d2",
}


def expert_colours(experts) -> list[str]:
    """Return the colour of each expert, by its number."""
    return [GROUPS[int(expert) % len(GROUPS)] for expert in experts]


def router_weights(weights, labels):
    """Draw (T, E) weights of experts, 0 for one that was not chosen."""
    weights = array(weights).T  # (E, T)
    fig, ax = canvas(1.5 + 0.22 * len(weights))
    image = heatmap(ax, weights, columns=labels, limit=1.0)
    heading = "Weight of each expert at each token (white: not chosen, 0)"
    fig.colorbar(image, ax=ax, label="weight")
    ticks = range(len(weights))
    return finish(ax, heading, "token", "expert", yticks=ticks)


def error_by_chosen(errors):
    """Draw the errors of two ways to run 1, 2, … E experts."""
    _, ax = canvas(3.0)
    ks = range(1, len(next(iter(errors.values()))) + 1)
    lines(ax, errors, (("other", "o--"), ("feed-forward", "o-")), ks)
    ax.axhline(0, color=colour("other"), lw=0.8)
    heading = "The network's own neurons, of which only some are run"
    labels = "experts chosen, k", "missing: ‖y − FFN‖² / ‖FFN‖²"
    return finish(ax, heading, *labels, xticks=ks, legend="best")


def active_parameters(models, batches, read, drawn):
    r"""Draw the parameters a token uses, and the experts a step reads.

    Args:
        models: name to numbers of parameters, in the order of `PARTS`.
        batches: n ints, tokens of one decode step.
        read, drawn: n numbers of experts of a layer: expected, counted.
    """
    fig, (left, right) = panels(3.1, 2)
    for row, (name, counts) in enumerate(models.items()):
        total, start = sum(counts), 0.0
        for count, tone in zip(counts, PARTS.values()):
            share = count / total
            left.barh(-row, share, 0.42, start, color=colour(tone))
            start += share
        active = f"{_short(counts[0] + counts[1])} of {_short(total)} active"
        at = dict(size=8.5, ha="left", va="bottom")
        write(left, 0, 0.27 - row, plain(f"{name}: {active}"), **at)
    limits = dict(xlim=(0, 1), ylim=(0.6 - len(models), 0.7), yticks=[])
    finish(left, "One token", "share of the parameters", **limits)
    right.plot(batches, read, color=colour("feed-forward"), lw=2)
    lines(right, {"drawn at random": drawn}, [("black", "o")], batches, ms=5)
    log_axis(right, "x", batches, base=2)
    several = "Several tokens together", "tokens in one step"
    limits = dict(ylim=(0, None), legend="lower right")
    figure_legend(fig, "outside lower left", PARTS)
    return finish(right, *several, "experts of a layer read", **limits)


def _short(count: int) -> str:
    """Return a number of parameters in millions or billions."""
    large = count >= 1e9
    return f"{count / 1e9:.1f}B" if large else f"{count / 1e6:.1f}M"


def loads_over_training(runs, steps):
    """Draw experts' shares of the tokens: two or four runs of (S, E)."""
    rows, options = len(runs) // 2, dict(sharex=True, sharey=True)
    fig, axes = panels(0.9 + 1.75 * rows, 2, rows, **options)
    for n, (ax, (name, loads)) in enumerate(zip(axes, runs.items())):
        loads = array(loads).T  # (E, S)
        tones = expert_colours(range(len(loads)))
        ax.stackplot(steps, loads, colors=tones, lw=0)
        x = "step of training" if n + 2 >= len(runs) else ""
        limits = dict(xlim=(steps[0], steps[-1]), ylim=(0, 1))
        finish(ax, name, x, "" if n % 2 else "share of the choices", **limits)
    style = dict(title="expert", reverse=True, ncols=1)
    experts = dict(zip("0123456789", tones))
    return figure_legend(fig, "outside right center", experts, **style)


def taken(tables, rows, line_after=None):
    """Draw n kinds' shares of E experts, in %: name to (n, E)."""
    fig, axes = panels(1.1 + 0.28 * len(rows), len(tables), sharey=True)
    limit = 100 * max(float(values.max()) for values in tables.values())
    for ax, (name, values) in zip(axes, tables.items()):
        values = 100 * array(values)
        image = heatmap(ax, values, limit=limit)
        texts = [[f"{value:.0f}" for value in row] for row in values]
        cell_texts(ax, texts, values > 0.45 * limit, size=7.5)
        if line_after is not None:
            ax.axhline(line_after - 0.5, color="black", lw=1.5)
        finish(ax, name, "expert", xticks=range(values.shape[1]))
    axes[0].set_yticks(range(len(rows)), map(plain, rows))
    fig.colorbar(image, ax=axes, label="% of the row")
    return fig


def routed_tokens(labels, rows):
    """Draw T tokens in colours: name of a row to T experts' numbers."""
    names, places, n_lines = _flow(labels, 10)
    height, left = 24 + 20 * n_lines, dict(ha="left")
    end = len(rows) * height
    fig, ax = page(end + 20)
    for n, (name, experts) in enumerate(rows.items()):
        write(ax, 0, n * height + 10, plain(name), **left)
        tones = expert_colours(experts)
        boxes(ax, n * height + 20, names, places, tones, step=20)
    write(ax, 0, end + 8, "expert", color="#555555", **left)
    numbers = range(len(GROUPS))
    places = [(44 + 22 * n, 0, 18) for n in numbers]
    boxes(ax, end, numbers, places, GROUPS, 9, 17)
    return fig


def _flow(labels, size):
    """Return labels, places of their boxes, and the number of lines."""
    names = [visible(label) for label in labels]
    return names, *flow([text_width(name, size) + 7 for name in names])


def dropped_by_capacity(factors, shares):
    """Draw shares of dropped choices: n numbers of up to four runs."""
    _, ax = canvas(2.9)
    looks = ("feed-forward", "o-"), ("plain", "s--"), ("plain", "D-.")
    lines(ax, shares, (*looks, ("other", "^:")), factors)
    capacity = "capacity of an expert, in even shares T·k/E"
    limits = dict(ylim=(-0.01, None), legend="best")
    return finish(ax, "", capacity, "share of choices dropped", **limits)


def routing_picture(labels, weights, heading):
    """Draw T tokens in their first experts' colours; (T, E) weights."""
    weights = array(weights)
    size, step = (10, 20) if len(labels) <= 60 else (8, 17)
    names, places, n_lines = _flow(labels, size)
    height = 142 + n_lines * step
    fig, ax = page(height)
    write(ax, 0, 9, plain(heading), 10, ha="left")
    first = expert_colours(weights.argmax(axis=1))
    boxes(ax, 22, names, places, first, size, step)
    loads = (weights > 0).sum(axis=0) / (weights > 0).sum()  # (E,)
    bars = fig.add_axes((0.08, 32 / height, 0.9, 70 / height))
    experts = range(len(loads))
    bars.bar(experts, loads, color=expert_colours(experts))
    bars.axhline(1 / len(loads), color="black", ls="--", lw=1)
    bars.tick_params(labelsize=8)
    bars.spines[["top", "right"]].set_visible(False)
    limits = dict(xticks=experts, ylim=(0, max(0.55, loads.max())))
    labels = "expert (dashed: even shares)", "share of choices"
    return finish(bars, "", *labels, **limits)


# -- the widget


def routing(llama, runs, text: str, top_k: int = 2, *, route) -> Play:
    r"""Return a widget that shows which experts a text's tokens go to.

    The text runs through the unchanged model. A router reads the input of
    its layer's feed-forward network.

    Args:
        runs: name to (layer, steps, routers): S ints, and the (S, E, D)
            router at each of them; the widget's `stage` is 0 to S - 1.
        text: at the start; only its first 110 tokens are read.
        route: from (T, D), (E, D), k to (T, k) weights, (T, k) experts and
            (T, E) logits.
    """
    stages = {len(steps) for _, steps, _ in runs.values()}
    if len(stages) != 1:
        found = f"the runs have {sorted(stages)} stages"
        raise ValueError(f"{found}; expected the same number in each")

    @lru_cache(maxsize=1)
    def read(text):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)[:110]
        return token_texts(llama, ids), record(llama, torch.tensor(ids))

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
