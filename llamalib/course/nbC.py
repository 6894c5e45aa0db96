r"""Checks of the exercises of appendix C."""

import torch
from torch.nn.functional import one_hot

from .judge import agree, draws, exercise, vary

CASES = (64, 100, 3, 8, 2, 0), (64, 100, 3, 8, 2, 1), (10, 7, 2, 5, 3, 2)


@exercise(1, expects="a pair of numbers: total, active")
def check_1(expert_sizes):
    def sizes(D, F, L, E, k, s, each=3, router=1, shared=1, layer=0):
        return [(layer or L) * (each * D * F * (n + shared * s)
                                + router * E * D) for n in (E, k)]  # fmt: skip

    more = vary((0,) * 6, (6, 20, 1, 4, 1, 0), (2, 9, 4, 3, 2, 1))
    cases = [tuple(map(sum, zip(c, more))) for c in CASES]
    right = [sizes(*c) for c in cases]
    agree([expert_sizes(*c) for c in cases], right, [
        ("you left out the router", [sizes(*c, router=0) for c in cases]),
        ("shared experts are missing", [sizes(*c, shared=0) for c in cases]),
        ("an expert has three matrices", [sizes(*c, each=2) for c in cases]),
        ("you counted one layer", [sizes(*c, layer=1) for c in cases]),
        ("total comes first, then active", [pair[::-1] for pair in right]),
    ], 1e-9)  # fmt: skip


@exercise(2, expects="weights (T, E)")
def check_2(expert_weights):
    g, e = draws(1), vary(4, 6, 5, 7)
    for T, E, k in ((e + 1, e, 2), (9, 8, 3), (5, e, 1), (9, e + 4, e + 4)):
        z = torch.randn(T, E, generator=g)  # (T, E)
        p, is_in = z.softmax(-1), z >= z.topk(k)[0][:, -1:]
        right = p * is_in / (p * is_in).sum(-1, keepdim=True)
        agree(expert_weights(z, k), right, [
            ("these sum to less than 1: divide by the sum", p * is_in),
            ("the others' logits are -inf, not 0", (z * is_in).softmax(-1)),
            ("all experts have a weight: choose k", p),
            ("these are the chosen alone", z.topk(k)[0].softmax(-1)),
        ])  # fmt: skip


@exercise(3, expects="a number")
def check_3(balance):
    g, e = draws(3), vary(4, 6, 5, 7)
    for T, E, k in ((e + 2, e, 2), (40, 8, 2), (30, e + 1, 1)):
        z = torch.randn(T, E, generator=g) * 2  # (T, E)
        z[:, -1] -= 50  # the last expert is never chosen
        p, late = z.softmax(-1).mean(0), z.mean(0).softmax(-1)  # (E,)
        for chosen in z.topk(k)[1], z[:, :-1].topk(k, largest=False)[1]:
            f, first = (one_hot(c, E).float().mean((0, 1))
                        for c in (chosen, chosen[:, :1]))  # fmt: skip
            right = E * (f * p).sum()
            agree(balance(z, chosen), right, [
                ("f sums to k: divide by T·k, not by T", k * right),
                ("count all k choices of a token", E * (first * p).sum()),
                ("you left out the factor E", right / E),
                ("f counts choices: you took P twice", E * (p * p).sum()),
                ("P is of probabilities: you took f twice", E * (f * f).sum()),
                ("take the mean after the softmax", E * (f * late).sum()),
            ])  # fmt: skip
