"""Mistakes in the exercises of notebook 00, with words of the check."""


# %% exercise 1: wanted an int
def parse(name):
    name = name.removesuffix(".weight")
    if not name.startswith("layers."):
        return None, name
    _, layer, part = name.split(".", 2)
    return layer, part


# %% exercise 1: two digits
def parse(name):
    name = name.removesuffix(".weight")
    if not name.startswith("layers."):
        return None, name
    return int(name[7]), name[9:]


# %% exercise 1: still ends in .weight
def parse(name):
    if not name.startswith("layers."):
        return None, name.removesuffix(".weight")
    _, layer, part = name.split(".", 2)
    return int(layer), part


# %% exercise 1: not its last word
def parse(name):
    words = name.split(".")
    layer = int(words[1]) if words[0] == "layers" else None
    return layer, words[-2]


# %% exercise 1: it stopped on
def parse(name):
    _, layer, part = name.removesuffix(".weight").split(".", 2)
    return int(layer), part


# %% exercise 1: wanted (None, 'norm')
def parse(name):
    name = name.removesuffix(".weight")
    if not name.startswith("layers."):
        return 0, name
    _, layer, part = name.split(".", 2)
    return int(layer), part


# %% exercise 1: gives None; wanted (None, 'norm')
def parse(name):
    if name.startswith("layers."):
        _, layer, part = name.removesuffix(".weight").split(".", 2)
        return int(layer), part


# %% exercise 2: wk and wv are
def attention_parameters(config):
    return 4 * config.dim**2


# %% exercise 2: two matrices
def attention_parameters(config):
    D, kv_dim = config.dim, config.n_kv_heads * config.head_dim
    return 2 * D * D + D * kv_dim


# %% exercise 2: wo is missing
def attention_parameters(config):
    D, kv_dim = config.dim, config.n_kv_heads * config.head_dim
    return D * D + 2 * D * kv_dim


# %% exercise 2: a single key and value head
def attention_parameters(config):
    return 2 * config.dim**2 + 2 * config.dim * config.head_dim


# %% exercise 2: head_dim is missing
def attention_parameters(config):
    return 2 * config.dim**2 + 2 * config.dim * config.n_kv_heads


# %% exercise 2: of all layers
def attention_parameters(config):
    D, kv_dim = config.dim, config.n_kv_heads * config.head_dim
    return config.n_layers * (2 * D * D + 2 * D * kv_dim)


# %% exercise 2: wanted
def attention_parameters(config):
    return 10_485_760  # right for the 1B alone


# %% exercise 3: not what stands around
def layers_that_fit(config, budget, dtype, tied):
    return budget // (sum(layer_places(config).values()) * dtype.itemsize)


# %% exercise 3: though it is tied
def layers_that_fit(config, budget, dtype, tied):
    one = sum(layer_places(config).values())
    rest = (2 * config.vocab_size + 1) * config.dim
    return max((budget // dtype.itemsize - rest) // one, 0)


# %% exercise 3: though it is not tied
def layers_that_fit(config, budget, dtype, tied):
    one = sum(layer_places(config).values())
    rest = (config.vocab_size + 1) * config.dim
    return max((budget // dtype.itemsize - rest) // one, 0)


# %% exercise 3: rounded up
def layers_that_fit(config, budget, dtype, tied):
    one = sum(layer_places(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return max(-((rest - budget // dtype.itemsize) // one), 0)


# %% exercise 3: fewer than no layers
def layers_that_fit(config, budget, dtype, tied):
    one = sum(layer_places(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return (budget // dtype.itemsize - rest) // one


# %% exercise 3: whatever the dtype
def layers_that_fit(config, budget, dtype, tied):
    one = sum(layer_places(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return max((budget // 2 - rest) // one, 0)


# %% exercise 3: not bytes
def layers_that_fit(config, budget, dtype, tied):
    one = sum(layer_places(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return max((budget - rest) // one, 0)


# %% exercise 3: as int
def layers_that_fit(config, budget, dtype, tied):
    one = sum(layer_places(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return max((budget / dtype.itemsize - rest) // one, 0.0)


# %% exercise 3: layers in
def layers_that_fit(config, budget, dtype, tied):
    one = sum(layer_places(config).values())
    rest = (2 - tied) * config.vocab_size * config.dim  # no last norm
    return max((budget // dtype.itemsize - rest) // one, 0)


# %% exercise 4: cut off
def to_bfloat16(bits):
    return bits >> 16


# %% exercise 4: ties go up
def to_bfloat16(bits):
    return bits + 0x8000 >> 16


# %% exercise 4: ties go down
def to_bfloat16(bits):
    return bits + 0x7FFF >> 16


# %% exercise 4: the upper 16
def to_bfloat16(bits):
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16 << 16


# %% exercise 4: carry into the exponent
def to_bfloat16(bits):
    mantissa = bits & 0x7FFFFF
    mantissa = (mantissa + 0x7FFF + (bits >> 16 & 1) >> 16) & 127
    return bits >> 23 << 7 | mantissa


# %% exercise 4: gives
def to_bfloat16(bits):
    return 0
