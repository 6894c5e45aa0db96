"""Mistakes in the exercises of notebook 02, with words of the check."""


# %% exercise 1: torch.int64
def one_hot_batch(ids, V):
    return F.one_hot(ids, V)


# %% exercise 1: V is taken from the largest id
def one_hot_batch(ids, V):
    return F.one_hot(ids).float()


# %% exercise 1: V is before T
def one_hot_batch(ids, V):
    return F.one_hot(ids, V).float().mT


# %% exercise 1: has shape (10, 11)
def one_hot_batch(ids, V):
    return F.one_hot(ids.flatten(), V).float()


# %% exercise 1: one index off
def one_hot_batch(ids, V):
    return F.one_hot((ids + 1) % V, V).float()


# %% exercise 1: several ones
def one_hot_batch(ids, V):
    return (ids[..., None] >= torch.arange(V)).float()


# %% exercise 1: exchanged
def one_hot_batch(ids, V):
    return (ids[..., None] != torch.arange(V)).float()


# %% exercise 2: the token itself
def nearest_by_distance(table, i, k):
    distances = torch.cdist(table[i : i + 1], table)[0]
    return distances.argsort(stable=True)[1 : k + 1]  # wrong if rows are equal


# %% exercise 2: the token itself
def nearest_by_distance(table, i, k):
    squares = table.square().sum(1)
    distances = squares - 2 * (table @ table[i])
    return distances.topk(k, largest=False).indices


# %% exercise 2: sorted by dot product
def nearest_by_distance(table, i, k):
    dots = table @ table[i]
    dots[i] = -torch.inf
    return dots.topk(k).indices


# %% exercise 2: sorted by cosine
def nearest_by_distance(table, i, k):
    cosines = F.cosine_similarity(table, table[i : i + 1])
    cosines[i] = -2
    return cosines.topk(k).indices


# %% exercise 2: the furthest
def nearest_by_distance(table, i, k):
    return torch.cdist(table[i : i + 1], table)[0].topk(k).indices


# %% exercise 2: the sign of 2 a·b
def nearest_by_distance(table, i, k):
    distances = table.square().sum(1) + 2 * (table @ table[i])
    distances[i] = torch.inf
    return distances.topk(k, largest=False).indices


# %% exercise 2: these are distances
def nearest_by_distance(table, i, k):
    distances = torch.cdist(table[i : i + 1], table)[0]
    distances[i] = torch.inf
    return distances.topk(k, largest=False).values


# %% exercise 2: not nearest first
def nearest_by_distance(table, i, k):
    distances = torch.cdist(table[i : i + 1], table)[0]
    distances[i] = torch.inf
    return distances.topk(k, largest=False).indices.sort().values


# %% exercise 2: the furthest of them is first
def nearest_by_distance(table, i, k):
    distances = torch.cdist(table[i : i + 1], table)[0]
    distances[i] = torch.inf
    return distances.topk(k, largest=False).indices.flip(0)


# %% exercise 2: lacks its 2
def nearest_by_distance(table, i, k):
    distances = table.square().sum(1) - table @ table[i]
    distances[i] = torch.inf
    return distances.topk(k, largest=False).indices


# %% exercise 2: not squared
def nearest_by_distance(table, i, k):
    distances = table.norm(dim=1) - 2 * (table @ table[i])
    distances[i] = torch.inf
    return distances.topk(k, largest=False).indices


# %% exercise 2: a value is
def nearest_by_distance(table, i, k):
    distances = torch.cdist(table[i : i + 1], table)[0]
    distances[i] = torch.inf
    return distances.topk(k, largest=False).indices + 60


# %% exercise 3: k positions earlier
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(0, n, 2) / n)
    s, c = rows[:, 0::2], rows[:, 1::2]
    new = [
        s * angle.cos() - c * angle.sin(),
        c * angle.cos() + s * angle.sin(),
    ]
    return torch.stack(new, -1).flatten(1)


# %% exercise 3: not halves
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(0, n, 2) / n)
    s, c = rows.chunk(2, dim=1)
    new = [
        s * angle.cos() + c * angle.sin(),
        c * angle.cos() - s * angle.sin(),
    ]
    return torch.cat(new, dim=1)


# %% exercise 3: count from 0
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(2, n + 2, 2) / n)
    s, c = rows[:, 0::2], rows[:, 1::2]
    new = [
        s * angle.cos() + c * angle.sin(),
        c * angle.cos() - s * angle.sin(),
    ]
    return torch.stack(new, -1).flatten(1)


# %% exercise 3: expected 2i/D
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(n // 2) / n)
    s, c = rows[:, 0::2], rows[:, 1::2]
    new = [
        s * angle.cos() + c * angle.sin(),
        c * angle.cos() - s * angle.sin(),
    ]
    return torch.stack(new, -1).flatten(1)


# %% exercise 3: all sines are before
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(0, n, 2) / n)
    s, c = rows[:, 0::2], rows[:, 1::2]
    new = [
        s * angle.cos() + c * angle.sin(),
        c * angle.cos() - s * angle.sin(),
    ]
    return torch.cat(new, dim=1)


# %% exercise 3: rotated already
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(0, n, 2) / n)
    rows = rows.clone()
    rows[:, 0::2] = rows[:, 0::2] * angle.cos() + rows[:, 1::2] * angle.sin()
    rows[:, 1::2] = rows[:, 1::2] * angle.cos() - rows[:, 0::2] * angle.sin()
    return rows


# %% exercise 3: nothing has moved
def shift(rows, k):
    return rows


# %% exercise 3: a value is
def shift(rows, k):
    return rows.roll(-k, dims=0)
