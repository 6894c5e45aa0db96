"""Solutions to the exercises of 05_attention: each replaces its stub."""

import math

import torch


# %% exercise 1
def tokens_that_fit(config, free, bytes_each):
    numbers = config.n_layers * config.n_kv_heads * config.head_dim
    return free // (2 * numbers * bytes_each)  # keys and values


# %% exercise 2
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)  # the group's KV head
    q, k, v = xq[:, h], xk[:, g], xv[:, g]  # (T, hd), (S, hd), (S, hd)
    query = torch.arange(S - T, S)[:, None]  # (T, 1): the last T positions
    later = torch.arange(S) > query  # (T, S)
    scores = (q @ k.T / math.sqrt(hd)).masked_fill(later, float("-inf"))
    return scores.softmax(-1) @ v  # (T, hd)


# %% exercise 3
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))  # (n,)
        new_top = torch.maximum(top, scores.max())
        shrink = (top - new_top).exp()  # 0 for the first piece
        exps = (scores - new_top).exp()  # (n,)
        total = total * shrink + exps.sum()
        mixed = mixed * shrink + exps @ v  # (hd,)
        top = new_top
    return mixed / total
