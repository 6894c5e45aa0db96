"""Solution of the exercise of appendix G."""
# ruff: noqa: F821


# %% exercise 1
def my_limit(bandwidth, P, config, B, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    numbers = P + B * n * per_position  # that one step reads
    return B * bandwidth / (size * numbers)
