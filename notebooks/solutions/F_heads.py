# ruff: noqa
# %% exercise 1
def answer_layer(hidden, weight, output, eps):
    x = rms_norm(hidden[:, -1], weight, eps)  # (L+1, D)
    top = (x @ output.T).argmax(-1).tolist()  # L+1 ids
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k
