"""Unusual right answers to the exercises of notebook 02."""


# %% exercise 1: with loops
def one_hot_batch(ids, V):
    B, T = ids.shape
    result = torch.zeros(B, T, V)
    for b in range(B):
        for t in range(T):
            result[b, t, ids[b, t]] = 1
    return result


# %% exercise 1: rows of an identity matrix
def one_hot_batch(ids, V):
    return torch.eye(V, dtype=torch.float64)[ids]


# %% exercise 1: with NumPy
def one_hot_batch(ids, V):
    import numpy as np

    return np.eye(V, dtype=np.float32)[ids.numpy()]


# %% exercise 1: with lists
def one_hot_batch(ids, V):
    return [[[float(v == i) for v in range(V)] for i in row] for row in ids]


# %% exercise 1: with scatter
def one_hot_batch(ids, V):
    return torch.zeros(*ids.shape, V).scatter_(-1, ids[..., None], 1.0)


# %% exercise 2: with cdist and a sort
def nearest_by_distance(table, i, k):
    distances = torch.cdist(table[i : i + 1], table)[0]
    order = distances.argsort()
    return order[order != i][:k]


# %% exercise 2: in plain Python
def nearest_by_distance(table, i, k):
    rows = table.tolist()

    def distance(v):
        return sum((a - b) ** 2 for a, b in zip(rows[v], rows[i]))

    others = [v for v in range(len(rows)) if v != i]
    return sorted(others, key=distance)[:k]


# %% exercise 2: with NumPy, without |w_i|²
def nearest_by_distance(table, i, k):
    import numpy as np

    t = table.numpy()
    scores = (t * t).sum(1) - 2 * t @ t[i]
    scores[i] = np.inf
    return np.argsort(scores)[:k]


# %% exercise 2: in float64, as a tuple
def nearest_by_distance(table, i, k):
    t = table.double()
    distances = (t - t[i]).pow(2).sum(1)
    distances[i] = torch.inf
    return tuple(distances.topk(k, largest=False).indices.tolist())


# %% exercise 3: by complex numbers
def shift(rows, k):
    n, D = rows.shape
    # cos + i sin rotates by a product
    pairs = torch.complex(rows[:, 1::2].clone(), rows[:, 0::2].clone())
    angle = k / 10000 ** (torch.arange(0, D, 2) / D)
    pairs = pairs * torch.polar(torch.ones(D // 2), angle)
    return torch.stack([pairs.imag, pairs.real], -1).flatten(1)


# %% exercise 3: by one matrix
def shift(rows, k):
    D = rows.shape[1]
    matrix = torch.zeros(D, D)
    for i in range(0, D, 2):
        angle = torch.tensor(k / 10000 ** (i / D))
        matrix[i, i] = matrix[i + 1, i + 1] = angle.cos()
        matrix[i + 1, i], matrix[i, i + 1] = angle.sin(), -angle.sin()
    return rows @ matrix


# %% exercise 3: with loops over lists
def shift(rows, k):
    import math

    result = []
    for row in rows.tolist():
        new = []
        for i in range(0, len(row), 2):
            angle = k / 10000 ** (i / len(row))
            s, c = row[i : i + 2]
            new.append(s * math.cos(angle) + c * math.sin(angle))
            new.append(c * math.cos(angle) - s * math.sin(angle))
        result.append(new)
    return result


# %% exercise 3: from the angles themselves
def shift(rows, k):
    D = rows.shape[1]
    angle = torch.atan2(rows[:, 0::2], rows[:, 1::2])
    angle = angle + k * 10000 ** (-torch.arange(0, D, 2) / D)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1).double()
