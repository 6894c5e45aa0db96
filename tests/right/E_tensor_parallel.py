"""Unusual right answers to the exercises of appendix E."""


# %% exercise 1: each process adds a share of b
def partial_result(h, W, b, rank, n):
    h, W = h.chunk(n, dim=1)[rank], W.chunk(n, dim=1)[rank]
    return F.linear(h.double(), W.double(), b.double() / n)


# %% exercise 1: each process adds its own slice of b, in place
def partial_result(h, W, b, rank, n):
    h, W = h.tensor_split(n, dim=1)[rank], W.tensor_split(n, dim=1)[rank]
    share = torch.zeros_like(b)
    own = slice(rank * len(b) // n, (rank + 1) * len(b) // n)
    share[own] = b[own]
    return h @ W.T + share


# %% exercise 1: the other columns are set to 0
def partial_result(h, W, b, rank, n):
    own = torch.arange(h.shape[1]) // (h.shape[1] // n) == rank
    y = (h * own) @ W.T
    return y + b * (rank == n - 1)


# %% exercise 2: from the first head to the last
def held_kv_heads(rank, n, H, KV):
    first, last = rank * (H // n), (rank + 1) * (H // n) - 1
    return list(range(first * KV // H, last * KV // H + 1))


# %% exercise 2: as a tensor
def held_kv_heads(rank, n, H, KV):
    kv = torch.arange(KV).repeat_interleave(H // KV)  # of each query head
    return kv.chunk(n)[rank].unique()
