r"""Checks of the exercises of notebook 04."""

import torch
from torch import Tensor

from ..rope import apply_rotary_emb
from .judge import agree, draws, exercise, vary


def random(*shape: int, seed: int) -> Tensor:
    """Return normal random numbers."""
    return torch.randn(*shape, generator=draws(seed))


def frequencies_of(head_dim: int, theta: float) -> Tensor:
    """Return plain frequencies, (head_dim/2,)."""
    return theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the adjacent pairs of (T, hd) rows by (T, hd/2) angles."""
    rotation = torch.polar(torch.ones_like(angles), angles)
    x = x[:, None]  # (T, 1, hd)
    return apply_rotary_emb(x, x, rotation)[0][:, 0]  # (T, hd)


@exercise(1, "a tensor (T, hd)")
def check_1(answer):
    """Check `rotate(x, freqs)`."""
    T, hd = vary((9, 12), (7, 16), (10, 20), (8, 10))
    small = random(T, hd, seed=1), frequencies_of(hd, 7.0**6)
    wide = random(T - 3, 64, seed=2), frequencies_of(64, 500000.0)
    for x, freqs in (small, wide):
        angles = torch.outer(torch.arange(len(x)).float(), freqs)  # (T, hd/2)
        mistakes = wrong_rotations(x, angles, freqs)
        agree(answer(x, freqs), rotated(x, angles), mistakes)
    return "every pair rotated by its own angle"


def wrong_rotations(x, angles, freqs) -> list[tuple]:
    """Return each likely mistake of exercise 1 and its result."""
    a, b, cos, sin = x[:, 0::2], x[:, 1::2], angles.cos(), angles.sin()
    first, second = a * cos - b * sin, a * sin + b * cos  # (T, hd/2) each

    def joined(one, other):
        return torch.stack((one, other), -1).flatten(-2)  # (T, hd)

    left, right = x.chunk(2, -1)
    halves = left * cos - right * sin, left * sin + right * cos
    alike = angles[:, :1].expand_as(angles)
    apart = torch.cat((first, second), -1)
    words = "the new second number was computed from the new first"
    return [
        ("every pair rotates by the first frequency", rotated(x, alike)),
        ("positions are counted from 0", rotated(x, angles + freqs)),
        ("clockwise: a sign", rotated(x, -angles)),
        (words, joined(first, first * sin + b * cos)),
        ("a minus is missing", joined(a * cos + b * sin, second)),
        ("firsts, then seconds: put them back in pairs", apart),
        ("your pairs are halves, not adjacent", torch.cat(halves, -1)),
    ]


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
    for meta, width in ((random(36, 5, seed=3), 12 // n), (wq, hd), (wk, hd)):
        theirs = halved(meta, width)
        whole = theirs.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)
        mistakes = [
            ("that is to_halves once more", halved(theirs, width)),
            ("you took the whole matrix as one head", whole),
            ("nothing has moved", theirs),
        ]
        agree(answer(theirs, width), meta, mistakes)
    return "adjacent pairs again, head by head"


def halved(weight: Tensor, head_dim: int) -> Tensor:
    """Return Meta's rows in Hugging Face's order."""
    pairs = weight.unflatten(0, (-1, head_dim // 2, 2))
    return pairs.transpose(1, 2).flatten(0, 2)  # (heads·hd, D)
