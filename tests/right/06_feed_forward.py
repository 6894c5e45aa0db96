"""Unusual right answers to the exercises of notebook 06."""
# ruff: noqa


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


# %% exercise 2: in NumPy, in double
def swiglu(x, gate, up, down):
    import numpy as np

    x, gate, up, down = (each.double().numpy() for each in (x, gate, up, down))
    z = x @ gate
    return z * (0.5 + 0.5 * np.tanh(z / 2)) * (x @ up) @ down


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


# %% exercise 3: recursively
def stream_after(llama, tokens, n):
    c, w, T = llama.config, llama.state_dict(), len(tokens)
    if n == 0:
        return F.embedding(tokens, w["tok_embeddings.weight"])
    before, theta = stream_after(llama, tokens, n - 1), c.rope_theta
    freqs = precompute_freqs_cis(c.head_dim, T, theta, c.scaling_factor)
    return block_by_hand(before, w, n - 1, freqs, causal_mask(T), c)
