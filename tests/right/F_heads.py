"""Unusual right answers to the exercises of appendix F."""
# ruff: noqa


# %% exercise 1: remembers where each token was
def induction_score(weights, ids):
    from collections import defaultdict

    after, total, count = defaultdict(list), 0, 0
    for t, token in enumerate(ids):
        if after[token]:
            total += weights[t, after[token]].sum()
            count += 1
        after[token].append(t + 1)
    return total / count if count else 0


# %% exercise 2: with loops, without argmax over tensors
def answer_layer(hidden, weight, output, eps):
    tops = []
    for x in hidden[:, -1]:
        logits = (output @ rms_norm(x, weight, eps)).tolist()
        tops.append(logits.index(max(logits)))
    while len(tops) > 1 and tops[-2] == tops[-1]:
        tops.pop()
    return len(tops) - 1
