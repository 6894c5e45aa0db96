"""Unusual right answers to the exercises of notebook 02."""


# %% exercise 1: with scatter
def one_hot_batch(ids, V):
    return torch.zeros(*ids.shape, V).scatter_(-1, ids[..., None], 1.0)


# %% exercise 2: with NumPy, without |w_i|²
def nearest_by_distance(table, i, k):
    import numpy as np

    t = table.numpy()
    scores = (t * t).sum(1) - 2 * t @ t[i]
    scores[i] = np.inf
    return np.argsort(scores)[:k]


# %% exercise 3: by complex numbers
def shift(rows, k):
    n, D = rows.shape
    # cos + i sin rotates by a product
    pairs = torch.complex(rows[:, 1::2].clone(), rows[:, 0::2].clone())
    angle = k / 10000 ** (torch.arange(0, D, 2) / D)
    pairs = pairs * torch.polar(torch.ones(D // 2), angle)
    return torch.stack([pairs.imag, pairs.real], -1).flatten(1)
