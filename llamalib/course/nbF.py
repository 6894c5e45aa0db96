r"""Checks of the exercises of appendix F."""

import torch

from ..model import rms_norm
from .judge import agree, draws, exercise, vary


def score(weights, ids, step=1, which=slice(None), mean_of="position"):
    """Return a head's weight on what followed the same token earlier."""
    found = []  # for each position, a weight for each earlier one
    for t, token in enumerate(ids):
        earlier = [s for s in range(t) if ids[s] == token][which]
        found.append([weights[t, s + step].item() for s in earlier])
    counts = dict(position=sum(map(bool, found)), text=len(ids), sum=1)
    return sum(map(sum, found)) / max(counts[mean_of], 1)


@exercise(1, expects="a number")
def check_1(answer):
    flaws = {
        "this is the weight on the same token: take the next": dict(step=0),
        "this is the token before the earlier one": dict(step=-1),
        "only the latest earlier one: add all": dict(which=slice(-1, None)),
        "only the first earlier one: add all": dict(which=slice(1)),
        "divide by the positions that repeat": dict(mean_of="text"),
        "this is the sum over positions: take the mean": dict(mean_of="sum"),
    }
    g, more = draws(), vary([], [6, 4, 2], [3, 1], [4, 1, 3, 2])
    for ids in ([1, 2, 3, 1, 2], [5, 5, 7, 6, 5, 7, 5], [7, 8, 9]):
        ids = ids + more
        rows = torch.rand(len(ids), len(ids), generator=g).tril()
        weights = rows / rows.sum(-1, keepdim=True)
        wrong = [(w, score(weights, ids, **f)) for w, f in flaws.items()]
        wrong += [("rows are queries: weights[t, s]", score(weights.T, ids))]
        agree(answer(weights, ids), score(weights, ids), wrong)


def settled(hidden, weight, output, eps, t=-1, first=False):
    """Return after how many blocks the last token is on top to the end."""
    top = (rms_norm(hidden[:, t], weight, eps) @ output.T).argmax(-1).tolist()
    others = [k + 1 for k, i in enumerate(top) if i != top[-1]]
    return top.index(top[-1]) if first else max(others, default=0)


@exercise(2, expects="a whole number, k")
def check_2(answer):
    g, (n, T, D, V) = draws(4), vary((9, 3, 6, 4), (12, 5, 8, 5), (7, 2, 5, 6))
    shapes = (n, T, D), (D,), (V, D)  # n is L+1
    cases = [[torch.randn(s, generator=g) for s in shapes] for _ in range(20)]
    cases = [(x.cumsum(0), w, u, vary(1e-5, 1e-6)) for x, w, u in cases]
    right = [settled(*case) for case in cases]
    plain = [(x, 0 * w + 1, *more) for x, w, *more in cases]
    mistakes = [
        ("the first time: it must stay", [settled(*c, -1, 1) for c in cases]),
        ("one too many: hidden[0] is k = 0", [k + 1 for k in right]),
        ("after k blocks another still leads", [max(k - 1, 0) for k in right]),
        ("the final norm's weight is left out", [settled(*c) for c in plain]),
        ("expected the last position", [settled(*c, t=0) for c in cases]),
    ]
    agree([answer(*case) for case in cases], right, mistakes)
