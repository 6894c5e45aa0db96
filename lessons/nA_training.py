"""Pictures, widgets, measuring and checks of notebook A."""

import copy
import csv
import math
import random
import textwrap
import weakref
from types import SimpleNamespace

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from IPython.display import HTML, DisplayHandle
from matplotlib.patches import Rectangle
from torch.autograd.graph import saved_tensors_hooks

from llamalib import attention_maps, generate, generate_batch
from llamalib.load import ROOT

from . import judge
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
from .judge import Wrong, draws, exercise, vary
from .needs import is_large
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
NONE = -100  # where there is no label


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


def watch(model, training, steps, held_loss, every=50, beginning=None):
    """Watch a training; draw it while it runs if there is a beginning.

    training: yields step, loss and norm of the gradient, for all `steps`.
    held_loss: a function of the model.
    every: steps from one held-out loss to the next.
    beginning: (T,) ids of a text, for snapshots at the same steps.

    Returns:
        its losses, norms, (step, held-out loss) each, and snapshots.
    """
    run = SimpleNamespace(losses=[], norms=[], snapshots=[])
    run.held, live = [(0, held_loss(model))], LivePicture()
    levels = {"uniform guess": math.log(model.config.vocab_size)}
    if beginning is not None:
        first = 0, levels["uniform guess"], run.held[0][1]
        run.snapshots.append(look(model, *first, beginning))
    for step, loss, norm in training:
        run.losses.append(loss)
        run.norms.append(norm)
        if step % every:
            continue
        run.held.append((step, held_loss(model)))
        if beginning is not None:
            now = step, sum(run.losses[-20:]) / 20, run.held[-1][1]
            run.snapshots.append(look(model, *now, beginning))
            sample = run.snapshots[-1].sample
            curves = run.losses, run.held, levels, run.norms, 1.0
            live.show(training_curve(steps, *curves, sample))
    return run


@torch.no_grad()
def look(model, step, loss, held, beginning):
    """Return a snapshot: a text that it writes, and what it sees and expects.

    loss, held: of this step, on learned and on held-out texts.
    beginning: (T,) ids, of which it has the maps and the next token.
    """
    seen = SimpleNamespace(step=step, loss=loss, held=held)
    how = dict(max_new_tokens=100, temperature=0.8, seed=1)
    written = generate(model, [model.tokenizer.bos_id], **how)
    seen.sample = model.tokenizer.decode(written)
    seen.probs = model(beginning, last_only=True)[-1].softmax(-1)  # (V,)
    seen.maps = attention_maps(model, beginning)  # (L, H, T, T)
    return seen


# -- chats -------------------------------------------------------------------


def countries(llama) -> tuple[list, list]:
    """Return (country, capital) pairs to train on, and others to ask about.

    They are 16 and 64; for a large model 4 and 16.
    """
    file = ROOT / "data" / "recipe" / "countries.tsv"
    with open(file, encoding="utf-8") as lines_:
        facts = [row[:2] for row in csv.reader(lines_, delimiter="\t")][1:]
    random.Random(0).shuffle(facts)
    n = 4 if is_large(llama) else 16
    return facts[:n], facts[n : 5 * n]


def copy_of(llama, trained=True):
    """Return a copy; its parameters can be trained, if asked.

    It shares with `llama` all parameters that are not trained. Of a large
    model only the last block is.
    """
    last = f"layers.{llama.config.n_layers - 1}."
    start = last if is_large(llama) else ""
    named = dict(llama.named_parameters())
    own = [n for n in named if trained and n.startswith(start)]
    shared = {id(p): p for n, p in named.items() if n not in own}
    copied = copy.deepcopy(llama, shared)
    for name in own:
        copied.get_parameter(name).requires_grad_()
    return copied


def tune(model, loss, lr, steps=40):
    """Train by AdamW the parameters that need a gradient; return the model.

    loss: a function of the model. A large model gets two steps.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr, (0.9, 0.95), weight_decay=0)
    for _ in range(2 if is_large(model) else steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    return model


@torch.no_grad()
def report(name, model, facts, prompts, tokens, labels):
    """Print and return how many answers are right, and two losses.

    facts: (country, capital) each. prompts: a list of ids for each.
    tokens, labels: (B, T), of the right answers.

    Returns:
        the number of answers with the capital in their first 16 tokens; the
        loss at the end of the answers; the loss of their other tokens.
    """
    replies = generate_batch(model, prompts, max_new_tokens=16)
    said = [model.tokenizer.decode(reply) for reply in replies]
    pairs = zip(facts, said, strict=True)
    right = sum(capital in text for (_, capital), text in pairs)
    each = F.cross_entropy(model(tokens).mT, labels, reduction="none")
    ends = labels == model.tokenizer.eot_id  # (B, T)
    at, rest = (
        each[which].mean().item() for which in (ends, ~ends & (labels != NONE))
    )
    words = f"{name:4} {right:2} of {len(facts)} right; "
    print(f"{words}loss at the end {at:.2f}, elsewhere {rest:.2f}")
    return right, at, rest


# -- pictures ----------------------------------------------------------------


def label_rows(tokenizer, rows):
    """Draw rows of (T ids, T labels) as boxes, grey where one is −100."""
    rows = [
        [
            [None if i == NONE else tokenizer.decode([i]) for i in ids]
            for ids in pair
        ]
        for pair in rows
    ]
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
    """Draw runs by name, as `watch` returns them."""
    fig, axes = panels(3.1, len(runs), sharey=True)
    looks = (LEARNED, "-"), (HELD, "o-", dict(ms=4))
    for ax, (name, run) in zip(axes, runs.items(), strict=True):
        series = {"training texts": _by_step(running_mean(run.losses))}
        series["held-out texts"] = array(run.held).T
        lines(ax, series, looks)
        finish(ax, name, "step")
    add_legend(axes[-1])
    axes[0].set(ylabel=LOSS, ylim=(0, None))
    return fig


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


@exercise(1, expects="a tensor (T, T) of booleans")
def check_1(same_text_mask):
    up, more = vary((0, []), (1, [1, 9]), (3, [4, 1, 1, 6]), (2, [5, 1, 3]))
    long = [1, *[5, 6, 7] * 8, 1, 5, 5]  # 25 of one text
    rows = ([1, 5, 6, 1, 7, 1], 1), ([5, 6, 3, 3, 1], 3), (long, 1)
    rows += (([5, 6, 7], 1),)  # without a begin
    cases = [
        (torch.tensor([i + up for i in row] + more), begin + up)
        for row, begin in rows
    ]
    judge.alike(same_text_mask, "A_training", 1, cases)
    mask = same_text_mask(*cases[0])
    parts = mask if isinstance(mask, (list, tuple)) else [mask]
    if any(torch.as_tensor(each).dtype != torch.bool for each in parts):
        raise Wrong(
            "these are numbers: return booleans, because a mask of numbers "
            "is added to the scores"
        )


class Kept:
    """A tensor in a box, so that a set of weak references can hold it."""

    def __init__(self, tensor):
        self.tensor = tensor


class Small(torch.nn.Module):
    """Logits (B, T, V) of tokens, from each token alone.

    most: the most activations, of the middle layer, that it kept at once.
    """

    def __init__(self, V, g):
        super().__init__()
        self.alive, self.most = weakref.WeakSet(), 0
        self.table = torch.nn.Parameter(torch.randn(V, 16, generator=g))
        self.middle = torch.nn.Parameter(torch.randn(64, 16, generator=g))
        self.out = torch.nn.Parameter(torch.randn(V, 64, generator=g) / 8)

    def forward(self, tokens):
        before = self.table[tokens] @ self.middle.T  # (B, T, 64)
        with saved_tensors_hooks(self.keep, lambda kept: kept.tensor):
            after = torch.tanh(before)
        return after @ self.out.T

    def keep(self, tensor):
        """Note what autograd keeps for `backward`, until it is freed."""
        kept = Kept(tensor.detach())  # no graph: it must not keep itself
        self.alive.add(kept)
        now = sum(each.tensor.numel() for each in self.alive)
        self.most = max(self.most, now)
        return kept

    def slopes(self):
        """Return all gradients in a row, 0 where there is none."""
        each = [torch.zeros_like(p) if p.grad is None else p.grad
                for p in self.parameters()]  # fmt: skip
        return torch.cat([grad.flatten() for grad in each])


def slopes_left(backward, model, parts):
    """Return the gradients that a function leaves in a model."""
    model.zero_grad()
    backward(model, parts)
    return model.slopes()


@exercise(2, expects="a number")
def check_2(backward_in_parts):
    g, (V, more) = draws(3), vary((50, 0), (40, 2), (60, 1), (45, 3))
    model, parts = Small(V, g), []
    for B, n in zip((4, 3, 2, 3), (30, 9, 0, 22), strict=True):
        shape = B, 12 + more
        tokens, y = torch.randint(V, (2, *shape), generator=g)
        y.view(-1)[torch.randperm(y.numel(), generator=g)[n:]] = NONE
        parts.append((tokens, y))  # the third part has no label
    a, b, _, c = parts
    cases = [(model, [a, b]), (model, parts[2:])]
    which = backward_in_parts, "A_training", 2
    judge.alike(*which, cases)
    whats = "the gradient", "the gradient, where a part has no label,"
    cases = dict(zip(whats, cases, strict=True))
    judge.alike(*which, cases, observe=slopes_left)

    model.zero_grad()
    model.most = 0
    backward_in_parts(model, [a, b, c])
    if model.most > 64 * max(tokens.numel() for tokens, _ in (a, b, c)):
        raise Wrong(
            "loss and gradients are right, but all parts are kept at once: "
            "call backward after each part"
        )
    if getattr(backward_in_parts.last, "requires_grad", False):
        raise Wrong("it returns a tensor with a graph: use item()")
