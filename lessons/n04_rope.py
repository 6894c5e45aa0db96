"""Pictures, widgets and checks of notebook 04."""

import cmath
import math

import ipywidgets as ipw
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from llamalib.model import rms_norm, scale_frequencies

from .charts import finish, lines, mark_y, write
from .judge import alike, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play
from .theme import (
    AMOUNT,
    COLOURS,
    array,
    canvas,
    panels,
    spaced,
    visible,  # noqa: F401
)

PALE = "#dddddd"
THETAS = (100, 1000, 10_000, 100_000, 500_000, 10_000_000)


def _circle(ax, middle, radius):
    """Draw the circle on which an arrow rotates."""
    ax.add_patch(plt.Circle(middle, radius, fc="none", ec=PALE, zorder=0))


def _plane(ax, radius: float) -> None:
    """Turn an axes into a plane around the origin, with one circle."""
    for line in (ax.axhline, ax.axvline):
        line(0, color=PALE, lw=0.8, zorder=0)
    limits = -1.28 * radius, 1.28 * radius
    ax.set(xlim=limits, ylim=limits, aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    _circle(ax, (0, 0), radius)


def _arrow(ax, tip, tone, start=(0, 0), **style):
    """Draw an arrow that begins at `start` and is as long as `tip`."""
    style |= dict(arrowstyle="-|>", color=tone, lw=2, shrinkA=0, shrinkB=0)
    ax.annotate("", np.add(start, tip), start, arrowprops=style)


def _arc(ax, start, sweep, radius):
    """Draw an arc from one angle on, in radians, counter-clockwise."""
    angles = start + sweep * np.linspace(0, 1, 61)
    x, y = radius * np.cos(angles), radius * np.sin(angles)
    ax.plot(x, y, color="black", lw=1.4)


def kept_angle(shots):
    """Draw directions: (heading, query, key, score) of each panel."""
    fig, axes = panels(1 + 7 / len(shots), len(shots))
    for ax, (heading, query, key, score) in zip(axes, shots, strict=True):
        _plane(ax, 1)
        angles = [math.atan2(float(y), float(x)) for x, y in (query, key)]
        for role, angle in zip(("query", "key"), angles, strict=True):
            tip = np.array([math.cos(angle), math.sin(angle)])
            _arrow(ax, tip, COLOURS[role])
            write(ax, *tip * (1.27, 1.15), role, color=COLOURS[role])
        sweep = math.remainder(angles[1] - angles[0], math.tau)
        _arc(ax, angles[0], sweep, 0.35)
        ax.set_title(heading, fontsize=10)
        text = f"angle {math.degrees(sweep):.1f}°, score {score:.4f}"
        ax.set_xlabel(text, fontsize=9)
    return fig


def clocks(vectors, positions, pairs, heading):
    """Draw the directions of (P, K, 2) vectors: K pairs at P positions."""
    P, K = len(positions), len(pairs)
    _, ax = canvas(0.9 + 0.6 * K)
    hands = array(vectors) * (0.44, -0.44)  # (P, K, 2); rows count downwards
    hands /= np.linalg.norm(array(vectors), axis=-1, keepdims=True)
    shades = AMOUNT(np.linspace(0.35, 1, P))
    for i, j in np.ndindex(P, K):
        _circle(ax, (i, j), 0.44)
        x, y = hands[0, j]
        ax.plot([i, i + x], [j, j + y], color="#bbbbbb", lw=1)
        _arrow(ax, hands[i, j], shades[i], (i, j), mutation_scale=9)
    ax.set_xticks(range(P), [f"{m:,}" for m in positions])
    ax.set_yticks(range(K), pairs)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    scale = dict(xlim=(-0.55, P - 0.45), ylim=(K - 0.45, -0.55))
    return finish(ax, heading, "position m", "pair k", aspect="equal", **scale)


def wavelengths(series, limits, heading):
    """Draw up to three wavelengths by pair; limits: (name, positions)."""
    _, ax = canvas(3.9)
    wide = "#bbbbbb", "o-", dict(lw=5, ms=9)
    looks = wide, ("black", "^--"), ("black", "s-")
    count = len(next(iter(series.values())))
    looks = looks[: len(series)]
    lines(ax, series, looks, range(count), ms=4, lw=1.4)
    for name, value in limits:
        mark_y(ax, value, name)
    labels = heading, "pair k", "positions per full rotation"
    scale = dict(yscale="log", xticks=spaced(count, 17))
    return finish(ax, *labels, legend="lower right", **scale)


def turned(before, after, m, angle, wave, heading):
    """Draw a pair before and after position m, and its angle's cosine."""
    _, (plane, along) = panels(3.4, 2, width_ratios=[1, 1.5])
    radius = math.hypot(*before)
    _plane(plane, radius)
    up = "after" if after[1] >= before[1] else "before"
    arrows = (before, "other", "before"), (after, "query", "after")
    for tip, role, name in arrows:
        _arrow(plane, tip, COLOURS[role])
        style = dict(color=COLOURS[role], ha="left" if tip[0] > 0 else "right")
        style["va"] = "bottom" if name == up else "top"  # tips may coincide
        write(plane, *np.multiply(1.07, tip), name, **style)
    start = math.atan2(before[1], before[0])
    turns, sweep = divmod(angle, math.tau)
    _arc(plane, start, sweep, 0.4 * radius)
    text = f"{turns:,.0f} full rotations and {math.degrees(sweep):.1f}°"
    finish(plane, heading, f"m · Θₖ = {angle:.4f} radians\n= {text}")
    along.plot(*wave, color=COLOURS["other"], lw=1.2)
    along.plot(m, math.cos(angle), "o", color=COLOURS["query"], ms=8)
    return finish(along, "", "position m", "cos of m · Θₖ", ylim=(-1.15, 1.15))


def rotation(llama, prompt="The capital of France is") -> Play:
    """Return a pair of `_first_query`, rotated at the scaled frequencies."""
    c, query = llama.config, _first_query(llama, prompt)
    hd, factor = c.head_dim, c.scaling_factor or 1.0

    def draw(position, pair, theta):
        plain = torch.tensor(theta, dtype=torch.float64) ** (-2 * pair / hd)
        frequency = scale_frequencies(plain, factor).item()
        before = torch.view_as_complex(query)[pair].item()
        after = before * cmath.rect(1, position * frequency)
        # at most six waves, with the position in the middle
        wave = math.tau / frequency
        span = min(6 * wave, max(16, 2 * position))
        along = max(0, position - span / 2) + np.linspace(0, span, 401)
        ends = [(tip.real, tip.imag) for tip in (before, after)]
        curve = along, np.cos(along * frequency)
        heading = f"pair {pair}: a full rotation in {wave:,.1f} positions"
        return turned(*ends, position, position * frequency, curve, heading)

    last = hd // 2 - 1
    bases = dict(options=THETAS, value=500_000)
    return Play(
        draw,
        position=ipw.IntSlider(5, 0, 4096, description="position m"),
        pair=ipw.IntSlider(min(1, last), 0, last, description="pair k"),
        theta=ipw.SelectionSlider(description="base θ", **bases),
    )


def _first_query(llama, prompt):
    """Return the last token's query in layer 0, head 0: (hd/2, 2)."""
    c, w = llama.config, llama.state_dict()
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    x = w["tok_embeddings.weight"][ids[-1]].float()  # (D,)
    x = rms_norm(x, w["layers.0.attention_norm.weight"], c.norm_eps)
    wq = w["layers.0.attention.wq.weight"][: c.head_dim]  # (hd, D)
    return (wq.float() @ x.float()).unflatten(0, (-1, 2)).cpu()


# -- the checks of the exercises --


def random(*shape: int, seed: int) -> Tensor:
    """Return normal random numbers."""
    return torch.randn(*shape, generator=draws(seed))


def frequencies_of(head_dim: int, theta: float) -> Tensor:
    """Return plain frequencies, (head_dim/2,)."""
    return theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)


@exercise(1, "a tensor (T, hd)")
def check_1(answer):
    """Check `rotate_complex(x, positions, freqs)`."""
    T, hd = vary((9, 12), (7, 16), (10, 20), (8, 10))
    steps = torch.arange(T) * 2 % 7  # some repeat
    narrow, wide = frequencies_of(hd, 7.0**6), frequencies_of(64, 500000.0)
    cases = {
        "the result": (random(T, 64, seed=2), 20 + hd + steps, wide),
        "with negative positions, the result": (
            random(T, hd, seed=1),
            steps - 3,
            narrow,
        ),
    }
    alike(answer, "04_rope", 1, cases)
    return "every pair rotated by its own angle"


@exercise(2, "a tensor (hd,)")
def check_2(answer):
    """Check `query_rotated_to_key(query, m, n, freqs)`."""
    k = vary(0, 1, 2, 3)
    cases = [
        (random(width, seed=m), m, n, frequencies_of(width, 7.0**6))
        for m, n, width in ((9 + k, 2, 12 + 2 * k), (2, 7 + k, 32), (4, 4, 8))
    ]
    alike(answer, "04_rope", 2, cases)
    return "the distance alone, on the query"


@exercise(3, "a tensor (heads·head_dim, D)")
def check_3(answer, llama):
    """Check `to_pairs(weight, head_dim)` on a checkpoint's wq and wk."""
    w, hd, n = llama.state_dict(), llama.config.head_dim, vary(1, 2, 3)
    wq, wk = (w[f"layers.{n // 2}.attention.w{x}.weight"] for x in "qk")
    # with 4 numbers a head, there and back are the same
    small = random(36, 5, seed=3), vary(12, 6, 18)
    alike(answer, "04_rope", 3, [small, (wq, hd), (wk, hd)])
    return "adjacent pairs again, head by head"
