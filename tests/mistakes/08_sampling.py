"""Mistakes in the exercises of notebook 08, with words of the check."""


# %% exercise 1: you kept the k smallest
def top_k_probs(logits, k):
    worst, at = (-logits).topk(k)
    return torch.zeros_like(logits).index_copy(0, at, (-worst).softmax(-1))


# %% exercise 1: you did not renormalize
def top_k_probs(logits, k):
    probs = logits.softmax(-1)
    return torch.where(probs < probs.topk(k).values[-1], 0, probs)


# %% exercise 1: you set the cut logits to 0
def top_k_probs(logits, k):
    least = logits.topk(k).values[-1]
    return logits.masked_fill(logits < least, 0).softmax(-1)


# %% exercise 1: these are still logits
def top_k_probs(logits, k):
    least = logits.topk(k).values[-1]
    return logits.masked_fill(logits < least, float("-inf"))


# %% exercise 1: has shape (7,); expected (50,)
def top_k_probs(logits, k):
    return logits.topk(k).values.softmax(-1)


# %% exercise 1: you kept 8 tokens, for k = 7
def top_k_probs(logits, k):
    least = logits.sort(descending=True).values[min(k, len(logits) - 1)]
    return logits.masked_fill(logits < least, float("-inf")).softmax(-1)


# %% exercise 1: you kept 6 tokens, for k = 7
def top_k_probs(logits, k):
    least = logits.topk(k).values[-1]
    return logits.masked_fill(logits <= least, float("-inf")).softmax(-1)


# %% exercise 1: k = 7: the result: a value is
def top_k_probs(logits, k):
    found = torch.zeros_like(logits)
    found[:k] = logits.topk(k).values.softmax(-1)
    return found


# %% exercise 1: you kept 49 tokens, for k = 50
def top_k_probs(logits, k):
    least = logits.sort(descending=True).values[min(k, len(logits) - 1)]
    return logits.masked_fill(logits <= least, float("-inf")).softmax(-1)


# %% exercise 1: you kept 50 tokens, for k = 7
def top_k_probs(logits, k):
    return logits.softmax(-1)


# %% exercise 1: you kept every logit that ties
def top_k_probs(logits, k):
    least = logits.topk(k).values[-1]
    return logits.masked_fill(logits < least, float("-inf")).softmax(-1)


# %% exercise 1: of tied logits keep the first ids
def top_k_probs(logits, k):
    kept = logits.argsort(stable=True)[-k:]
    probs = logits[kept].softmax(-1)
    return torch.zeros_like(logits).index_copy(0, kept, probs)


# %% exercise 1: your function changes its argument logits
def top_k_probs(logits, k):
    kept = logits.sort(descending=True, stable=True).indices[:k]
    probs = logits[kept].softmax(-1)
    logits.zero_()
    logits[kept] = probs
    return logits


# %% exercise 2: you divided the probabilities, not the logits
def retemper(probs, T):
    return (probs / T) / (probs / T).sum()


# %% exercise 2: you took the softmax of probabilities
def retemper(probs, T):
    return torch.softmax(probs / T, dim=-1)


# %% exercise 2: you took the power T
def retemper(probs, T):
    return probs**T / (probs**T).sum()


# %% exercise 2: you divided the probabilities, not the logits
def retemper(probs, T):
    return probs / T


# %% exercise 2: your function changes its argument probs
def retemper(probs, T):
    probs **= 1 / T
    return probs / probs.sum()


# %% exercise 2: the result is
def retemper(probs, T):
    return str(probs ** (1 / T))


# %% exercise 2: not normalized
def retemper(probs, T):
    return probs ** (1 / T)


# %% exercise 2: the softmax is missing
def retemper(probs, T):
    return probs.log() / T


# %% exercise 3: you set the others to 0
def keep_min_p(logits, m):
    probs = logits.softmax(-1)
    return torch.where(probs < m * probs.amax(-1, keepdim=True), 0, probs)


# %% exercise 3: you set the others to 0
def keep_min_p(logits, m):
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < m * probs.amax(-1, keepdim=True), 0)


# %% exercise 3: your function changes its argument logits
def keep_min_p(logits, m):
    probs = logits.softmax(-1)
    logits[probs < m * probs.amax(-1, keepdim=True)] = float("-inf")
    return logits


# %% exercise 3: you compared with m
def keep_min_p(logits, m):
    return logits.masked_fill(logits.softmax(-1) < m, float("-inf"))


# %% exercise 3: you compared logits
def keep_min_p(logits, m):
    bar = m * logits.amax(-1, keepdim=True)
    return logits.masked_fill(logits < bar, float("-inf"))


# %% exercise 3: each row has its own maximum
def keep_min_p(logits, m):
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < m * probs.max(), float("-inf"))


# %% exercise 3: at least is >=, not >
def keep_min_p(logits, m):
    probs = logits.softmax(-1)
    bar = m * probs.amax(-1, keepdim=True)
    return logits.masked_fill(probs <= bar, float("-inf"))


# %% exercise 3: the kept logits must stay
def keep_min_p(logits, m):
    probs = logits.softmax(-1)
    bar = m * probs.amax(-1, keepdim=True)
    return probs.masked_fill(probs < bar, float("-inf"))
