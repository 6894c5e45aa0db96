# ruff: noqa
import torch

from llamalib import causal_mask, precompute_freqs_cis


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
def stream_after(llama, tokens, n):
    c, T = llama.config, len(tokens)
    freqs_cis = precompute_freqs_cis(
        c.head_dim, T, c.rope_theta, c.scaling_factor
    )
    x = llama.tok_embeddings(tokens)  # (T, D)
    for block in llama.layers[:n]:
        x = block(x, freqs_cis, causal_mask(T))
    return x
