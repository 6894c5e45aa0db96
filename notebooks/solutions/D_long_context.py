"""Solutions to the exercises of D_long_context: each replaces its stub."""

import math

import torch


# %% exercise 1
def interpolated(head_dim, length, theta, original):
    factor = max(1, length / original)
    freqs = theta ** (-torch.arange(0, head_dim, 2) / head_dim)  # (hd/2,)
    positions = torch.arange(length) / factor  # (length,): need not be whole
    return torch.outer(positions, freqs)  # (length, hd/2)


# %% exercise 2
def factor_for(freqs, original, length):
    rotations = original * freqs / (2 * math.pi)  # (hd/2,)
    if (rotations >= 1).all():  # every angle has been seen
        return 1.0
    return max(1.0, length / original)
