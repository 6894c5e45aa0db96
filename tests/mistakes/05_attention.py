"""Mistakes in the exercises of notebook 05, with words of the check."""


# %% exercise 1: for every query head
def tokens_that_fit(config, free, bytes_each):
    return free // (2 * config.n_layers * config.dim * bytes_each)


# %% exercise 1: keys or values
def tokens_that_fit(config, free, bytes_each):
    width = config.n_kv_heads * config.head_dim
    return free // (config.n_layers * width * bytes_each)


# %% exercise 1: one layer
def tokens_that_fit(config, free, bytes_each):
    return free // (2 * config.n_kv_heads * config.head_dim * bytes_each)


# %% exercise 1: one KV head
def tokens_that_fit(config, free, bytes_each):
    return free // (2 * config.n_layers * config.head_dim * bytes_each)


# %% exercise 1: numbers, not their bytes
def tokens_that_fit(config, free, bytes_each):
    width = config.n_kv_heads * config.head_dim
    return free // (2 * config.n_layers * width)


# %% exercise 1: expected head_dim
def tokens_that_fit(config, free, bytes_each):
    width = config.n_kv_heads * (config.dim // config.n_heads)
    return free // (2 * config.n_layers * width * bytes_each)


# %% exercise 1: round down
def tokens_that_fit(config, free, bytes_each):
    width = config.n_kv_heads * config.head_dim
    return free / (2 * config.n_layers * width * bytes_each)


# %% exercise 1: round down
def tokens_that_fit(config, free, bytes_each):
    width = config.n_kv_heads * config.head_dim
    return math.ceil(free / (2 * config.n_layers * width * bytes_each))


# %% exercise 1: the result is 412852; expected another number
def tokens_that_fit(config, free, bytes_each):
    return 412852


# %% exercise 2: your heads alternate
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h % KV
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: all your heads have KV head 0
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = 0
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: h // (H // KV)
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // KV
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: this checkpoint's groups
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = min(h // n_rep, KV - 1)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: √D
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(H * hd)
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: expected its square root
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / hd
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: you do not divide
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: this checkpoint's hd
def one_head(xq, xk, xv, h):
    (T, H, _), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: the mask is missing
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: your queries are the first T positions
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    scores = scores + torch.full((T, S), -math.inf).triu(1)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: do not see themselves
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    scores = scores + torch.full((T, S), -math.inf).triu(S - T)
    return scores.softmax(-1) @ xv[:, g]


# %% exercise 2: the later ones alone
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    hidden = torch.ones(T, S).tril(S - T - 1).bool()
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ xv[:, g]


# %% exercise 2: a score set to 0
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return scores.tril(S - T).softmax(-1) @ xv[:, g]


# %% exercise 2: weights set to 0 after the softmax
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    return scores.softmax(-1).tril(S - T) @ xv[:, g]


# %% exercise 2: your columns sum to 1
def one_head(xq, xk, xv, h):
    (T, H, hd), (S, KV, _) = xq.shape, xk.shape
    g = h // (H // KV)
    scores = xq[:, h] @ xk[:, g].T / math.sqrt(hd)
    scores = scores + torch.full((T, S), -math.inf).triu(S - T + 1)
    return scores.softmax(0) @ xv[:, g]


# %% exercise 2: the result has shape (6, 12, 10); expected (6, 10)
def one_head(xq, xk, xv, h):
    return xq


# %% exercise 2: your code raises IndexError
def one_head(xq, xk, xv, h):
    return xv[:, h]


# %% exercise 3: you keep the pieces
def streamed(q, pieces):
    k, v = map(torch.cat, zip(*list(pieces)))
    return (k @ q / math.sqrt(len(q))).softmax(-1) @ v


# %% exercise 3: you average the pieces
def streamed(q, pieces):
    each = [(k @ q / len(q) ** 0.5).softmax(-1) @ v for k, v in pieces]
    return torch.stack(each).mean(0)


# %% exercise 3: each piece has its own maximum
def streamed(q, pieces):
    total, mixed = 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        e = (scores - scores.max()).exp()
        total, mixed = total + e.sum(), mixed + e @ v
    return mixed / total


# %% exercise 3: rescale both sums when the maximum grows
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        top = torch.maximum(top, scores.max())
        e = (scores - top).exp()
        total, mixed = total + e.sum(), mixed + e @ v
    return mixed / total


# %% exercise 3: you rescale the values so far, but not the sum
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        new = torch.maximum(top, scores.max())
        e = (scores - new).exp()
        total = total + e.sum()
        mixed, top = mixed * (top - new).exp() + e @ v, new
    return mixed / total


# %% exercise 3: but not the values so far
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        new = torch.maximum(top, scores.max())
        e = (scores - new).exp()
        total = total * (top - new).exp() + e.sum()
        mixed, top = mixed + e @ v, new
    return mixed / total


# %% exercise 3: your exponentials overflow
def streamed(q, pieces):
    total, mixed = 0.0, 0.0
    for k, v in pieces:
        e = (k @ q / math.sqrt(len(q))).exp()
        total, mixed = total + e.sum(), mixed + e @ v
    return mixed / total


# %% exercise 3: you do not divide the scores by √hd
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q
        new = torch.maximum(top, scores.max())
        e, shrink = (scores - new).exp(), (top - new).exp()
        total, mixed = total * shrink + e.sum(), mixed * shrink + e @ v
        top = new
    return mixed / total


# %% exercise 3: start the maximum at -inf
def streamed(q, pieces):
    top, total, mixed = torch.tensor(0.0), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        new = torch.maximum(top, scores.max())
        e, shrink = (scores - new).exp(), (top - new).exp()
        total, mixed = total * shrink + e.sum(), mixed * shrink + e @ v
        top = new
    return mixed / total


# %% exercise 3: factor upside down
def streamed(q, pieces):
    top, total, mixed = torch.tensor(float("-inf")), 0.0, 0.0
    for k, v in pieces:
        scores = k @ q / math.sqrt(len(q))
        new = torch.maximum(top, scores.max())
        e, grow = (scores - new).exp(), (new - top).exp()
        total, mixed = total * grow + e.sum(), mixed * grow + e @ v
        top = new
    return mixed / total
