r"""Weights rounded to 8 or 4 bits.

Generated from the notebooks' cells by `python -m lessons export`: do not edit
this file, edit the notebook.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers; `...` any leading
dimensions. In code, `F` is torch.nn.functional. A matrix (out, in) maps x to
x @ w.T.
"""

import torch
from torch import Tensor

__all__ = [
    "quantize_rows",
    "quantize_groups",
    "pack_nibbles",
    "unpack_nibbles",
]


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    r"""Round each row of w (M, K) to 8 bits, scaled by its largest number.

    Returns q (M, K) int8, -127 … 127, and scale (M,) in the dtype of w; row
    m stands for q[m] · scale[m].
    """
    floats = w.float()  # (M, K)
    scale = (floats.abs().amax(dim=-1) / 127).to(w.dtype)  # (M,)
    scale = torch.where(scale == 0, 1, scale)  # a row of zeros
    q = (floats / scale.float()[:, None]).round()  # (M, K)
    return q.clamp(-127, 127).to(torch.int8), scale


def quantize_groups(w: Tensor, g: int = 32) -> tuple[Tensor, Tensor]:
    r"""Round w (M, K) to 4 bits; each g numbers of a row share a scale.

    Returns q (M, K) int8, -7 … 7, and scale (M, K/g) in the dtype of w.
    Raises ValueError if K is not a multiple of g.
    """
    if w.shape[-1] % g:
        raise ValueError(
            f"rows have {w.shape[-1]} numbers; expected a multiple of g = {g}"
        )
    groups = w.float().unflatten(-1, (-1, g))  # (M, K/g, g)
    scale = (groups.abs().amax(dim=-1) / 7).to(w.dtype)  # (M, K/g)
    scale = torch.where(scale == 0, 1, scale)  # a group of zeros
    q = (groups / scale.float()[..., None]).round()  # (M, K/g, g)
    return q.clamp(-7, 7).to(torch.int8).flatten(-2), scale


def pack_nibbles(q: Tensor) -> Tensor:
    """Pack q (M, K), -8 … 7, as (M, K/2) uint8, two numbers in each byte.

    The first of two is in the lower four bits. 8 is added to each.
    """
    low, high = (q + 8).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
    return low | (high << 4)  # (M, K/2)


def unpack_nibbles(packed: Tensor) -> Tensor:
    """Undo `pack_nibbles`: (M, K/2) uint8 to (M, K) int8."""
    pairs = torch.stack((packed & 15, packed >> 4), dim=-1)  # (M, K/2, 2)
    return pairs.flatten(-2).to(torch.int8) - 8
