"""Mistakes in the exercises of appendix G, with words of the check."""
# ruff: noqa: F811, F821


# %% exercise 1: a step makes a token for every text
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    moved = size * (P + B * n * per)
    ops = 2 * B * P
    return 1 / max(moved / bandwidth, ops / peak)


# %% exercise 1: the cache is read too
def my_limit(bandwidth, peak, P, config, B, n, size):
    moved = size * P
    ops = 2 * B * P
    return B / max(moved / bandwidth, ops / peak)


# %% exercise 1: every text has its own cache
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    moved = size * (P + n * per)
    ops = 2 * B * P
    return B / max(moved / bandwidth, ops / peak)


# %% exercise 1: keys and values: twice as many
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = config.n_layers * config.n_kv_heads * config.head_dim
    moved = size * (P + B * n * per)
    ops = 2 * B * P
    return B / max(moved / bandwidth, ops / peak)


# %% exercise 1: the weights are read once for all
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    moved = size * B * (P + n * per)
    ops = 2 * B * P
    return B / max(moved / bandwidth, ops / peak)


# %% exercise 1: KV heads, not H
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_heads * config.head_dim
    moved = size * (P + B * n * per)
    ops = 2 * B * P
    return B / max(moved / bandwidth, ops / peak)


# %% exercise 1: see size
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    moved = P + B * n * per
    ops = 2 * B * P
    return B / max(moved / bandwidth, ops / peak)


# %% exercise 1: own operations: see peak
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return B * bandwidth / (size * (P + B * n * per))


# %% exercise 1: two operations per weight and text
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    moved = size * (P + B * n * per)
    ops = B * P
    return B / max(moved / bandwidth, ops / peak)


# %% exercise 1: every text has its own operations
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    moved = size * (P + B * n * per)
    ops = 2 * P
    return B / max(moved / bandwidth, ops / peak)


# %% exercise 1: not their sum
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    moved = size * (P + B * n * per)
    ops = 2 * B * P
    return B / (moved / bandwidth + ops / peak)


# %% exercise 1: not the shorter
def my_limit(bandwidth, peak, P, config, B, n, size):
    per = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    moved = size * (P + B * n * per)
    ops = 2 * B * P
    return B / min(moved / bandwidth, ops / peak)


# %% exercise 2: must not see later ones
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return (s >= p) | (s == t)


# %% exercise 2: padding is not hidden
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return (s <= t).expand(len(padding), T, T)


# %% exercise 2: a column of padding sees itself
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return (s <= t) & (s >= p)


# %% exercise 2: padding is on the left
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return (s <= t) & (s < T - p) | (s == t)


# %% exercise 2: is the first token
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return (s <= t) & (s > p) | (s == t)


# %% exercise 2: rows are queries
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return ((s <= t) & (s >= p) | (s == t)).transpose(1, 2)


# %% exercise 2: True where it may see
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return (s > t) | (s < p) & (s != t)


# %% exercise 2: not 0 and -inf
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return torch.where((s <= t) & (s >= p) | (s == t), 0.0, -torch.inf)


# %% exercise 2: has shape (3, 1, 5, 5); expected (3, 5, 5)
def my_mask(padding, T):
    t, s = torch.arange(T)[:, None], torch.arange(T)
    p = padding[:, None, None]
    return ((s <= t) & (s >= p) | (s == t))[:, None]
