r"""Pictures and widget of notebook 08."""

from functools import lru_cache

import ipywidgets as ipw
import torch
import torch.nn.functional as F

from ..generate import next_token_probs
from . import charts
from .base import COLOURS, canvas, heading, panels, plain, visible
from .model_map import strip  # noqa: F401
from .play import Play, token_texts


def unit_interval(labels, probabilities, draws, title=""):
    """Draw n tokens' intervals between 0 and 1, and numbers drawn."""
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
    ax.set(xlim=(-0.005, 1.005), ylim=(-0.65, 0.45), yticks=[])
    x = "u, uniform from 0 to 1: ▲ the numbers drawn"
    return charts.finish(ax, title, x)


def entropy_by_temperature(temperatures, series, limit, title=""):
    """Draw up to three names' entropies in nats; limit: ln V."""
    fig, ax = canvas(3.2)
    ax.axhline(limit, color=COLOURS["other"], ls="--", lw=1.2)
    ax.text(temperatures[0], limit, "uniform: ln V ", va="bottom", fontsize=9)
    ax.axvline(1, color=COLOURS["other"], ls=":", lw=1.2)
    looks = [(role, "-") for role in ("probability", "plain", "other")]
    charts.lines(ax, series, looks, temperatures)
    ticks = [t for t in (0.1, 0.3, 1, 3, 10, 30, 100) if t >= temperatures[0]]
    charts.log_axis(ax, "x", ticks, "{:g}".format)
    ax.set_ylim(0, 1.12 * limit)
    x, y = "temperature T (logarithmic)", "entropy (nats)"
    return charts.finish(ax, title, x, y, legend="center right")


def reshaped(labels, shapes, rest, title="", margins=None):
    r"""Draw one distribution in several shapes; cut-off tokens are grey.

    labels: n tokens, the most likely first.
    shapes: name to (n + 1 probabilities before, n + 1 after); the last is
    that of all other tokens, whose name is `rest`.
    """
    height, both = 1.1 + 0.25 * len(labels), dict(sharex=True, sharey=True)
    fig, axes = panels(height, len(shapes), margins=margins, **both)
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
    axes[0].set_xlim(0, 1.3 * max(max(*b, *a) for b, a in shapes.values()))
    axes[0].set_yticks(rows, names)
    fig.supxlabel("probability of being drawn (grey: cut off)", fontsize=9)
    heading(fig, title)
    return fig


def sample_tree(paths, root, title=""):
    """Draw samples, lists of tokens after a root, as a tree."""
    paths = [tuple(path) for path in paths]
    nodes = sorted({path[:n] for path in paths for n in range(len(path) + 1)})
    heights, leaves = {}, 0
    for node in reversed(nodes):  # each after the nodes below it
        under = [y for n, y in heights.items() if n[:-1] == node]
        heights[node] = sum(under) / len(under) if under else leaves
        leaves += not under
    fig, ax = canvas(0.7 + 0.36 * leaves)
    ax.axis("off")
    style = dict(color=COLOURS["token"], solid_capstyle="butt", zorder=1)
    box = dict(boxstyle="round,pad=0.25", fc="white", ec="#bbbbbb")
    counts = {n: sum(p[: len(n)] == n for p in paths) for n in nodes}
    for node in nodes:
        x, y, count = len(node), heights[node], counts[node]
        if node:
            start, fork = heights[node[:-1]], x - 0.5
            width = counts[node[:-1]] + 0.5
            ax.plot([x - 1, fork], [start, start], lw=width, **style)
            bend = [fork, fork + 0.1, x], [start, y, y]
            ax.plot(*bend, lw=count + 0.5, **style)
        name = visible(node[-1] if node else root)
        name += f" ×{count}" if count > 1 else ""
        charts.write(ax, x, y, name, 8, bbox=box)
    ax.set(xlim=(-0.5, max(map(len, paths)) + 0.5), ylim=(-0.6, leaves - 0.4))
    return charts.finish(ax, title)


def sampling(llama, text: str) -> Play:
    """Return a prompt box with sliders of temperature, top-k and top-p."""

    @lru_cache(maxsize=1)
    def last_logits(text):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)
        ids = ids[:1] + ids[1:][-63:]  # so that an answer takes under 200 ms
        with torch.inference_mode():
            return llama(torch.tensor(ids), last_only=True)[-1]  # (V,)

    def draw(text, temperature, k, p):
        found = _reshape(llama, last_logits(text), temperature, k, p)
        margins = (0.14, 0.13, 0.99, 0.81, 0.05)
        return reshaped(*found, f"{text[-60:]} …", margins)

    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        temperature=_slider(0.7, 0, 3, "temperature"),
        k=ipw.IntSlider(0, 0, 50, description="k (0: every token)"),
        p=_slider(0.9, 0.05, 1, "p (1: off)"),
    )


def _slider(value, low, high, description):
    style = dict(step=0.05, description=description)
    return ipw.FloatSlider(value, min=low, max=high, **style)


def _reshape(llama, logits, temperature, k, p):
    """Return what `reshaped` draws; temperature 0 is greedy, k 0 all."""
    before = logits.softmax(-1)  # (V,)
    after = F.one_hot(logits.argmax(), len(logits)).float()
    if temperature > 0:
        after = next_token_probs(logits, temperature, k or None, p)
    top = before.topk(min(11, len(before))).indices

    def bars(probs):
        others = probs.index_fill(0, top, 0).sum()  # exactly 0 if all are cut
        return [*probs[top].tolist(), others.item()]

    shapes = {}
    settings = f"T = {temperature:g}, k = {k or 'off'}, p = {p:g}"
    for name, probs in (("as it is", before), (settings, after)):
        n, nats = (probs > 0).sum(), torch.special.entr(probs).sum()
        name += f"\n{n:,} of {len(probs):,} tokens, {nats:.2f} nats"
        shapes[name] = bars(before), bars(probs)
    rest = f"{len(before) - len(top):,} others"
    return token_texts(llama, top.tolist()), shapes, rest
