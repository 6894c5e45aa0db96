"""Unusual right answers to the exercises of notebook 08."""


# %% exercise 1: with lists
def top_k_probs(logits, k):
    z = logits.tolist()
    kept = sorted(range(len(z)), key=lambda i: -z[i])[:k]
    total = sum(exp(z[i]) for i in kept)
    return [exp(z[i]) / total if i in kept else 0.0 for i in range(len(z))]


# %% exercise 1: one argmax after another, in place on its own copy
def top_k_probs(logits, k):
    left = logits.clone()
    probs = torch.zeros_like(logits)
    for _ in range(k):
        i = left.argmax()
        probs[i] = logits[i].exp()
        left[i] = float("-inf")
    probs /= probs.sum()
    return probs


# %% exercise 2: through the logarithm
def retemper(probs, T):
    return torch.softmax(probs.log() / T, dim=-1)


# %% exercise 2: a list of floats
def retemper(probs, T):
    powers = [p ** (1 / T) for p in probs.tolist()]
    total = sum(powers)
    return [p / total for p in powers]


# %% exercise 3: row by row, in place on its own copy
def keep_min_p(logits, m):
    found = logits.clone().reshape(-1, logits.shape[-1])
    for row in found:
        probs = row.softmax(-1)
        row[probs < m * probs.max()] = float("-inf")
    return found.reshape(logits.shape)


# %% exercise 3: NumPy, in float64
def keep_min_p(logits, m):
    import numpy as np

    z = logits.numpy().astype(np.float64)
    share = np.exp(z - z.max(-1, keepdims=True))  # of the most likely one's
    return np.where(share >= m, z, -np.inf)
