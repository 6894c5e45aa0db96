"""Unusual right answers to the exercises of notebook 04."""
# ruff: noqa: F811, F821

# %% exercise 1: with Python's complex numbers
import cmath


def rotate_complex(x, positions, freqs):
    out = torch.empty(x.shape, dtype=torch.float64)
    for t, position in enumerate(positions.tolist()):
        for k, frequency in enumerate(freqs.tolist()):
            pair = complex(*x[t, 2 * k : 2 * k + 2].tolist())
            pair *= cmath.exp(1j * position * frequency)
            out[t, 2 * k], out[t, 2 * k + 1] = pair.real, pair.imag
    return out


# %% exercise 2: a list, with loops
def query_rotated_to_key(query, m, n, freqs):
    out = []
    for k, frequency in enumerate(freqs.tolist()):
        angle = (m - n) * frequency
        a, b = query[2 * k].item(), query[2 * k + 1].item()
        out.append(a * math.cos(angle) - b * math.sin(angle))
        out.append(a * math.sin(angle) + b * math.cos(angle))
    return out


# %% exercise 3: by an index, in float64
def to_pairs(weight, head_dim):
    within = torch.arange(head_dim).unflatten(0, (2, -1)).T.flatten()
    starts = torch.arange(0, len(weight), head_dim)[:, None]
    return weight.double()[(starts + within).flatten()]
