# ruff: noqa
# %% exercise 1: you left out the router
def expert_sizes(D, F, L, E, k, shared):
    return L * (E + shared) * 3 * D * F, L * (k + shared) * 3 * D * F


# %% exercise 1: you left out the shared experts
def expert_sizes(D, F, L, E, k, shared):
    return L * (E * 3 * D * F + E * D), L * (k * 3 * D * F + E * D)


# %% exercise 1: an expert has three matrices
def expert_sizes(D, F, L, E, k, shared):
    each = 2 * D * F
    return tuple(L * ((n + shared) * each + E * D) for n in (E, k))


# %% exercise 1: you counted one layer
def expert_sizes(D, F, L, E, k, shared):
    return tuple((n + shared) * 3 * D * F + E * D for n in (E, k))


# %% exercise 1: the active come second
def expert_sizes(D, F, L, E, k, shared):
    return tuple(L * ((n + shared) * 3 * D * F + E * D) for n in (k, E))


# %% exercise 1: a token meets the whole router
def expert_sizes(D, F, L, E, k, shared):
    return tuple(L * ((n + shared) * 3 * D * F + n * D) for n in (E, k))


# %% exercise 1: all shared experts are active too
def expert_sizes(D, F, L, E, k, shared):
    each = 3 * D * F
    return L * ((E + shared) * each + E * D), L * (k * each + E * D)


# %% exercise 1: wanted a pair of numbers
def expert_sizes(D, F, L, E, k, shared):
    return L * ((E + shared) * 3 * D * F + E * D)


# %% exercise 1: wanted (462336,
def expert_sizes(D, F, L, E, k, shared):
    return 1, 1


# %% exercise 1: wanted (462336,
def expert_sizes(D, F, L, E, k, shared):
    each = 3 * D * F
    total, active = (L * ((n + shared) * each + E * D) for n in (E, k))
    return total + 0.4, active


# %% exercise 1: wanted a pair of numbers
def expert_sizes(D, F, L, E, k, shared):
    return torch.ones(2, 3)


# %% exercise 2: these sum to less than 1
def expert_weights(logits, k):
    probs = logits.softmax(-1)
    best, chosen = probs.topk(k)
    return torch.zeros_like(probs).scatter(-1, chosen, best)


# %% exercise 2: e^0 is 1
def expert_weights(logits, k):
    best, chosen = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, chosen, best).softmax(-1)


# %% exercise 2: you took the k smallest
def expert_weights(logits, k):
    best, chosen = logits.topk(k, largest=False)
    return torch.zeros_like(logits).scatter(-1, chosen, best.softmax(-1))


# %% exercise 2: all experts have a weight
def expert_weights(logits, k):
    return logits.softmax(-1)


# %% exercise 2: the weights of the chosen alone
def expert_weights(logits, k):
    return logits.topk(k).values.softmax(-1)


# %% exercise 2: each token chooses among the experts
def expert_weights(logits, k):
    best, chosen = logits.topk(min(k, len(logits)), dim=0)
    cut = torch.full_like(logits, -torch.inf).scatter(0, chosen, best)
    return cut.softmax(-1).nan_to_num()


# %% exercise 2: shape (3,), wanted (5, 4)
def expert_weights(logits, k):
    return torch.ones(3)


# %% exercise 2: a weight is wrong
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


# %% exercise 3: count the experts in `chosen`
def balance(logits, chosen):
    n = logits.shape[-1]
    chosen = logits.topk(chosen.shape[-1]).indices
    f = torch.bincount(chosen.flatten(), minlength=n) / chosen.numel()
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


# %% exercise 3: softmax each token's logits
def balance(logits, chosen):
    n = logits.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=n) / chosen.numel()
    return n * (f * logits.mean(0).softmax(-1)).sum()


# %% exercise 3: wanted one number
def balance(logits, chosen):
    n = logits.shape[-1]
    f = torch.bincount(chosen.flatten(), minlength=n) / chosen.numel()
    return n * f * logits.softmax(-1).mean(0)


# %% exercise 3: wanted one number
def balance(logits, chosen):
    f = torch.bincount(chosen.flatten()) / chosen.numel()  # too short
    return logits.shape[-1] * (f * logits.softmax(-1).mean(0)).sum()


# %% exercise 3: wanted 1.
def balance(logits, chosen):
    return torch.tensor(-3.0)


# %% exercise 4: serve a token's second choice before
def passed_by(chosen, n_experts, capacity):
    asked, served = [0] * n_experts, set()
    for picks in chosen.T.tolist():
        for t, e in enumerate(picks):
            if asked[e] < capacity:
                served.add(t)
            asked[e] += 1
    return [t for t in range(len(chosen)) if t not in served]


# %% exercise 4: all of them
def passed_by(chosen, n_experts, capacity):
    kept = within_capacity(chosen, n_experts, capacity)
    return (~kept).any(-1).nonzero().flatten().tolist()


# %% exercise 4: those are the tokens that are served
def passed_by(chosen, n_experts, capacity):
    kept = within_capacity(chosen, n_experts, capacity)
    return kept.any(-1).nonzero().flatten().tolist()


# %% exercise 4: one place too many
def passed_by(chosen, n_experts, capacity):
    asked, passed = [0] * n_experts, []
    for t, picks in enumerate(chosen.tolist()):
        served = [asked[e] <= capacity for e in picks]
        for e in picks:
            asked[e] += 1
        if not any(served):
            passed.append(t)
    return passed


# %% exercise 4: one place too few
def passed_by(chosen, n_experts, capacity):
    asked, passed = [0] * n_experts, []
    for t, picks in enumerate(chosen.tolist()):
        for e in picks:
            asked[e] += 1
        if not any(asked[e] < capacity for e in picks):
            passed.append(t)
    return passed


# %% exercise 4: wanted a list
def passed_by(chosen, n_experts, capacity):
    return 3


# %% exercise 4: wanted [
def passed_by(chosen, n_experts, capacity):
    return []
