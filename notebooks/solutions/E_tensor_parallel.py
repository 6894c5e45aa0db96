"""Solutions to the exercises of E_tensor_parallel: each replaces its stub."""


# %% exercise 1
def partial_result(h, W, b, rank, n):
    F = h.shape[-1]
    own = slice(rank * F // n, (rank + 1) * F // n)
    y = h[:, own] @ W[:, own].T  # (T, D)
    return y + b if rank == 0 else y


# %% exercise 2
def held_kv_heads(rank, n, H, KV):
    group = H // KV  # query heads that share a KV head
    own = range(rank * H // n, (rank + 1) * H // n)
    return sorted({q // group for q in own})
