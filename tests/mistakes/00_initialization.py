"""Mistakes in the exercises of notebook 00, with words of the check."""


# %% exercise 1: the layers are not added up
def count_by_part(shapes):
    counts = {}
    for name, (*rest, last) in shapes.items():
        part = name.removesuffix(".weight")
        if part.startswith("layers."):
            part = part.split(".", 2)[2]
        counts[part] = prod(rest) * last
    return counts


# %% exercise 1: not wq alone
def count_by_part(shapes):
    counts = {}
    for name, shape in shapes.items():
        part = name.split(".")[-2]
        counts[part] = counts.get(part, 0) + prod(shape)
    return counts


# %% exercise 1: does not end in .weight
def count_by_part(shapes):
    counts = {}
    for name, shape in shapes.items():
        inside = name.startswith("layers.")
        part = name.split(".", 2)[2] if inside else name
        counts[part] = counts.get(part, 0) + prod(shape)
    return counts


# %% exercise 1: two digits
def count_by_part(shapes):
    counts = {}
    for name, shape in shapes.items():
        part = name.removesuffix(".weight")
        if part.startswith("layers."):
            part = part[9:]  # past "layers.0."
        counts[part] = counts.get(part, 0) + prod(shape)
    return counts


# %% exercise 1: no layer's number
def count_by_part(shapes):
    return {n.removesuffix(".weight"): prod(s) for n, s in shapes.items()}


# %% exercise 1: they were added
def count_by_part(shapes):
    counts = {}
    for name, shape in shapes.items():
        part = name.removesuffix(".weight")
        if part.startswith("layers."):
            part = part.split(".", 2)[2]
        counts[part] = counts.get(part, 0) + sum(shape)
    return counts


# %% exercise 1: not tensors
def count_by_part(shapes):
    parts = [name.removesuffix(".weight") for name in shapes]
    parts = [p.split(".", 2)[2] if "layers." in p else p for p in parts]
    return {part: parts.count(part) for part in parts}


# %% exercise 1: 'norm'
def count_by_part(shapes):
    counts = {}
    for name, shape in shapes.items():
        if name.startswith("layers."):
            part = name.removesuffix(".weight").split(".", 2)[2]
            counts[part] = counts.get(part, 0) + prod(shape)
    for name in ("tok_embeddings", "output"):  # the last norm is forgotten
        counts[name] = prod(shapes[f"{name}.weight"])
    return counts


# %% exercise 1: raises ValueError
def count_by_part(shapes):
    counts = {}
    for name, shape in shapes.items():
        _, _, part = name.removesuffix(".weight").split(".", 2)
        counts[part] = counts.get(part, 0) + prod(shape)
    return counts


# %% exercise 2: layers count from 0
def settings_of(shapes):
    last = max(int(n.split(".")[1]) for n in shapes if "layers." in n)
    V, D = shapes["tok_embeddings.weight"]
    hidden = shapes["layers.0.feed_forward.w1.weight"][0]
    wq = shapes["layers.0.attention.wq.weight"][0]
    wk = shapes["layers.0.attention.wk.weight"][0]
    return dict(
        dim=D,
        n_layers=last,
        vocab_size=V,
        hidden_dim=hidden,
        group_size=wq // wk,
    )


# %% exercise 2: compare ints
def settings_of(shapes):
    last = max(n.split(".")[1] for n in shapes if "layers." in n)
    V, D = shapes["tok_embeddings.weight"]
    hidden = shapes["layers.0.feed_forward.w1.weight"][0]
    wq = shapes["layers.0.attention.wq.weight"][0]
    wk = shapes["layers.0.attention.wk.weight"][0]
    L = int(last) + 1
    return dict(
        dim=D, n_layers=L, vocab_size=V, hidden_dim=hidden, group_size=wq // wk
    )


# %% exercise 2: those are tensors
def settings_of(shapes):
    V, D = shapes["tok_embeddings.weight"]
    hidden = shapes["layers.0.feed_forward.w1.weight"][0]
    wq = shapes["layers.0.attention.wq.weight"][0]
    wk = shapes["layers.0.attention.wk.weight"][0]
    L = len(shapes)
    return dict(
        dim=D, n_layers=L, vocab_size=V, hidden_dim=hidden, group_size=wq // wk
    )


# %% exercise 2: dim is the other size
def settings_of(shapes):
    D, V = shapes["tok_embeddings.weight"]
    hidden = shapes["layers.0.feed_forward.w1.weight"][0]
    wq = shapes["layers.0.attention.wq.weight"][0]
    wk = shapes["layers.0.attention.wk.weight"][0]
    L = len(shapes) // 9
    return dict(
        dim=D, n_layers=L, vocab_size=V, hidden_dim=hidden, group_size=wq // wk
    )


# %% exercise 2: hidden_dim is the other size
def settings_of(shapes):
    V, D = shapes["tok_embeddings.weight"]
    hidden = shapes["layers.0.feed_forward.w2.weight"][0]
    wq = shapes["layers.0.attention.wq.weight"][0]
    wk = shapes["layers.0.attention.wk.weight"][0]
    L = len(shapes) // 9
    return dict(
        dim=D, n_layers=L, vocab_size=V, hidden_dim=hidden, group_size=wq // wk
    )


# %% exercise 2: over rows of wk
def settings_of(shapes):
    V, D = shapes["tok_embeddings.weight"]
    hidden = shapes["layers.0.feed_forward.w1.weight"][0]
    wq = shapes["layers.0.attention.wq.weight"][0]
    wk = shapes["layers.0.attention.wk.weight"][0]
    L = len(shapes) // 9
    return dict(
        dim=D, n_layers=L, vocab_size=V, hidden_dim=hidden, group_size=wk / wq
    )


# %% exercise 2: the keys are
def settings_of(shapes):
    V, D = shapes["tok_embeddings.weight"]
    return dict(D=D, V=V, L=len(shapes) // 9)


# %% exercise 2: group_size is 4; expected another number
def settings_of(shapes):
    V, D = shapes["tok_embeddings.weight"]
    hidden = shapes["layers.0.feed_forward.w1.weight"][0]
    L = len(shapes) // 9
    return dict(
        dim=D, n_layers=L, vocab_size=V, hidden_dim=hidden, group_size=4
    )


# %% exercise 3: what is around the layers
def layers_that_fit(config, budget, dtype, tied):
    return budget // (sum(block_parameters(config).values()) * dtype.itemsize)


# %% exercise 3: a tied output is not counted
def layers_that_fit(config, budget, dtype, tied):
    one = sum(block_parameters(config).values())
    rest = (2 * config.vocab_size + 1) * config.dim
    return max((budget // dtype.itemsize - rest) // one, 0)


# %% exercise 3: that is not tied is counted
def layers_that_fit(config, budget, dtype, tied):
    one = sum(block_parameters(config).values())
    rest = (config.vocab_size + 1) * config.dim
    return max((budget // dtype.itemsize - rest) // one, 0)


# %% exercise 3: round down
def layers_that_fit(config, budget, dtype, tied):
    one = sum(block_parameters(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return max(-((rest - budget // dtype.itemsize) // one), 0)


# %% exercise 3: fewer than no layers
def layers_that_fit(config, budget, dtype, tied):
    one = sum(block_parameters(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return (budget // dtype.itemsize - rest) // one


# %% exercise 3: how many bytes a number has
def layers_that_fit(config, budget, dtype, tied):
    one = sum(block_parameters(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return max((budget // 2 - rest) // one, 0)


# %% exercise 3: in bytes, not in numbers
def layers_that_fit(config, budget, dtype, tied):
    one = sum(block_parameters(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return max((budget - rest) // one, 0)


# %% exercise 3: as int
def layers_that_fit(config, budget, dtype, tied):
    one = sum(block_parameters(config).values())
    rest = ((2 - tied) * config.vocab_size + 1) * config.dim
    return max((budget / dtype.itemsize - rest) // one, 0.0)


# %% exercise 3: the last norm has parameters
def layers_that_fit(config, budget, dtype, tied):
    one = sum(block_parameters(config).values())
    rest = (2 - tied) * config.vocab_size * config.dim  # no last norm
    return max((budget // dtype.itemsize - rest) // one, 0)


# %% exercise 3: the number of layers: a value is
def layers_that_fit(config, budget, dtype, tied):
    return config.n_layers
