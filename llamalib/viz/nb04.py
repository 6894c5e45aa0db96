r"""The pictures of notebook 04."""

import cmath
import ipywidgets as ipw
import torch

import math

import matplotlib.pyplot as plt

from .base import AMOUNT, COLOURS, canvas, heatmap, title
from ..rmsnorm import rms_norm
from .play import Play
from .model_map import strip  # noqa: F401
from .base import visible  # noqa: F401


def _circle(ax, x=0.0, y=0.0, radius=1.0):
    """The circle on which an arrow turns."""
    ax.add_patch(
        plt.Circle((x, y), radius, fc="none", ec="#dddddd", lw=1, zorder=0)
    )


def _arrow(ax, tip, colour, start=(0, 0), **style):
    """An arrow from start, by tip."""
    end = (start[0] + tip[0], start[1] + tip[1])
    style = dict(arrowstyle="-|>", color=colour, lw=2) | style
    style |= dict(shrinkA=0, shrinkB=0)
    ax.annotate("", end, start, arrowprops=style)


def _plane(ax, radius: float) -> None:
    """A plane with its origin in the middle, and nothing around it."""
    ax.set_xlim(-1.28 * radius, 1.28 * radius)
    ax.set_ylim(-1.28 * radius, 1.28 * radius)
    ax.set_aspect("equal")
    ax.axhline(0, color="#dddddd", lw=0.8, zorder=0)
    ax.axvline(0, color="#dddddd", lw=0.8, zorder=0)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def _arc(ax, start, sweep, radius):
    """The arc from an angle on, in radians, counter-clockwise."""
    steps = [start + sweep * i / 60 for i in range(61)]
    xs = [radius * math.cos(a) for a in steps]
    ys = [radius * math.sin(a) for a in steps]
    ax.plot(xs, ys, color="black", lw=1.4)


def turning(vectors, heading=""):
    r"""One pair of numbers at successive positions: as arrows, as waves.

    Args:
        vectors: (M, 2) numbers, row m as turned by position m, M from 2.
        heading: over the picture.
    """
    vectors = [[float(v) for v in row] for row in vectors]
    count = len(vectors)
    radius = max(math.hypot(*v) for v in vectors)
    shades = [AMOUNT(0.3 + 0.7 * m / (count - 1)) for m in range(count)]
    fig, axes = canvas(3.5, 1, 2, width_ratios=[1, 1.45])
    circle, waves = axes[0]
    _plane(circle, radius)
    _circle(circle, radius=radius)
    for m, (v, shade) in enumerate(zip(vectors, shades)):
        _arrow(circle, v, shade)
        x, y = (1.15 * a for a in v)
        circle.text(x, y, str(m), ha="center", va="center", fontsize=9)
    title(circle, heading)
    for i, (style, name) in enumerate((("-", "first"), ("--", "second"))):
        heights = [v[i] for v in vectors]
        waves.plot(heights, style, color="#777777", lw=1, zorder=1)
        waves.scatter(range(count), heights, color=shades, s=34, zorder=2)
        end = (count - 1, heights[-1])
        waves.annotate(
            f"{name} number",
            end,
            (8, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    waves.set_xlim(-0.4, (count - 1) * 1.32)
    waves.set_xticks(range(0, count, max(1, count // 9)))
    waves.set_xlabel("position m")
    waves.set_ylabel("value")
    return fig


def kept_angle(shots):
    r"""A query and a key turned by several pairs of positions, side by side.

    Only directions are drawn: each arrow has its role's fixed length.

    Args:
        shots: (heading, query, key, score) for each panel; query and key
            are two numbers each.
    """
    fig, axes = canvas(3.3, 1, len(shots))
    for ax, (heading, *vectors, score) in zip(axes.flat, shots):
        _plane(ax, 1)
        _circle(ax)
        angles = [math.atan2(float(y), float(x)) for x, y in vectors]
        for role, angle in zip(("query", "key"), angles):
            x, y = math.cos(angle), math.sin(angle)
            _arrow(ax, (x, y), COLOURS[role])
            ax.text(
                1.15 * x,
                1.15 * y,
                role,
                color=COLOURS[role],
                ha="center",
                va="center",
                fontsize=9,
            )
        sweep = math.remainder(angles[1] - angles[0], math.tau)
        _arc(ax, angles[0], sweep, 0.35)
        ax.set_title(heading, fontsize=10)
        ax.set_xlabel(
            f"angle {math.degrees(sweep):.1f}°, score {score:.4f}", fontsize=9
        )
    return fig


def clocks(vectors, positions, pairs, heading=""):
    r"""A grid of small circles: how far each pair has turned by a position.

    Args:
        vectors: (P, K, 2) numbers; of each the direction is drawn.
        positions: P numbers, from left to right.
        pairs: K row labels, from top to bottom.
        heading: over the picture.
    """
    P, K = len(positions), len(pairs)
    fig, ax = canvas(0.9 + 0.6 * K)
    for i in range(P):
        shade = AMOUNT(0.35 + 0.65 * i / max(P - 1, 1))
        for j in range(K):
            x, y = float(vectors[i][j][0]), float(vectors[i][j][1])
            size = math.hypot(x, y) / 0.44
            x0, y0 = (float(a) for a in vectors[0][j])
            _circle(ax, i, j, 0.44)
            ax.plot(
                [i, i + x0 / size], [j, j - y0 / size], color="#bbbbbb", lw=1
            )
            _arrow(ax, (x / size, -y / size), shade, (i, j), mutation_scale=9)
    ax.set_xlim(-0.55, P - 0.45)
    ax.set_ylim(K - 0.45, -0.55)
    ax.set_aspect("equal")
    ax.set_xticks(range(P), [f"{m:,}" for m in positions], fontsize=9)
    ax.set_yticks(range(K), pairs, fontsize=9)
    ax.set_xlabel("position m")
    ax.set_ylabel("pair k")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    title(ax, heading)
    return fig


def bands(cos, sin):
    r"""The cosine and sine of every position's angle for every pair.

    Args:
        cos, sin: (T, hd/2) tensors.
    """
    fig, axes = canvas(4.4, 2, 1, sharex=True)
    for ax, values, name in zip(axes.flat, (cos, sin), ("cos", "sin")):
        image = heatmap(ax, values.T.numpy(), signed=True, limit=1.0)
        title(ax, f"{name} of m · Θₖ")
        ax.set_ylabel("pair k")
    axes.flat[-1].set_xlabel("position m")
    fig.colorbar(image, ax=axes, shrink=0.6, ticks=[-1, 0, 1])
    return fig


def wavelengths(series, limits=(), heading=""):
    r"""Positions to a full turn, by pair, on a logarithmic scale.

    Args:
        series: name to hd/2 numbers; at most four.
        limits: (name, positions) of each horizontal line.
        heading: over the picture.
    """
    fig, ax = canvas(3.9)
    looks = (
        dict(color="#bbbbbb", marker="o", lw=5, ms=9),
        dict(color="black", marker="^", ls="--"),
        dict(color="black", marker="s"),
        dict(color=COLOURS["other"], marker="v", ls=":"),
    )
    for (name, values), look in zip(series.items(), looks):
        ax.plot(values, label=name, **dict(ms=4, lw=1.4) | look)
    count = len(values)
    for name, value in limits:
        ax.axhline(value, color="#777777", ls=":", lw=1.2)
        ax.text(0, value * 1.15, name, fontsize=9)
    ax.set_yscale("log")
    ax.set_xticks(range(0, count, max(1, count // 16)))
    ax.set_xlabel("pair k")
    ax.set_ylabel("positions to a full turn")
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    title(ax, heading)
    return fig


def score_by_distance(distances, real, alike, spread, unlike, heading=""):
    r"""How a score changes with the distance between query and key.

    Args:
        distances: n numbers, the x axis.
        real: n scores of one query and key, as cosines.
        alike: n means over random vectors, key and query the same.
        spread: two times n numbers, below and above most of those.
        unlike: n means over independent random queries and keys.
        heading: over the picture.
    """
    fig, ax = canvas(3.7)
    query, grey = COLOURS["query"], COLOURS["other"]
    ax.fill_between(distances, *spread, color=query, alpha=0.15, lw=0)
    ax.plot(
        distances,
        alike,
        color=query,
        lw=2,
        label="random, key = query: mean, and 8 of 10 (shaded)",
    )
    ax.plot(
        distances,
        real,
        color="black",
        lw=1,
        label="one query and key of the model",
    )
    ax.plot(
        distances,
        unlike,
        color=grey,
        ls="--",
        lw=2,
        label="random, key and query independent: mean",
    )
    ax.axhline(0, color="#dddddd", lw=0.8, zorder=0)
    ax.set_xlabel("distance m − n between query and key, in positions")
    ax.set_ylabel("score / (length of query\n· length of key)")
    ax.set_ylim(top=1.35)
    ax.legend(frameon=False, fontsize=9, loc="upper right")
    title(ax, heading)
    return fig


def by_position(series, ylabel, heading="", mark=None, *, log=False):
    r"""Lines along the positions of a text.

    Args:
        series: name to (positions, values); at most three.
        ylabel: what the values are, with their unit.
        heading: over the picture.
        mark: (position, text) of a vertical line, or None.
        log: whether the values are on a logarithmic scale.
    """
    fig, ax = canvas(3.3)
    looks = (("black", "-"), (COLOURS["other"], "--"), ("black", ":"))
    for (name, (xs, ys)), (colour, style) in zip(series.items(), looks):
        ax.plot(xs, ys, style, color=colour, label=name, lw=1.6)
    if mark:
        ax.axvline(mark[0], color="#777777", ls=":", lw=1.2)
        ax.text(
            mark[0],
            1.0,
            f" {mark[1]}",
            fontsize=9,
            va="top",
            transform=ax.get_xaxis_transform(),
        )
    if log:
        ax.set_yscale("log")
    if len(series) > 1:
        ax.legend(frameon=False, fontsize=9, loc="upper left")
    ax.set_xlabel("position m")
    ax.set_ylabel(ylabel)
    title(ax, heading)
    return fig


def turned(before, after, m, angle, wave, heading=""):
    r"""One pair before and after its turn, and its angle along the text.

    Args:
        before, after: two numbers each.
        m: the position.
        angle: m · Θₖ, in radians; counter-clockwise.
        wave: (positions, cosines) of the pair's angle along the text.
        heading: over the picture.
    """
    fig, axes = canvas(3.4, 1, 2, width_ratios=[1, 1.5])
    circle, along = axes[0]
    x, y = (float(a) for a in before)
    radius = math.hypot(x, y)
    _plane(circle, radius)
    _circle(circle, radius=radius)
    turned_to = [float(a) for a in after]
    for tip, colour, label in (
        ((x, y), COLOURS["other"], "before"),
        (turned_to, COLOURS["query"], "after"),
    ):
        _arrow(circle, tip, colour)
        at = [1.07 * a for a in tip]
        side = "left" if tip[0] > 0 else "right"
        circle.text(*at, label, color=colour, ha=side, va="center", fontsize=9)
    start, sweep = math.atan2(y, x), math.fmod(angle, math.tau)
    _arc(circle, start, sweep, 0.4 * radius)
    turns = int(angle / math.tau)
    circle.set_xlabel(
        f"m · Θₖ = {angle:.4f} radians\n"
        f"= {turns:,} full turns and {math.degrees(sweep):.1f}°",
        fontsize=10,
    )
    title(circle, heading)
    along.plot(*wave, color=COLOURS["other"], lw=1.2)
    along.plot(m, math.cos(angle), "o", color=COLOURS["query"], ms=8)
    along.set_ylim(-1.15, 1.15)
    along.set_xlabel("position m")
    along.set_ylabel("cos of m · Θₖ")
    return fig


# -- the widget

THETAS = (100, 1000, 10_000, 100_000, 500_000, 10_000_000)


def rotation(llama, prompt: str = "The capital of France is") -> Play:
    r"""Turn one pair of a query: by its position, its number, the base.

    The query is that of the prompt's last token, layer 0, head 0.

    Args:
        prompt: a text of one token or more.

    Raises:
        ValueError: inside the picture, for a position under 0.
    """
    c, w = llama.config, llama.state_dict()
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    x = w["tok_embeddings.weight"][ids[-1]].float()  # (D,)
    x = rms_norm(x, w["layers.0.attention_norm.weight"], c.norm_eps)
    wq = w["layers.0.attention.wq.weight"][: c.head_dim]  # (hd, D)
    query = (wq.float() @ x.float()).unflatten(0, (-1, 2)).cpu()  # (hd/2, 2)

    def draw(position, pair, theta):
        if position < 0:
            raise ValueError(f"the position is {position}; wanted 0 or more")
        frequency = theta ** (-2 * pair / c.head_dim)
        angle = position * frequency
        before = torch.view_as_complex(query)[pair].item()
        after = before * cmath.rect(1, angle)
        # at most six waves, with the position in their middle
        wave = math.tau / frequency
        span = min(6 * wave, max(16, 2 * position))
        start = max(0, position - span / 2)
        along = [start + span * i / 400 for i in range(401)]
        cosines = [math.cos(m * frequency) for m in along]
        return turned(
            (before.real, before.imag),
            (after.real, after.imag),
            position,
            angle,
            (along, cosines),
            f"pair {pair}: a turn in {wave:,.1f} positions",
        )

    return Play(
        draw,
        position=ipw.IntSlider(5, 0, 4096, description="position m"),
        pair=ipw.IntSlider(
            min(1, c.head_dim // 2 - 1),
            0,
            c.head_dim // 2 - 1,
            description="pair k",
        ),
        theta=ipw.SelectionSlider(
            options=THETAS, value=500_000, description="base θ"
        ),
    )
