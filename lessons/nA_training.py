"""Pictures, widgets, measuring and checks of notebook A."""

import importlib
import json
import sys
import textwrap
import weakref
from collections import Counter
from unittest.mock import patch

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from IPython.display import HTML, DisplayHandle
from matplotlib.patches import Rectangle
from torch.autograd.graph import saved_tensors_hooks

from llamalib.load import ROOT

from .charts import (
    add_legend,
    finish,
    heatmap,
    lines,
    log_axis,
    mark_y,
    ranked_bars,
    token_ticks,
    write,
)
from .judge import Wrong, agree, draws, exercise, vary
from .play import Play, token_texts
from .pocket import strip  # noqa: F401
from .theme import (
    COLOURS,
    alt_text,
    array,
    canvas,
    image_tag,
    legible,
    panels,
    plain,
    sharp_png,
    visible,
)

LEARNED = COLOURS["plain"]  # training texts
HELD = "#999933"  # held-out texts: olive, of Paul Tol's palette
GREY = "#bbbbbb"
TINTS = "white", "#fbe5c0"  # behind a token, and behind its label
LOSS = "loss (nats a token)"


class LivePicture:
    """A picture that changes in its place while a cell runs."""

    def __init__(self):
        self._handle, self._shown = DisplayHandle(), False

    def show(self, fig) -> None:
        """Show a figure: first below the cell, later in the same place."""
        show = self._handle.update if self._shown else self._handle.display
        alt = alt_text(fig)
        show(HTML(image_tag(sharp_png(fig), alt), metadata={"alt": alt}))
        self._shown = True


def label_rows(rows):
    """Draw rows of (T tokens, T labels) as boxes, grey where one is None."""
    T = min(14, max(len(tokens) for tokens, _ in rows))
    _, ax = canvas(0.35 + 0.85 * len(rows))
    ys = [y - 2.6 * b for b in range(len(rows)) for y in (0.5, -0.5)]
    halves = [texts for pair in rows for texts in pair]
    for i, (y, texts) in enumerate(zip(ys, halves, strict=True)):
        for t, text in enumerate(texts[:T]):
            tone = "#eeeeee" if text is None else TINTS[i % 2]
            box = dict(fc=tone, ec=COLOURS["other"], lw=0.8)
            ax.add_patch(Rectangle((t - 0.5, y - 0.5), 1, 1, **box))
            said = "–" if text is None else visible(text)
            short = said if len(said) < 10 else said[:5] + "…" + said[-3:]
            write(ax, t, y - 0.05, short, 8)
    ax.set_yticks(ys, ["token", "label"] * len(rows))
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    limits = dict(xlim=(-0.55, T - 0.45), ylim=(ys[-1] - 0.6, 1.1))
    return finish(ax, x="position", xticks=range(T), **limits)


def _by_step(values):
    """Return the steps 1 … n, and n values."""
    return range(1, len(values) + 1), values


def training_curve(steps, losses, held, levels, norms, clip, sample):
    """Draw a run of `steps` so far: losses, gradient norms, a sample.

    held: (step, loss) each, on held-out text. levels: name to a loss.
    """
    margins = 0.065, 0.32, 0.98, 0.94, 0.245
    fig, axes = panels(4.1, 2, margins=margins, width_ratios=(0.55, 0.265))
    left, right = axes
    mean = "training texts: mean of 20 (grey: each)"
    _with_mean(left, *_by_step(losses), levels, mean)
    curve = {"held-out texts": array(held).T}
    lines(left, curve, [(HELD, "o-")], ms=4, lw=1.5)
    add_legend(left, (0.3, 0.65), handlelength=0, labelcolor="linecolor")
    _with_mean(right, *_by_step(norms), {})
    mark_y(right, clip, color="black")
    ticks = [0.1, 1, 10, 100][: 4 if max(norms) > 10 else 3]
    log_axis(right, "y", ticks)
    top, x = 1.1 * max(levels.values()), dict(x="step", xlim=(0, steps))
    finish(left, y=LOSS, ylim=(0, top), **x)
    fig.text(0.01, 0.165, _wrapped(sample), fontsize=9, va="top")
    return finish(right, y="norm of the gradient", ylim=(0.1, ticks[-1]), **x)


def _with_mean(ax, xs, values, levels, name=""):
    """Draw values in grey, their running mean, and losses to compare with."""
    ax.plot(xs, values, color=GREY, lw=0.8)
    ax.plot(xs, running_mean(values), color=LEARNED, lw=1.8, label=name)
    for name, loss in levels.items():
        mark_y(ax, loss, f"{name}: {loss:.2f}", end=True, color="black")


def running_mean(values):
    """Return the means of the 20 values around each, near the ends fewer."""
    parts = [values[max(0, i - 10) : i + 10] for i in range(len(values))]
    return [float(sum(part) / len(part)) for part in parts]


def _wrapped(text):
    """Return a text in at most three lines, legible, dollar signs escaped."""
    text = " ".join(legible(text.replace("\n", "⏎ ")).split())
    return plain(textwrap.fill(text, 118, max_lines=3, placeholder=" …"))


def overfitting(runs):
    """Draw runs: name to (losses, (step, held-out loss) each)."""
    fig, axes = panels(3.1, len(runs), sharey=True)
    looks = (LEARNED, "-"), (HELD, "o-", dict(ms=4))
    for ax, (name, (losses, held)) in zip(axes, runs.items(), strict=True):
        series = {"training texts": _by_step(running_mean(losses))}
        series["held-out texts"] = array(held).T
        lines(ax, series, looks)
        finish(ax, name, "step")
    add_legend(axes[-1])
    axes[0].set(ylabel=LOSS, ylim=(0, None))
    return fig


# -- distillation: shipped runs ----------------------------------------------

RUNS = ROOT / "data" / "distilled.json"
TARGETS = {"labels": "token", "teacher": "probability"}  # learned from


def distill_recipe():
    """Return the module data/recipe/distill.py."""
    folder = str(ROOT / "data" / "recipe")
    with patch.object(sys, "path", [folder, *sys.path]):
        return importlib.import_module("distill")


def distilled_runs() -> dict[tuple[str, int], list[dict]]:
    """Return the shipped runs by target and steps, in the order of seeds."""
    runs = json.loads(RUNS.read_text(encoding="utf-8"))["runs"]
    runs.sort(key=lambda run: run["seed"])
    return {
        kind: [run for run in runs if (run["target"], run["steps"]) == kind]
        for kind in distill_recipe().RUNS
    }


def print_distilled() -> None:
    """Print what the shipped runs reached, seed by seed."""
    print("                    held-out           divergence")
    for (target, steps), runs in distilled_runs().items():
        pair = (
            " ".join(f"{run[key][-1]:.3f}" for run in runs)
            for key in ("held_out", "divergence")
        )
        print(f"{target:7} {steps} steps  ", *pair, sep="  ")


def distillation(teacher_loss):
    """Draw the held-out losses of the shipped runs, by step and by time."""
    labels, teacher, short = distilled_runs().values()
    _, (left, right) = panels(3.1, 2, sharey=True)
    for ax, taught, unit in (
        (left, teacher, "steps"),
        (right, short, "minutes"),
    ):
        for target, runs in zip(TARGETS, (labels, taught), strict=True):
            style = dict(color=COLOURS[TARGETS[target]], lw=1.2, ms=3)
            for run in runs:
                ys = run["held_out"]  # measured at even distances
                xs = [run[unit] * i / (len(ys) - 1) for i in range(len(ys))]
                ax.plot(xs, ys, "o-", **style)
            ax.lines[-1].set_label(f"{target}, {run['steps']} steps")
        mark_y(ax, teacher_loss, "the teacher", end=True, dy=-2)
        ax.legend(title="learned from", frameon=False, fontsize=9)
    finish(left, "At equal steps", "step", LOSS, ylim=(0.75, 1.15))
    return finish(right, "At equal time", "minutes of one thread")


# -- memory ------------------------------------------------------------------


class Kept:
    """A tensor that autograd keeps; it can be watched as it is freed."""

    def __init__(self, tensor):
        self.tensor = tensor


def most_kept(run, model) -> int:
    """Return the most bytes that autograd keeps at once while run() runs.

    Memory that several tensors share counts once, the weights not at all.
    """
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    users, now, most = Counter(), 0, 0

    def free(place, size):
        nonlocal now
        users[place] -= 1
        if not users[place]:
            now -= size

    def pack(tensor):
        nonlocal now, most
        storage = tensor.untyped_storage()
        place, kept = storage.data_ptr(), Kept(tensor)
        if place not in weights:
            if not users[place]:
                now += storage.nbytes()
            users[place] += 1
            most = max(most, now)
            weakref.finalize(kept, free, place, storage.nbytes())
        return kept

    with saved_tensors_hooks(pack, lambda kept: kept.tensor):
        run()
    return most


# -- the widget --------------------------------------------------------------


def snapshot(over, sample, names, probs, weights, labels, head):
    """Draw a model at one step: a text, n likely tokens, (T, T) weights."""
    margins = 0.13, 0.2, 0.98, 0.7, 0.43
    fig, axes = panels(4.6, 2, margins=margins, width_ratios=(2, 3))
    left, right = axes
    fig.text(0.01, 0.975, plain(over), fontsize=11, va="top")
    fig.text(0.01, 0.915, _wrapped(sample), fontsize=9, va="top")
    ranked_bars(left, names, probs, "probability")
    finish(left, "the next token", "probability", xlim=(0, 1))
    heatmap(right, weights, limit=1.0)
    token_ticks(right, labels, labels, size=7)
    return finish(right, head)


def training(llama, snapshots, ids, head) -> Play:
    """Return a widget that shows a model at the steps of its training.

    snapshots: taken on T `ids` at each `step`, with `loss`, `held`, `sample`,
    `probs` (V,) and `maps` (L, H, T, T). head: (layer, head) at the start.
    """
    labels = token_texts(llama, ids)
    shots = {shot.step: shot for shot in snapshots}
    pairs = np.ndindex(*snapshots[0].maps.shape[:2])
    heads = [("layer {}, head {}".format(*pair), pair) for pair in pairs]

    def draw(step, head):
        shot = shots[step]
        over = f"step {step}: loss {shot.loss:.2f}, held out {shot.held:.2f}"
        top = shot.probs.topk(8)
        bars = token_texts(llama, top.indices.tolist()), top.values
        where = "where layer {}, head {} looks".format(*head)
        return snapshot(
            over, shot.sample, *bars, shot.maps[head], labels, where
        )

    last = dict(options=list(shots), value=snapshots[-1].step)
    first = dict(options=heads, value=tuple(head))
    step = ipw.SelectionSlider(description="step", **last)
    head = ipw.Dropdown(description="head", **first)
    return Play(draw, step=step, head=head)


# -- the checks of the exercises --


NONE = -100  # where there is no label


@exercise(1, expects="a tensor (T, T) of booleans")
def check_1(same_text_mask):
    up, more = vary((0, []), (1, [1, 9]), (3, [4, 1, 1, 6]), (2, [5, 1, 3]))
    for row, begin in (([1, 5, 6, 1, 7, 1], 1), ([5, 6, 3, 3, 1], 3)):
        row, begin = torch.tensor([i + up for i in row] + more), begin + up
        text = (row == begin).cumsum(0)  # (T,)
        same = text[:, None] == text  # (T, T)
        causal = torch.ones_like(same).tril()
        right = same & causal
        additive = torch.zeros(right.shape).masked_fill(~right, -torch.inf)
        mistakes = [
            ("the other way round: True is where a query may look", ~right),
            ("a query sees later tokens of its text", same),
            ("a query sees the texts before its own", causal),
            ("rows and columns are exchanged: a row is a query", right.T),
            ("a query may see itself too", right.tril(-1)),
            ("text before the first begin is a text too", right & (text > 0)),
            ("expected booleans, not a mask to add to scores", additive),
        ]
        agree(same_text_mask(row, begin), right, mistakes)


class Small(torch.nn.Module):
    """Logits (B, T, V) of tokens, from each token alone."""

    def __init__(self, V, g):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(V, 16, generator=g))
        self.middle = torch.nn.Parameter(torch.randn(64, 16, generator=g))
        self.out = torch.nn.Parameter(torch.randn(V, 64, generator=g) / 8)

    def forward(self, tokens):
        return torch.tanh(self.table[tokens] @ self.middle.T) @ self.out.T

    def slopes(self):
        """Return all gradients in a row, 0 where there is none."""
        each = [torch.zeros_like(p) if p.grad is None else p.grad
                for p in self.parameters()]  # fmt: skip
        return torch.cat([grad.flatten() for grad in each])


@exercise(2, expects="a number")
def check_2(backward_in_parts):
    g, (V, more) = draws(3), vary((50, 0), (40, 2), (60, 1), (45, 3))
    model, counts = Small(V, g), [30, 9, 0, 22]
    parts, sums, slopes = [], [], []
    for B, n in zip((4, 3, 2, 3), counts, strict=True):
        shape = B, 12 + more
        tokens, y = torch.randint(V, (2, *shape), generator=g)
        y.view(-1)[torch.randperm(y.numel(), generator=g)[n:]] = NONE
        parts.append((tokens, y))
        model.zero_grad()
        flat = model(tokens).flatten(0, 1), y.flatten()
        loss = F.cross_entropy(*flat, reduction="sum")
        loss.backward()
        sums.append(loss.item())
        slopes.append(model.slopes())
    found = []

    def keep(*some):
        model.zero_grad()
        some = [parts[i] for i in some]

        def run():
            found.append(backward_in_parts(model, some))

        return most_kept(run, model)

    for some in ([0, 1], [3, 2], [0, 1, 2, 3]):
        n = sum(counts[i] for i in some)
        positions = sum(parts[i][1].numel() for i in some)
        full = [i for i in some if counts[i]]
        alone = max(keep(i) for i in full)
        kept = keep(*some)
        for each, what in ((sums, None), (slopes, "the gradient")):
            total = sum(each[i] for i in some)
            means = sum(each[i] / counts[i] for i in full)
            mistakes = [
                ("each part has its own mean: few labels count too much",
                 means / len(full)),
                ("each part has its own mean, one of them 0",
                 means / len(some)),
                ("you divide by all positions: only labels count",
                 total / positions),
                ("you never divide by the number of labels", total),
                ("you divide by each part's own number of labels", means),
                ("nan: a part without a label has no mean", total * torch.nan),
            ]  # fmt: skip
            result = found[-1]
            if what:
                result = model.slopes()
                last = each[some[-1]] / n
                mistakes += [
                    ("no parameter has a gradient", 0 * total),
                    ("only the last part's gradient is left: they add up",
                     last),
                ]  # fmt: skip
            agree(result, total / n, mistakes, what=what or "the result")
        if kept > 1.4 * alone:
            raise Wrong(
                "loss and gradients are right, but all parts are kept at "
                "once: call backward after each part"
            )
        if getattr(found[-1], "requires_grad", False):
            raise Wrong("it returns a tensor with a graph: use item()")
