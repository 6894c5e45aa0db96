"""Solutions to the exercises of 08_sampling: each replaces its stub."""


# %% exercise 1
import torch


def top_k_probs(logits, k):
    # a stable sort leaves tied logits in the order of their ids
    best, kept = logits.sort(descending=True, stable=True)
    probs = best[:k].softmax(-1)  # the softmax renormalizes
    return torch.zeros_like(logits).index_copy(0, kept[:k], probs)


# %% exercise 2
def retemper(probs, temperature):
    powers = (probs / probs.max()) ** (1 / temperature)  # the largest stays 1
    return powers / powers.sum()


# %% exercise 3
def keep_min_p(logits, m):
    probs = logits.softmax(-1)
    bar = m * probs.amax(-1, keepdim=True)
    return logits.masked_fill(probs < bar, float("-inf"))
