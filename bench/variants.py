r"""Other ways to write the compiled step, for a GPU to choose between.

Each way is a pair: functions that replace those of `llamalib.fast.step` by
name, and options for PyTorch's compiler. All give the same logits, up to
rounding. By PyTorch 2.13's compiler a block of the 1B is 14 kernels, two of
them cuBLAS's; here it is 11, 10 and 9, all of them Triton's.

`B` batch, `S` columns, `D` model dim, `M` rows of a matrix.
"""

import math
import types

import torch
import torch.nn.functional as F

from llamalib import rms_norm


def attention_in_sums(xq, xk, xv, mask):
    """Compute `grouped_attention` as sums, each fused with what it reads."""
    q = xq.squeeze(-3).float() / math.sqrt(xq.shape[-1])  # (B, H, hd)
    q = q.unflatten(-2, (xk.shape[-2], -1))  # (B, KV, G, hd)
    k, v = (x.transpose(-3, -2)[..., None, :, :].float() for x in (xk, xv))
    scores = (q[..., None, :] * k).sum(-1) + mask  # (B, KV, G, S)
    weights = torch.softmax(scores, dim=-1)
    out = (weights[..., None] * v).sum(-2)  # (B, KV, G, hd)
    return out.type_as(xq).flatten(-3).unsqueeze(-2)  # (B, 1, H·hd)


def late_norm(x, weight, eps):
    """Return what a product needs to normalize its result itself."""
    if len(x) > 1:
        return rms_norm(x, weight, eps)
    return x.float(), weight.float(), eps


def normalizing_linear(h, w):
    """Compute h @ w.T for normalized h; or for `late_norm`'s, one row.

    The squares are summed in the kernel of the product, once for each of its
    rows: no kernel runs before it.
    """
    if isinstance(h, torch.Tensor):
        return F.linear(h, w)
    x, weight, eps = h
    squares = x.expand(len(w), -1).pow(2).mean(-1)  # (M,)
    sums = (w.float() * (x * weight)).sum(-1)  # (M,)
    return (sums * torch.rsqrt(squares + eps))[None].to(w.dtype)  # (1, M)


SUMS = {"grouped_attention": attention_in_sums}
LATE = types.SimpleNamespace(
    linear=normalizing_linear, embedding=F.embedding, silu=F.silu
)
COMBINED = {"combo_kernels": True}
LAUNCHED = {"triton.enable_pdl": True}  # programmatic dependent launch
VARIANTS = {
    "sums": (SUMS, {}),
    "sums combined": (SUMS, COMBINED),
    "sums early": (SUMS, LAUNCHED),
    "late norm": (SUMS | {"rms_norm": late_norm, "F": LATE}, COMBINED),
}
