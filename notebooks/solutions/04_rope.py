"""Solutions to the exercises of 04_rope: each replaces its stub."""

import math

import torch


# R and rope_matrix are the notebook's
def R(angle):
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)  # (2, 2)


def rope_matrix(m, freqs):
    blocks = [R(m * f) for f in freqs.tolist()]
    return torch.block_diag(*blocks).float()  # (hd, hd)


# %% exercise 1
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)  # (T, hd/2)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # (T, hd/2)
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 2
def query_rotated_to_key(query, m, n, freqs):
    # <R_m q, R_n k> = <q, R_(n-m) k> = <R_(m-n) q, k>
    return rope_matrix(m - n, freqs) @ query


# %% exercise 3
def to_pairs(weight, head_dim):
    # (heads, 2, hd/2, D): which half, then which pair
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))
    return halves.transpose(1, 2).flatten(0, 2)
