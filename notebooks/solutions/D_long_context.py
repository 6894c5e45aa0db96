# ruff: noqa
# %% exercise 1
def longest(c, gigabytes):
    free = gigabytes * 10**9 - weight_bytes(c)
    # keys and values, every layer, every KV head, 2 bytes a number
    each = 2 * c.n_layers * c.n_kv_heads * c.head_dim * 2
    return max(0, free // each)


# %% exercise 2
def unseen(head_dim, theta, length):
    pairs = []
    for k in range(head_dim // 2):
        wave = 2 * math.pi * theta ** (2 * k / head_dim)  # positions a turn
        if wave > length:
            pairs.append(k)
    return pairs


# %% exercise 3
def interpolated(head_dim, length, theta, original):
    factor = max(1, length / original)
    freqs = theta ** (-torch.arange(0, head_dim, 2) / head_dim)  # (hd/2,)
    positions = torch.arange(length) / factor  # (length,): need not be whole
    return torch.outer(positions, freqs)  # (length, hd/2)


# %% exercise 4
def factor_for(freqs, original, length):
    turns = original * freqs / (2 * math.pi)  # (hd/2,)
    if (turns >= 1).all():  # every angle has been seen
        return 1.0
    return max(1.0, length / original)
