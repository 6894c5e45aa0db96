# ruff: noqa
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
    c, w, T = llama.config, llama.state_dict(), len(tokens)
    angles = c.head_dim, T, c.rope_theta, c.scaling_factor
    freqs_cis, mask = precompute_freqs_cis(*angles), causal_mask(T)
    x = w["tok_embeddings.weight"][tokens]  # (T, D)
    for layer in range(n):
        x = block_by_hand(x, w, layer, freqs_cis, mask, c)
    return x
