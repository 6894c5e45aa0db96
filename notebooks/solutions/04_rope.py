"""Solutions to the exercises of 04_rope: each replaces its stub."""
# ruff: noqa: F821


# %% exercise 1
def rotate(x, freqs):
    positions = torch.arange(len(x)).float()  # (T,)
    angles = torch.outer(positions, freqs)  # (T, hd/2)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[:, 0::2], x[:, 1::2]  # (T, hd/2) each
    out = torch.empty_like(x)
    out[:, 0::2] = first * cos - second * sin
    out[:, 1::2] = first * sin + second * cos
    return out


# %% exercise 2
def query_rotated_to_key(query, m, n, freqs):
    # <R_m q, R_n k> = <q, R_(n-m) k> = <R_(m-n) q, k>
    return rope_matrix(m - n, freqs) @ query


# %% exercise 3
def to_pairs(weight, head_dim):
    # (heads, 2, hd/2, D): which half, then which pair
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))
    return halves.transpose(1, 2).flatten(0, 2)
