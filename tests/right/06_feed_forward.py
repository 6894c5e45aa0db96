"""Unusual right answers to the exercises of notebook 06."""


# %% exercise 1: with a loop and the arguments popped from a copy
def ffn_parameters(params):
    params = dict(params)
    D, hidden = params.pop("dim"), 0
    thirds = 8 * D // 3
    times = params.pop("ffn_dim_multiplier") or 1
    while hidden < int(times * thirds):
        hidden += params["multiple_of"]
    return sum(3 * D * hidden for _ in range(params["n_layers"]))


# %% exercise 2: in place on its own tensor
def swiglu(x, gate, up, down):
    y = x @ gate
    y *= 1 / (1 + torch.exp(-y))
    y *= x @ up
    return y @ down


# %% exercise 3: one pair at a time
def word_parts(parts, gamma, eps, row):
    total = sum(parts)
    size = torch.sqrt(torch.tensor((total @ total).item() / len(total) + eps))
    return torch.stack([part @ (gamma * row) / size for part in parts])
