r"""Grouped-query attention: several query heads share a key/value head.

`...` any leading dimensions, `T` query positions, `S` key positions, `D` model
dim, `H` query heads, `KV` key/value heads, `hd` head dim.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .rope import rotate as apply_rotary_emb  # real numbers on MPS


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    r"""Repeat each KV head for the `n_rep` query heads of its group.

    x: (..., S, KV, hd).  n_rep: H/KV, the query heads in a group.
    Returns (..., S, KV·n_rep, hd); its head h is KV head h // n_rep.
    Source: Ainslie et al. 2023, arXiv:2305.13245.
    """
    return torch.repeat_interleave(x, n_rep, dim=-2)  # (..., S, H, hd)


def causal_mask(T: int, S: int | None = None, device=None) -> Tensor:
    r"""Return the mask that hides later tokens when added to the scores.

    The T queries are the last T of the S positions; S defaults to T.
    Returns (T, S) float32: 0 where a query may look, -inf where not.
    Raises ValueError if S is less than T.
    """
    S = T if S is None else S
    if S < T:
        raise ValueError(f"{T} queries cannot be the last of {S} positions")
    mask = torch.full((T, S), float("-inf"), device=device)
    return torch.triu(mask, diagonal=S - T + 1)  # (T, S)


def attention_weights(
    xq: Tensor, xk: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""Return how much each query looks at each key: softmax(QKᵀ/√hd + mask).

    xq: (..., T, H, hd), rotated by RoPE.
    xk: (..., S, KV, hd), rotated; H is a multiple of KV.
    mask: (T, S), added to the scores; None hides nothing.
    Returns (..., H, T, S) in the dtype of `xq`; rows sum to 1 but for
    rounding.
    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
    """
    xk = repeat_kv(xk, xq.shape[-2] // xk.shape[-2])  # (..., S, H, hd)
    q, k = xq.transpose(-3, -2), xk.transpose(-3, -2)  # (..., H, T or S, hd)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask  # (..., H, T, S)
    return torch.softmax(scores.float(), dim=-1).type_as(xq)


def attention(
    xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""Average the values by each query's weights and concatenate the heads.

    xq, xk, mask: see `attention_weights`.  xv: (..., S, KV, hd), not rotated.
    Returns (..., T, H·hd) in the dtype of `xq`.
    Source: Vaswani et al. 2017, section 3.2; grouped as in Ainslie et al.
    """
    weights = attention_weights(xq, xk, mask)  # (..., H, T, S)
    xv = repeat_kv(xv, xq.shape[-2] // xv.shape[-2])  # (..., S, H, hd)
    out = weights @ xv.transpose(-3, -2)  # (..., H, T, hd)
    return out.transpose(-3, -2).flatten(-2)  # (..., T, H·hd)


def sdpa_attention(
    xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""Compute `attention` by PyTorch's scaled_dot_product_attention.

    Same arguments and result, up to rounding; the weights (H, T, S) are
    never stored where PyTorch has a fused kernel. The model runs on this.
    """
    q, k, v = (x.transpose(-3, -2) for x in (xq, xk, xv))
    KV, T = k.shape[-3], q.shape[-2]
    if mask is not None:
        mask = mask.type_as(q)
    if T > 1 and not q.is_cuda:
        out = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        return out.transpose(-3, -2).flatten(-2)  # (..., T, H·hd)
    # A group's heads become queries of their KV head, which is then read
    # once. On CUDA no fused kernel takes both a mask and grouped heads.
    G = q.shape[-3] // KV
    q = q.unflatten(-3, (KV, G)).flatten(-3, -2)  # (..., KV, G·T, hd)
    if mask is not None and T > 1:
        mask = torch.cat([mask] * G, dim=-2)  # (..., G·T, S)
    out = F.scaled_dot_product_attention(q, k, v, mask)
    out = out.unflatten(-2, (G, T)).flatten(-4, -3)  # (..., H, T, hd)
    return out.transpose(-3, -2).flatten(-2)  # (..., T, H·hd)


def self_attention(
    x: Tensor,
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wo: Tensor,
    freqs_cis: Tensor,
    mask: Tensor | None = None,
    *,
    head_dim: int,
    update_cache=None,
    attend=attention,
) -> Tensor:
    r"""Return what attention adds to the residual stream.

    x: (..., T, D), normalized.
    wq: (H·hd, D).  wk, wv: (KV·hd, D).  wo: (D, H·hd).
    freqs_cis: (T, hd/2), of the positions of x.
    mask: (T, S), see `causal_mask`; None hides nothing.
    head_dim: hd; H and KV follow from the weights.
    update_cache: takes the new keys and values and returns all S of them
    (see `KVCache.update`); None: there were none before, S = T.
    attend: `attention`, or a function with its arguments.
    Returns (..., T, D).
    """
    xq = F.linear(x, wq).unflatten(-1, (-1, head_dim))  # (..., T, H, hd)
    xk = F.linear(x, wk).unflatten(-1, (-1, head_dim))  # (..., T, KV, hd)
    xv = F.linear(x, wv).unflatten(-1, (-1, head_dim))  # (..., T, KV, hd)
    xq, xk = apply_rotary_emb(xq, xk, freqs_cis)
    if update_cache is not None:
        xk, xv = update_cache(xk, xv)  # (..., S, KV, hd)
    return F.linear(attend(xq, xk, xv, mask), wo)  # (..., T, D)
