"""Mistakes in the exercises of appendix C, with words of the check."""
# ruff: noqa: F811, F821


# %% exercise 1: you left out the router
def expert_sizes(D, F, L, E, k, shared):
    return L * (E + shared) * 3 * D * F, L * (k + shared) * 3 * D * F


# %% exercise 1: shared experts are missing
def expert_sizes(D, F, L, E, k, shared):
    return L * (E * 3 * D * F + E * D), L * (k * 3 * D * F + E * D)


# %% exercise 1: an expert has three matrices
def expert_sizes(D, F, L, E, k, shared):
    each = 2 * D * F
    return tuple(L * ((n + shared) * each + E * D) for n in (E, k))


# %% exercise 1: you counted one layer
def expert_sizes(D, F, L, E, k, shared):
    return tuple((n + shared) * 3 * D * F + E * D for n in (E, k))


# %% exercise 1: total comes first
def expert_sizes(D, F, L, E, k, shared):
    return tuple(L * ((n + shared) * 3 * D * F + E * D) for n in (k, E))


# %% exercise 1: the result has shape (3,); expected (3, 2)
def expert_sizes(D, F, L, E, k, shared):
    return L * ((E + shared) * 3 * D * F + E * D)


# %% exercise 1: a value is
def expert_sizes(D, F, L, E, k, shared):
    return 1, 1


# %% exercise 1: a value is 0.4
def expert_sizes(D, F, L, E, k, shared):
    each = 3 * D * F
    total, active = (L * ((n + shared) * each + E * D) for n in (E, k))
    return total + 0.4, active


# %% exercise 1: the result has shape (3, 2, 3); expected (3, 2)
def expert_sizes(D, F, L, E, k, shared):
    return torch.ones(2, 3)


# %% exercise 2: these sum to less than 1
def expert_weights(logits, k):
    probs = logits.softmax(-1)
    best, chosen = probs.topk(k)
    return torch.zeros_like(probs).scatter(-1, chosen, best)


# %% exercise 2: logits are -inf, not 0
def expert_weights(logits, k):
    best, chosen = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, chosen, best).softmax(-1)


# %% exercise 2: all experts have a weight
def expert_weights(logits, k):
    return logits.softmax(-1)


# %% exercise 2: these are the chosen alone
def expert_weights(logits, k):
    return logits.topk(k).values.softmax(-1)


# %% exercise 2: the result has shape (3,); expected (5, 4)
def expert_weights(logits, k):
    return torch.ones(3)


# %% exercise 2: the result: a value is
def expert_weights(logits, k):
    best, chosen = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, chosen, 1 / k)


# %% exercise 3: f sums to k
def balance(logits, chosen):
    n = logits.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=n) / len(chosen)
    return n * (f * logits.softmax(-1).mean(0)).sum()


# %% exercise 3: count all k choices
def balance(logits, chosen):
    n = logits.shape[-1]
    f = torch.bincount(chosen[:, 0], minlength=n) / len(chosen)
    return n * (f * logits.softmax(-1).mean(0)).sum()


# %% exercise 3: you left out the factor E
def balance(logits, chosen):
    n = logits.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=n) / chosen.numel()
    return (f * logits.softmax(-1).mean(0)).sum()


# %% exercise 3: you took P twice
def balance(logits, chosen):
    return logits.shape[-1] * logits.softmax(-1).mean(0).square().sum()


# %% exercise 3: you took f twice
def balance(logits, chosen):
    n = logits.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=n) / chosen.numel()
    return n * f.square().sum()


# %% exercise 3: take the mean after the softmax
def balance(logits, chosen):
    n = logits.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=n) / chosen.numel()
    return n * (f * logits.mean(0).softmax(-1)).sum()


# %% exercise 3: the result is a tensor (4,)
def balance(logits, chosen):
    n = logits.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=n) / chosen.numel()
    return n * f * logits.softmax(-1).mean(0)


# %% exercise 3: your code raises RuntimeError
def balance(logits, chosen):
    f = torch.bincount(chosen.flatten()) / chosen.numel()  # too short
    return logits.shape[-1] * (f * logits.softmax(-1).mean(0)).sum()


# %% exercise 3: expected another number
def balance(logits, chosen):
    return torch.tensor(-3.0)
