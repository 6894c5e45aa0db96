# Solutions of notebook 00: each section takes the place of an exercise's cell.


# %% exercise 1
def parse(name):
    name = name.removesuffix(".weight")
    if not name.startswith("layers."):
        return None, name
    _, layer, part = name.split(".", 2)
    return int(layer), part


# %% exercise 2
def attention_parameters(config):
    D = config.dim
    kv_dim = config.n_kv_heads * config.head_dim
    return 2 * D * D + 2 * D * kv_dim  # wq and wo, wk and wv


# %% exercise 3
def layers_that_fit(config, budget, dtype, tied):
    D, V = config.dim, config.vocab_size
    kv_dim = config.n_kv_heads * config.head_dim
    layer = 2 * D * D + 2 * D * kv_dim + 3 * D * config.hidden_dim + 2 * D
    around = (1 if tied else 2) * V * D + D
    left = budget // dtype.itemsize - around
    return max(left // layer, 0)


# %% exercise 4
def to_bfloat16(bits):
    last = bits >> 16 & 1  # the last bit that stays
    # adds half a step, or, where that bit is 0, a little less: then a tie
    # stays below. A carry out of the mantissa is the next exponent: right.
    return bits + 0x7FFF + last >> 16
