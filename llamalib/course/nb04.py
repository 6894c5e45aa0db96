r"""Checks of the exercises of notebook 04."""

import torch
from torch import Tensor

from ..model import apply_rotary_emb
from .judge import agree, draws, exercise, vary


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
        ("clockwise: a sign", rotated(x, -angles)),
        (swapped, joined(pairs * torch.polar(angles, ones))),
        (parts, joined(pairs * torch.complex(ones, angles))),
        ("complex numbers: go back to real ones", apart),
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
