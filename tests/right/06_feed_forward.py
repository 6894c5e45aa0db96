"""Unusual right answers to the exercises of notebook 06."""
# ruff: noqa


# %% exercise 1: with the library
def ffn_parameters(params):
    c = replace(llamalib.LLAMA_1B, **params)
    return 3 * c.dim * c.hidden_dim * c.n_layers


# %% exercise 1: with a loop and the arguments popped from a copy
def ffn_parameters(params):
    params = dict(params)
    D, hidden = params.pop("dim"), 0
    thirds = 8 * D // 3
    times = params.pop("ffn_dim_multiplier") or 1
    while hidden < int(times * thirds):
        hidden += params["multiple_of"]
    return sum(3 * D * hidden for _ in range(params["n_layers"]))


# %% exercise 1: as a tensor
def ffn_parameters(params):
    times, m = params["ffn_dim_multiplier"] or 1, params["multiple_of"]
    width = math.ceil(math.floor(times * math.floor(8 * params["dim"] / 3)) / m)
    return torch.tensor(params["n_layers"]) * 3 * params["dim"] * width * m


# %% exercise 1: as a number with a point
def ffn_parameters(params):
    times, m = params["ffn_dim_multiplier"] or 1.0, params["multiple_of"]
    width = (int(times * int(8 * params["dim"] / 3)) + m - 1) // m * m
    return 3.0 * params["n_layers"] * params["dim"] * width


# %% exercise 2: with loops
def swiglu(x, gate, up, down):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        out = torch.zeros(down.shape[1])
        for j in range(gate.shape[1]):
            z = (row @ gate[:, j]).item()
            out += z / (1 + math.exp(-z)) * (row @ up[:, j]) * down[j]
        rows.append(out)
    return torch.stack(rows).reshape(x.shape)


# %% exercise 2: in NumPy, in double
def swiglu(x, gate, up, down):
    import numpy as np

    x, gate, up, down = (each.double().numpy() for each in (x, gate, up, down))
    z = x @ gate
    return z * (0.5 + 0.5 * np.tanh(z / 2)) * (x @ up) @ down


# %% exercise 2: as lists
def swiglu(x, gate, up, down):
    return feed_forward(x, gate.T, down.T, up.T).tolist()


# %% exercise 2: in place on its own tensor
def swiglu(x, gate, up, down):
    y = x @ gate
    y *= 1 / (1 + torch.exp(-y))
    y *= x @ up
    return y @ down


# %% exercise 3: with hooks
def stream_after(llama, tokens, n):
    seen = record(llama, tokens)
    if n == llama.config.n_layers:
        return seen[f"layers.{n - 1}.out"]
    return seen[f"layers.{n}.in"]


# %% exercise 3: as a sum of what the sub-layers add
def stream_after(llama, tokens, n):
    return stream_states(tokens)[2 * n]


# %% exercise 3: recursively
def stream_after(llama, tokens, n):
    c, w, T = llama.config, llama.state_dict(), len(tokens)
    if n == 0:
        return F.embedding(tokens, w["tok_embeddings.weight"])
    before, theta = stream_after(llama, tokens, n - 1), c.rope_theta
    freqs = precompute_freqs_cis(c.head_dim, T, theta, c.scaling_factor)
    return block_by_hand(before, w, n - 1, freqs, causal_mask(T), c)


# %% exercise 3: with a batch dimension inside, as an array
def stream_after(llama, tokens, n):
    c, T = llama.config, len(tokens)
    freqs = precompute_freqs_cis(
        c.head_dim, 2 * T, c.rope_theta, c.scaling_factor
    )[:T]
    x = llama.tok_embeddings(tokens[None])
    for block in llama.layers[:n]:
        x = block(x, freqs, causal_mask(T))
    return x[0].numpy()
