r"""From logits to a token: temperature, top-k, top-p, a draw.

Shapes: `V` vocabulary; `...` any leading dimensions.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .checks import check_sampling


def top_k_logits(logits: Tensor, k: int) -> Tensor:
    r"""Set all but the k largest logits to -inf.

    logits: (..., V); returns the same shape.
    k: at least 1, else ValueError; above V it keeps every token. Tokens
    tied with the k-th are kept.
    Source: Fan et al. 2018, arXiv:1805.04833.
    """
    check_sampling(top_k=k)
    k = min(k, logits.shape[-1])
    least = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < least, float("-inf"))


def top_p_logits(logits: Tensor, p: float) -> Tensor:
    r"""Keep the smallest set of tokens whose probabilities sum to at least p.

    All other logits become -inf.

    logits: (..., V); returns the same shape.
    p: in (0, 1], else ValueError. The most probable token is always kept.
    Source: Holtzman et al. 2019, arXiv:1904.09751.
    """
    check_sampling(top_p=p)
    if p == 1:  # the sums below may round to 1 too early
        return logits
    ordered, ids = logits.sort(dim=-1, descending=True)  # (..., V)
    probs = torch.softmax(ordered.float(), dim=-1)
    before = probs.cumsum(dim=-1) - probs  # sum of more probable tokens
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
    temperature: > 0; values below 1 sharpen the distribution, values above
    1 flatten it.
    top_k, top_p: None skips the step.
    Raises ValueError naming the argument that is out of range.
    """
    check_sampling(temperature, top_k, top_p, greedy=False)
    logits = logits.float() / temperature  # (..., V)
    if top_k is not None:
        logits = top_k_logits(logits, top_k)
    if top_p is not None:
        logits = top_p_logits(logits, top_p)
    return torch.softmax(logits, dim=-1)


def sample(
    logits: Tensor,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the next token: the argmax at temperature 0, otherwise a draw.

    logits: (..., V).  Returns (...) int64.
    temperature, top_k, top_p: see `next_token_probs`.
    generator: the source of random numbers, on the logits' device; None:
    PyTorch's default generator.
    """
    check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)  # (...)
    probs = next_token_probs(logits, temperature, top_k, top_p)  # (..., V)
    flat = probs.reshape(-1, probs.shape[-1])  # multinomial takes (n, V)
    drawn = torch.multinomial(flat, 1, generator=generator)  # (n, 1)
    return drawn.reshape(probs.shape[:-1])  # (...)


def make_sampler(
    device,
    seed: int | None = None,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Callable[[Tensor], Tensor]:
    r"""Return a function that chooses the next tokens (...) from logits.

    device: that of the logits (..., V).
    seed: of the random numbers; None: PyTorch's default generator.
    temperature, top_k, top_p: see `sample`.
    """
    generator = None
    if seed is not None:
        generator = torch.Generator(device).manual_seed(seed)
    return partial(
        sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        generator=generator,
    )
