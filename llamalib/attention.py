r"""Causal grouped-query attention.

Shapes: `B` batch, `T` query positions, `S` key positions, `H` query heads,
`KV` key/value heads, `hd` head dim, `D` model dim. A group is the H/KV query
heads that share one KV head. `...` is any leading dimensions, or none.
"""

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from .native import by_group_in_c, takes
from .products import by_onednn, quickest
from .rope import apply_rotary_emb

LONG = 1024  # positions from which one query's ways differ by much
PIECE = 4096  # positions of keys, or of values, at once
SCRATCH = 2**27  # bytes that ways are timed on


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    r"""Hand each KV head to the `n_rep` query heads of its group.

    Args:
        x: (..., S, KV, hd).
        n_rep: H/KV, the query heads in a group.

    Returns:
        (..., S, KV·n_rep, hd); head h of the result is KV head h // n_rep.

    Source: Ainslie et al. 2023, arXiv:2305.13245.
    """
    return torch.repeat_interleave(x, n_rep, dim=-2)  # (..., S, H, hd)


def causal_mask(T: int, S: int | None = None, device=None) -> Tensor:
    r"""What to add to the scores so that no token sees a later one.

    The T queries are the last T of the S positions; with S left out, all
    of them. Without a cache S = T and this is a square.

    Returns:
        (T, S) float32: 0 where a query may look, -inf where it may not.

    Raises:
        ValueError: if S is less than T.
    """
    S = T if S is None else S
    if S < T:
        raise ValueError(f"{T} queries cannot be the last of {S} positions")
    mask = torch.full((T, S), float("-inf"), device=device)
    return torch.triu(mask, diagonal=S - T + 1)  # (T, S)


def attention_weights(
    xq: Tensor, xk: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""How much each query looks at each key: softmax(QKᵀ/√hd + mask).

    Args:
        xq: (..., T, H, hd), already turned by RoPE.
        xk: (..., S, KV, hd), already turned; H a multiple of KV.
        mask: (T, S), added to the scores; None lets everything be seen.

    Returns:
        (..., H, T, S) in the dtype of `xq`; up to rounding, each row sums
        to 1.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
    """
    xk = repeat_kv(xk, xq.shape[-2] // xk.shape[-2])  # (..., S, H, hd)
    q, k = xq.transpose(-3, -2), xk.transpose(-3, -2)  # (..., H, T|S, hd)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask  # (..., H, T, S)
    return torch.softmax(scores.float(), dim=-1).type_as(xq)


def attention(
    xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""Each query's weighted mean of the values, heads side by side.

    Args:
        xq: (..., T, H, hd), already turned by RoPE.
        xk: (..., S, KV, hd), already turned.
        xv: (..., S, KV, hd), not turned.
        mask: (T, S), added to the scores; None lets everything be seen.

    Returns:
        (..., T, H·hd) in the dtype of `xq`.

    Source: Vaswani et al. 2017, section 3.2; grouped as in Ainslie et al.
    """
    weights = attention_weights(xq, xk, mask)  # (..., H, T, S)
    xv = repeat_kv(xv, xq.shape[-2] // xv.shape[-2])  # (..., S, H, hd)
    out = weights @ xv.transpose(-3, -2)  # (..., H, T, hd)
    return out.transpose(-3, -2).flatten(-2)  # (..., T, H·hd)


def fused_attention(
    xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""`attention` by PyTorch's one call.

    Same arguments and result, up to rounding. Where PyTorch has a fused
    kernel for it, (H, T, S) weights are never held; of one query a row they
    may be, if that is quicker. The model runs on this.
    """
    q, k, v = (x.transpose(-3, -2) for x in (xq, xk, xv))
    if mask is not None:
        mask = mask.type_as(q)
    if q.shape[-2] == 1 or q.is_cuda:
        out = way_by_group(q, k, v, mask)(q, k, v, mask)
    else:
        out = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    return out.transpose(-3, -2).flatten(-2)  # (..., T, H·hd)


def way_by_group(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
    """`fused_by_group`, or what is quicker for one query on this CPU."""
    one_of_many = q.shape[-2] == 1 and k.shape[-2] >= LONG
    sixteen_bits = q.dtype in (torch.bfloat16, torch.float16)
    here = q.device.type == "cpu" and not torch.compiler.is_compiling()
    if not (one_of_many and sixteen_bits and here):
        return fused_by_group
    H, KV, hd = q.shape[-3], k.shape[-3], k.shape[-1]
    on = torch.backends.mkldnn.enabled  # the fused kernel may use it too
    return quickest_by_group(H, KV, hd, q.dtype, on, takes(q, k, v, mask))


@cache
def quickest_by_group(
    H: int, KV: int, hd: int, dtype: torch.dtype, onednn: bool, in_c: bool
):
    """Of the ways for one query of 16 bits: timed, as for `products`."""
    S = 2 * PIECE
    # more together than most processors' own caches hold
    many = max(2, SCRATCH // (2 * S * KV * hd * dtype.itemsize))
    like = dict(dtype=dtype, device="cpu")
    pages = torch.full((many, 2, KV, S, hd), 0.01, **like)
    q = torch.ones(H, 1, hd, **like)
    ways = [fused_by_group, by_group_in_pieces]
    if in_c:
        ways.append(by_group_in_c)
    with by_onednn(onednn):
        return quickest(ways, [(q, k, v, None) for k, v in pages])


def by_group_in_pieces(q: Tensor, k: Tensor, v: Tensor, mask) -> Tensor:
    r"""`fused_by_group` of one query, by matrix products.

    Scores as keys times queries, not queries times keys: a product that has
    as many rows as a text has positions is one that processors with
    instructions for 16-bit numbers are made for. It copies what it reads: a
    piece at a time, the copy stays in their caches. Scores are rounded to the
    dtype of q, as those of `attention` are.

    Args:
        q: (..., H, 1, hd).
        k, v: (..., KV, S, hd).
        mask: (1, S), (B, 1, 1, S) or None.

    Returns:
        (..., H, 1, hd).
    """
    # divided first: the scores themselves may be more than float16 can hold
    q = q.squeeze(-2) / math.sqrt(q.shape[-1])
    q = q.unflatten(-2, (k.shape[-3], -1))  # (..., KV, G, hd)
    with by_onednn():
        scores = [(part @ q.mT).mT for part in k.split(PIECE, dim=-2)]
    scores = torch.cat(scores, dim=-1).float()  # (..., KV, G, S)
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1).type_as(q)  # (..., KV, G, S)
    parts = zip(weights.split(PIECE, dim=-1), v.split(PIECE, dim=-2))
    with by_onednn():
        out = sum((w @ part).float() for w, part in parts)  # (..., KV, G, hd)
    return out.type_as(q).flatten(-3, -2).unsqueeze(-2)


def fused_by_group(q: Tensor, k: Tensor, v: Tensor, mask) -> Tensor:
    r"""The heads of a group as so many queries of their one KV head.

    Which is then read once: for one query many times as fast where S is
    large. On CUDA no fused kernel takes a mask and groups of heads both.

    Args:
        q: (..., H, T, hd).
        k, v: (..., KV, S, hd).
        mask: (T, S), (B, 1, T, S) or None.

    Returns:
        (..., H, T, hd).
    """
    KV, T = k.shape[-3], q.shape[-2]
    G = q.shape[-3] // KV
    q = q.unflatten(-3, (KV, G)).flatten(-3, -2)  # (..., KV, G·T, hd)
    if mask is not None and T > 1:
        mask = torch.cat([mask] * G, dim=-2)  # (..., G·T, S)
    out = F.scaled_dot_product_attention(q, k, v, mask)
    return out.unflatten(-2, (G, T)).flatten(-4, -3)  # (..., H, T, hd)


def grouped_attention(
    xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""`attention` of one query a head, no key or value repeated.

    The query heads of a group are so many queries of their one KV head:
    its keys and values are read once for all of them. In plain operations,
    for a compiler.

    Args:
        xq: (..., 1, H, hd).
        xk, xv: (..., S, KV, hd).
        mask: (1, S) or (..., 1, 1, S), added to the scores; None: no mask.

    Returns:
        (..., 1, H·hd).
    """
    k, v = xk.transpose(-3, -2), xv.transpose(-3, -2)  # (..., KV, S, hd)
    # G = H/KV queries a group: (..., KV, G, hd)
    q = xq.squeeze(-3).unflatten(-2, (k.shape[-3], -1))
    scores = q @ k.transpose(-2, -1)  # (..., KV, G, S)
    scores = scores.float() / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1).type_as(q)  # (..., KV, G, S)
    return (weights @ v).flatten(-3).unsqueeze(-2)  # (..., 1, H·hd)


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
    r"""From normalized hidden states to what attention adds to them.

    Args:
        x: (..., T, D), normalized.
        wq: (H·hd, D).  wk, wv: (KV·hd, D).  wo: (D, H·hd).
        freqs_cis: (T, hd/2), of the positions of x.
        mask: (T, S), see `causal_mask`.
        head_dim: hd; H and KV follow from the weights.
        update_cache: called with this step's keys and values, returns all
            S of them (see `KVCache.update`); None: S = T, nothing was before.
        attend: `attention`, or a function with its arguments.

    Returns:
        (..., T, D).
    """
    xq = F.linear(x, wq).unflatten(-1, (-1, head_dim))  # (..., T, H, hd)
    xk = F.linear(x, wk).unflatten(-1, (-1, head_dim))  # (..., T, KV, hd)
    xv = F.linear(x, wv).unflatten(-1, (-1, head_dim))  # (..., T, KV, hd)
    xq, xk = apply_rotary_emb(xq, xk, freqs_cis)
    if update_cache is not None:
        xk, xv = update_cache(xk, xv)  # (..., S, KV, hd)
    return F.linear(attend(xq, xk, xv, mask), wo)  # (..., T, D)
