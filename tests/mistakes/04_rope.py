"""Mistakes in the exercises of notebook 04, with words of the check."""
# ruff: noqa: F811, F821


# %% exercise 1: your pairs are halves, not adjacent
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)
    out = torch.complex(*x.chunk(2, dim=-1)) * rotations
    return torch.cat((out.real, out.imag), dim=-1)


# %% exercise 1: your pairs are halves, not adjacent
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.complex(*x.chunk(2, dim=-1))
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 1: put them back in pairs
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    out = pairs * rotations
    return torch.cat((out.real, out.imag), dim=-1)


# %% exercise 1: off
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), 2 * freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 1: clockwise
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.polar(torch.ones_like(angles), -angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 1: row t is at positions[t], not at t
def rotate_complex(x, positions, freqs):
    angles = torch.outer(torch.arange(len(x)).float(), freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 1: every pair rotates by the first frequency
def rotate_complex(x, positions, freqs):
    angles = positions.float()[:, None] * freqs[0]
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 1: torch.polar takes the lengths first, then the angles
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.polar(angles, torch.ones_like(angles))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 1: use torch.polar
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.complex(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations).flatten(-2)


# %% exercise 1: complex numbers: go back to real ones
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return pairs * rotations


# %% exercise 1: has shape (9, 6, 2); expected (9, 12)
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations)


# %% exercise 1: changes its argument x
def rotate_complex(x, positions, freqs):
    angles = torch.outer(positions.float(), freqs)
    rotations = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    pairs *= rotations
    return torch.view_as_real(pairs).flatten(-2)


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
