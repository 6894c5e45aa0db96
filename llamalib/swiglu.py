r"""The feed-forward network. `...` any dimensions, `D` dim, `F` hidden dim."""

import torch.nn.functional as F
from torch import Tensor


def ffn_hidden_dim(
    dim: int, multiple_of: int, ffn_dim_multiplier: float | None = None
) -> int:
    r"""Return F = 4·dim · 2/3 · ffn_dim_multiplier, rounded up.

    Two thirds, because the gate needs a third matrix: three matrices of
    width 8/3·dim have as many parameters as two of 4·dim.
    Source: Shazeer 2020, arXiv:2002.05202; rounding as in Meta's code.
    """
    hidden = int(2 * (4 * dim) / 3)
    if ffn_dim_multiplier is not None:
        hidden = int(ffn_dim_multiplier * hidden)
    return multiple_of * ((hidden + multiple_of - 1) // multiple_of)


def feed_forward(x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
    r"""Compute SwiGLU: gate by w1, up by w3, down by w2.

    $$\mathrm{FFN}(x) = \big(\mathrm{silu}(x W_1^\top) \odot
      x W_3^\top\big) W_2^\top$$

    x: (..., D), normalized.  w1, w3: (F, D).  w2: (D, F).
    Returns (..., D).
    Source: Shazeer 2020, equation 6, with Swish at beta 1 and no biases.
    """
    gate = F.silu(F.linear(x, w1))  # (..., F)
    return F.linear(gate * F.linear(x, w3), w2)  # (..., D)
