r"""The pictures of notebook 08."""

import ipywidgets as ipw
import torch

from .base import COLOURS, canvas, plain, visible
from ..sampling import next_token_probs
from .play import Play
from .model_map import strip  # noqa: F401


def unit_interval(labels, probabilities, draws, title=""):
    r"""The interval from 0 to 1 cut into lengths that are probabilities.

    Args:
        labels: n token texts.
        probabilities: n floats; what they leave of 1 is one grey piece.
        draws: numbers from 0 to 1, drawn as marks under the interval.
        title: over the picture.
    """
    fig, ax = canvas(1.9)
    start = 0.0
    for i, (label, p) in enumerate(zip(labels, probabilities, strict=True)):
        colour = COLOURS["probability"] if i % 2 else "#F5CC73"
        ax.barh(0, p, left=start, color=colour, ec="white", lw=1)
        if p > 0.025:
            name, upright = visible(label), p < 0.011 * len(visible(label))
            ax.text(
                start + p / 2,
                0,
                name,
                ha="center",
                va="center",
                fontsize=9,
                rotation=90 if upright else 0,
            )
        start += p
    ax.barh(0, max(1 - start, 0), left=start, color=COLOURS["other"])
    ax.plot(draws, [-0.5] * len(draws), "^", color="black", ms=6)
    ax.set_xlim(-0.005, 1.005)
    ax.set_ylim(-0.65, 0.45)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("u, uniform from 0 to 1: ▲ the numbers drawn")
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def frequencies(labels, wanted, found, n, title=""):
    r"""How often each token was drawn, beside its probability.

    Args:
        labels: m token texts.
        wanted: m probabilities, the bars.
        found: m shares of the draws, the dots.
        n: draws; the whiskers are 3 standard deviations, √(p(1-p)/n).
        title: over the picture.
    """
    fig, ax = canvas(3.0)
    places = range(len(labels))
    ax.bar(places, wanted, color=COLOURS["probability"], label="probability")
    ax.errorbar(
        places,
        found,
        yerr=[3 * (p * (1 - p) / n) ** 0.5 for p in wanted],
        fmt="o",
        ms=4,
        color="black",
        capsize=3,
        label="share of the draws, ±3 standard deviations",
    )
    names = [visible(label) for label in labels]
    ax.set_xticks(
        places, names, rotation=30, ha="right", rotation_mode="anchor"
    )
    ax.set_ylabel("probability, share")
    ax.legend(frameon=False, fontsize=9)
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def entropy_by_temperature(temperatures, series, limit, title=""):
    r"""Entropy against temperature, from sure to uniform.

    Args:
        temperatures: m numbers over 0, the x axis.
        series: up to three names with m entropies each, in nats.
        limit: the entropy of the uniform distribution, ln V.
        title: over the picture.
    """
    fig, ax = canvas(3.2)
    ax.axhline(limit, color=COLOURS["other"], ls="--", lw=1.2)
    ax.text(temperatures[0], limit, "uniform: ln V ", va="bottom", fontsize=9)
    ax.axvline(1, color=COLOURS["other"], ls=":", lw=1.2)
    roles = ("probability", "plain", "other")
    for role, (name, values) in zip(roles, series.items()):
        ax.plot(
            temperatures, values, color=COLOURS[role], lw=2, label=plain(name)
        )
    ax.set_xscale("log")
    ticks = [t for t in (0.1, 0.3, 1, 3, 10, 30, 100) if t >= temperatures[0]]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 1.12 * limit)
    ax.set_xlabel("temperature T (logarithmic)")
    ax.set_ylabel("entropy (nats)")
    ax.legend(frameon=False, fontsize=9, loc="center right")
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def reshaped(labels, panels, rest, title=""):
    r"""One distribution in several shapes, side by side.

    Args:
        labels: n token texts, the likeliest first.
        panels: name to (n + 1 probabilities before, n + 1 after); the last
            is that of all other tokens together. Where after is 0 and
            before is not, the token is cut off: its bar is grey.
        rest: what to call all other tokens together.
        title: over the picture.
    """
    fig, axes = canvas(
        1.1 + 0.25 * len(labels), 1, len(panels), sharey=True, sharex=True
    )
    names = [visible(label) for label in labels] + [plain(rest)]
    rows = range(len(names))[::-1]
    axes = [axes] if len(panels) == 1 else axes[0]
    for ax, (name, (before, after)) in zip(axes, panels.items()):
        cut = [b if a == 0 else 0 for b, a in zip(before, after)]
        ax.barh(rows, cut, color=COLOURS["other"], alpha=0.6, height=0.7)
        ax.barh(rows, after, color=COLOURS["probability"], height=0.7)
        for row, a in zip(rows, after):
            if a >= 0.005:
                ax.text(a, row, f" {a:.2f}", va="center", fontsize=8)
        ax.set_title(plain(name), loc="left", fontsize=9)
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=4)
    most = max(max(*b, *a) for b, a in panels.values())
    axes[0].set_xlim(0, 1.3 * most)
    axes[0].set_yticks(rows, names)
    fig.supxlabel("probability of being drawn (grey: cut off)", fontsize=9)
    fig.suptitle(plain(title), x=0.01, ha="left", fontsize=11)
    return fig


def sample_tree(paths, root, title=""):
    r"""Several samples of one prompt as a tree that branches.

    Args:
        paths: each sample's token texts; lines are as thick as the number of
            samples that share them.
        root: the end of the prompt, at the left.
        title: over the picture.
    """
    lines, leaves = _branches(sorted(paths))
    shared = {place: count for _, place, count, _ in lines}
    depth = max(map(len, paths))
    fig, ax = canvas(0.7 + 0.36 * leaves)
    ax.axis("off")
    ax.set_xlim(-0.5, depth + 0.5)
    ax.set_ylim(-leaves + 0.4, 0.6)
    for start, (x, y), count, label in lines:
        if start is not None:
            middle = (start[0] + x) / 2
            stem = [start[0], middle], [start[1], start[1]]
            branch = [middle, middle + 0.1, x], [start[1], y, y]
            for line, n in ((stem, shared[start]), (branch, count)):
                ax.plot(
                    *line,
                    color=COLOURS["token"],
                    lw=n + 0.5,
                    solid_capstyle="butt",
                    zorder=1,
                )
        name = visible(label if x else root)
        name += f" ×{count}" if count > 1 else ""
        box = dict(boxstyle="round,pad=0.25", fc="white", ec="#bbbbbb")
        ax.text(x, y, name, ha="center", va="center", fontsize=8, bbox=box)
    ax.set_title(plain(title), loc="left", fontsize=11)
    return fig


def _branches(paths, depth=0, top=0):
    """The tree of sorted paths: its lines, and how many leaves it has.

    A line is (from, to, samples, text), the root's first and from None; a
    place is (depth, height), the leaves 1 apart from -top down.
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
    r"""Temperature, top-k and top-p over the live distribution.

    The logits are computed once for each text. Temperature 0 is greedy; k = 0
    and p = 1 leave their step out.

    Args:
        llama: a Llama with a tokenizer.
        text: the prompt that it opens with.
    """
    known = {}

    def last_logits(text):
        if text not in known:
            ids = llama.tokenizer.encode(text, bos=True, eos=False)
            tokens = torch.tensor(ids, device=llama.device)  # (T,)
            with torch.inference_mode():
                row = llama(tokens, last_only=True)[-1]  # (V,)
            known.clear()
            known[text] = row, torch.softmax(row.float(), dim=-1)
        return known[text]

    def draw(text, temperature, k, p):
        row, before = last_logits(text)
        if temperature == 0:
            after = torch.zeros_like(before)
            after[row.argmax()] = 1
        else:
            after = next_token_probs(row, temperature, k or None, p)
        top = before.topk(min(11, len(before))).indices
        shapes = {}
        for name, probs in (("as it is", before), ("reshaped", after)):
            kept = f"{(probs > 0).sum():,} of {len(probs):,} tokens"
            nats = torch.special.entr(probs).sum()
            shapes[f"{name}: {kept}, {nats:.2f} nats"] = (
                bars(before, top),
                bars(probs, top),
            )
        return reshaped(
            [llama.tokenizer.decode([i]) for i in top.tolist()],
            shapes,
            f"{len(before) - len(top):,} others",
            f"{text} …",
        )

    def bars(probs, top):
        others = probs.index_fill(0, top, 0).sum()  # 0 where all are cut
        return [*probs[top].tolist(), others.item()]

    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        temperature=ipw.FloatSlider(
            value=0.7, min=0, max=3, step=0.05, description="temperature"
        ),
        k=ipw.IntSlider(
            value=0, min=0, max=50, description="k (0: every token)"
        ),
        p=ipw.FloatSlider(
            value=0.9, min=0.05, max=1, step=0.05, description="p (1: off)"
        ),
    )
