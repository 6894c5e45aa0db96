r"""Attention of a single query over many positions, `S`."""

import math

import torch

KEY_PIECE = 4096  # positions of keys or values per product


def grouped_attention(xq, xk, xv, mask=None):
    r"""Compute `attention` of one query per head, in plain operations.

    A group's heads become queries of their one KV head, read once. Scores are
    keys times queries, by pieces: oneDNN's copies stay in the caches.
    Takes xq (..., 1, H, hd), xk and xv (..., S, KV, hd), and a mask (1, S)
    or (..., 1, 1, S); returns (..., 1, H·hd).
    """
    k, v = xk.transpose(-3, -2), xv.transpose(-3, -2)  # (..., KV, S, hd)
    # divided first: float16 may not hold the scores
    q = xq.squeeze(-3) / math.sqrt(xq.shape[-1])  # (..., H, hd)
    # G = H/KV queries a group: (..., KV, G, hd)
    q = q.unflatten(-2, (k.shape[-3], -1))
    scores = [(part @ q.mT).mT for part in k.split(KEY_PIECE, dim=-2)]
    scores = torch.cat(scores, dim=-1).float()  # (..., KV, G, S)
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1).type_as(q)  # (..., KV, G, S)
    parts = zip(weights.split(KEY_PIECE, dim=-1), v.split(KEY_PIECE, dim=-2))
    out = sum((w @ part).float() for w, part in parts)  # (..., KV, G, hd)
    return out.type_as(q).flatten(-3).unsqueeze(-2)  # (..., 1, H·hd)
