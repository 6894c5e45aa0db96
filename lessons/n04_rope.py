"""Pictures, widgets and checks of notebook 04."""

import cmath
import math

import ipywidgets as ipw
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from llamalib.model import apply_rotary_emb, rms_norm, scale_frequencies

from .charts import finish, lines, mark_y, write
from .judge import agree, draws, exercise, vary
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
    for ax, (heading, query, key, score) in zip(axes, shots):
        _plane(ax, 1)
        angles = [math.atan2(float(y), float(x)) for x, y in (query, key)]
        for role, angle in zip(("query", "key"), angles):
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


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the adjacent pairs of (T, hd) rows by (T, hd/2) angles."""
    freqs_cis = torch.stack((angles.cos(), angles.sin()), -1)  # (T, hd/2, 2)
    x = x[:, None]  # (T, 1, hd)
    return apply_rotary_emb(x, x, freqs_cis)[0][:, 0]  # (T, hd)


@exercise(1, "a tensor (T, hd)")
def check_1(answer):
    """Check `rotate_complex(x, positions, freqs)`."""
    T, hd = vary((9, 12), (7, 16), (10, 20), (8, 10))
    small = random(T, hd, seed=1), frequencies_of(hd, 7.0**6)
    wide = random(T - 3, 64, seed=2), frequencies_of(64, 500000.0)
    for (x, freqs), start in ((small, -3), (wide, 20 + hd)):
        positions = start + torch.arange(len(x)) * 2 % 7  # some repeat
        angles = torch.outer(positions.float(), freqs)  # (T, hd/2)
        mistakes = wrong_rotations(x, angles, freqs)
        agree(answer(x, positions, freqs), rotated(x, angles), mistakes)
    return "every pair rotated by its own angle"


def wrong_rotations(x, angles, freqs) -> list[tuple]:
    """Return each likely mistake of exercise 1 and its result."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # (T, hd/2)
    ones = torch.ones_like(angles)
    rotation = torch.polar(ones, angles)  # (T, hd/2)
    rows = torch.outer(torch.arange(len(x)).float(), freqs)

    def joined(pairs):
        return torch.view_as_real(pairs).flatten(-2)  # (T, hd)

    halves = torch.complex(*x.chunk(2, -1)) * rotation
    alike = angles[:, :1].expand_as(angles)
    apart = pairs * rotation
    swapped = "torch.polar takes the lengths first, then the angles"
    parts = "torch.complex takes real and imaginary parts: use torch.polar"
    return [
        ("every pair rotates by the first frequency", rotated(x, alike)),
        ("row t is at positions[t], not at t", rotated(x, rows)),
        (
            "you rotate clockwise: the angles need the other sign",
            rotated(x, -angles),
        ),
        (swapped, joined(pairs * torch.polar(angles, ones))),
        (parts, joined(pairs * torch.complex(ones, angles))),
        ("your result is complex: return real numbers", apart),
        ("firsts, then seconds: put them back in pairs", split(apart)),
        ("your pairs are halves, not adjacent", split(halves)),
        ("your pairs are halves, not adjacent", joined(halves)),
    ]


def split(pairs: Tensor) -> Tensor:
    """Return all real parts, then all imaginary parts."""
    return torch.cat((pairs.real, pairs.imag), -1)


@exercise(2, "a tensor (hd,)")
def check_2(answer):
    """Check `query_rotated_to_key(query, m, n, freqs)`."""
    names = {
        "R_(n-m) belongs on the key; on the query it is R_(m-n)": (-1, 1),
        "rotated by m + n: the sum is not the distance": (1, 1),
        "rotated by m alone: the key's own rotation is left out": (1, 0),
        "rotated by n alone: the query's own rotation is left out": (0, 1),
        "rotated by -n alone: the query's own rotation is left out": (0, -1),
        "the query is not rotated": (0, 0),
    }
    k = vary(0, 1, 2, 3)
    for m, n, width in ((9 + k, 2, 12 + 2 * k), (2, 7 + k, 32), (4, 4, 8)):
        query, freqs = random(width, seed=m), frequencies_of(width, 7.0**6)

        def by(steps):
            return rotated(query[None], steps * freqs[None])[0]  # (hd,)

        mistakes = [(s, by(i * m + j * n)) for s, (i, j) in names.items()]
        agree(answer(query, m, n, freqs), by(m - n), mistakes)
    return "the distance alone, on the query"


@exercise(3, "a tensor (heads·head_dim, D)")
def check_3(answer, llama):
    """Check `to_pairs(weight, head_dim)` on a checkpoint's wq and wk."""
    w, hd, n = llama.state_dict(), llama.config.head_dim, vary(1, 2, 3)
    wq, wk = (w[f"layers.{n // 2}.attention.w{x}.weight"] for x in "qk")
    # with 4 numbers a head, there and back are the same
    small = random(36, 5, seed=3), vary(12, 6, 18)
    for meta, width in (small, (wq, hd), (wk, hd)):
        theirs = halved(meta, width)
        whole = theirs.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)
        mistakes = [
            (
                "you applied to_halves once more; expected its inverse",
                halved(theirs, width),
            ),
            ("you took the whole matrix as one head", whole),
            ("you moved no row", theirs),
        ]
        agree(answer(theirs, width), meta, mistakes)
    return "adjacent pairs again, head by head"


def halved(weight: Tensor, head_dim: int) -> Tensor:
    """Return Meta's rows in Hugging Face's order."""
    pairs = weight.unflatten(0, (-1, head_dim // 2, 2))
    return pairs.transpose(1, 2).flatten(0, 2)  # (heads·hd, D)
