"""Mistakes in the exercises of appendix F, with words of the check."""
# ruff: noqa


# %% exercise 1: this is the weight on the same token
def induction_score(weights, ids):
    sums = []
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        if earlier:
            sums.append(sum(weights[t, s].item() for s in earlier))
    return sum(sums) / len(sums) if sums else 0.0


# %% exercise 1: the token before the earlier one
def induction_score(weights, ids):
    sums = []
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        if earlier:
            sums.append(sum(weights[t, s - 1].item() for s in earlier))
    return sum(sums) / len(sums) if sums else 0.0


# %% exercise 1: only the latest earlier one
def induction_score(weights, ids):
    sums = []
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        if earlier:
            sums.append(weights[t, earlier[-1] + 1].item())
    return sum(sums) / len(sums) if sums else 0.0


# %% exercise 1: only the first earlier one
def induction_score(weights, ids):
    sums = []
    for t in range(len(ids)):
        if ids[t] in ids[:t]:
            sums.append(weights[t, ids.index(ids[t]) + 1].item())
    return sum(sums) / len(sums) if sums else 0.0


# %% exercise 1: divide by the positions that repeat
def induction_score(weights, ids):
    total = 0
    for t in range(len(ids)):
        for s in range(t):
            if ids[s] == ids[t]:
                total += weights[t, s + 1].item()
    return total / len(ids)


# %% exercise 1: the sum over positions
def induction_score(weights, ids):
    total = 0
    for t in range(len(ids)):
        for s in range(t):
            if ids[s] == ids[t]:
                total += weights[t, s + 1].item()
    return total


# %% exercise 1: rows are queries
def induction_score(weights, ids):
    sums = []
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        if earlier:
            sums.append(sum(weights[s + 1, t].item() for s in earlier))
    return sum(sums) / len(sums) if sums else 0.0


# %% exercise 1: division by zero
def induction_score(weights, ids):
    sums = []
    for t in range(len(ids)):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        if earlier:
            sums.append(sum(weights[t, s + 1].item() for s in earlier))
    return sum(sums) / len(sums)


# %% exercise 2: it must stay
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    return top.tolist().index(top[-1].item())


# %% exercise 2: another still leads
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    other = (top != top[-1]).nonzero()
    return other.max() if len(other) else 0


# %% exercise 2: one too many
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    top = top.tolist()
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k + 1


# %% exercise 2: weight is left out
def answer_layer(hidden, weight, output, eps):
    top = (hidden[:, -1] @ output.T).argmax(-1).tolist()  # no norm at all
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k


# %% exercise 2: expected the last position
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, 0], weight, eps) @ output.T).argmax(-1)
    top = top.tolist()
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k
