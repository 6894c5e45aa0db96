"""Unusual right answers to the exercises of notebook 04."""


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


# %% exercise 2: the mean query and the mean key, complex
import cmath


def score_at(q, k, distance, freqs):
    mean_q, mean_k = (x.double().mean(0).unflatten(0, (-1, 2)) for x in (q, k))
    total = 0.0
    for (a, b), (c, d), f in zip(mean_q, mean_k, freqs.tolist(), strict=True):
        turned = complex(a, b) * cmath.exp(1j * distance * f)
        total += (turned * complex(c, -d)).real
    return total


# %% exercise 3: by an index, in float64
def to_pairs(weight, head_dim):
    within = torch.arange(head_dim).unflatten(0, (2, -1)).T.flatten()
    starts = torch.arange(0, len(weight), head_dim)[:, None]
    return weight.double()[(starts + within).flatten()]
