"""Mistakes in the exercises of notebook 04, with words of the check."""
# ruff: noqa: F811, F821


# %% exercise 1: your pairs are halves, not adjacent
def rotate(x, freqs):
    angles = torch.outer(torch.arange(len(x)).float(), freqs)
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    rotated = (first * cos - second * sin, first * sin + second * cos)
    return torch.cat(rotated, dim=-1)


# %% exercise 1: put them back in pairs
def rotate(x, freqs):
    angles = torch.outer(torch.arange(len(x)).float(), freqs)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[:, 0::2], x[:, 1::2]
    rotated = (first * cos - second * sin, first * sin + second * cos)
    return torch.cat(rotated, dim=-1)


# %% exercise 1: a minus is missing
def rotate(x, freqs):
    angles = torch.outer(torch.arange(len(x)).float(), freqs)
    angles = angles.repeat_interleave(2, dim=-1)
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return x * angles.cos() + swapped * angles.sin()


# %% exercise 1: off
def rotate(x, freqs):
    angles = torch.outer(torch.arange(len(x)).float(), 2 * freqs)
    angles = angles.repeat_interleave(2, dim=-1)
    return x * angles.cos() + swap_neighbours(x) * angles.sin()


# %% exercise 1: clockwise
def rotate(x, freqs):
    angles = torch.outer(torch.arange(len(x)).float(), freqs)
    angles = angles.repeat_interleave(2, dim=-1)
    return x * angles.cos() - swap_neighbours(x) * angles.sin()


# %% exercise 1: positions are counted from 0
def rotate(x, freqs):
    angles = torch.outer(torch.arange(1, len(x) + 1).float(), freqs)
    angles = angles.repeat_interleave(2, dim=-1)
    return x * angles.cos() + swap_neighbours(x) * angles.sin()


# %% exercise 1: every pair rotates by the first frequency
def rotate(x, freqs):
    angles = torch.arange(len(x)).float()[:, None] * freqs[0]
    return x * angles.cos() + swap_neighbours(x) * angles.sin()


# %% exercise 1: changes its argument x
def rotate(x, freqs):
    angles = torch.outer(torch.arange(len(x)).float(), freqs)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[:, 0::2].clone(), x[:, 1::2].clone()
    x[:, 0::2] = first * cos - second * sin
    x[:, 1::2] = first * sin + second * cos
    return x


# %% exercise 1: the new second number was computed from the new first
def rotate(x, freqs):
    angles = torch.outer(torch.arange(len(x)).float(), freqs)
    cos, sin = angles.cos(), angles.sin()
    out = x.clone()
    out[:, 0::2] = out[:, 0::2] * cos - out[:, 1::2] * sin
    out[:, 1::2] = out[:, 0::2] * sin + out[:, 1::2] * cos
    return out


# %% exercise 2: belongs on the key; on the query it is R_(m-n)
def query_rotated_to_key(query, m, n, freqs):
    return rope_matrix(n - m, freqs) @ query


# %% exercise 2: the sum is not the distance
def query_rotated_to_key(query, m, n, freqs):
    return rope_matrix(m + n, freqs) @ query


# %% exercise 2: the key's own rotation is left out
def query_rotated_to_key(query, m, n, freqs):
    return rope_matrix(m, freqs) @ query


# %% exercise 2: rotated by -n alone
def query_rotated_to_key(query, m, n, freqs):
    return rope_matrix(-n, freqs) @ query


# %% exercise 2: the query is not rotated
def query_rotated_to_key(query, m, n, freqs):
    return query.clone()


# %% exercise 2: has shape (1, 12); expected (12,)
def query_rotated_to_key(query, m, n, freqs):
    return query[None] @ rope_matrix(n - m, freqs)


# %% exercise 3: that is to_halves once more
def to_pairs(weight, head_dim):
    pairs = weight.unflatten(0, (-1, head_dim // 2, 2))
    return pairs.transpose(1, 2).flatten(0, 2)


# %% exercise 3: you took the whole matrix as one head
def to_pairs(weight, head_dim):
    halves = weight.unflatten(0, (2, -1))
    return halves.transpose(0, 1).flatten(0, 1)


# %% exercise 3: nothing has moved
def to_pairs(weight, head_dim):
    return weight.clone()
