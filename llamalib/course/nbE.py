r"""Checks of the exercises of appendix E."""

from torch import arange, as_tensor, randn

from ..model import LLAMA_1B, ModelArgs
from .judge import Wrong, agree, close, draws, exercise, vary


@exercise(1, expects="numbers (T, D)")
def check_1(partial_result):
    g, (T, F, D) = draws(1), vary((4, 12, 5), (3, 24, 7), (6, 18, 2))
    h, W = randn(T, F, generator=g), randn(D, F, generator=g)
    b, y, other = randn(D, generator=g), h @ W.T, h + (arange(F) < F // 2)
    every = {}
    for n in (1, 3, 2):
        every[n] = parts = [partial_result(h, W, b, r, n) for r in range(n)]
        mistakes = [
            ("b is missing", y),
            ("the sum has b n times: each process adds it", y + n * b),
            ("each process computes all of y", n * (y + b)),
            ("each process computes the whole product", n * y + b),
        ]
        same = all(as_tensor(part).shape == y.shape for part in parts)
        found = sum(map(as_tensor, parts if same else parts[:1]))
        agree(found, y + b, mistakes, what="the sum")
    what = "with other numbers in process 0's columns, process 1's result"
    agree(partial_result(other, W, b, 1, 2), parts[1], what=what)
    for n, parts in every.items():
        pairs = zip(h.chunk(n, 1), W.chunk(n, 1))
        for r, (part, (x, w)) in enumerate(zip(parts, pairs)):
            own = [x @ w.T + share * b for share in (0, 1, 1 / n)]
            if not any(close(part, each, 1e-4) for each in own):
                raise Wrong(f"of {n}, process {r} multiplies its own columns")


@exercise(2, expects="a list of whole numbers")
def check_2(held_kv_heads):
    for n, H, KV in ((2, 8, 4), (8, 32, 8), (8, 8, 2), (2, 6, 3), (4, 12, 6)):
        n, H, KV = (vary(1, 3, 2, 5) * each for each in (n, H, KV))
        for r in reversed(range(n)):
            own, even = range(r * H // n, (r + 1) * H // n), r * KV // n
            read, some = [q * KV // H for q in own], max(1, KV // n)
            mistakes = [
                ("these are query heads", [*own]),
                ("q // (H // KV), not q % KV", sorted({q % KV for q in own})),
                ("each KV head once", read),
                ("KV // n may be 0: each process needs a KV head", []),
                ("a cut group's head is missing", [*range(even, even + some)]),
                ("a process holds heads in a row", [*range(r, KV, n)]),
            ]
            right, what = sorted({*read}), f"({r}, {n}, {H}, {KV}): the result"
            agree(held_kv_heads(r, n, H, KV), right, mistakes, 0, what)


@exercise(3, expects="a number of bytes")
def check_3(bytes_sent):
    sums, D = vary((33, 2048), (39, 1024), (21, 4096))
    c = ModelArgs(**vars(LLAMA_1B) | dict(n_layers=sums // 2, dim=D))
    for T, n, size in ((1, 8, 2), (5, 2, 4), (3, 1, 2)):
        a, b, ring = sums * T * D, T * 128256, (n - 1) / n * size
        right = ring * (2 * a + b)
        mistakes = [
            ("the embedding's sum is missing", right - 2 * ring * a / sums),
            ("two sums a block", ring * (a + a / sums + b)),
            ("the logits' gather is missing", ring * 2 * a),
            ("a ring's sum goes around twice: 2(n - 1)/n", ring * (a + b)),
            ("the gather goes around once: (n - 1)/n", ring * 2 * (a + b)),
            ("these are numbers: multiply by size", right / size),
            ("this is the sum over all processes", right * n),
            ("logits of all T positions", ring * (2 * a + 128256)),
        ]
        agree(bytes_sent(c, T, n, size), right, mistakes, 1e-6)
