"""Mistakes in the exercises of appendix D, with words of the check."""
# ruff: noqa: F811, F821


# %% exercise 1: divide the positions, do not multiply them
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) * max(1, length / original)
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 1: a text that is not longer needs factor 1
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) * original / length
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 1: nothing is divided
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length).float()
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 1: m/s need not be a whole number
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) // max(1, length / original)
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 1: long positions are cut off
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length).float().clamp(max=min(original, length))
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 1: you raised the base
def interpolated(head_dim, length, theta, original):
    base = theta * max(1, length / original)
    at = torch.arange(length).float()
    return torch.outer(at, plain_frequencies(head_dim, base))


# %% exercise 1: cosines and sines: return the angles
def interpolated(head_dim, length, theta, original):
    freqs = plain_frequencies(head_dim, theta) / max(1, length / original)
    return rotations_at(freqs, torch.arange(length))


# %% exercise 1: expected real angles
def interpolated(head_dim, length, theta, original):
    freqs = plain_frequencies(head_dim, theta) / max(1, length / original)
    rotations = rotations_at(freqs, torch.arange(length))
    return torch.view_as_complex(rotations)


# %% exercise 1: positions are rows
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) / max(1, length / original)
    return torch.outer(plain_frequencies(head_dim, theta), at)


# %% exercise 1: the result is 'nonsense', a str
def interpolated(head_dim, length, theta, original):
    return "nonsense"


# %% exercise 1: the result has shape (0,); expected (12, 4)
def interpolated(head_dim, length, theta, original):
    return []


# %% exercise 1: divide the positions, do not multiply them
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) * max(1, length / original)
    return torch.outer(at, plain_frequencies(head_dim, theta)).numpy()


# %% exercise 1: the result: a value is
def interpolated(head_dim, length, theta, original):
    pairs = torch.arange(head_dim // 2) / head_dim  # the 2 of 2k is lost
    at = torch.arange(length) / max(1, length / original)
    return torch.outer(at, theta**-pairs).tolist()


# %% exercise 2: if every pair has rotated once
def factor_for(freqs, original, length):
    return max(1.0, length / original)


# %% exercise 2: one rotation shows every angle
def factor_for(freqs, original, length):
    made = original * freqs / (2 * math.pi)
    return 1.0 if (made >= 4).all() else max(1.0, length / original)


# %% exercise 2: 2π is missing
def factor_for(freqs, original, length):
    return 1.0 if (original * freqs >= 1).all() else max(1, length / original)


# %% exercise 2: in `original`, not `length`
def factor_for(freqs, original, length):
    made = length * freqs / (2 * math.pi)
    return 1.0 if (made >= 1).all() else max(1.0, length / original)


# %% exercise 2: the result: a value is
def factor_for(freqs, original, length):
    made = original * freqs / (2 * math.pi)
    if (made >= 1).all():
        return 1.0
    return max(1.0, (length - 1) / (original - 1))


# %% exercise 2: the factor is at least 1
def factor_for(freqs, original, length):
    made = original * freqs / (2 * math.pi)
    return 1.0 if (made >= 1).all() else length / original


# %% exercise 2: upside down
def factor_for(freqs, original, length):
    made = original * freqs / (2 * math.pi)
    return 1.0 if (made >= 1).all() else max(1.0, original / length)


# %% exercise 2: the result: a value is
def factor_for(freqs, original, length):
    made = original * freqs / (2 * math.pi)
    if (made >= 1).all():
        return 1
    return max(1, 2 ** math.ceil(math.log2(length / original)))


# %% exercise 2: whole number
def factor_for(freqs, original, length):
    made = original * freqs / (2 * math.pi)
    if (made >= 1).all():
        return 1
    return max(1, -(-length // original))


# %% exercise 2: 2π has no place here
def factor_for(freqs, original, length):
    made = original * freqs / (2 * math.pi)
    if (made >= 1).all():
        return 1.0
    return max(1.0, length / original / (2 * math.pi))


# %% exercise 2: expected
def factor_for(freqs, original, length):
    return (length / original / freqs).tolist()
