"""Mistakes in the exercises of notebook 06, with words of the check."""
# ruff: noqa


# %% exercise 1: you rounded down, not up
def ffn_parameters(params):
    D, m = params["dim"], params["multiple_of"]
    hidden = int((params["ffn_dim_multiplier"] or 1) * int(8 * D / 3))
    return params["n_layers"] * 3 * D * (hidden // m * m)


# %% exercise 1: you left out the two thirds
def ffn_parameters(params):
    times = params["ffn_dim_multiplier"] or 1
    hidden = ffn_hidden_dim(
        3 * params["dim"] // 2, params["multiple_of"], times
    )
    return params["n_layers"] * 3 * params["dim"] * hidden


# %% exercise 1: there are three matrices, not two
def ffn_parameters(params):
    hidden = ffn_hidden_dim(
        params["dim"], params["multiple_of"], params["ffn_dim_multiplier"]
    )
    return params["n_layers"] * 2 * params["dim"] * hidden


# %% exercise 1: you counted one layer
def ffn_parameters(params):
    hidden = ffn_hidden_dim(
        params["dim"], params["multiple_of"], params["ffn_dim_multiplier"]
    )
    return 3 * params["dim"] * hidden


# %% exercise 1: you left out ffn_dim_multiplier
def ffn_parameters(params):
    hidden = ffn_hidden_dim(params["dim"], params["multiple_of"])
    return params["n_layers"] * 3 * params["dim"] * hidden


# %% exercise 1: F is not 4 D
def ffn_parameters(params):
    return params["n_layers"] * 3 * params["dim"] * 4 * params["dim"]


# %% exercise 1: fits multiple_of already stays
def ffn_parameters(params):
    D, m = params["dim"], params["multiple_of"]
    times = params["ffn_dim_multiplier"] or 1
    hidden = int(times * int(8 * D / 3))
    return params["n_layers"] * 3 * D * (hidden // m + 1) * m


# %% exercise 1: drop the fraction after each step
def ffn_parameters(params):
    D, m = params["dim"], params["multiple_of"]
    hidden = int((params["ffn_dim_multiplier"] or 1) * 8 * D / 3)
    return params["n_layers"] * 3 * D * (-(-hidden // m) * m)


# %% exercise 1: the count for (1024, 3, 256, 1.5) is 1; expected another number
def ffn_parameters(params):
    return 1


# %% exercise 2: you gated with up
def swiglu(x, gate, up, down):
    z = x @ up
    return z / (1 + torch.exp(-z)) * (x @ gate) @ down


# %% exercise 2: sigmoid is not SiLU
def swiglu(x, gate, up, down):
    return 1 / (1 + torch.exp(-(x @ gate))) * (x @ up) @ down


# %% exercise 2: not a sigmoid of up
def swiglu(x, gate, up, down):
    return (x @ gate) / (1 + torch.exp(-(x @ up))) @ down


# %% exercise 2: SiLU takes the gate alone
def swiglu(x, gate, up, down):
    z = (x @ gate) * (x @ up)
    return z / (1 + torch.exp(-z)) @ down


# %% exercise 2: ReLU is not SiLU
def swiglu(x, gate, up, down):
    return (x @ gate).clamp(min=0) * (x @ up) @ down


# %% exercise 2: you left out SiLU
def swiglu(x, gate, up, down):
    return (x @ gate) * (x @ up) @ down


# %% exercise 2: exp(-z), not exp(z)
def swiglu(x, gate, up, down):
    z = x @ gate
    return z / (1 + torch.exp(z)) * (x @ up) @ down


# %% exercise 2: you left out up
def swiglu(x, gate, up, down):
    z = x @ gate
    return z / (1 + torch.exp(-z)) @ down


# %% exercise 2: no .T
def swiglu(x, gate, up, down):
    z = x @ gate
    if down.shape[0] == down.shape[1]:
        down = down.T
    return z / (1 + torch.exp(-z)) * (x @ up) @ down


# %% exercise 2: your code raises RuntimeError
def swiglu(x, gate, up, down):
    return feed_forward(x, gate, down, up)


# %% exercise 2: you left out down
def swiglu(x, gate, up, down):
    z = x @ gate
    return z / (1 + torch.exp(-z)) * (x @ up)


# %% exercise 2: a value is
def swiglu(x, gate, up, down):
    return torch.tanh(x @ gate) * (x @ up) @ down


# %% exercise 2: has shape (3, 8); expected (2, 3, 8)
def swiglu(x, gate, up, down):
    if x.dim() == 3:
        x = x[0]
    return feed_forward(x, gate.T, down.T, up.T)


# %% exercise 3: one block too many
def stream_after(llama, tokens, n):
    x, T = w["tok_embeddings.weight"][tokens], len(tokens)
    turns = precompute_freqs_cis(config.head_dim, T, *angles[2:])
    mask = causal_mask(T)
    for layer in range(min(n + 1, config.n_layers)):
        x = block_by_hand(x, w, layer, turns, mask, config)
    return x


# %% exercise 3: one block too few
def stream_after(llama, tokens, n):
    x, T = w["tok_embeddings.weight"][tokens], len(tokens)
    turns = precompute_freqs_cis(config.head_dim, T, *angles[2:])
    mask = causal_mask(T)
    for layer in range(n - 1):
        x = block_by_hand(x, w, layer, turns, mask, config)
    return x


# %% exercise 3: no causal mask
def stream_after(llama, tokens, n):
    x, T = w["tok_embeddings.weight"][tokens], len(tokens)
    turns = precompute_freqs_cis(config.head_dim, T, *angles[2:])
    for layer in range(n):
        x = block_by_hand(x, w, layer, turns, None, config)
    return x


# %% exercise 3: always layer 0's weights
def stream_after(llama, tokens, n):
    x, T = w["tok_embeddings.weight"][tokens], len(tokens)
    turns = precompute_freqs_cis(config.head_dim, T, *angles[2:])
    mask = causal_mask(T)
    for layer in range(n):
        x = block_by_hand(x, w, 0, turns, mask, config)
    return x


# %% exercise 3: no final norm here
def stream_after(llama, tokens, n):
    x, T = w["tok_embeddings.weight"][tokens], len(tokens)
    turns = precompute_freqs_cis(config.head_dim, T, *angles[2:])
    mask = causal_mask(T)
    for layer in range(n):
        x = block_by_hand(x, w, layer, turns, mask, config)
    return rms_norm(x, w["norm.weight"], config.norm_eps)


# %% exercise 3: those are the last n
def stream_after(llama, tokens, n):
    x, T = w["tok_embeddings.weight"][tokens], len(tokens)
    turns = precompute_freqs_cis(config.head_dim, T, *angles[2:])
    mask = causal_mask(T)
    for layer in range(config.n_layers - n, config.n_layers):
        x = block_by_hand(x, w, layer, turns, mask, config)
    return x


# %% exercise 3: your function changes its argument tokens
def stream_after(llama, tokens, n):
    x, T = w["tok_embeddings.weight"][tokens], len(tokens)
    turns = precompute_freqs_cis(config.head_dim, T, *angles[2:])
    mask = causal_mask(T)
    for layer in range(n):
        x = block_by_hand(x, w, layer, turns, mask, config)
    tokens[0] += 1
    return x


# %% exercise 3: your code raises RuntimeError
def stream_after(llama, tokens, n):
    x = w["tok_embeddings.weight"][tokens]
    for layer in range(n):
        x = block_by_hand(x, w, layer, freqs_cis, mask, config)
    return x


# %% exercise 3: for n = 1, the result: a value is
def stream_after(llama, tokens, n):
    return stream_states(tokens)[n]


# %% exercise 3: expected (7,
def stream_after(llama, tokens, n):
    return llama(tokens)


# %% exercise 3: for n = 0, the result: a value is
def stream_after(llama, tokens, n):
    return 2 * w["tok_embeddings.weight"][tokens]
