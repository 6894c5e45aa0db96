r"""Checks of the exercises of appendix D: angles, and the factor."""

import math

import torch

from .judge import agree, exercise, vary


def frequencies(hd: int, theta: float) -> torch.Tensor:
    """Return plain frequencies, (hd/2,) float64."""
    return theta ** (-torch.arange(0, hd, 2).double() / hd)


@exercise(1, expects="real angles (length, head_dim/2)")
def check_1(interpolated):
    """Two longer texts, then a shorter one."""
    more = vary((0,) * 4, (4, 3, 50.0, 1), (8, 1, 900.0, 2))
    for case in ((8, 12, 100.0, 4), (16, 40, 5e5, 16), (8, 5, 100.0, 8)):
        case = hd, n, theta, original = [*map(sum, zip(case, more))]
        at, freqs, s = torch.arange(n), frequencies(hd, theta), n / original
        at, s = at.double(), max(s, 1)
        kinds = {
            "divide the positions, do not multiply them": at * s,
            "a text that is not longer needs factor 1": at * original / n,
            "nothing is divided: a longer text needs a factor": at,
            "m/s need not be a whole number": at // s,
            "long positions are cut off": at.clamp(max=n / s),
        }
        mistakes = [(k, torch.outer(v, freqs)) for k, v in kinds.items()]
        right, raised = torch.outer(at / s, freqs), frequencies(hd, theta * s)
        words = "you raised the base: it slows the pairs unequally"
        mistakes += [(words, torch.outer(at, raised))]
        mistakes += [("positions are rows, pairs are columns", right.T)]
        rotations = torch.stack((right.cos(), right.sin()), dim=-1)
        mistakes += [("cosines and sines: return the angles", rotations)]
        agree(interpolated(*case), right, mistakes)


@exercise(2, expects="a number")
def check_2(factor_for):
    """Pairs that see an arc, and cases where every pair has rotated once."""
    one_b, wide, narrow = (64, 5e5), (128, 5e5), (8, vary(1e2, 90.0, 120.0))
    cases = [(one_b, 8192, 131072), (wide, 8192, 16384), (narrow, 1000, 5000)]
    cases += [(one_b, 8192, 4096), (wide, 256, 1400), (narrow, 300, 1200)]
    cases += [(narrow, 100, 1000), (narrow, 100, 150)]
    up = vary(0, 10, 5, 7)
    cases = [(frequencies(*f).float(), c + up, n + up) for f, c, n in cases]

    def values(full=math.tau, least=1.0, rule=lambda x: x, far=False):
        pairs = [((n if far else c) * f, rule(n / c)) for f, c, n in cases]
        return [max(least, s) if (x < full).any() else 1.0 for x, s in pairs]

    mistakes = [
        ("if every pair has rotated once, it is 1", values(math.inf)),
        ("one rotation shows every angle, not 4", values(4 * math.tau)),
        ("2π is missing: a full rotation is 2π radians", values(1)),
        ("count rotations in `original`, not `length`", values(far=True)),
        ("the factor is at least 1", values(least=0.0)),
        ("upside down: length / original", values(rule=lambda x: 1 / x)),
        ("a whole number is more than needed", values(rule=math.ceil)),
        ("2π has no place here", values(rule=lambda x: x / math.tau)),
    ]
    agree([factor_for(*case) for case in cases], values(), mistakes)
