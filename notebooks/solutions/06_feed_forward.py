"""Solutions to the exercises of 06_feed_forward: each replaces its stub."""

import torch


# %% exercise 1
def ffn_parameters(params):
    D = params["dim"]
    hidden = int(2 * (4 * D) / 3)  # two thirds of 4 D
    if params["ffn_dim_multiplier"] is not None:
        hidden = int(params["ffn_dim_multiplier"] * hidden)
    multiple = params["multiple_of"]
    hidden = -(-hidden // multiple) * multiple  # rounded up
    return params["n_layers"] * 3 * D * hidden


# %% exercise 2
def swiglu(x, gate, up, down):
    z = x @ gate  # (..., F)
    return z / (1 + torch.exp(-z)) * (x @ up) @ down  # (..., D)


# %% exercise 3
def word_parts(parts, gamma, eps, row):
    x = parts.sum(0)  # (D,)
    scale = torch.rsqrt(x.pow(2).mean() + eps)
    return (parts * scale * gamma) @ row  # (N,)
