r"""Checks of the exercises of appendix G."""

from operator import add

import torch

from ..model import LLAMA_1B, ModelArgs
from .judge import agree, exercise, vary


def limit(case, cache=1, weights=1, ops=2, size=0, longer=max, made=0):
    """Return the answer of exercise 1, or what a mistake makes of it."""
    bandwidth, peak, P, c, B, n, own_size = case
    cache *= 2 * c.n_layers * c.n_kv_heads * c.head_dim * n * B
    reading = (size or own_size) * (weights * P + cache)
    return (made or B) / longer(reading / bandwidth, ops * B * P / peak)


@exercise(1, expects="a number")
def check_1(answer):
    """Judge my_limit: two memory-bound and two compute-bound batches."""
    up, KV, more = vary((1, 8, 0), (2, 4, 1), (3, 2, 5))
    c = ModelArgs(**vars(LLAMA_1B) | dict(n_layers=16 * up, n_kv_heads=KV))
    rows = (1, 1000, 2), (8 + more, 50_000, 1), (4000, 0, 2), (1000, 10, 4)
    cases = [(up * 10**12, 10**14, 10**9 + more, c, *row) for row in rows]
    wrong = {
        "a step makes a token for every text": lambda B: dict(made=1),
        "the cache is read too": lambda B: dict(cache=0),
        "every text has its own cache": lambda B: dict(cache=1 / B),
        "keys and values: twice as many": lambda B: dict(cache=1 / 2),
        "the weights are read once for all": lambda B: dict(weights=B),
        "the cache has KV heads, not H": lambda B: dict(
            cache=c.n_heads // c.n_kv_heads
        ),
        "a number takes more than one byte: see size": lambda B: dict(size=1),
        "every text has its own operations: see peak": lambda B: dict(ops=0),
        "two operations per weight and text": lambda B: dict(ops=1),
        "the longer time, not their sum": lambda B: dict(longer=add),
        "the longer time, not the shorter": lambda B: dict(longer=min),
    }
    for words, change in wrong.items():
        wrong[words] = [limit(c, **change(c[4])) for c in cases]
    agree([answer(*c) for c in cases], list(map(limit, cases)), wrong.items())


@exercise(2, expects="True and False, (B, T, T)")
def check_2(answer):
    """Judge my_mask, on rows with and without padding."""
    more = vary([], [1, 4], [0], [3, 1, 0])
    for padding, T in ([2, 0, 3, *more], 5 + len(more)), ([0], 2):
        p, s = torch.tensor(padding)[:, None, None], torch.arange(T)
        past, own = s <= s[:, None], s == s[:, None]  # (T, T)
        right = past & (s >= p) | own  # (B, T, T)
        mistakes = [
            ("a token must not see later ones", (s >= p) | own),
            ("padding is not hidden", past.expand_as(right)),
            ("a column of padding sees itself", past & (s >= p)),
            ("padding is on the left", past & (s < T - p) | own),
            ("column padding[b] is the first token", past & (s > p) | own),
            ("rows are queries t, columns are keys s", right.mT),
            ("True where it may see, False where not", ~right),
            ("True and False, not 0 and -inf", right.float().log()),
        ]
        agree(answer(torch.tensor(padding), T), right, mistakes)
