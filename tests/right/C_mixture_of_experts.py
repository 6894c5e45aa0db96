"""Unusual right answers to the exercises of appendix C."""


# %% exercise 1: counted from the shapes of tensors
import math


def expert_sizes(D, F, L, E, k, shared):
    shapes = [(F, D), (D, F), (F, D)]
    expert = sum(math.prod(shape) for shape in shapes)
    total = sum(E * D + (E + shared) * expert for _ in range(L))
    return total, total - L * (E - k) * expert


# %% exercise 2: writing into zeros, with an index
def expert_weights(logits, k):
    best, chosen = logits.topk(k)
    weights = torch.zeros_like(logits)
    weights[torch.arange(len(logits))[:, None], chosen] = best.softmax(-1)
    return weights


# %% exercise 3: with NumPy, as an array
def balance(logits, chosen):
    import numpy as np

    z = logits.double().numpy()
    P = np.exp(z - np.logaddexp.reduce(z, axis=-1, keepdims=True)).mean(0)
    f = np.bincount(chosen.numpy().ravel(), minlength=len(P)) / chosen.numel()
    return np.array([len(P) * f @ P])[0]


# %% exercise 1: the difference, as a tensor
def expert_sizes(D, F, L, E, k, shared):
    active = 3 * D * F * (k + shared) + torch.arange(1) + E * D
    return torch.cat([active + 3 * D * F * (E - k), active]) * L


# %% exercise 2: minus infinity, where a logit is below the k-th
def expert_weights(logits, k):
    least = logits.sort(descending=True).values[:, k - 1 : k]
    return logits.masked_fill(logits < least, -torch.inf).softmax(-1)


# %% exercise 3: each choice asks for the mean probability of its expert
def balance(logits, chosen):
    P = logits.softmax(-1).mean(0)
    return P[chosen].mean() * len(P)
