r"""From logits to the next token. `...` any dimensions, `V` vocabulary."""

import torch
from torch import Tensor

from .checks import expect, is_count

LEAST = 1e-20  # of a temperature; logits over less may exceed float32


def check_sampling(temperature=1.0, top_k=None, top_p=None) -> None:
    """Raise ValueError naming the argument that is out of range."""
    t, p, number = temperature, top_p, (int, float)
    ok = isinstance(t, number) and type(t) is not bool
    ok = ok and (t == 0 or LEAST <= t <= 1 / LEAST)
    expect(ok, "temperature", t, f"0 (greedy), or {LEAST} to {1 / LEAST}")
    ok = top_k is None or is_count(top_k)
    expect(ok, "top_k", top_k, "a whole number from 1, or None")
    ok = isinstance(p, number) and type(p) is not bool and LEAST <= p <= 1
    expect(p is None or ok, "top_p", p, f"{LEAST} to 1, or None")


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    r"""Set all but the k largest logits to -inf.

    logits: (..., V); returns the same shape.
    k: from 1; more than V keeps all. Ties with the k-th are kept.
    Source: Fan et al. 2018, arXiv:1805.04833.
    """
    check_sampling(top_k=k)
    k = min(k, logits.shape[-1])
    least = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < least, float("-inf"))


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    r"""Set logits outside the smallest set of probability p to -inf.

    logits: (..., V); returns the same shape.
    p: over 0, at most 1. The most probable token is always kept.
    Source: Holtzman et al. 2019, arXiv:1904.09751.
    """
    check_sampling(top_p=p)
    if p == 1:  # rounding: `before` may reach 1 before the last token
        return logits
    ordered, ids = logits.sort(dim=-1, descending=True)  # (..., V)
    probs = torch.softmax(ordered.float(), dim=-1)
    before = probs.cumsum(dim=-1) - probs  # of more probable tokens
    ordered = ordered.masked_fill(before >= p, float("-inf"))
    return torch.empty_like(logits).scatter(-1, ids, ordered)


def next_token_probs(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Tensor:
    r"""Return the distribution that the next token is sampled from.

    The logits are divided by the temperature, then filtered by top-k, then
    by top-p.

    logits: (..., V).  Returns (..., V) float32, summing to 1.
    temperature: over 0; under 1 sharper, over 1 flatter.
    top_k, top_p: None skips the step.
    Raises ValueError naming the argument that is out of range.
    """
    check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        raise ValueError("temperature is 0; expected over 0 (0 is argmax)")
    logits = logits.float() / temperature  # (..., V)
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    return torch.softmax(logits, dim=-1)


def pick(
    logits: Tensor,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the next token: the argmax at temperature 0, else a sample.

    logits: (..., V).  Returns (...) int64.
    temperature, top_k, top_p: see `next_token_probs`.
    generator: the random generator, on the logits' device.
    """
    check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)  # (...)
    probs = next_token_probs(logits, temperature, top_k, top_p)
    flat = probs.reshape(-1, probs.shape[-1])  # (n, V)
    drawn = torch.multinomial(flat, 1, generator=generator)  # (n, 1)
    return drawn.reshape(probs.shape[:-1])
