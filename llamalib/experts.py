r"""A mixture of experts: a feed-forward network of which a token takes parts.

Shapes: `...` any leading dimensions, `T` tokens, `D` model dim, `F` hidden
dim of one expert, `E` experts, `k` experts that a token is given (`top_k`).
The experts' matrices are stacked: w1 and w3 are (E, F, D), w2 is (E, D, F).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .config import ModelArgs

# by another name: `experiment.replaced` may put a mixture in its place
from .swiglu import feed_forward as swiglu
from .model import tensor_shapes


def check_top_k(top_k: int, n_experts: int) -> None:
    """ValueError for a number of experts that cannot be chosen."""
    if not 1 <= top_k <= n_experts:
        raise ValueError(
            f"top_k is {top_k}; wanted 1 to {n_experts}, the number of experts"
        )


def check_divides(n_experts: int, hidden_dim: int) -> None:
    """ValueError where neurons cannot be shared out evenly."""
    if n_experts < 1 or hidden_dim % n_experts:
        raise ValueError(
            f"{n_experts} experts of {hidden_dim} neurons; wanted a number "
            "of experts that divides the number of neurons"
        )


def split_experts(
    w1: Tensor, w2: Tensor, w3: Tensor, n_experts: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""The neurons of one feed-forward network, shared out in turn.

    The experts' results sum to the network's, for it is a sum over neurons.

    Args:
        w1, w3: (F, D).  w2: (D, F).
        n_experts: E, which divides F.

    Returns:
        w1, w2, w3 of the experts: (E, F/E, D), (E, D, F/E), (E, F/E, D),
        views of the numbers that were given.

    Raises:
        ValueError: where E does not divide F.
    """
    check_divides(n_experts, len(w1))
    return (
        w1.unflatten(0, (n_experts, -1)),  # (E, F/E, D)
        w2.unflatten(1, (n_experts, -1)).movedim(1, 0),  # (E, D, F/E)
        w3.unflatten(0, (n_experts, -1)),  # (E, F/E, D)
    )


def copy_experts(
    w1: Tensor, w2: Tensor, w3: Tensor, n_experts: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""A feed-forward network E times.

    With weights that sum to 1 the mixture gives what the network gives.

    Args:
        w1, w3: (F, D).  w2: (D, F).
        n_experts: E.

    Returns:
        w1, w2, w3 of the experts: (E, F, D), (E, D, F), (E, F, D). They share
        the memory of what was given: `.clone()` them before training.

    Source: Komatsuzaki et al. 2022, "Sparse Upcycling", arXiv:2212.05055.
    """
    return tuple(
        weight.expand(n_experts, *weight.shape)  # (E, …)
        for weight in (w1, w2, w3)
    )


def route(
    x: Tensor, router: Tensor, top_k: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Which k experts a token is given to, and with what weight.

    The softmax is over the chosen alone, so a token's weights sum to 1.

    Args:
        x: (..., D), normalized.
        router: (E, D), a row for each expert.
        top_k: k, from 1 to E.

    Returns:
        weights (..., k), from the largest; chosen (..., k) int64, the
        experts; logits (..., E) float32, of all of them.

    Raises:
        ValueError: for a top_k that is not from 1 to E.

    Source: Shazeer et al. 2017, arXiv:1701.06538, who add noise to the logits
    before; without it in Mixtral (Jiang et al. 2024, arXiv:2401.04088).
    """
    check_top_k(top_k, len(router))
    logits = F.linear(x, router).float()  # (..., E)
    best, chosen = logits.topk(top_k, dim=-1)  # (..., k)
    weights = torch.softmax(best, dim=-1)  # (..., k)
    return weights.to(x.dtype), chosen, logits


def mixture_feed_forward(
    x: Tensor, router: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, top_k: int
) -> Tensor:
    r"""SwiGLU experts, each run on the tokens that chose it, and no others.

    Args:
        x: (..., D), normalized.
        router: (E, D).
        w1, w3: (E, F, D).  w2: (E, D, F).
        top_k: k, from 1 to E.

    Returns:
        (..., D): for each token, the chosen experts' results, weighted.

    Source: as for `route`.
    """
    tokens = x.reshape(-1, x.shape[-1])  # (T, D)
    weights, chosen, _ = route(tokens, router, top_k)  # (T, k) each
    y = torch.zeros_like(tokens)  # (T, D)
    for expert in range(len(router)):
        row, place = (chosen == expert).nonzero(as_tuple=True)  # (n,)
        if not len(row):
            continue  # an expert that nobody chose is not even read
        out = swiglu(tokens[row], w1[expert], w2[expert], w3[expert])
        y = y.index_add(0, row, weights[row, place, None] * out)  # (T, D)
    return y.view_as(x)  # (..., D)


def balance_loss(logits: Tensor, chosen: Tensor) -> Tensor:
    r"""E times the sum over experts of f (tokens taken) times P (wished for).

    1 where all experts are alike. E/k where k of them have every choice and
    one of those all the probability; about 1 where they have every choice by
    a hair. Only P has a gradient: f is a count.

    Args:
        logits: (..., E), of all experts.
        chosen: (..., k) int64.

    Returns:
        a tensor of no dimensions.

    Source: Fedus et al. 2021, "Switch Transformers", arXiv:2101.03961,
    equations 4 to 6, without their factor alpha; here f is a share of the
    choices, so that it sums to 1 for any k. (The transformers library sums f
    to k, and takes f and P over the tokens of all layers together.)
    """
    n_experts = logits.shape[-1]
    taken = F.one_hot(chosen, n_experts).float()  # (..., k, E)
    f = taken.flatten(0, -2).mean(dim=0)  # (E,)
    P = torch.softmax(logits, dim=-1).flatten(0, -2).mean(dim=0)  # (E,)
    return n_experts * (f * P).sum()


def mixture_parameters(
    config: ModelArgs, n_experts: int, top_k: int, *, tied: bool = True
) -> tuple[int, int]:
    r"""Parameters of a Llama with E experts in every layer: all, and active.

    Args:
        config: of the model that has one feed-forward network a layer; each
            of the experts is as large.
        n_experts: E.
        top_k: k, from 1 to E.
        tied: whether the output is the embedding.

    Returns:
        total; active, those that one token meets (the embedding is counted
        whole, as is usual).

    Raises:
        ValueError: for a top_k that is not from 1 to E.
    """
    check_top_k(top_k, n_experts)
    shapes = tensor_shapes(config)
    if tied:
        del shapes["output.weight"]
    dense = sum(math.prod(shape) for shape in shapes.values())
    expert = 3 * config.dim * config.hidden_dim  # of one layer
    router = n_experts * config.dim
    others = dense + config.n_layers * (router - expert)
    total = others + config.n_layers * n_experts * expert
    active = others + config.n_layers * top_k * expert
    return total, active


def experts_read(n_experts: int, top_k: int, n_tokens: int) -> float:
    r"""How many experts of a layer some tokens need, in the mean.

    If every token's k are drawn independently, all k of the E with the same
    chance. (Tokens that follow one another share experts, and need fewer.)

    Args:
        n_experts: E.
        top_k: k, from 1 to E.
        n_tokens: of one step, 0 or more.

    Returns:
        E · (1 - (1 - k/E)^n).

    Raises:
        ValueError: for a top_k that is not from 1 to E.
    """
    check_top_k(top_k, n_experts)
    missed = (1 - top_k / n_experts) ** n_tokens  # by every one of them
    return n_experts * (1 - missed)


def within_capacity(chosen: Tensor, n_experts: int, capacity: int) -> Tensor:
    r"""Which choices an expert of so many places can take.

    Who comes first is served first: by token, and of one token's choices
    the first before the second. (GShard serves all tokens' first choices
    before any second.)

    Args:
        chosen: (T, k) int64.
        n_experts: E.
        capacity: places of each expert.

    Returns:
        (T, k) bool: False where the choice is dropped.

    Source: for the capacity Lepikhin et al. 2020, "GShard",
    arXiv:2006.16668, and Fedus et al. 2021.
    """
    asked = F.one_hot(chosen.flatten(), n_experts)  # (T·k, E)
    before = asked.cumsum(dim=0) - asked  # who asked the same one earlier
    place = (before * asked).sum(dim=-1)  # (T·k,)
    return (place < capacity).view_as(chosen)  # (T, k)
