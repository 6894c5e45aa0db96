"""Pictures, widgets and checks of notebook C."""

import json
from functools import lru_cache
from operator import add

import ipywidgets as ipw
import torch
from torch.nn.functional import one_hot

from llamalib.load import ROOT
from llamalib.probe import record

from .charts import (
    boxes,
    cell_texts,
    figure_legend,
    finish,
    heatmap,
    page,
    text_flow,
    write,
)
from .judge import agree, draws, exercise, vary
from .play import Play, token_texts
from .pocket import strip  # noqa: F401
from .theme import GROUPS, array, canvas, panels, plain


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
    return finish(ax, heading, "token", "expert", yticks=range(len(weights)))


def loads_over_training(runs, steps):
    """Draw experts' shares of the choices: name to a run of (S, E)."""
    fig, axes = panels(2.6, len(runs), sharex=True, sharey=True)
    fig.subject = "Each expert's share of the choices, by step of training"
    for ax, (name, loads) in zip(axes, runs.items(), strict=True):
        loads = array(loads).T  # (E, S)
        tones = expert_colours(range(len(loads)))
        ax.stackplot(steps, loads, colors=tones, lw=0)
        y = "" if ax is not axes[0] else "share of the choices"
        limits = dict(xlim=(steps[0], steps[-1]), ylim=(0, 1))
        finish(ax, name, "step of training", y, **limits)
    style = dict(title="expert", reverse=True, ncols=1)
    named = {str(expert): tone for expert, tone in enumerate(tones)}
    return figure_legend(fig, "outside right center", named, **style)


def longer_runs() -> dict:
    """Return data/experts.json; data/recipe/experts.py wrote it."""
    text = (ROOT / "data" / "experts.json").read_text(encoding="utf-8")
    return json.loads(text)


def errors_by_rate(student: str) -> dict[float, list[float]]:
    """Return a student's errors of all seeds, for each learning rate."""
    errors = {}
    for run in longer_runs()["runs"]:
        if run["student"] == student:
            errors.setdefault(run["rate"], []).append(run["error"])
    return errors


def rises_at_best(student: str) -> list[float]:
    """Return how far the next-token loss rises at the best rate, by seed."""
    found, errors = longer_runs(), errors_by_rate(student)
    intact = found["about"]["intact"]
    best = min(errors, key=lambda rate: sum(errors[rate]))
    chosen = [run for run in found["runs"]
              if (run["student"], run["rate"]) == (student, best)]  # fmt: skip
    return [run["next_token_loss"] - intact for run in chosen]


def print_longer_runs() -> None:
    """Print mean errors by rate; errors and loss's rises at the best."""
    found = longer_runs()
    about = found["about"]
    head = "".join(f"{rate:7.0%}" for rate in errors_by_rate("mixture"))
    print(f"{about['steps']:5,} steps    rate{head}   best rate, each seed")
    students = list(dict.fromkeys(run["student"] for run in found["runs"]))
    for student in students:
        errors = errors_by_rate(student)
        means = [sum(each) / len(each) for each in errors.values()]
        line = "".join(f"{mean:7.3f}" for mean in means)
        line += "   " + " ".join(
            f"{e:.3f}" for e in min(errors.values(), key=sum)
        )
        print(f"{student:19}{line}")
    print("rise of the next-token loss at the best rate, each seed")
    for student in students:
        rises = " ".join(f"{rise:.4f}" for rise in rises_at_best(student))
        print(f"{student:19} {rises}")
    gap = about["without"] - about["intact"]
    print(f"{'no network':19} {gap:.4f}")


def exchanged(tables):
    """Draw bytes from n devices to n devices, in kB: name to (n, n)."""
    fig, axes = panels(2.9, len(tables), sharey=True)
    limit = max(float(values.max()) for values in tables.values()) / 1e3
    for ax, (name, values) in zip(axes, tables.items(), strict=True):
        values = array(values) / 1e3
        image = heatmap(ax, values, limit=limit)
        texts = [[f"{value:.0f}" for value in row] for row in values]
        cell_texts(ax, texts, values > 0.5 * limit)
        devices = range(len(values))
        y = "" if ax is not axes[0] else "from device"
        finish(ax, name, "to device", y, xticks=devices, yticks=devices)
    fig.colorbar(image, ax=axes, label="kB (float32), before the experts")
    return fig


def routing_picture(labels, weights, heading):
    """Draw T tokens in their first experts' colours; (T, E) weights."""
    weights = array(weights)
    size, step = (10, 20) if len(labels) <= 60 else (8, 17)
    names, places, n_lines = text_flow(labels, size)
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
    bars.spines[["top", "right"]].set_visible(False)
    labels = "expert (dashed: even shares)", "share of all choices"
    return finish(bars, "", *labels, xticks=experts, ylim=(0, 0.55))


def routing(llama, layer, steps, runs, text, top_k, *, route) -> Play:
    """Return a widget that shows which experts a text's tokens go to.

    A router reads the unchanged model's input of a feed-forward network.
    steps: of training, where the routers were kept.
    runs: name to the (S, E, D) routers at these S steps.
    route: from (T, D), (E, D), k to (T, k) weights, (T, k) experts, (T, E).
    """

    @lru_cache(maxsize=1)
    def read(text):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)[:110]
        seen = record(llama, torch.tensor(ids))
        return token_texts(llama, ids), seen[f"layers.{layer}.feed_forward.in"]

    def draw(text, run, stage):
        labels, x = read(text)  # x: (T, D)
        weights, chosen, logits = route(x, runs[run][stage], top_k)
        shares = torch.zeros_like(logits).scatter(-1, chosen, weights.float())
        heading = f"{run}, after {steps[stage]} of {steps[-1]} steps"
        return routing_picture(labels, shares, heading)

    last = len(steps) - 1
    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        run=ipw.Dropdown(options=list(runs), description="run"),
        stage=ipw.IntSlider(last, 0, last, description="stage of training"),
    )


# -- the checks of the exercises --


CASES = (64, 100, 3, 8, 2, 0), (64, 100, 3, 8, 2, 1), (10, 7, 2, 5, 3, 2)


@exercise(1, expects="a pair of numbers: total, active")
def check_1(expert_sizes):
    def sizes(D, F, L, E, k, s, each=3, router=1, shared=1, layer=0):
        return [(layer or L) * (each * D * F * (n + shared * s)
                                + router * E * D) for n in (E, k)]  # fmt: skip

    more = vary((0,) * 6, (6, 20, 1, 4, 1, 0), (2, 9, 4, 3, 2, 1))
    cases = [tuple(map(add, c, more)) for c in CASES]
    right = [sizes(*c) for c in cases]
    agree([expert_sizes(*c) for c in cases], right, [
        ("you left out the router", [sizes(*c, router=0) for c in cases]),
        ("shared experts are missing", [sizes(*c, shared=0) for c in cases]),
        ("an expert has three matrices", [sizes(*c, each=2) for c in cases]),
        ("you counted one layer", [sizes(*c, layer=1) for c in cases]),
        ("total comes first, then active", [pair[::-1] for pair in right]),
    ], 1e-9)  # fmt: skip


@exercise(2, expects="weights (T, E)")
def check_2(expert_weights):
    g, e = draws(1), vary(4, 6, 5, 7)
    for T, E, k in ((e + 1, e, 2), (9, 8, 3), (5, e, 1), (9, e + 4, e + 4)):
        z = torch.randn(T, E, generator=g)  # (T, E)
        p, is_in = z.softmax(-1), z >= z.topk(k)[0][:, -1:]
        right = p * is_in / (p * is_in).sum(-1, keepdim=True)
        agree(expert_weights(z, k), right, [
            ("these sum to less than 1: divide by the sum", p * is_in),
            ("the others' logits are -inf, not 0", (z * is_in).softmax(-1)),
            ("all experts have a weight: choose k", p),
            ("these are k weights; expected E", z.topk(k)[0].softmax(-1)),
        ])  # fmt: skip


@exercise(3, expects="a number")
def check_3(balance):
    g, e = draws(3), vary(4, 6, 5, 7)
    for T, E, k in ((e + 2, e, 2), (40, 8, 2), (30, e + 1, 1)):
        z = torch.randn(T, E, generator=g) * 2  # (T, E)
        z[:, -1] -= 50  # the last expert is never chosen
        p, late = z.softmax(-1).mean(0), z.mean(0).softmax(-1)  # (E,)
        for chosen in z.topk(k)[1], z[:, :-1].topk(k, largest=False)[1]:
            f, first = (one_hot(c, E).float().mean((0, 1))
                        for c in (chosen, chosen[:, :1]))  # fmt: skip
            right = E * (f * p).sum()
            agree(balance(z, chosen), right, [
                ("f sums to k: divide by T·k, not by T", k * right),
                ("count all k choices of a token", E * (first * p).sum()),
                ("you left out the factor E", right / E),
                ("f counts choices: you took P twice", E * (p * p).sum()),
                ("P is of probabilities: you took f twice", E * (f * f).sum()),
                ("take the mean after the softmax", E * (f * late).sum()),
            ])  # fmt: skip
