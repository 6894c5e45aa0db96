"""Unusual right answers to the exercise of appendix F."""
# ruff: noqa


# %% exercise 1: with loops, without argmax over tensors
def answer_layer(hidden, weight, output, eps):
    tops = []
    for x in hidden[:, -1]:
        logits = (output @ rms_norm(x, weight, eps)).tolist()
        tops.append(logits.index(max(logits)))
    while len(tops) > 1 and tops[-2] == tops[-1]:
        tops.pop()
    return len(tops) - 1


# %% exercise 1: as a tensor
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden, weight, eps) @ output.T).argmax(-1)[:, -1]
    same = (top == top[-1]).flip(0).cumprod(0).sum()
    return len(top) - same


# %% exercise 1: with NumPy
def answer_layer(hidden, weight, output, eps):
    import numpy as np

    x = hidden[:, -1].double()
    x = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight
    top = np.argmax((x @ output.T.double()).numpy(), axis=-1)
    different = np.flatnonzero(top != top[-1])
    return different[-1] + 1 if different.size else 0
