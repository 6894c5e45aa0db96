"""Mistakes in the exercises of appendix E, with words of the check."""
# ruff: noqa: F811, F821


# %% exercise 1: the sum has b n times
def partial_result(h, W, b, rank, n):
    k = h.shape[-1] // n
    own = slice(rank * k, (rank + 1) * k)
    return F.linear(h[:, own], W[:, own], b)


# %% exercise 1: b is missing
def partial_result(h, W, b, rank, n):
    return h.chunk(n, dim=1)[rank] @ W.chunk(n, dim=1)[rank].T


# %% exercise 1: all of y
def partial_result(h, W, b, rank, n):
    return F.linear(h, W, b)


# %% exercise 1: the whole product
def partial_result(h, W, b, rank, n):
    return F.linear(h, W) + b / n


# %% exercise 1: with other numbers in process 0's columns
def partial_result(h, W, b, rank, n):
    return F.linear(h, W, b) / n


# %% exercise 1: process 1's result: a value is
def partial_result(h, W, b, rank, n):
    y = h[:, rank::n] @ W[:, rank::n].T
    return y + b if rank == 0 else y


# %% exercise 1: process 0 multiplies its own columns
def partial_result(h, W, b, rank, n):
    y = F.linear(h, W, b)
    return y if rank == 0 else torch.zeros_like(y)


# %% exercise 1: the sum has shape
def partial_result(h, W, b, rank, n):
    y = h.chunk(n, dim=1)[rank] @ W.chunk(n, dim=1)[rank].T
    return (y + b if rank == 0 else y).sum(0)


# %% exercise 2: these are query heads
def held_kv_heads(rank, n, H, KV):
    return list(range(rank * H // n, (rank + 1) * H // n))


# %% exercise 2: each process needs a KV head
def held_kv_heads(rank, n, H, KV):
    k = KV // n
    return list(range(rank * k, (rank + 1) * k))


# %% exercise 2: a cut group's head is missing
def held_kv_heads(rank, n, H, KV):
    first = rank * KV // n
    return list(range(first, first + max(1, KV // n)))


# %% exercise 2: not q % KV
def held_kv_heads(rank, n, H, KV):
    own = range(rank * H // n, (rank + 1) * H // n)
    return sorted({q % KV for q in own})


# %% exercise 2: each KV head once
def held_kv_heads(rank, n, H, KV):
    own = range(rank * H // n, (rank + 1) * H // n)
    return [q // (H // KV) for q in own]


# %% exercise 2: heads in a row
def held_kv_heads(rank, n, H, KV):
    return [h for h in range(KV) if h % n == rank]


# %% exercise 3: two sums a block
def bytes_sent(config, T, n, size):
    sums = (config.n_layers + 1) * T * config.dim
    return size * (n - 1) / n * (2 * sums + T * config.vocab_size)


# %% exercise 3: embedding's sum
def bytes_sent(config, T, n, size):
    sums = 2 * config.n_layers * T * config.dim
    return size * (n - 1) / n * (2 * sums + T * config.vocab_size)


# %% exercise 3: gather is missing
def bytes_sent(config, T, n, size):
    return 2 * (n - 1) / n * (2 * config.n_layers + 1) * T * config.dim * size


# %% exercise 3: goes around twice
def bytes_sent(config, T, n, size):
    sums = (2 * config.n_layers + 1) * T * config.dim
    return size * (n - 1) / n * (sums + T * config.vocab_size)


# %% exercise 3: the gather goes around once
def bytes_sent(config, T, n, size):
    sums = (2 * config.n_layers + 1) * T * config.dim
    return 2 * size * (n - 1) / n * (sums + T * config.vocab_size)


# %% exercise 3: multiply by size
def bytes_sent(config, T, n, size):
    sums = (2 * config.n_layers + 1) * T * config.dim
    return (n - 1) / n * (2 * sums + T * config.vocab_size)


# %% exercise 3: over all processes
def bytes_sent(config, T, n, size):
    sums = (2 * config.n_layers + 1) * T * config.dim
    return (n - 1) * (2 * sums + T * config.vocab_size) * size


# %% exercise 3: all T positions
def bytes_sent(config, T, n, size):
    sums = (2 * config.n_layers + 1) * T * config.dim
    return size * (n - 1) / n * (2 * sums + config.vocab_size)
