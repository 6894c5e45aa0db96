r"""From logits to the next token.

Shapes: `...` any leading dimensions, or none; `V` vocabulary.
"""

import math

import torch
from torch import Tensor


def check_sampling(temperature=1.0, top_k=None, top_p=None) -> None:
    """ValueError for what no token can be drawn with, naming it."""
    number = isinstance(temperature, (int, float))
    if not (number and temperature >= 0 and math.isfinite(temperature)):
        raise ValueError(
            f"temperature is {temperature!r}; wanted 0 (greedy) or more"
        )
    if top_k is not None and (type(top_k) is not int or top_k < 1):
        raise ValueError(
            f"top_k is {top_k!r}; wanted a whole number from 1, or None"
        )
    number = isinstance(top_p, (int, float))
    if top_p is not None and not (number and 0 < top_p <= 1):
        raise ValueError(
            f"top_p is {top_p!r}; wanted over 0 and at most 1, or None"
        )


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    r"""All but the k largest logits become -inf.

    Args:
        logits: (..., V).
        k: from 1; over V it keeps all. Ties with the k-th are kept.

    Returns:
        (..., V).

    Source: Fan et al. 2018, arXiv:1805.04833.
    """
    check_sampling(top_k=k)
    k = min(k, logits.shape[-1])
    least = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < least, float("-inf"))


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    r"""All but the smallest set of tokens that reaches probability p: -inf.

    Args:
        logits: (..., V).
        p: over 0, at most 1. The likeliest token always stays.

    Returns:
        (..., V).

    Source: Holtzman et al. 2019, arXiv:1904.09751.
    """
    check_sampling(top_p=p)
    if p == 1:  # a float32 sum of many probabilities may reach 1 early
        return logits
    ordered, ids = logits.sort(dim=-1, descending=True)  # (..., V)
    probs = torch.softmax(ordered.float(), dim=-1)
    before = probs.cumsum(dim=-1) - probs  # what the likelier ones sum to
    ordered = ordered.masked_fill(before >= p, float("-inf"))
    return torch.empty_like(logits).scatter(-1, ids, ordered)


def next_token_probs(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Tensor:
    r"""The distribution that the next token is drawn from.

    Temperature divides the logits first, then top-k, then top-p of what is
    left.

    Args:
        logits: (..., V).
        temperature: over 0; under 1 sharper, over 1 flatter.
        top_k, top_p: None leaves the step out.

    Returns:
        (..., V) float32, summing to 1.

    Raises:
        ValueError: naming the argument, what it is and what is wanted.
    """
    check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        raise ValueError("temperature is 0; wanted over 0 (0 is argmax)")
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
    r"""The next token: the likeliest at temperature 0, else drawn.

    Args:
        logits: (..., V).
        temperature, top_k, top_p: see `next_token_probs`.
        generator: where the chance comes from; on the logits' device.

    Returns:
        (...) int64.
    """
    check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)  # (...)
    probs = next_token_probs(logits, temperature, top_k, top_p)
    flat = probs.reshape(-1, probs.shape[-1])  # (n, V)
    drawn = torch.multinomial(flat, 1, generator=generator)  # (n, 1)
    return drawn.reshape(probs.shape[:-1])
