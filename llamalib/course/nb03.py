r"""Checks of the exercises of notebook 03."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..model import rms_norm
from .judge import agree, draws, exercise, vary


def epsilon() -> float:
    """Return an ε that is large enough to be seen in the small vectors."""
    return vary(1e-3, 2e-3, 7e-4, 3e-3)


def small_vectors(seed: int) -> Iterator[tuple]:
    """Yield (x, weight, bias) with one to three leading dimensions."""
    g, n = draws(seed), vary(0, 2, 3, 4)
    for shape in ((2, 3, 8 + n), (2, 3 + n, 4, 6), (5 + n, 6)):
        x = 0.05 * torch.randn(shape, generator=g) + 0.1  # (..., D)
        yield x, *torch.randn(2, shape[-1], generator=g).unbind()


@exercise(1, "a tensor (..., D)")
def check_1(answer):
    for x, weight, bias in small_vectors(1):
        found = answer(x, weight, bias, epsilon())
        expected = F.layer_norm(x, weight.shape, weight, bias, epsilon())
        agree(found, expected, layer_norm_mistakes(x, weight, bias))


def layer_norm_mistakes(x: Tensor, g: Tensor, b: Tensor) -> Iterator[tuple]:
    mean, D = x.mean(-1, keepdim=True), x.shape[-1]
    var, eps = x.var(-1, keepdim=True, unbiased=False), epsilon()
    d, more = x - mean, var * D / (D - 1)
    words = "the variance is divided by D - 1, not D (unbiased=False)"
    yield "ε is outside the root", d / (var.sqrt() + eps) * g + b
    yield "ε is missing", d / var.sqrt() * g + b
    yield "eps is not used", d / (var + 1e-5).sqrt() * g + b
    yield "the mean is still in", x / (var + eps).sqrt() * g + b
    yield "this is RMSNorm: the mean is still in", rms_norm(x, g, eps) + b
    yield words, d / (more + eps).sqrt() * g + b
    both = f"ε is outside the root, and {words}"
    yield both, d / (more.sqrt() + eps) * g + b
    yield "the root is missing", d / (var + eps) * g + b
    yield "the shift is missing", d / (var + eps).sqrt() * g
    yield "the scale is missing", d / (var + eps).sqrt() + b
    yield "the shift is scaled too", (d / (var + eps).sqrt() + b) * g
    for i in range(x.dim() - 1):
        d, var = x - x.mean(i, True), x.var(i, False, keepdim=True)
        words = f"this is over dimension {i}; the features are the last"
        yield words, d / (var + eps).sqrt() * g + b


@exercise(2, "a tensor (..., D)")
def check_2(answer):
    for x, weight, _ in small_vectors(2):
        x = x * torch.arange(1.0, x.shape[-1] + 1)  # later ones are larger
        for k in (vary(3, 2, 4, 5), 1, x.shape[-1]):
            expected = scaled(x, x[..., :k], weight)
            found = answer(x, weight, epsilon(), k)
            agree(found, expected, partial_mistakes(x, weight, k))
    return "with k = D it is RMSNorm"


def scaled(x: Tensor, part: Tensor, weight: Tensor, by=None) -> Tensor:
    """Divide x by the RMS of a part; `by` replaces the part's length."""
    total = part.pow(2).sum(-1, keepdim=True)  # (..., 1)
    mean = total / (by or part.shape[-1])
    return x * torch.rsqrt(mean + epsilon()) * weight


def partial_mistakes(x: Tensor, weight: Tensor, k: int) -> Iterator[tuple]:
    D, part = x.shape[-1], x[..., :k]
    right, whole = scaled(x, part, weight), scaled(x, x, weight)
    rms = part.pow(2).mean(-1, keepdim=True).sqrt()
    yield "the RMS is of all D features; expected the first k", whole
    words = "the sum is of k squares: divide it by k, not D"
    yield words, scaled(x, part, weight, by=D)
    yield "the sum is not divided by k", scaled(x, part, weight, by=1)
    yield "these are the last k features", scaled(x, x[..., D - k :], weight)
    words = "only the first k features are returned; scale all D"
    yield words, right[..., :k]
    words = "only the first k features are divided; divide all D"
    for rest in (x * weight, x, 0 * x):
        yield words, torch.cat([right[..., :k], rest[..., k:]], -1)
    yield "ε is outside the root", x / (rms + epsilon()) * weight
    yield "ε is missing", x / rms * weight
    yield "γ is missing", scaled(x, part, torch.ones(D))


@exercise(3, "a pair of matrices (F, D)")
def check_3(answer):
    g, D = draws(3), vary(12, 10, 14, 9)
    gamma = 1 + 0.3 * torch.randn(D, generator=g)  # (D,)
    for rows in (D, D + 8):  # with F = D the wrong axis raises no error
        w1, w3 = torch.randn(2, rows, D, generator=g)  # (F, D) each
        expected = w1 * gamma, w3 * gamma
        mistakes = fold_mistakes(gamma, w1, w3)
        found = answer(gamma, w1, w3)
        if isinstance(found, (tuple, list)):  # of arrays, or of tensors
            arrays = [isinstance(each, np.ndarray) for each in found]
            found = np.stack(found) if arrays and all(arrays) else found
        agree(found, torch.stack(expected), mistakes)
    return "γ needs no separate step"


def fold_mistakes(gamma: Tensor, w1: Tensor, w3: Tensor) -> Iterator[tuple]:
    both = torch.stack([w1, w3])  # (2, F, D)
    right = both * gamma
    yield "you divided by γ; expected a product", both / gamma
    yield "only w1 is folded", torch.stack([right[0], both[1]])
    yield "only w3 is folded", torch.stack([both[0], right[1]])
    yield "w3 is first; expected w1, then w3", right.flip(0)
    yield "nothing is changed", both
    yield "they are transposed", right.mT
    if w1.shape[0] == w1.shape[1]:
        words = "you scaled the rows; feature j belongs to column j"
        yield words, both * gamma[:, None]
