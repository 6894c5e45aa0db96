"""Mistakes in the exercise of appendix F, with words of the check."""
# ruff: noqa


# %% exercise 1: first appears
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    return top.tolist().index(top[-1].item())


# %% exercise 1: one too few
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    top = top.tolist()
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k - 1


# %% exercise 1: another is still on top
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    other = (top != top[-1]).nonzero()
    return other.max() if len(other) else 0


# %% exercise 1: one too many
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    top = top.tolist()
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k + 1


# %% exercise 1: weight is left out
def answer_layer(hidden, weight, output, eps):
    top = (hidden[:, -1] @ output.T).argmax(-1).tolist()  # no norm at all
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k


# %% exercise 1: first position
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, 0], weight, eps) @ output.T).argmax(-1)
    top = top.tolist()
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k
