"""Unusual right answers to the exercises of notebook 05."""


# %% exercise 1: a float, rounded down
def tokens_that_fit(config, free, bytes_each):
    cache = llamalib.KVCache(config, 1, dtype=torch.int8)
    return float(math.floor(free / (cache.nbytes * bytes_each)))


# %% exercise 2: in place, -1e9 in the place of -inf
def one_head(xq, xk, xv, h):
    g = h // (xq.shape[1] // xk.shape[1])
    scores = xq[:, h] @ xk[:, g].T
    scores /= xq.shape[2] ** 0.5
    scores += causal_mask(*scores.shape).clamp(min=-1e9)
    scores -= scores.max(dim=-1, keepdim=True).values
    weights = scores.exp_()
    weights /= weights.sum(-1, keepdim=True)
    return torch.einsum("ts,sd->td", weights, xv[:, g])


# %% exercise 3: one key at a time, in Python's numbers
def streamed(q, pieces):
    top, total, mixed = -math.inf, 0.0, [0.0] * len(q)
    for k, v in pieces:
        for key, value in zip(k.tolist(), v.tolist()):
            dot = math.fsum(a * b for a, b in zip(key, q.tolist()))
            score = dot / len(q) ** 0.5
            new = max(top, score)
            old, share = math.exp(top - new), math.exp(score - new)
            total = total * old + share
            mixed = [m * old + share * x for m, x in zip(mixed, value)]
            top = new
    return [m / total for m in mixed]


# %% exercise 3: the logarithm of the sum, in float64
def streamed(q, pieces):
    log_total, mean = torch.tensor(-math.inf).double(), 0
    for k, v in pieces:
        scores = k.double() @ q.double() / math.sqrt(len(q))
        piece = scores.logsumexp(0)
        new = torch.logaddexp(log_total, piece)
        mean = mean * (log_total - new).exp()
        mean = mean + (scores - new).exp() @ v.double()
        log_total = new
    return mean
