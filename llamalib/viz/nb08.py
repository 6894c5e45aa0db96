r"""Pictures and widget of notebook 08."""

import ipywidgets as ipw
import torch

from ..sampling import next_token_probs
from . import charts
from .base import COLOURS, canvas, heading, legible, panels, plain, visible
from .model_map import strip  # noqa: F401
from .play import Play


def unit_interval(labels, probabilities, draws, title=""):
    r"""Draw the interval from 0 to 1, cut into pieces that are probabilities.

    Args:
        labels: n tokens.
        probabilities: n numbers; the rest up to 1 is grey.
        draws: numbers from 0 to 1, marked under the interval.
        title: over the picture.
    """
    fig, ax = canvas(1.9)
    start = 0.0
    for i, (label, p) in enumerate(zip(labels, probabilities, strict=True)):
        tone = COLOURS["probability"] if i % 2 else "#F5CC73"
        ax.barh(0, p, left=start, color=tone, ec="white", lw=1)
        if p > 0.025:
            name = visible(label)
            angle = 90 if p < 0.011 * len(name) else 0
            charts.write(ax, start + p / 2, 0, name, rotation=angle)
        start += p
    ax.barh(0, max(1 - start, 0), left=start, color=COLOURS["other"])
    ax.plot(draws, [-0.5] * len(draws), "^", color="black", ms=6)
    ax.spines["left"].set_visible(False)
    x, limits = "u, uniform from 0 to 1: ▲ the numbers drawn", (-0.005, 1.005)
    charts.finish(ax, title, x, xlim=limits, ylim=(-0.65, 0.45), yticks=[])
    return fig


def frequencies(labels, wanted, found, n, title=""):
    r"""Draw how often each token was drawn, and its probability.

    Args:
        labels: m tokens.
        wanted: m probabilities, the bars.
        found: m shares of the draws, the dots.
        n: draws; the whiskers are 3 standard deviations, √(p(1-p)/n).
        title: over the picture.
    """
    fig, ax = canvas(3.0)
    places = range(len(labels))
    ax.bar(places, wanted, color=COLOURS["probability"], label="probability")
    whiskers = [3 * (p * (1 - p) / n) ** 0.5 for p in wanted]
    name = "share of the draws, ±3 standard deviations"
    style = dict(fmt="o", ms=4, color="black", capsize=3, label=name)
    ax.errorbar(places, found, whiskers, **style)
    names = [visible(label) for label in labels]
    style = dict(rotation=30, ha="right", rotation_mode="anchor")
    ax.set_xticks(places, names, **style)
    charts.finish(ax, title, y="probability, share", legend="best")
    return fig


def entropy_by_temperature(temperatures, series, limit, title=""):
    r"""Draw entropy against temperature, from one sure token to uniform.

    Args:
        temperatures: m numbers over 0.
        series: up to three names with m entropies each, in nats.
        limit: the entropy of the uniform distribution, ln V.
        title: over the picture.
    """
    fig, ax = canvas(3.2)
    ax.axhline(limit, color=COLOURS["other"], ls="--", lw=1.2)
    ax.text(temperatures[0], limit, "uniform: ln V ", va="bottom", fontsize=9)
    ax.axvline(1, color=COLOURS["other"], ls=":", lw=1.2)
    looks = [(role, "-") for role in ("probability", "plain", "other")]
    charts.lines(ax, series, looks, temperatures)
    ticks = [t for t in (0.1, 0.3, 1, 3, 10, 30, 100) if t >= temperatures[0]]
    charts.log_axis(ax, "x", ticks, "{:g}".format)
    x, y = "temperature T (logarithmic)", "entropy (nats)"
    top = 1.12 * limit
    charts.finish(ax, title, x, y, legend="center right", ylim=(0, top))
    return fig


def reshaped(labels, shapes, rest, title="", margins=None):
    r"""Draw one distribution in several shapes, side by side.

    Args:
        labels: n tokens, the likeliest first.
        shapes: name to (n + 1 probabilities before, n + 1 after); the last
            is all other tokens'. Cut-off tokens, 0 after, have grey bars.
        rest: name of all other tokens.
        title: over the picture.
        margins: see `canvas`.
    """
    height, options = 1.1 + 0.25 * len(labels), dict(sharex=True, sharey=True)
    fig, axes = panels(height, len(shapes), margins=margins, **options)
    names = [visible(label) for label in labels] + [plain(rest)]
    rows = range(len(names))[::-1]
    for ax, (name, (before, after)) in zip(axes, shapes.items()):
        cut = [b if a == 0 else 0 for b, a in zip(before, after)]
        ax.barh(rows, cut, 0.7, color=COLOURS["other"], alpha=0.6)
        ax.barh(rows, after, 0.7, color=COLOURS["probability"])
        for row, a in zip(rows, after):
            if a >= 0.005:
                charts.write(ax, a, row, f" {a:.2f}", 8, ha="left")
        ax.set_title(plain(name), loc="left", fontsize=9)
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=4)
    most = max(max(*b, *a) for b, a in shapes.values())
    axes[0].set_xlim(0, 1.3 * most)
    axes[0].set_yticks(rows, names)
    fig.supxlabel("probability of being drawn (grey: cut off)", fontsize=9)
    heading(fig, title)
    return fig


def sample_tree(paths, root, title=""):
    r"""Draw several samples of one prompt as a tree that branches.

    Args:
        paths: each sample's tokens; a line is as thick as the number of
            samples that share it.
        root: the end of the prompt, at the left.
        title: over the picture.
    """
    lines, leaves = _branches(sorted(paths))
    shared = {place: count for _, place, count, _ in lines}
    fig, ax = canvas(0.7 + 0.36 * leaves)
    ax.axis("off")
    style = dict(color=COLOURS["token"], solid_capstyle="butt", zorder=1)
    box = dict(boxstyle="round,pad=0.25", fc="white", ec="#bbbbbb")
    for start, (x, y), count, label in lines:
        if start is not None:
            x0, y0 = start
            fork = (x0 + x) / 2
            ax.plot([x0, fork], [y0, y0], lw=shared[start] + 0.5, **style)
            bend = [fork, fork + 0.1, x], [y0, y, y]
            ax.plot(*bend, lw=count + 0.5, **style)
        name = visible(label if x else root)
        name += f" ×{count}" if count > 1 else ""
        charts.write(ax, x, y, name, 8, bbox=box)
    limits = (-0.5, max(map(len, paths)) + 0.5)
    charts.finish(ax, title, xlim=limits, ylim=(-leaves + 0.4, 0.6))
    return fig


def _branches(paths, depth=0, top=0):
    """Return the lines of a tree of sorted paths, and its number of leaves.

    A line is (from, to, samples, text). The root comes first, with from None.
    A place is (depth, height); leaves are 1 apart, from -top down.
    """
    deeper = {}
    for path in paths:
        if len(path) > depth:
            deeper.setdefault(path[depth], []).append(path)
    branches, leaves = [], 0
    for group in deeper.values():
        lines, more = _branches(group, depth + 1, top + leaves)
        branches.append(lines)
        leaves += more
    heights = [lines[0][1][1] for lines in branches] or [-top]
    here = (depth, sum(heights) / len(heights))
    text = paths[0][depth - 1] if depth else ""
    found = [(None, here, len(paths), text)]
    for (_, *child), *others in branches:
        found += [(here, *child), *others]
    return found, max(leaves, 1)


# -- the widget


def sampling(llama, text: str) -> Play:
    r"""Return sliders of temperature, top-k and top-p over a distribution.

    Temperature 0 is greedy; k = 0 and p = 1 leave their step out.

    Args:
        llama: with its tokenizer; runs once per text.
        text: the prompt shown first.
    """
    known = {}

    def last_logits(text):
        if text not in known:
            ids = llama.tokenizer.encode(text, bos=True, eos=False)
            with torch.inference_mode():
                logits = llama(torch.tensor(ids), last_only=True)[-1]  # (V,)
            known.clear()
            known[text] = logits
        return known[text]

    def draw(text, temperature, k, p):
        logits = last_logits(text)
        before = logits.softmax(-1)  # (V,)
        if temperature == 0:
            after = torch.zeros_like(before)
            after[logits.argmax()] = 1
        else:
            after = next_token_probs(logits, temperature, k or None, p)
        top = before.topk(min(11, len(before))).indices
        shapes = {}
        for name, probs in (("as it is", before), ("reshaped", after)):
            kept = f"{(probs > 0).sum():,} of {len(probs):,} tokens"
            nats = torch.special.entr(probs).sum()
            shape = with_others(before, top), with_others(probs, top)
            shapes[f"{name}: {kept}, {nats:.2f} nats"] = shape
        labels = [llama.tokenizer.decode([i]) for i in top.tolist()]
        rest = f"{len(before) - len(top):,} others"
        margins = (0.14, 0.13, 0.99, 0.85, 0.05)
        return reshaped(labels, shapes, rest, f"{legible(text)} …", margins)

    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        temperature=slider(0.7, 0, 3, "temperature"),
        k=ipw.IntSlider(0, 0, 50, description="k (0: every token)"),
        p=slider(0.9, 0.05, 1, "p (1: off)"),
    )


def with_others(probs, top) -> list[float]:
    """Return the probabilities of some ids, then that of all others."""
    others = probs.index_fill(0, top, 0).sum()  # exactly 0 if all are cut
    return [*probs[top].tolist(), others.item()]


def slider(value, low, high, description):
    return ipw.FloatSlider(
        value, min=low, max=high, step=0.05, description=description
    )
