r"""Root-mean-square normalization. `...` any leading dimensions, `D` dim."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    r"""Scale each vector to a root mean square of 1, then by `weight`.

    $$y_i = \gamma_i\, x_i \Big/ \sqrt{\tfrac1D\sum_j x_j^2 + \epsilon}$$

    x: (..., D), any floating dtype; computed in float32.
    weight: (D,), the learned $\gamma$.
    eps: added to the mean square, under the root, as in Meta's code.
    Returns (..., D) in the dtype of `x`, if `weight` has that dtype too.
    Source: Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    xf = x.float()  # in bfloat16, each step rounds to 2 to 3 digits
    scale = torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + eps)  # (..., 1)
    return (xf * scale).type_as(x) * weight  # (..., D)
