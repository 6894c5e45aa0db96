"""Pictures, widgets and checks of notebook 08."""

import math
from functools import lru_cache

import ipywidgets as ipw
import torch
import torch.nn.functional as F
from torch import Tensor

from llamalib.sampling import next_token_probs

from . import charts
from .judge import alike, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play, token_texts
from .texts import begin_and_text
from .theme import COLOURS, array, canvas, heading, panels, plain, visible


def copies(series):
    """Draw the mean probability of a sentence's tokens after others.

    series: name to values after 0, 1, 2, … sentences.
    """
    fig, ax = canvas(2.6)
    looks = ("probability", "o-"), ("other", "s--")
    counts = range(len(next(iter(series.values()))))
    charts.lines(ax, series, looks, counts)
    title = "Mean probability of a sentence's tokens"
    labels = title, "sentences before it", "probability"
    style = dict(ylim=(0, 1), xticks=counts, legend="right")
    return charts.finish(ax, *labels, **style)


def token_probabilities(series, title=""):
    """Draw tokens' probabilities as bars, a row of the picture for each name.

    series: name to n probabilities, in the order of the text.
    """
    fig, axes = panels(0.5 + 0.95 * len(series), 1, len(series), sharex=True)
    for ax, (name, values) in zip(axes, series.items(), strict=True):
        heights = array(values)
        ax.bar(range(len(heights)), heights, 0.9, color=COLOURS["probability"])
        ax.set(ylim=(0, 1), yticks=(0, 1), xlim=(-1, len(heights)))
        ax.set_title(plain(name), loc="left", fontsize=9)
    axes[-1].set_xlabel("number of the token", fontsize=9)
    fig.supylabel("probability", fontsize=9)
    return heading(fig, title)


def reshaped(llama, shapes, title="", margins=None):
    r"""Draw one distribution in several shapes; cut-off tokens are grey.

    shapes: name to probabilities (V,); the first are those before.
    """
    before = next(iter(shapes.values()))
    top = before.topk(min(11, len(before))).indices
    names = [visible(each) for each in token_texts(llama, top.tolist())]
    names.append(plain(f"{len(before) - len(top):,} others"))
    rows = range(len(names))[::-1]

    def bars(probs):
        others = probs.index_fill(0, top, 0).sum()  # exactly 0 if all are cut
        return [*probs[top].tolist(), others.item()]

    height, both = 1.1 + 0.25 * len(top), dict(sharex=True, sharey=True)
    fig, axes = panels(height, len(shapes), margins=margins, **both)
    for ax, (name, probs) in zip(axes, shapes.items(), strict=True):
        after, nats = bars(probs), torch.special.entr(probs).sum()
        pairs = zip(bars(before), after, strict=True)
        cut = [b if a == 0 else 0 for b, a in pairs]
        ax.barh(rows, cut, 0.7, color=COLOURS["other"], alpha=0.6)
        ax.barh(rows, after, 0.7, color=COLOURS["probability"])
        for row, a in zip(rows, after, strict=True):
            if a >= 0.005:
                charts.write(ax, a, row, f" {a:.2f}", 8, ha="left")
        name += f"\n{(probs > 0).sum():,} tokens, {nats:.2f} nats"
        ax.set_title(plain(name), loc="left", fontsize=8)
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=4)
    most = max(value for probs in shapes.values() for value in bars(probs))
    axes[0].set_xlim(0, 1.3 * most)
    axes[0].set_yticks(rows, names)
    fig.supxlabel("probability of being drawn (grey: cut off)", fontsize=9)
    return heading(fig, title)


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
        start, ids = begin_and_text(llama.tokenizer, text)
        ids = start + ids[-63:]  # so that an answer takes under 200 ms
        with torch.inference_mode():
            return llama(torch.tensor(ids), last_only=True)[-1]  # (V,)

    def draw(text, temperature, k, p):
        z = last_logits(text)
        after = F.one_hot(z.argmax(), len(z)).float()  # greedy
        if temperature > 0:
            after = next_token_probs(z, temperature, k or None, p)
        settings = f"temperature {temperature:g}, k {k or 'off'}, p = {p:g}"
        shapes = {"as it is": z.softmax(-1), settings: after}
        margins = (0.14, 0.13, 0.99, 0.81, 0.05)
        return reshaped(llama, shapes, f"{text[-60:]} …", margins)

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


# -- the checks of the exercises --


def random_logits(*shape: int, spread: float = 1.0) -> Tensor:
    """Return logits from a normal distribution, the same in each call."""
    return spread * torch.randn(*shape, generator=draws())


@exercise(1, "probabilities, one for each token")
def check_1(answer):
    """Judge top_k_probs(logits, k), which keeps exactly k tokens."""
    n, k, steps = vary((50, 7, 0), (40, 5, 1), (60, 9, 2), (35, 6, 3))
    small, large = random_logits(n), random_logits(3000, spread=3)
    tied = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0, 0.0]).roll(steps)
    # torch.sort keeps the order of short rows even where it need not
    levels = torch.randint(3, (100,), generator=draws(1)).float()
    cases = [(small, k), (large, 3 * k - 1), (small, 1), (small, n)]
    cases += [(tied, 3), (tied, 1), (levels, n)]
    named = {f"k = {case[1]}: the result": case for case in cases[:4]}
    named |= {f"tied logits, k = {c[1]}: the result": c for c in cases[4:]}
    alike(answer, "08_sampling", 1, named)
    return "the k most likely, summing to 1"


@exercise(2, "probabilities, one for each token")
def check_2(answer):
    """Judge retemper(probs, temperature)."""
    cases = [
        (z.double().softmax(-1), temperature)
        for z in (random_logits(50), random_logits(3000, spread=3))
        for temperature in vary((0.5, 2.0), (0.7, 1.6), (0.4, 3.0))
    ]
    alike(answer, "08_sampling", 2, cases)
    cold = vary(0.02, 0.018, 0.015, 0.025)  # p ** (1 / cold) rounds to 0
    case = random_logits(3000).softmax(-1), cold
    alike(answer, "08_sampling", 2, {f"temperature {cold}: the result": case})
    return "the power 1/τ, renormalized"


@exercise(3, "logits")
def check_3(answer):
    """Judge keep_min_p(logits, m)."""
    batch, cube = random_logits(4, 50, spread=1.5), random_logits(2, 3, 60)
    cases = {}
    for z in (batch, random_logits(3000, spread=3), cube):
        for m in vary((0.03, 0.2, 1.0), (0.05, 0.3, 1.0), (0.02, 0.1, 1.0)):
            top = z.amax(-1, keepdim=True)
            near = (z < top) & ((z - top - math.log(m)).abs() < 1e-4)
            z = z - 3e-4 * near  # so that no rounding decides
            cases[f"m = {m}, logits {tuple(z.shape)}: the result"] = z, m
    alike(answer, "08_sampling", 3, cases)
    return "at least m times the most likely, in each row"
