"""Pictures, widgets and checks of notebook 04."""

import cmath
import math

import ipywidgets as ipw
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from llamalib.model import apply_rotary_emb, rms_norm, scale_frequencies
from llamalib.probe import attention_maps, replaced

from .charts import figure_legend, finish, lines, mark_y, write
from .judge import alike, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play
from .theme import (
    AMOUNT,
    COLOURS,
    array,
    canvas,
    heading,
    panels,
    spaced,
    visible,  # noqa: F401
)

PALE = "#dddddd"


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


def four_arrows(queries, keys, turns):
    """Draw two queries and two keys, rotated, and their scores.

    queries, keys: (2, 2).  turns: by a panel's heading, the degrees by which
    the first key and both queries rotate, and those of the second key.
    """
    fig, axes = panels(3.6, len(turns))
    queries, keys = array(queries), array(keys)
    radius = max(np.hypot(*each) for each in (*queries, *keys))
    for ax, (name, (first, second)) in zip(axes, turns.items(), strict=True):
        _plane(ax, radius)
        tips = {
            "query": [_rotated(q, first) for q in queries],
            "key": [_rotated(keys[0], first), _rotated(keys[1], second)],
        }
        for role, arrows in tips.items():
            for tip, sign in zip(arrows, "₁₂", strict=True):
                _arrow(ax, tip, COLOURS[role])
                beyond = tip * (1 + 0.16 * radius / np.hypot(*tip))
                letter = f"{role[0]}{sign}"
                write(ax, *beyond, letter, 11, color=COLOURS[role])
        scores = np.array(tips["query"]) @ np.array(tips["key"]).T  # (2, 2)
        scores = scores.round(1) + 0.0  # no -0
        rows = [
            f"q₁·k{sign} = {a:.1f}     q₂·k{sign} = {b:.1f}"
            for sign, (a, b) in zip("₁₂", scores.T, strict=True)
        ]
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("\n".join(rows).replace("-", "−"), fontsize=9)
    return fig


def _rotated(arrow, degrees: float):
    """Return an arrow (2,) rotated counter-clockwise."""
    a, b = arrow
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([a * c - b * s, a * s + b * c])


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


def facing(query, key, distance, scores, heading):
    """Draw a pair's query and key, and its score at each distance.

    query, key: complex, rotated.  scores: of distances from 0 on.
    """
    margins = 0.01, 0.16, 0.98, 0.86, 0.3
    options = dict(width_ratios=[1, 1.7], margins=margins)
    fig, (plane, along) = panels(3.3, 2, **options)
    _plane(plane, 1)
    for role, arrow in (("query", query), ("key", key)):
        tip = np.array([arrow.real, arrow.imag]) / abs(arrow)
        _arrow(plane, tip, COLOURS[role])
        write(plane, *1.17 * tip, role[0], color=COLOURS[role], size=12)
    sweep = cmath.phase(key / query)
    _arc(plane, cmath.phase(query), sweep, 0.35)
    words = f"angle from q to k: {math.degrees(sweep):.0f}°"
    plane.set_title(words.replace("-", "−"), size=11)
    along.plot(scores, color=COLOURS["other"])
    along.plot(distance, scores[distance], "o", color="black", ms=8)
    return finish(along, heading, "distance m − n", "score of this pair")


def rotation(llama, prompt="The capital of France is") -> Play:
    """Return a query and a key of the first layer, rotated by positions.

    The last token's query, and the key of the token before it.
    """
    c, freqs = llama.config, _frequencies(llama.config)
    queries, keys = _first_pairs(llama, prompt)

    def draw(position, distance, pair):
        angle, q, k = freqs[pair], queries[pair], keys[pair]
        at_m = q * cmath.rect(1, (position + distance) * angle)
        at_n = k * cmath.rect(1, position * angle)
        scores = [
            (q * cmath.rect(1, d * angle) * k.conjugate()).real
            for d in range(65)
        ]
        m, score = position + distance, scores[distance]
        words = f"query at m = {m}, key at n = {position}: {score:.2f}"
        return facing(at_m, at_n, distance, scores, words.replace("-", "−"))

    near = dict(min=0, max=64)
    last = c.head_dim // 2 - 1
    # a full rotation takes 32 positions or more: each step is seen
    visible_pair = [k for k, f in enumerate(freqs) if f <= math.tau / 32]
    first = visible_pair[0] if visible_pair else last
    return Play(
        draw,
        position=ipw.IntSlider(0, **near, description="position n"),
        distance=ipw.IntSlider(3, **near, description="distance m − n"),
        pair=ipw.IntSlider(first, 0, last, description="pair k"),
    )


def _frequencies(c) -> list[float]:
    """Return the radians per position of each pair, scaled if c is."""
    two_k = torch.arange(0, c.head_dim, 2).double()
    plain = c.rope_theta ** (-two_k / c.head_dim)
    return scale_frequencies(plain, c.scaling_factor or 1.0).tolist()


def _first_pairs(llama, prompt):
    """Return layer 0's first query and key of a prompt's end, complex."""
    c, w = llama.config, llama.state_dict()
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    found = []
    for token, name in ((ids[-1], "wq"), (ids[-2], "wk")):
        x = w["tok_embeddings.weight"][token].float()  # (D,)
        x = rms_norm(x, w["layers.0.attention_norm.weight"], c.norm_eps)
        weight = w[f"layers.0.attention.{name}.weight"][: c.head_dim]
        pairs = (weight.float() @ x.float()).unflatten(0, (-1, 2))  # (hd/2, 2)
        found.append(torch.view_as_complex(pairs.cpu()).tolist())
    return found


def looks_back(llama, tokens, ids) -> tuple[int, int]:
    """Print where the head that looks one token back looks; return it.

    It is the head that gives the token before the most weight, in `tokens`,
    a page. `ids` are a sentence's: read as they are, then backwards.
    Returns the numbers of its block and of the head.
    """
    before = attention_maps(llama, tokens).diagonal(-1, 2, 3).mean(-1)
    block, head = divmod(before.argmax().item(), before.shape[1])
    print(f"block {block}, head {head}")
    first = len(llama.tokenizer.encode("", bos=True, eos=False))  # 0 or 1
    backwards = ids[:first] + ids[first:][::-1]
    for name, order in (("as written", ids), ("backwards", backwards)):
        words = [repr(llama.tokenizer.decode([i])) for i in order]
        width = max(map(len, words))
        weights = attention_maps(llama, torch.tensor(order))[block, head]
        print(f"\n{name}")
        for i in range(2, len(order)):  # the second has the first only
            weight, at = weights[i].max(-1)
            pair = f"{words[i]:{width}} looks at {words[at]:{width}}"
            print(f"  {pair} {weight:.0%}")
    return block, head


def ahead(queries, keys, frequency, distances, name):
    """Draw one pair of a head's queries and keys, as if `distances` apart.

    queries, keys: (T, 2), not rotated.  frequency: radians per position.
    """
    fig, axes = panels(3.1, len(distances))
    q, k = (array(x) @ (1, 1j) for x in (queries, keys))  # (T,)
    for ax, distance in zip(axes, distances, strict=True):
        _plane(ax, 1)
        turned = q * cmath.rect(1, distance * frequency)
        for role, dots in (("query", turned), ("key", k)):
            dots = dots / abs(dots).max()
            style = dict(ms=3, color=COLOURS[role], label=role)
            ax.plot(dots.real, dots.imag, "o", **style)
            tip = dots.mean()
            _arrow(ax, (tip.real, tip.imag), COLOURS[role])
        score = (turned.mean() * k.mean().conjugate()).real
        ax.set_title(f"distance {distance}", fontsize=10)
        words = f"this pair's mean score: {round(score)}"
        ax.set_xlabel(words.replace("-", "−"), fontsize=9)
    figure_legend(fig, "outside upper right", markerscale=2)
    return heading(fig, name)


def queries_and_keys(llama, tokens):
    """Run tokens (T,); return what RoPE gets and what it gives, by layer.

    Two lists of pairs: queries (T, H, hd) and keys (T, KV, hd) before the
    rotation, and after it.
    """
    before, after = [], []

    def keep(xq, xk, freqs_cis):
        rotated = apply_rotary_emb(xq, xk, freqs_cis)
        before.append((xq[0], xk[0]))
        after.append((rotated[0][0], rotated[1][0]))
        return rotated

    with torch.inference_mode(), replaced(apply_rotary_emb=keep):
        llama(tokens, last_only=True)
    return before, after


def each_head(function, kept) -> Tensor:
    """Apply function(q, k) to each head's (T, hd); stack to (L, H, …).

    kept: see `queries_and_keys`.
    """
    layers = []
    for q, k in kept:
        group = q.shape[1] // k.shape[1]
        heads = range(q.shape[1])
        layers.append(
            torch.stack([function(q[:, h], k[:, h // group]) for h in heads])
        )
    return torch.stack(layers)


def three_heads(rotated, plain, first):
    """Draw mean scores by distance of the head `first`, and of two more.

    These are the one that falls most evenly from distance 1 on, and the one
    that differs least.  rotated, plain: (L, H, distances).
    """
    steps = rotated[..., 1:].diff()
    even = -steps.sum(-1) / steps.abs().sum(-1)  # 1: each step goes down
    alike = -(rotated - plain).abs().amax(-1)
    found = [divmod(x.argmax().item(), x.shape[1]) for x in (even, alike)]
    fig, axes = panels(3.1, 3)
    looks = ("attention", "-"), ("other", "--")
    for ax, (block, head) in zip(axes, (first, *found), strict=True):
        pair = rotated[block, head], plain[block, head]
        series = dict(zip(("rotated", "not rotated"), pair, strict=True))
        lines(ax, series, looks, range(len(pair[0])), lw=1.8)
        finish(ax, f"block {block}, head {head}", "distance m − n")
    axes[0].set_ylabel("mean score")
    return figure_legend(fig, "outside lower right")


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
        "at negative positions, which no table has, the result": (
            random(T, hd, seed=1),
            steps - 3,
            narrow,
        ),
    }
    alike(answer, "04_rope", 1, cases)
    return "every pair rotated by its own angle"


@exercise(2, "a number")
def check_2(answer):
    """Check `score_at(q, k, distance, freqs)`."""
    k = vary(0, 1, 2, 3)
    cases = [
        (
            # of mean 1, as real queries and keys are not of mean 0
            1 + random(T, hd, seed=distance),
            1 + random(T, hd, seed=hd),
            distance,
            frequencies_of(hd, 7.0**6),
        )
        for T, hd, distance in ((9, 12 + 2 * k, 3 + k), (7 + k, 32, -2))
    ]
    alike(answer, "04_rope", 2, cases)
    return "each query meets each key, at one distance"


@exercise(3, "a tensor (heads·head_dim, D)")
def check_3(answer, llama):
    """Check `to_pairs(weight, head_dim)` on a checkpoint's wq and wk."""
    w, hd, n = llama.state_dict(), llama.config.head_dim, vary(1, 2, 3)
    wq, wk = (w[f"layers.{n // 2}.attention.w{x}.weight"] for x in "qk")
    # with 4 numbers a head, there and back are the same
    small = random(36, 5, seed=3), vary(12, 6, 18)
    alike(answer, "04_rope", 3, [small, (wq, hd), (wk, hd)])
    return "adjacent pairs again, head by head"
