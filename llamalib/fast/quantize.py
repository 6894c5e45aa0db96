r"""Round weights to 8 or 4 bits per number.

Weight-only and symmetric: a number w is stored as a small integer q and
stands for q times a scale, one scale per row (int8) or per group of numbers
in a row (int4). Activations stay in 16 or 32 bits.

Shapes: `M` rows of a matrix, `K` numbers per row, `g` numbers per group.
"""

import torch
from torch import Tensor

KINDS = ("int8", "int4")


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    r"""Round each row to 8 bits, scaled by its largest number.

    Args:
        w: (M, K) floats.

    Returns:
        q: (M, K) int8, -127 … 127.
        scale: (M,) in the dtype of w; row m stands for q[m] · scale[m]. In
            float16 a row below 1e-4 loses more: its scale is subnormal.
    """
    floats = w.float()  # (M, K)
    scale = (floats.abs().amax(dim=-1) / 127).to(w.dtype)  # (M,)
    scale = torch.where(scale == 0, 1, scale)  # a row of zeros
    q = (floats / scale.float()[:, None]).round()  # (M, K)
    return q.clamp(-127, 127).to(torch.int8), scale


def quantize_groups(w: Tensor, g: int = 32) -> tuple[Tensor, Tensor]:
    r"""Round to 4 bits; each g numbers of a row share a scale.

    Args:
        w: (M, K) floats; K is a multiple of g.
        g: numbers that share a scale.

    Returns:
        q: (M, K) int8, -7 … 7.
        scale: (M, K/g) in the dtype of w.

    Raises:
        ValueError: if K is not a multiple of g.
    """
    if w.shape[-1] % g:
        raise ValueError(
            f"rows have {w.shape[-1]} numbers; wanted a multiple of g = {g}"
        )
    groups = w.float().unflatten(-1, (-1, g))  # (M, K/g, g)
    scale = (groups.abs().amax(dim=-1) / 7).to(w.dtype)  # (M, K/g)
    scale = torch.where(scale == 0, 1, scale)  # a group of zeros
    q = (groups / scale.float()[..., None]).round()  # (M, K/g, g)
    return q.clamp(-7, 7).to(torch.int8).flatten(-2), scale


def pack_nibbles(q: Tensor) -> Tensor:
    r"""Pack two 4-bit numbers into each byte.

    Args:
        q: (M, K) int8, -8 … 7; K is even.

    Returns:
        (M, K/2) uint8: the first of two in the lower four bits, each plus 8
        so that none is negative.
    """
    low, high = (q + 8).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
    return low | (high << 4)  # (M, K/2)


def unpack_nibbles(packed: Tensor) -> Tensor:
    r"""Undo `pack_nibbles`: (M, K/2) uint8 to (M, K) int8."""
    pairs = torch.stack((packed & 15, packed >> 4), dim=-1)  # (M, K/2, 2)
    return pairs.flatten(-2).to(torch.int8) - 8


def check_kind(kind) -> None:
    """Raise ValueError unless kind is one of KINDS."""
    if kind not in KINDS:
        raise ValueError(f"quantize is {kind!r}; expected 'int8' or 'int4'")
