# ruff: noqa
# %% exercise 1: half of it: keys and values are kept
def longest(c, gigabytes):
    each = c.n_layers * c.n_kv_heads * c.head_dim * 2
    return max(0, (gigabytes * 10**9 - weight_bytes(c)) // each)


# %% exercise 1: KV heads count
def longest(c, gigabytes):
    each = 2 * c.n_layers * c.dim * 2
    return max(0, (gigabytes * 10**9 - weight_bytes(c)) // each)


# %% exercise 1: every layer keeps its own
def longest(c, gigabytes):
    each = 2 * c.n_kv_heads * c.head_dim * 2
    return max(0, (gigabytes * 10**9 - weight_bytes(c)) // each)


# %% exercise 1: the weights need room too
def longest(c, gigabytes):
    each = 2 * c.n_layers * c.n_kv_heads * c.head_dim * 2
    return gigabytes * 10**9 // each


# %% exercise 1: rounded up
def longest(c, gigabytes):
    each = 2 * c.n_layers * c.n_kv_heads * c.head_dim * 2
    free = gigabytes * 10**9 - weight_bytes(c)
    return max(0, math.ceil(free / each))


# %% exercise 1: 2 bytes a number
def longest(c, gigabytes):
    each = 2 * c.n_layers * c.n_kv_heads * c.head_dim
    return max(0, (gigabytes * 10**9 - weight_bytes(c)) // each)


# %% exercise 1: not 4
def longest(c, gigabytes):
    each = 2 * c.n_layers * c.n_kv_heads * c.head_dim * 4
    return max(0, (gigabytes * 10**9 - weight_bytes(c)) // each)


# %% exercise 1: not 131,072
def longest(c, gigabytes):
    each = 2 * c.n_layers * c.n_kv_heads * c.head_dim * 2
    free = gigabytes * 10**9 - weight_bytes(c)
    return min(c.max_seq_len, max(0, free // each))


# %% exercise 1: below 0
def longest(c, gigabytes):
    each = 2 * c.n_layers * c.n_kv_heads * c.head_dim * 2
    return (gigabytes * 10**9 - weight_bytes(c)) // each


# %% exercise 1: wanted a whole number
def longest(c, gigabytes):
    each = 2 * c.n_layers * c.n_kv_heads * c.head_dim * 2
    return max(0, (gigabytes * 10**9 - weight_bytes(c)) / each)


# %% exercise 1: found 'nonsense'
def longest(c, gigabytes):
    return "nonsense"


# %% exercise 2: 2π is missing
def unseen(head_dim, theta, length):
    waves = [theta ** (2 * k / head_dim) for k in range(head_dim // 2)]
    return [k for k, wave in enumerate(waves) if wave > length]


# %% exercise 2: 2π, not π
def unseen(head_dim, theta, length):
    waves = [
        math.pi * theta ** (2 * k / head_dim) for k in range(head_dim // 2)
    ]
    return [k for k, wave in enumerate(waves) if wave > length]


# %% exercise 2: those are the pairs that do make a turn
def unseen(head_dim, theta, length):
    waves = 2 * math.pi / plain_frequencies(head_dim, theta)
    return (waves < length).nonzero().flatten().tolist()


# %% exercise 2: pairs are counted from 0
def unseen(head_dim, theta, length):
    waves = 2 * math.pi / plain_frequencies(head_dim, theta)
    return [k for k, wave in enumerate(waves, 1) if wave > length]


# %% exercise 2: the exponent has its 2 twice
def unseen(head_dim, theta, length):
    waves = 2 * math.pi / plain_frequencies(head_dim, theta) ** 2
    return [k for k, wave in enumerate(waves) if wave > length]


# %% exercise 2: the exponent has lost its 2
def unseen(head_dim, theta, length):
    waves = 2 * math.pi / plain_frequencies(head_dim, theta) ** 0.5
    return [k for k, wave in enumerate(waves) if wave > length]


# %% exercise 2: how many is not asked
def unseen(head_dim, theta, length):
    waves = 2 * math.pi / plain_frequencies(head_dim, theta)
    return int((waves > length).sum())


# %% exercise 2: found [1, 2]
def unseen(head_dim, theta, length):
    if head_dim == 64:
        return [1, 2]


# %% exercise 3: positions are divided, not multiplied
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) * max(1, length / original)
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 3: a short text is stretched
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) * original / length
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 3: nothing is squeezed
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length).float()
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 3: need not be whole
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) // max(1, length / original)
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 3: cut off
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length).float().clamp(max=min(original, length))
    return torch.outer(at, plain_frequencies(head_dim, theta))


# %% exercise 3: you raised the base
def interpolated(head_dim, length, theta, original):
    base = theta * max(1, length / original)
    at = torch.arange(length).float()
    return torch.outer(at, plain_frequencies(head_dim, base))


# %% exercise 3: the angles are wanted
def interpolated(head_dim, length, theta, original):
    freqs = plain_frequencies(head_dim, theta) / max(1, length / original)
    return turns_at(freqs, torch.arange(length))


# %% exercise 3: shape (4, 12), not (12, 4)
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) / max(1, length / original)
    return torch.outer(plain_frequencies(head_dim, theta), at)


# %% exercise 3: wanted angles
def interpolated(head_dim, length, theta, original):
    return "nonsense"


# %% exercise 3: shape (0,), not (12, 4)
def interpolated(head_dim, length, theta, original):
    return []


# %% exercise 3: positions are divided, not multiplied
def interpolated(head_dim, length, theta, original):
    at = torch.arange(length) * max(1, length / original)
    return torch.outer(at, plain_frequencies(head_dim, theta)).numpy()


# %% exercise 3: at position 1, pair 1
def interpolated(head_dim, length, theta, original):
    pairs = torch.arange(head_dim // 2) / head_dim  # the 2 of 2k is lost
    at = torch.arange(length) / max(1, length / original)
    return torch.outer(at, theta**-pairs).tolist()


# %% exercise 4: where every pair has made a turn
def factor_for(freqs, original, length):
    return max(1.0, length / original)


# %% exercise 4: 1, not 4
def factor_for(freqs, original, length):
    turns = original * freqs / (2 * math.pi)
    return 1.0 if (turns >= 4).all() else max(1.0, length / original)


# %% exercise 4: 2π is missing
def factor_for(freqs, original, length):
    return 1.0 if (original * freqs >= 1).all() else max(1, length / original)


# %% exercise 4: within `original`, not `length`
def factor_for(freqs, original, length):
    turns = length * freqs / (2 * math.pi)
    return 1.0 if (turns >= 1).all() else max(1.0, length / original)


# %% exercise 4: here it is p / C
def factor_for(freqs, original, length):
    turns = original * freqs / (2 * math.pi)
    if (turns >= 1).all():
        return 1.0
    return max(1.0, (length - 1) / (original - 1))


# %% exercise 4: at least 1
def factor_for(freqs, original, length):
    turns = original * freqs / (2 * math.pi)
    return 1.0 if (turns >= 1).all() else length / original


# %% exercise 4: upside down
def factor_for(freqs, original, length):
    turns = original * freqs / (2 * math.pi)
    return 1.0 if (turns >= 1).all() else max(1.0, original / length)


# %% exercise 4: power of two
def factor_for(freqs, original, length):
    turns = original * freqs / (2 * math.pi)
    if (turns >= 1).all():
        return 1
    return max(1, 2 ** math.ceil(math.log2(length / original)))


# %% exercise 4: whole number
def factor_for(freqs, original, length):
    turns = original * freqs / (2 * math.pi)
    if (turns >= 1).all():
        return 1
    return max(1, -(-length // original))


# %% exercise 4: 2π has no place here
def factor_for(freqs, original, length):
    turns = original * freqs / (2 * math.pi)
    if (turns >= 1).all():
        return 1.0
    return max(1.0, length / original / (2 * math.pi))


# %% exercise 4: found [
def factor_for(freqs, original, length):
    return (length / original / freqs).tolist()
