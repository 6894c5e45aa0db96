"""Unusual right answers to the exercises of notebook 04."""
# ruff: noqa: F811, F821


# %% exercise 1: with loops
def rotate(x, freqs):
    out = torch.empty(x.shape, dtype=torch.float64)
    for m in range(x.shape[0]):
        for k in range(len(freqs)):
            angle = m * freqs[k].item()
            c, s = math.cos(angle), math.sin(angle)
            a, b = x[m, 2 * k].item(), x[m, 2 * k + 1].item()
            out[m, 2 * k], out[m, 2 * k + 1] = a * c - b * s, a * s + b * c
    return out


# %% exercise 1: with NumPy
def rotate(x, freqs):
    import numpy as np

    x, angles = x.numpy(), np.outer(np.arange(len(x)), freqs.numpy())
    pairs = x.reshape(len(x), -1, 2)
    c, s = np.cos(angles)[..., None], np.sin(angles)[..., None]
    swapped = np.stack((-pairs[..., 1], pairs[..., 0]), -1)
    return (pairs * c + swapped * s).reshape(x.shape)


# %% exercise 1: a list of rows, one step of rotation after another
def rotate(x, freqs):
    c, s = freqs.double().cos(), freqs.double().sin()
    rows = []
    for m, row in enumerate(x.double()):
        for _ in range(m):
            a, b = row[0::2], row[1::2]
            row = torch.stack((a * c - b * s, a * s + b * c), -1).flatten()
        rows.append(row)
    return rows


# %% exercise 1: in place on a copy
def rotate(x, freqs):
    out, angles = x.clone(), torch.arange(len(x))[:, None] * freqs
    a, b = x[:, 0::2], x[:, 1::2]
    out[:, 0::2].mul_(angles.cos()).sub_(b * angles.sin())
    out[:, 1::2].mul_(angles.cos()).add_(a * angles.sin())
    return out


# %% exercise 2: with complex numbers
def query_rotated_to_key(query, m, n, freqs):
    pairs = torch.view_as_complex(query.unflatten(-1, (-1, 2)))
    steps = torch.polar(torch.ones_like(freqs), (m - n) * freqs)
    return torch.view_as_real(pairs * steps).flatten()


# %% exercise 2: forward by m, back by n
def query_rotated_to_key(query, m, n, freqs):
    return rope_matrix(n, freqs).T @ (rope_matrix(m, freqs) @ query)


# %% exercise 2: a list, with loops
def query_rotated_to_key(query, m, n, freqs):
    out = []
    for k, frequency in enumerate(freqs.tolist()):
        angle = (m - n) * frequency
        a, b = query[2 * k].item(), query[2 * k + 1].item()
        out.append(a * math.cos(angle) - b * math.sin(angle))
        out.append(a * math.sin(angle) + b * math.cos(angle))
    return out


# %% exercise 3: row by row
def to_pairs(weight, head_dim):
    out = torch.empty_like(weight)
    for row in range(len(weight)):
        head, within = divmod(row, head_dim)
        half, pair = divmod(within, head_dim // 2)
        out[head * head_dim + 2 * pair + half] = weight[row]
    return out


# %% exercise 3: with NumPy
def to_pairs(weight, head_dim):
    import numpy as np

    heads = weight.numpy().reshape(-1, 2, head_dim // 2, weight.shape[1])
    return np.swapaxes(heads, 1, 2).reshape(weight.shape)


# %% exercise 3: by an index, in float64
def to_pairs(weight, head_dim):
    within = torch.arange(head_dim).unflatten(0, (2, -1)).T.flatten()
    starts = torch.arange(0, len(weight), head_dim)[:, None]
    return weight.double()[(starts + within).flatten()]
