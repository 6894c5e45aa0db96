# ruff: noqa
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


# %% exercise 4
def passed_by(chosen, n_experts, capacity):
    asked, passed = [0] * n_experts, []
    for t, picks in enumerate(chosen.tolist()):
        served = False
        for e in picks:
            served = served or asked[e] < capacity
            asked[e] += 1
        if not served:
            passed.append(t)
    return passed
