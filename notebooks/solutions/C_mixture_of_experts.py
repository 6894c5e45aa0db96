"""Solutions to the exercises of C_mixture_of_experts: each replaces its stub."""

import torch
import torch.nn.functional as F


# %% exercise 1
def expert_sizes(D, F, L, E, k, shared):
    expert = 3 * D * F  # w1, w2, w3
    total = L * ((E + shared) * expert + E * D)
    active = L * ((k + shared) * expert + E * D)
    return total, active


# %% exercise 2
def expert_weights(logits, k):
    chosen = logits.topk(k, dim=-1).indices  # (T, k)
    picked = F.one_hot(chosen, logits.shape[-1]).sum(1)  # (T, E) of 0 and 1
    kept = logits.softmax(-1) * picked  # (T, E)
    return kept / kept.sum(-1, keepdim=True)  # (T, E)


# %% exercise 3
def balance(logits, chosen):
    n_experts = logits.shape[-1]
    counts = torch.bincount(chosen.flatten(), minlength=n_experts)  # (E,)
    f = counts / chosen.numel()  # (E,)
    P = logits.softmax(-1).mean(0)  # (E,)
    return n_experts * (f * P).sum()
