r"""Checks of the exercises of notebook 08. A dict has mistakes by name."""

import math

import torch
from torch import Tensor

from .judge import agree, as_tensor, draws, exercise, vary

INF = float("inf")


def random_logits(*shape: int, spread: float = 1.0) -> Tensor:
    """Return logits from a normal distribution, the same in each call."""
    return spread * torch.randn(*shape, generator=draws())


@exercise(1, "probabilities, one for each token")
def check_1(answer):
    """Judge top_k_probs(logits, k), which keeps exactly k tokens."""
    n, k, steps = vary((50, 7, 0), (40, 5, 1), (60, 9, 2), (35, 6, 3))
    small, large = random_logits(n), random_logits(3000, spread=3)
    tied = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0, 0.0]).roll(steps)
    cases = [(small, k), (large, 3 * k - 1), (small, 1), (small, n)]
    for z, k in [*cases, (tied, 3), (tied, 1)]:
        found = answer(z, k)
        expected, mistakes = judged_1(z, k, as_tensor(found))
        agree(found, expected, mistakes, what=f"k = {k}: the result")
    return "the k most likely, summing to 1"


def judged_1(z: Tensor, k: int, found: Tensor | None) -> tuple:
    def only(ids):
        return torch.full_like(z, -INF).index_copy(0, ids, z[ids])

    kept = only(z.sort(descending=True, stable=True).indices[:k])
    least = kept[kept > -INF].min()
    mistakes = {
        "you kept the k smallest, not the k largest": only((-z).topk(k)[1]),
        "you set the cut logits to 0": z.masked_fill(kept < least, 0),
        "you kept every logit that ties": z.masked_fill(z < least, -INF),
        "of tied logits keep the first ids": only(z.argsort(stable=True)[-k:]),
    }
    mistakes = {words: each.softmax(-1) for words, each in mistakes.items()}
    mistakes["you did not renormalize"] = z.softmax(-1) * kept.isfinite()
    mistakes["these are still logits: the softmax is missing"] = kept
    if found is not None and found.shape == z.shape:
        n = (found > 0).sum().item()
        if n != k:
            mistakes[f"you kept {n} tokens, for k = {k}"] = found
    return kept.softmax(-1), mistakes.items()


@exercise(2, "probabilities, one for each token")
def check_2(answer):
    """Judge retemper(probs, T)."""
    divided = "you divided the probabilities, not the logits"
    for z in (random_logits(50), random_logits(3000, spread=3)):
        for T in vary((0.5, 2.0), (0.7, 1.6), (0.4, 3.0)):
            p, expected = z.double().softmax(-1), (z.double() / T).softmax(-1)
            mistakes = {
                divided: p,
                f"{divided}, and did not renormalize": p / T,
                "you took the softmax of probabilities": (p / T).softmax(-1),
                "you took the power T: it is 1/T": p**T / (p**T).sum(),
                "these are logits: the softmax is missing": p.log() / T,
                "not normalized: the sum is not 1": p ** (1 / T),
            }
            agree(answer(p, T), expected, mistakes.items())
    return "the power 1/T, renormalized"


@exercise(3, "logits")
def check_3(answer):
    """Judge keep_min_p(logits, m)."""
    batch, cube = random_logits(4, 50, spread=1.5), random_logits(2, 3, 60)
    for z in (batch, random_logits(3000, spread=3), cube):
        for m in vary((0.03, 0.2, 1.0), (0.05, 0.3, 1.0), (0.02, 0.1, 1.0)):
            top = z.amax(-1, keepdim=True)
            near = (z < top) & ((z - top - math.log(m)).abs() < 1e-4)
            z = z - 3e-4 * near  # so that no rounding decides
            found = answer(z, m)
            expected, mistakes = judged_3(z, m, as_tensor(found))
            agree(found, expected, mistakes, what=f"m = {m}: the result")
    return "at least m times the most likely, in each row"


def judged_3(z: Tensor, m: float, found: Tensor | None) -> tuple:
    p, top = z.softmax(-1), z.amax(-1, keepdim=True)
    stays = z >= top + torch.tensor(m).log()
    mistakes = {
        f"no token is left for m = {m}: at least is >=, not >": z > top,
        "you compared with m, not with m times the maximum": p >= m,
        "you compared logits: the rule is about probabilities": z >= m * top,
        "each row has its own maximum (see hint 1)": p >= m * p.max(),
    }
    for words, kept in mistakes.items():
        mistakes[words] = z.masked_fill(~kept, -INF)
    zeros = "you set the others to 0: expected -inf"
    mistakes[zeros] = torch.where(stays, z, 0)
    mistakes[f"{zeros}, and logits"] = torch.where(stays, p, 0)
    if found is not None and found.shape == z.shape:
        if torch.equal(found.isfinite(), stays):
            mistakes["the kept logits must stay as they are"] = found
    return z.masked_fill(~stays, -INF), mistakes.items()
