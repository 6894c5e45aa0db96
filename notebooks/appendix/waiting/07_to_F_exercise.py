"""For F: the exercise `answer_layer` (was 07, exercise 4), in five parts.

Text for the notebook (form of the exercises):

**Exercise N** (30 minutes): when the answer settles. … as in 07_to_F.ipynb,
with an example: if the top tokens after 0 … 4 blocks are A B C B B, the answer
is B and k = 3: it also leads after 1 block, but not after 2.
Hint 1: You need the top token after 0, 1, …, L blocks, at the last position.
Hint 2: Walk from k = L down while the top token after k - 1 blocks is the
final one.
Check cell: `course.check_N(answer_layer, hidden, w["norm.weight"], output,
config.norm_eps)`.
"""

# ---- llamalib/course/nbF.py -------------------------------------------------
import torch

from llamalib import rms_norm
from llamalib.course.judge import agree, exercise


def settled(hidden, weight, output, eps):
    """Return the top tokens after 0 … L blocks, and where the last settles."""
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)  # (L+1,)
    other = (top != top[-1]).nonzero()  # where something different leads
    return top, int(other.max()) + 1 if len(other) else 0


@exercise(1, expects="a whole number, k")
def check_answer_layer(answer_layer, *case):
    """Twenty random streams, then the model's."""
    g = torch.Generator().manual_seed(4)
    cases = []
    for _ in range(20):
        drift = torch.randn(9, 3, 6, generator=g).cumsum(0)  # (L+1, T, D)
        gamma = torch.randn(6, generator=g)
        cases.append((drift, gamma, torch.randn(4, 6, generator=g), 1e-5))
    found = [answer_layer(*each) for each in cases]

    def values(change=lambda h, w, o, e: (h, w, o, e), add=0):
        return [settled(*change(*each))[1] + add for each in cases]

    tops = [settled(*each)[0] for each in cases]
    first = [top.tolist().index(top[-1].item()) for top in tops]
    plain = values(lambda h, w, o, e: (h, torch.ones_like(w), o, e))
    start = values(lambda h, w, o, e: (h[:, :1], w, o, e))
    less = values(add=-1)
    mistakes = [
        ("this is where it first appears: it must stay", first),
        ("one too few: k counts blocks, hidden[0] is k = 0", less),
        ("one too many: k counts blocks, hidden[0] is k = 0", values(add=1)),
        ("one too few: after k blocks another is still on top",
         [max(k, 0) for k in less]),
        ("the final norm's weight is left out", plain),
        ("this is the first position; expected the last", start),
    ]
    agree(found, values(), mistakes)
    agree(answer_layer(*case), settled(*case)[1])


# ---- notebooks/solutions and tests/mistakes, unchanged ----------------------
# %% exercise 4
def answer_layer(hidden, weight, output, eps):
    x = rms_norm(hidden[:, -1], weight, eps)  # (L+1, D)
    top = (x @ output.T).argmax(-1).tolist()  # L+1 ids
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k


# %% exercise 4: first appears
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    return top.tolist().index(top[-1].item())


# %% exercise 4: one too few
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    top = top.tolist()
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k - 1


# %% exercise 4: another is still on top
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    other = (top != top[-1]).nonzero()
    return other.max() if len(other) else 0


# %% exercise 4: one too many
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, -1], weight, eps) @ output.T).argmax(-1)
    top = top.tolist()
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k + 1


# %% exercise 4: weight is left out
def answer_layer(hidden, weight, output, eps):
    top = (hidden[:, -1] @ output.T).argmax(-1).tolist()  # no norm at all
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k


# %% exercise 4: first position
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden[:, 0], weight, eps) @ output.T).argmax(-1)
    top = top.tolist()
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k


# ---- tests/right --------------------------------------------------------------
# %% exercise 4: with loops, without argmax over tensors
def answer_layer(hidden, weight, output, eps):
    tops = []
    for x in hidden[:, -1]:
        logits = (output @ rms_norm(x, weight, eps)).tolist()
        tops.append(logits.index(max(logits)))
    while len(tops) > 1 and tops[-2] == tops[-1]:
        tops.pop()
    return len(tops) - 1


# %% exercise 4: as a tensor
def answer_layer(hidden, weight, output, eps):
    top = (rms_norm(hidden, weight, eps) @ output.T).argmax(-1)[:, -1]
    same = (top == top[-1]).flip(0).cumprod(0).sum()
    return len(top) - same


# %% exercise 4: with NumPy
def answer_layer(hidden, weight, output, eps):
    import numpy as np

    x = hidden[:, -1].double()
    x = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight
    top = np.argmax((x @ output.T.double()).numpy(), axis=-1)
    different = np.flatnonzero(top != top[-1])
    return different[-1] + 1 if different.size else 0
