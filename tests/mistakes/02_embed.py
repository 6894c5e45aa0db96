"""Mistakes in the exercises of notebook 02, with words of the check."""


# %% exercise 1: torch.int64
def one_hot_batch(ids, V):
    return F.one_hot(ids, V)


# %% exercise 1: V is taken from the largest id
def one_hot_batch(ids, V):
    return F.one_hot(ids).float()


# %% exercise 1: V stands before T
def one_hot_batch(ids, V):
    return F.one_hot(ids, V).float().mT


# %% exercise 1: found shape (10, 11)
def one_hot_batch(ids, V):
    return F.one_hot(ids.flatten(), V).float()


# %% exercise 1: is the 1 at the id?
def one_hot_batch(ids, V):
    return F.one_hot((ids + 1) % V, V).float()


# %% exercise 1: does not sum to 1
def one_hot_batch(ids, V):
    return (ids[..., None] >= torch.arange(V)).float()


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


# %% exercise 2: the sign of 2ab
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


# %% exercise 2: a table of 60 rows has not
def nearest_by_distance(table, i, k):
    distances = torch.cdist(W[i : i + 1], W)[0]  # not the table given
    distances[i] = torch.inf
    return distances.topk(k, largest=False).indices + 60


# %% exercise 3: do not add up repeats
def table_gradient(ids, G, V):
    grad = torch.zeros(V, G.shape[1])
    grad[ids] += G
    return grad


# %% exercise 3: averaged
def table_gradient(ids, G, V):
    counts = ids.bincount(minlength=V).clamp(min=1)[:, None]
    return torch.zeros(V, G.shape[1]).index_add(0, ids, G) / counts


# %% exercise 3: not looked up
def table_gradient(ids, G, V):
    return G.sum(0).expand(V, -1)


# %% exercise 3: found shape
def table_gradient(ids, G, V):
    return G


# %% exercise 4: the wrong way
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(0, n, 2) / n)
    s, c = rows[:, 0::2], rows[:, 1::2]
    new = [
        s * angle.cos() - c * angle.sin(),
        c * angle.cos() + s * angle.sin(),
    ]
    return torch.stack(new, -1).flatten(1)


# %% exercise 4: halves
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(0, n, 2) / n)
    s, c = rows.chunk(2, dim=1)
    new = [
        s * angle.cos() + c * angle.sin(),
        c * angle.cos() - s * angle.sin(),
    ]
    return torch.cat(new, dim=1)


# %% exercise 4: count from 1
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(2, n + 2, 2) / n)
    s, c = rows[:, 0::2], rows[:, 1::2]
    new = [
        s * angle.cos() + c * angle.sin(),
        c * angle.cos() - s * angle.sin(),
    ]
    return torch.stack(new, -1).flatten(1)


# %% exercise 4: i/D, not 2i/D
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(n // 2) / n)
    s, c = rows[:, 0::2], rows[:, 1::2]
    new = [
        s * angle.cos() + c * angle.sin(),
        c * angle.cos() - s * angle.sin(),
    ]
    return torch.stack(new, -1).flatten(1)


# %% exercise 4: all sines stand before
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(0, n, 2) / n)
    s, c = rows[:, 0::2], rows[:, 1::2]
    new = [
        s * angle.cos() + c * angle.sin(),
        c * angle.cos() - s * angle.sin(),
    ]
    return torch.cat(new, dim=1)


# %% exercise 4: already turned
def shift(rows, k):
    n = rows.shape[1]
    angle = k / 10000 ** (torch.arange(0, n, 2) / n)
    rows[:, 0::2] = rows[:, 0::2] * angle.cos() + rows[:, 1::2] * angle.sin()
    rows[:, 1::2] = rows[:, 1::2] * angle.cos() - rows[:, 0::2] * angle.sin()
    return rows


# %% exercise 4: nothing has moved
def shift(rows, k):
    return rows


# %% exercise 4: largest error
def shift(rows, k):
    return rows.roll(-k, dims=0)
