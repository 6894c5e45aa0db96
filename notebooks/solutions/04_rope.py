"""Solutions to the exercises of 04_rope: each replaces its stub."""

import torch


# the notebook's
def rope_matrix(m, freqs):
    c, s = (m * freqs).cos(), (m * freqs).sin()  # (hd/2,) each
    blocks = torch.stack((c, -s, s, c), dim=-1).unflatten(-1, (2, 2))
    return torch.block_diag(*blocks)  # (hd, hd)


# %% exercise 1
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)  # (T, hd/2)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # (T, hd/2)
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 2
def score_at(q, k, distance, freqs):
    # <R_m q, R_n k> = <R_(m-n) q, k>, and m - n is the distance
    rotated = q @ rope_matrix(distance, freqs).T  # (T, hd)
    return (rotated @ k.T).mean()


# %% exercise 3
def to_pairs(weight, head_dim):
    # (heads, 2, hd/2, D): which half, then which pair
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))
    return halves.transpose(1, 2).flatten(0, 2)
