"""Solutions to the exercises of 02_embed: each replaces its stub."""

import torch


# %% exercise 1
def one_hot_batch(ids, V):
    # (B, T, 1) against (V,): (B, T, V)
    return (ids[..., None] == torch.arange(V)).float()


# %% exercise 2
def analogy(table, a, b, c):
    wanted = table[b] - table[a] + table[c]  # (D,)
    scores = table @ wanted / table.norm(dim=1)  # (V,)
    scores[[a, b, c]] = -torch.inf
    return scores.argmax().item()
