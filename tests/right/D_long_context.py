"""Unusual right answers to the exercises of appendix D."""


# %% exercise 1: with loops, as lists
def interpolated(head_dim, length, theta, original):
    s = length / original if length > original else 1
    return [
        [m / s * theta ** (-2 * k / head_dim) for k in range(head_dim // 2)]
        for m in range(length)
    ]


# %% exercise 1: with slower frequencies, in NumPy
def interpolated(head_dim, length, theta, original):
    import numpy as np

    freqs = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    freqs = freqs * min(1, original / length)
    return np.arange(length)[:, None] * freqs


# %% exercise 1: as evenly spread points, which end before `original`
def interpolated(head_dim, length, theta, original):
    last = (length - 1) / max(1, length / original)
    positions = torch.linspace(0, last, length)[:, None]
    return positions / theta ** torch.arange(0, 1, 2 / head_dim)


# %% exercise 2: by the slowest pair, as a whole number where it is one
def factor_for(freqs, original, length):
    wavelength = 2 * math.pi / freqs[-1].item()
    if wavelength <= original or length <= original:
        return 1
    return length / original


# %% exercise 2: the exact bound of the largest distances
def factor_for(freqs, original, length):
    if torch.all(original * freqs >= 2 * torch.pi):
        return 1
    return max((length - 1) / (original - 1), 1)
