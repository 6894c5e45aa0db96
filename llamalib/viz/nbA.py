r"""The pictures of appendix A."""

import ipywidgets as ipw

import textwrap

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from .nb05 import heatmap_ticks
from .base import (
    COLOURS,
    WIDTH,
    array,
    canvas,
    heatmap,
    legend_above,
    legible,
    plain,
    png,
    title,
    visible,
)
from .play import Play
from .model_map import strip  # noqa: F401
from .nb05 import masks  # noqa: F401

LEARNED = COLOURS["plain"]  # the text that is trained on
HELD = "#999933"  # text kept from training: olive, of Paul Tol's palette


class LivePicture:
    r"""A picture that is drawn again in its place while a cell runs.

    What a notebook saves is the last one. Without a notebook only the words
    that stand for a picture are printed.
    """

    def __init__(self):
        from IPython.display import DisplayHandle

        self._handle, self._shown = DisplayHandle(), False

    def show(self, fig) -> None:
        """The first time below the cell, from then on in the same place."""
        from IPython.display import Image

        image = Image(png(fig), format="png")
        if self._shown:
            self._handle.update(image)
        else:
            self._handle.display(image)
            self._shown = True


def label_rows(rows, most=14):
    r"""A batch: each place's token, and under it what the place is asked.

    Args:
        rows: (tokens, labels) each: T texts, None at padding; and T texts,
            None where nothing is asked.
        most: columns that are drawn.
    """
    T = min(most, max(len(tokens) for tokens, _ in rows))
    fig, ax = plt.subplots(
        figsize=(WIDTH, 0.35 + 0.85 * len(rows)), layout="constrained"
    )
    for b, (tokens, labels) in enumerate(rows):
        top = -2.6 * b
        for t in range(min(T, len(tokens))):
            _cell(ax, t, top, tokens[t], "white")
            asked = "white" if labels[t] is None else "#fbe5c0"
            _cell(ax, t, top - 1, labels[t], asked)
    lines = [-2.6 * b for b in range(len(rows))]
    ax.set_yticks(
        [line + y for line in lines for y in (0.5, -0.5)],
        ["token", "label"] * len(rows),
    )
    ax.tick_params(length=0, labelsize=9)
    ax.set_xticks([t + 0.5 for t in range(T)], range(T))
    ax.xaxis.tick_top()
    ax.set_xlabel("place", fontsize=9)
    ax.xaxis.set_label_position("top")
    ax.set_xlim(-0.05, T + 0.05)
    ax.set_ylim(lines[-1] - 1.1, 1.1)
    ax.spines[:].set_visible(False)
    return fig


def _cell(ax, x, y, text, colour):
    """A box with a token's text; grey where there is none."""
    face = "#eeeeee" if text is None else colour
    edge = COLOURS["other"]
    ax.add_patch(Rectangle((x, y), 1, 1, fc=face, ec=edge, lw=0.8))
    said = "–" if text is None else visible(text)
    if len(said) > 9:
        said = said[:5] + "…" + said[-3:]
    middle = dict(ha="center", va="center")
    ax.text(x + 0.5, y + 0.45, said, fontsize=8, **middle)


def loss_by_scale(scales, curves, blind):
    r"""The loss of weights that have learned nothing, by how large they are.

    Args:
        scales: n standard deviations, on the x axis.
        curves: name to n losses in nats; measured ones as points, what is
            predicted, where the name begins with "ln", as a line.
        blind: the loss of a guess among all tokens alike, ln V.
    """
    fig, ax = canvas(3.2)
    styles = iter((("o", COLOURS["token"]), ("s", COLOURS["query"])))
    for name, values in curves.items():
        if name.startswith("ln"):
            ax.plot(scales, values, color=COLOURS["other"], lw=2, label=name)
        else:
            marker, colour = next(styles)
            # hollow: where two points lie on each other both are seen
            how = dict(color=colour, ms=8, mfc="none", mew=1.8, label=name)
            ax.plot(scales, values, marker, **how)
    ax.axhline(blind, color="black", ls="--", lw=1, label="ln V")
    ax.set_xscale("log")
    ax.set_xticks(scales, [f"{scale:g}" for scale in scales])
    ax.minorticks_off()
    ax.set_xlabel("standard deviation of the output matrix's numbers")
    ax.set_ylabel("loss (nats a token)")
    legend_above(ax, len(curves) + 1)
    return fig


def logit_gradient(names, probs, gradient, label):
    r"""One place: what the model expects, and where its logits are pushed.

    Args:
        names: n token texts.
        probs: n probabilities.
        gradient: n numbers, of the loss by each logit.
        label: the token that came.
    """
    fig, ((left, right),) = canvas(3.2, 1, 2)
    places = range(len(names))
    left.barh(places, array(probs), color=COLOURS["probability"])
    left.set_xlabel("probability p")
    values = array(gradient)
    signs = [COLOURS["key" if value > 0 else "query"] for value in values]
    right.barh(places, values, color=signs)
    right.axvline(0, color=COLOURS["other"], lw=0.8)
    right.set_xlabel("gradient: p, and p − 1 at the label")
    for ax in (left, right):
        ax.set_yticks(places, [visible(name) for name in names])
        ax.invert_yaxis()
    right.tick_params(labelleft=False)
    title(left, f"What was expected, and {visible(label)} came")
    title(right, "Blue logits go up, orange ones down")
    return fig


def step_sizes(rates, steps):
    r"""The learning rate of a run, and how far AdamW's first steps go.

    Args:
        rates: a rate for each step.
        steps: name to n lengths of steps, over the learning rate.
    """
    fig, ((left, right),) = canvas(2.9, 1, 2)
    left.plot(range(1, len(rates) + 1), rates, color=LEARNED, lw=2)
    left.set_ylim(0, 1.08 * max(rates))
    left.set_ylabel("learning rate")
    title(left, "Warm-up, then half a cosine")
    for (name, values), style in zip(steps.items(), ("-", "--")):
        places = range(1, len(values) + 1)
        right.plot(places, values, style, color=LEARNED, lw=2, label=name)
    right.set_ylim(0, None)
    right.set_ylabel("step / learning rate")
    right.legend(frameon=False, fontsize=9)
    title(right, "A gradient that stays the same")
    for ax in (left, right):
        ax.set_xlabel("step")
    return fig


def training_curve(steps, losses, held, levels, norms, clip, sample=""):
    r"""A run as far as it has come: losses, gradients, what it writes.

    Args:
        steps: of the whole run: the axes stay as they are while it goes.
        losses: the loss of each step so far.
        held: (step, loss) each, on text kept from training.
        levels: name to a loss in nats, drawn across; the first is the
            highest that is to be seen.
        norms: the gradient's norm at each step so far.
        clip: the norm from which a gradient is made shorter.
        sample: a text that the model made, under the picture.
    """
    fig = plt.figure(figsize=(WIDTH, 4.1))
    left = fig.add_axes((0.065, 0.32, 0.55, 0.62))
    right = fig.add_axes((0.715, 0.32, 0.265, 0.62))
    done = range(1, len(losses) + 1)
    left.plot(done, losses, color="#bbbbbb", lw=0.8)
    left.plot(done, running_mean(losses), color=LEARNED, lw=1.8)
    if held:
        left.plot(*zip(*held), "o-", color=HELD, ms=4, lw=1.6)
    top = max(levels.values())
    for name, level in levels.items():
        left.axhline(level, color="black", ls=":", lw=1)
        at = dict(fontsize=9, ha="right", va="bottom")
        left.text(steps, level + 0.01 * top, f"{name}: {level:.2f}", **at)
    left.set_ylim(0, 1.1 * top)
    left.set_ylabel("loss (nats a token)", fontsize=9)
    at = dict(transform=left.transAxes, fontsize=9, va="top")
    mean = "text that is learned: mean of 20 (grey: each)"
    left.text(0.33, 0.83, mean, color=LEARNED, **at)
    left.text(0.33, 0.75, "text kept from it", color=HELD, **at)
    right.plot(done, norms, color="#bbbbbb", lw=0.8)
    right.plot(done, running_mean(norms), color=LEARNED, lw=1.8)
    right.axhline(clip, color="black", ls=":", lw=1)
    right.set_yscale("log")
    most = 10 if max(norms, default=0) <= 10 else 100
    right.set_ylim(0.1, most)
    ticks = [tick for tick in (0.1, 1, 10, 100) if tick <= most]
    right.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    right.minorticks_off()
    right.set_ylabel("norm of the gradient", fontsize=9, labelpad=2)
    for ax in (left, right):
        ax.set_xlim(0, steps)
        ax.set_xlabel("step", fontsize=9, labelpad=1)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    fig.text(0.01, 0.165, _wrapped(sample, 118, 3), fontsize=9, va="top")
    return fig


def running_mean(values, n=20):
    """The mean of up to n values up to each."""
    values = list(map(float, values))
    return [
        sum(values[max(0, i - n + 1) : i + 1]) / min(i + 1, n)
        for i in range(len(values))
    ]


def _wrapped(text, columns, lines):
    """A text over so many lines at most, legible, no dollar sign special."""
    text = " ".join(legible(text.replace("\n", "⏎ ")).split())
    found = textwrap.wrap(text, columns, max_lines=lines, placeholder=" …")
    return plain("\n".join(found))


def overfitting(runs):
    r"""Text that is learned and text kept from it, one panel a run.

    Args:
        runs: heading to (losses, held): the loss of each step, and (step,
            loss) each.
    """
    fig, axes = canvas(3.1, 1, len(runs), sharey=True)
    axes = [axes] if len(runs) == 1 else list(axes.flat)
    for ax, (heading, (losses, held)) in zip(axes, runs.items()):
        done = range(1, len(losses) + 1)
        mean = running_mean(losses)
        ax.plot(done, mean, color=LEARNED, lw=2, label="text that is learned")
        places, values = zip(*held)
        how = dict(color=HELD, ms=4, lw=2, label="text kept from it")
        ax.plot(places, values, "o-", **how)
        ax.set_xlabel("step")
        title(ax, heading)
    axes[0].set_ylabel("loss (nats a token)")
    axes[0].set_ylim(0, None)
    axes[-1].legend(frameon=False, fontsize=9)
    return fig


def attention_by_step(maps, labels, heading):
    r"""One head's map at several steps of a training, side by side.

    Args:
        maps: name to (T, T) weights, queries down, keys across.
        labels: T token texts.
        heading: over the picture.
    """
    fig, axes = canvas(3.6, 1, len(maps))
    axes = [axes] if len(maps) == 1 else list(axes.flat)
    for ax, (name, weights) in zip(axes, maps.items()):
        image = heatmap(ax, weights, limit=1.0)
        heatmap_ticks(ax, labels, labels, most=24, size=7)
        ax.set_xlabel("key", fontsize=9)
        title(ax, name)
    for ax in axes[1:]:
        ax.tick_params(labelleft=False)
    axes[0].set_ylabel("query", fontsize=9)
    fig.suptitle(plain(heading), x=0.01, ha="left", fontsize=11)
    fig.colorbar(image, ax=axes, label="weight", shrink=0.8, aspect=30)
    return fig


def heads_by_step(steps, weights, losses):
    r"""How far heads look at what is due, and the loss beside it.

    Args:
        steps: n steps.
        weights: (n, L, H): the mean weight on places with the token due.
        losses: name to n losses on held-out text, of some places each.
    """
    weights = array(weights)
    fig, ((left, right),) = canvas(3.1, 1, 2)
    _, L, H = weights.shape
    flat = weights.reshape(len(steps), -1)
    best = [int(each) for each in flat[-1].argsort()[::-1][:2]]
    for each in set(range(L * H)) - set(best):
        left.plot(steps, flat[:, each], color="#bbbbbb", lw=1)
    # the second is dashed: the two may lie on each other
    looks = (COLOURS["attention"], "-"), (COLOURS["probability"], "--")
    for each, (colour, style) in zip(best, looks):
        said = f"layer {each // H}, head {each % H}"
        how = dict(color=colour, ls=style, lw=2.2, label=said)
        left.plot(steps, flat[:, each], **how)
    left.set_ylim(0, None)
    left.set_ylabel("weight on the token due")
    left.legend(frameon=False, fontsize=9, loc="upper left")
    title(left, f"Each of the {L * H} heads")
    for (name, values), style in zip(losses.items(), ("o-", "s--")):
        right.plot(steps, values, style, color=HELD, ms=4, lw=2, label=name)
    right.set_ylim(0, None)
    right.set_ylabel("loss (nats a token)")
    right.legend(frameon=False, fontsize=9)
    title(right, "Text kept from training")
    for ax in (left, right):
        ax.set_xlabel("step")
    return fig


def training_log(tokens, losses, rates, levels):
    r"""A whole training: the loss, and the learning rate under it.

    Args:
        tokens: n counts of tokens read.
        losses: n losses in nats.
        rates: n learning rates.
        levels: name to a loss in nats, drawn across.
    """
    fig, axes = canvas(4.4, 2, 1, sharex=True, height_ratios=(5, 2))
    above, below = axes[:, 0]
    above.plot(tokens, losses, color="#bbbbbb", lw=0.8)
    above.plot(tokens, running_mean(losses), color=LEARNED, lw=1.8)
    for name, level in levels.items():
        above.axhline(level, color="black", ls=":", lw=1)
        at = dict(fontsize=9, ha="right", va="bottom")
        above.text(tokens[-1], level * 1.02, f"{name}: {level:.2f}", **at)
    above.set_yscale("log")
    above.set_ylim(0.5, 10)
    ticks = [0.6, 1, 2, 4, 8]
    above.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    above.minorticks_off()
    above.set_ylabel("loss (nats a token)")
    below.plot(tokens, rates, color=LEARNED, lw=1.8)
    below.set_ylim(0, 1.1 * max(rates))
    below.set_ylabel("learning rate")
    below.set_xlabel("tokens read")
    below.set_xscale("log")  # else the first hundred steps are not seen
    ticks = {10_000: "10,000", 100_000: "100,000"}
    ticks |= {m * 1_000_000: f"{m} million" for m in (1, 10, 100)}
    seen = [n for n in ticks if tokens[0] <= n <= tokens[-1]]
    below.set_xticks(seen, [ticks[n] for n in seen])
    below.minorticks_off()
    fig.align_ylabels()
    return fig


def snapshot(heading, sample, names, probs, weights, labels, head):
    r"""A model at one step of its training: what it writes, where it looks.

    Args:
        heading: over all of it.
        sample: a text that it made.
        names: n token texts, and probs: their probabilities.
        weights: (T, T) of one head; labels: T token texts.
        head: its name.
    """
    fig = plt.figure(figsize=(WIDTH, 4.6))
    fig.text(0.01, 0.975, plain(heading), fontsize=11, va="top")
    fig.text(0.01, 0.915, _wrapped(sample, 118, 3), fontsize=9, va="top")
    left = fig.add_axes((0.13, 0.12, 0.28, 0.55))
    places = range(len(names))
    left.barh(places, array(probs), color=COLOURS["probability"])
    left.set_yticks(places, [visible(name) for name in names])
    left.invert_yaxis()
    left.set_xlim(0, 1)
    left.set_xlabel("probability", fontsize=9)
    left.set_title("the next token", loc="left", fontsize=10)
    left.spines[["top", "right"]].set_visible(False)
    right = fig.add_axes((0.56, 0.2, 0.42, 0.51))
    heatmap(right, weights, limit=1.0)
    T = len(labels)
    shown = [visible(label) for label in labels]
    right.set_yticks(range(T), shown, fontsize=7)
    across = dict(rotation=60, ha="right", rotation_mode="anchor")
    right.set_xticks(range(T), shown, fontsize=7, **across)
    right.tick_params(length=0)
    right.set_title(plain(head), loc="left", fontsize=10)
    left.tick_params(labelsize=9)
    return fig


# -- the widget

def training(llama, snapshots, ids, head=(0, 0)) -> Play:
    r"""A training, step by step: what was written, expected, looked at.

    Args:
        llama: the model that was trained; its tokenizer has the words.
        snapshots: Snapshots in the order of their steps.
        ids: the T ids of the text that they were taken on.
        head: layer and head to open with.

    Returns:
        a Play of `step`, which opens with the last, and `head`.
    """
    labels = [llama.tokenizer.decode([i]) for i in ids]
    shots = {shot.step: shot for shot in snapshots}
    L, H = snapshots[0].maps.shape[:2]
    heads = [
        (f"layer {layer}, head {h}", (layer, h))
        for layer in range(L)
        for h in range(H)
    ]

    def draw(step, head):
        shot = shots[step]
        top = shot.probs.topk(min(8, len(shot.probs)))
        layer, h = head
        return snapshot(
            f"step {step}: loss {shot.loss:.2f}, held out {shot.held:.2f}",
            shot.sample,
            [llama.tokenizer.decode([i]) for i in top.indices.tolist()],
            top.values,
            shot.maps[layer, h],
            labels,
            f"where layer {layer}, head {h} looks",
        )

    return Play(
        draw,
        step=ipw.SelectionSlider(
            options=list(shots), value=snapshots[-1].step, description="step"
        ),
        head=ipw.Dropdown(
            options=heads, value=tuple(head), description="head"
        ),
    )
