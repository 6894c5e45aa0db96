"""Mistakes in the exercises of notebook 05, with words of the check."""


# %% exercise 1: for every query head
def cache_bytes(config, S, bytes_each):
    return 2 * config.n_layers * config.dim * S * bytes_each


# %% exercise 1: keys or values
def cache_bytes(config, S, bytes_each):
    width = config.n_kv_heads * config.head_dim
    return config.n_layers * width * S * bytes_each


# %% exercise 1: one layer
def cache_bytes(config, S, bytes_each):
    return 2 * config.n_kv_heads * config.head_dim * S * bytes_each


# %% exercise 1: one KV head
def cache_bytes(config, S, bytes_each):
    return 2 * config.n_layers * config.head_dim * S * bytes_each


# %% exercise 1: found 2147483648, wanted 4294967296
def cache_bytes(config, S, bytes_each):
    width = config.n_kv_heads * config.head_dim
    return 2 * config.n_layers * width * S


# %% exercise 1: wanted 4294967296
def cache_bytes(config, S, bytes_each):
    return 4294967295.0 * 0.9


# %% exercise 2: the first T positions
def mask_by_positions(T, S):
    query, key = torch.arange(T)[:, None], torch.arange(S)
    return torch.where(key <= query, 0.0, float("-inf"))


# %% exercise 2: do not see themselves
def mask_by_positions(T, S):
    query, key = torch.arange(S - T, S)[:, None], torch.arange(S)
    return torch.where(key < query, 0.0, float("-inf"))


# %% exercise 2: see the later ones
def mask_by_positions(T, S):
    query, key = torch.arange(S - T, S)[:, None], torch.arange(S)
    return torch.where(key >= query, 0.0, float("-inf"))


# %% exercise 2: it is added to the scores
def mask_by_positions(T, S):
    query, key = torch.arange(S - T, S)[:, None], torch.arange(S)
    return key <= query


# %% exercise 2: the 1 must be -inf
def mask_by_positions(T, S):
    query, key = torch.arange(S - T, S)[:, None], torch.arange(S)
    return (key > query).float()


# %% exercise 2: found (4,), wanted (4, 4)
def mask_by_positions(T, S):
    return torch.zeros(S)


# %% exercise 2: found -1000000000.0, wanted -inf
def mask_by_positions(T, S):
    query, key = torch.arange(S - T, S)[:, None], torch.arange(S)
    return torch.where(key <= query, 0.0, -1e9)


# %% exercise 3: your heads alternate
def one_head(xq, xk, xv, h):
    g = h % xk.shape[1]
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(xq.shape[-1])
    return (scores + causal_mask(len(xq))).softmax(-1) @ xv[:, g]


# %% exercise 3: all your heads have KV head 0
def one_head(xq, xk, xv, h):
    scores = xq[:, h] @ xk[:, 0].T / math.sqrt(xq.shape[-1])
    return (scores + causal_mask(len(xq))).softmax(-1) @ xv[:, 0]


# %% exercise 3: √D
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(H * hd)
    return (scores + causal_mask(T)).softmax(-1) @ xv[:, g]


# %% exercise 3: wanted its square root
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / hd
    return (scores + causal_mask(T)).softmax(-1) @ xv[:, g]


# %% exercise 3: you do not divide
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T
    return (scores + causal_mask(T)).softmax(-1) @ xv[:, g]


# %% exercise 3: the mask is missing
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 3: your columns sum to 1
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return (scores + causal_mask(T)).softmax(0) @ xv[:, g]


# %% exercise 3: h // (H // KV)
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // KV
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return (scores + causal_mask(T)).softmax(-1) @ xv[:, g]


# %% exercise 3: this checkpoint's hd
def one_head(xq, xk, xv, h):
    (T, H, _), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return (scores + causal_mask(T)).softmax(-1) @ xv[:, g]


# %% exercise 3: do not see themselves
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    visible = torch.ones(T, T).tril(-1).bool()
    return scores.where(visible, -math.inf).softmax(-1) @ xv[:, g]


# %% exercise 3: a score set to 0
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return scores.tril().softmax(-1) @ xv[:, g]


# %% exercise 3: weights set to 0 after the softmax
def one_head(xq, xk, xv, h):
    (T, H, hd), KV = xq.shape, xk.shape[1]
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return scores.softmax(-1).tril() @ xv[:, g]


# %% exercise 3: found (7, 6, 8), wanted (7, 8)
def one_head(xq, xk, xv, h):
    return xq


# %% exercise 4: you kept the pieces
def streamed(q, pieces):
    k, v = map(torch.cat, zip(*list(pieces)))
    return (k @ q / math.sqrt(len(q))).softmax(-1) @ v


# %% exercise 4: you average the pieces
def streamed(q, pieces):
    each = [(k @ q / len(q) ** 0.5).softmax(-1) @ v for k, v in pieces]
    return torch.stack(each).mean(0)


# %% exercise 4: each piece has its own maximum
def streamed(q, pieces):
    total, mixed = 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        e = (scores - scores.max()).exp()
        total, mixed = total + e.sum(), mixed + e @ v
    return mixed / total


# %% exercise 4: rescale what was summed before
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        top = torch.maximum(top, scores.max())
        e = (scores - top).exp()
        total, mixed = total + e.sum(), mixed + e @ v
    return mixed / total


# %% exercise 4: but not the sum of the weights
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        new = torch.maximum(top, scores.max())
        e = (scores - new).exp()
        total = total + e.sum()
        mixed, top = mixed * (top - new).exp() + e @ v, new
    return mixed / total


# %% exercise 4: but not the values so far
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        new = torch.maximum(top, scores.max())
        e = (scores - new).exp()
        total = total * (top - new).exp() + e.sum()
        mixed, top = mixed + e @ v, new
    return mixed / total


# %% exercise 4: your exponentials overflow
def streamed(q, pieces):
    total, mixed = 0.0, 0.0
    for k, v in pieces:
        e = (k @ q / math.sqrt(len(q))).exp()
        total, mixed = total + e.sum(), mixed + e @ v
    return mixed / total


# %% exercise 4: you do not divide the scores by √hd
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q
        new = torch.maximum(top, scores.max())
        e, shrink = (scores - new).exp(), (top - new).exp()
        total, mixed = total * shrink + e.sum(), mixed * shrink + e @ v
        top = new
    return mixed / total


# %% exercise 4: start the maximum at -inf
def streamed(q, pieces):
    top, total, mixed = torch.tensor(0.0), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        new = torch.maximum(top, scores.max())
        e, shrink = (scores - new).exp(), (top - new).exp()
        total, mixed = total * shrink + e.sum(), mixed * shrink + e @ v
        top = new
    return mixed / total


# %% exercise 4: factor upside down
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        new = torch.maximum(top, scores.max())
        e, grow = (scores - new).exp(), (new - top).exp()
        total, mixed = total * grow + e.sum(), mixed * grow + e @ v
        top = new
    return mixed / total
