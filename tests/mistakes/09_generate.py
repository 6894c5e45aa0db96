"""Mistakes in the exercises of notebook 09, with words of the check."""


# %% exercise 1: one pass too many
def my_positions(t, n):
    return sum(range(t, t + n + 1)), t + n - 1


# %% exercise 1: the text grows
def my_positions(t, n):
    return n * t, t + n - 1


# %% exercise 1: with a cache: the last new token
def my_positions(t, n):
    return n * t + n * (n - 1) // 2, t + n


# %% exercise 1: expected (2,)
def my_positions(t, n):
    return t + n


# %% exercise 2: given out too
def my_generate(llama, ids, n, stop):
    cache = KVCache(llama.config, len(ids) + n)
    logits = prefill(llama, torch.tensor([ids]), cache)
    for made in range(n):
        token = logits.argmax(-1)
        yield token.item()
        if token.item() in stop:
            return
        if made < n - 1:
            logits = decode_one(llama, token, cache)


# %% exercise 2: does not stop
def my_generate(llama, ids, n, stop):
    yield from llamalib.generate(llama, ids, max_new_tokens=n, stop=())


# %% exercise 2: old positions run again
def my_generate(llama, ids, n, stop):
    for token in naive_greedy(llama, ids, n):
        if token in stop:
            return
        yield token


# %% exercise 2: new positions did not run
def my_generate(llama, ids, n, stop):
    ids = list(ids)
    for _ in range(n):
        token = llama.forward(torch.tensor(ids))[-1].argmax().item()
        if token in stop:
            return
        yield token
        ids.append(token)


# %% exercise 2: a position too many
def my_generate(llama, ids, n, stop):
    cache = KVCache(llama.config, len(ids) + n)
    logits = prefill(llama, torch.tensor([ids]), cache)
    for _ in range(n):
        token = logits.argmax(-1)
        if token.item() in stop:
            return
        yield token.item()
        logits = decode_one(llama, token, cache)


# %% exercise 2: expected ints
def my_generate(llama, ids, n, stop):
    for i in llamalib.generate(llama, ids, max_new_tokens=n, stop=stop):
        yield torch.tensor(i)


# %% exercise 2: the list of ids: a value is
def my_generate(llama, ids, n, stop):
    for i in llamalib.generate(llama, ids, max_new_tokens=n, stop=stop):
        yield i + 1


# %% exercise 1: other order
def my_positions(t, n):
    return t + n - 1, n * t + n * (n - 1) // 2


# %% exercise 1: the prompt runs too
def my_positions(t, n):
    return sum(range(t, t + n)), n


# %% exercise 2: the prompt's ids
def my_generate(llama, ids, n, stop):
    yield from ids
    yield from llamalib.generate(llama, ids, max_new_tokens=n, stop=stop)


# %% exercise 2: 7 ids; expected 6
def my_generate(llama, ids, n, stop):
    yield from llamalib.generate(llama, ids, max_new_tokens=n + 1, stop=stop)


# %% exercise 2: your code raises ZeroDivisionError
def my_generate(llama, ids, n, stop):
    yield 1 // 0


# %% exercise 3: the cache is read too
def my_limit(bandwidth, P, config, n, size):
    return bandwidth / (size * P)


# %% exercise 3: keys and values
def my_limit(bandwidth, P, config, n, size):
    per_position = config.n_layers * config.n_kv_heads * config.head_dim
    return bandwidth / (size * (P + n * per_position))


# %% exercise 3: see size
def my_limit(bandwidth, P, config, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return bandwidth / (P + n * per_position)


# %% exercise 3: KV heads, not H
def my_limit(bandwidth, P, config, n, size):
    per_position = 2 * config.n_layers * config.n_heads * config.head_dim
    return bandwidth / (size * (P + n * per_position))


# %% exercise 3: every layer
def my_limit(bandwidth, P, config, n, size):
    per_position = 2 * config.n_kv_heads * config.head_dim
    return bandwidth / (size * (P + n * per_position))


# %% exercise 3: use head_dim
def my_limit(bandwidth, P, config, n, size):
    hd = config.dim // config.n_heads
    per_position = 2 * config.n_layers * config.n_kv_heads * hd
    return bandwidth / (size * (P + n * per_position))


# %% exercise 3: the time of a step
def my_limit(bandwidth, P, config, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return size * (P + n * per_position) / bandwidth


# %% exercise 3: expected another number
def my_limit(bandwidth, P, config, n, size):
    return bandwidth / (size * (P + n))
