r"""Checks of the exercises of appendix F."""

import torch

from ..rmsnorm import rms_norm
from .judge import agree, exercise


def settled(hidden, weight, output, eps) -> tuple:
    """Return the top tokens after 0 … L blocks, and where the last settles."""
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    other = (top != top[-1]).nonzero()  # where another token is on top
    return top, int(other.max()) + 1 if len(other) else 0


@exercise(1, expects="a whole number, k")
def check_1(answer, *case):
    cases, g = [], torch.Generator().manual_seed(4)
    for _ in range(20):  # random streams, then the model's
        drift = torch.randn(9, 3, 6, generator=g).cumsum(0)  # (L+1, T, D)
        gamma = torch.randn(6, generator=g)
        cases.append((drift, gamma, torch.randn(4, 6, generator=g), 1e-5))
    found, right = [answer(*c) for c in cases], [settled(*c) for c in cases]
    expected = [k for _, k in right]
    plain = [settled(h, torch.ones_like(w), o, e)[1] for h, w, o, e in cases]
    mistakes = [
        ("this is where it first appears: it must stay",
         [top.tolist().index(top[-1].item()) for top, _ in right]),
        ("one too few: k counts blocks, hidden[0] is k = 0",
         [k - 1 for k in expected]),
        ("one too many: k counts blocks, hidden[0] is k = 0",
         [k + 1 for k in expected]),
        ("one too few: after k blocks another is still on top",
         [max(k - 1, 0) for k in expected]),
        ("the final norm's weight is left out", plain),
        ("this is the first position; expected the last",
         [settled(h[:, :1], w, o, e)[1] for h, w, o, e in cases]),
    ]  # fmt: skip
    agree(found, expected, mistakes)
    agree(answer(*case), settled(*case)[1])
