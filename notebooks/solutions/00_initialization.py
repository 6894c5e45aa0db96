"""Solutions to the exercises of 00_initialization: each replaces its stub."""


# %% exercise 1
def count_by_part(shapes):
    counts = {}
    for name, shape in shapes.items():
        part = name.removesuffix(".weight")
        if part.startswith("layers."):
            part = part.split(".", 2)[2]  # "layers", the number, the rest
        size = 1
        for n in shape:
            size *= n
        counts[part] = counts.get(part, 0) + size
    return counts


# %% exercise 2
def settings_of(shapes):
    vocab_size, dim = shapes["tok_embeddings.weight"]
    numbers = {
        int(name.split(".")[1]) for name in shapes if "layers." in name
    }
    wq, wk = (shapes[f"layers.0.attention.{w}.weight"] for w in ("wq", "wk"))
    return {
        "dim": dim,
        "n_layers": len(numbers),
        "vocab_size": vocab_size,
        "hidden_dim": shapes["layers.0.feed_forward.w1.weight"][0],
        "group_size": wq[0] // wk[0],  # (H·hd) / (KV·hd): hd cancels
    }


# %% exercise 3
def layers_that_fit(config, budget, dtype, tied):
    D, V = config.dim, config.vocab_size
    kv_dim = config.n_kv_heads * config.head_dim
    q_dim = config.n_heads * config.head_dim  # D, in Meta's models
    layer = 2 * D * q_dim + 2 * D * kv_dim + 3 * D * config.hidden_dim + 2 * D
    around = (1 if tied else 2) * V * D + D
    left = budget // dtype.itemsize - around
    return max(left // layer, 0)
