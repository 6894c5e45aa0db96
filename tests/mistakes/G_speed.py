"""Mistakes in the exercise of appendix G, with words of the check."""
# ruff: noqa


# %% exercise 1: a step makes a token for every text
def my_limit(bandwidth, P, config, B, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return bandwidth / (size * (P + B * n * per_position))


# %% exercise 1: the cache is read too
def my_limit(bandwidth, P, config, B, n, size):
    return B * bandwidth / (size * P)


# %% exercise 1: every text has a cache
def my_limit(bandwidth, P, config, B, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return B * bandwidth / (size * (P + n * per_position))


# %% exercise 1: keys and values
def my_limit(bandwidth, P, config, B, n, size):
    per_position = config.n_layers * config.n_kv_heads * config.head_dim
    return B * bandwidth / (size * (P + B * n * per_position))


# %% exercise 1: the weights are read once
def my_limit(bandwidth, P, config, B, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return B * bandwidth / (size * (B * P + B * n * per_position))


# %% exercise 1: See size
def my_limit(bandwidth, P, config, B, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return B * bandwidth / (P + B * n * per_position)


# %% exercise 1: KV heads, not H
def my_limit(bandwidth, P, config, B, n, size):
    per_position = 2 * config.n_layers * config.n_heads * config.head_dim
    return B * bandwidth / (size * (P + B * n * per_position))


# %% exercise 1: for B = 8, n = 1000
def my_limit(bandwidth, P, config, B, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return B * bandwidth / (size * (B * P + n * per_position))
