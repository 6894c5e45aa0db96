"""Solutions to the exercises of 09_generate.ipynb: each replaces its cell."""


# %% exercise 1
def my_positions(t, n):
    # t + (t + 1) + … + (t + n - 1), and the prompt and n - 1 tokens once
    return n * t + n * (n - 1) // 2, t + n - 1


# %% exercise 2
def my_generate(llama, ids, n, stop):
    like = dict(device=llama.device, dtype=llama.dtype)
    cache = KVCache(llama.config, len(ids) + n - 1, **like)
    tokens = torch.tensor([ids], device=llama.device)  # (1, T)
    logits = prefill(llama, tokens, cache)  # (1, V)
    for made in range(1, n + 1):
        token = logits.argmax(-1)  # (1,)
        if token.item() in stop:
            return
        yield token.item()
        if made < n:
            logits = decode_one(llama, token, cache)  # (1, V)


# %% exercise 3
def my_limit(bandwidth, P, config, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return bandwidth / (size * (P + n * per_position))
