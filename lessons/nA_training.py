"""Pictures, widgets and checks of notebook A."""

import textwrap

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from IPython.display import HTML, DisplayHandle
from matplotlib.patches import Rectangle

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
from .map import strip  # noqa: F401
from .play import Play, token_texts
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
    halves = [(each, tint) for pair in rows for each, tint in zip(pair, TINTS)]
    for y, (texts, tint) in zip(ys, halves):
        for t, text in enumerate(texts[:T]):
            tone = "#eeeeee" if text is None else tint
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


def logit_gradient(names, probs, gradient, label):
    """Draw n tokens' probabilities, and the loss's slope in their logits."""
    _, (left, right) = panels(3.2, 2)
    ranked_bars(left, names, probs, "probability")
    tones = ["key" if slope > 0 else "query" for slope in gradient]
    ranked_bars(right, names, gradient, tones)
    right.axvline(0, color=COLOURS["other"], lw=0.8)
    right.tick_params(labelleft=False)
    finish(left, f"Expected; the label is {visible(label)}", "probability p")
    down = "Blue logits go up, orange ones down"
    return finish(right, down, "gradient: p, and p − 1 at the label")


def step_sizes(rates, steps):
    """Draw learning rates, and lengths of AdamW's steps by name."""
    _, (left, right) = panels(2.9, 2)
    left.plot(*_by_step(rates), color=LEARNED, lw=2)
    xs = range(1, 1 + len(next(iter(steps.values()))))
    lines(right, steps, ((LEARNED, "-"), (LEARNED, "--")), xs)
    low = dict(x="step", ylim=(0, None))
    finish(left, "Warm-up, then half a cosine", y="learning rate", **low)
    low |= dict(y="step / learning rate", legend="best")
    return finish(right, "A gradient that stays the same", **low)


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
    lines(left, {"held-out texts": zip(*held)}, [(HELD, "o-")], ms=4, lw=1.5)
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
    """Return, for each value, the mean of the 20 that end there, or fewer."""
    parts = [values[max(0, i - 19) : i + 1] for i in range(len(values))]
    return [float(sum(part) / len(part)) for part in parts]


def _wrapped(text):
    """Return a text in at most three lines, legible, dollar signs escaped."""
    text = " ".join(legible(text.replace("\n", "⏎ ")).split())
    return plain(textwrap.fill(text, 118, max_lines=3, placeholder=" …"))


def overfitting(runs):
    """Draw runs: name to (losses, (step, held-out loss) each)."""
    fig, axes = panels(3.1, len(runs), sharey=True)
    looks = (LEARNED, "-"), (HELD, "o-", dict(ms=4))
    for ax, (name, (losses, held)) in zip(axes, runs.items()):
        series = {"training texts": _by_step(running_mean(losses))}
        lines(ax, series | {"held-out texts": tuple(zip(*held))}, looks)
        finish(ax, name, "step", legend=ax is axes[-1] and "best")
    axes[0].set(ylabel=LOSS, ylim=(0, None))
    return fig


def heads_by_step(steps, weights, losses):
    """Draw (n, L, H) weights that look back, and n losses by name."""
    _, (left, right) = panels(3.1, 2)
    H, flat = weights.shape[-1], array(weights).reshape(len(steps), -1)
    order = flat[-1].argsort()[::-1]  # (L·H,) the largest last weight first
    left.plot(steps, flat[:, order[2:]], color=GREY, lw=1)
    best = {f"layer {i // H}, head {i % H}": flat[:, i] for i in order[:2]}
    # the second line is dashed: it may cover the first
    lines(left, best, (("attention", "-"), ("probability", "--")), steps)
    lines(right, losses, ((HELD, "o-"), (HELD, "s--")), steps, ms=4)
    weight, low = "weight on the label's\nearlier occurrences", dict(ylim=0)
    each = f"Each of the {len(order)} heads", "step", weight
    finish(left, *each, **low, legend="upper left")
    return finish(right, "Held-out texts", "step", LOSS, **low, legend="best")


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


@exercise(2, expects="a tensor with one number")
def check_2(loss_of_parts):
    g, (V, more) = draws(3), vary((7, 0), (5, 2), (9, 1), (4, 3))
    parts, sums, counts = [], [], [11, 2, 0, 5]
    for (B, T), n in zip(((2, 6), (3, 4), (1, 5), (2, 3)), counts):
        T += more
        z = 3 * torch.randn(B, T, V, generator=g)
        y = torch.randint(V, (B, T), generator=g)
        y.view(-1)[torch.randperm(B * T, generator=g)[n:]] = NONE
        parts.append((z.requires_grad_(), y))
        flat = z.flatten(0, 1), y.flatten()
        sums.append(F.cross_entropy(*flat, reduction="sum").item())
    for some in ([0, 1], [3], [0, 1, 2, 3]):
        total, n = (sum(x[i] for i in some) for x in (sums, counts))
        means = [sums[i] / counts[i] for i in some if counts[i]]
        every, given = sum(means), [parts[i] for i in some]
        mistakes = [
            ("a mean of means: few labels count too much", every / len(means)),
            ("a mean of means, one of them 0", every / len(some)),
            ("you divide by all positions: only labels count",
             total / sum(y.numel() for _, y in given)),
            ("this is the sum; expected the mean", total),
            ("this is a sum of means", every),
            ("nan: a part without a label has no mean", torch.nan),
        ]  # fmt: skip
        found = loss_of_parts(given)
        agree(found, total / n, mistakes)
        if not getattr(found, "requires_grad", False):
            raise Wrong("the number is right, but backward cannot reach it")
