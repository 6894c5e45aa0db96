r"""Checks of the exercises of appendix A: a mask, a batch in parts."""

import torch
import torch.nn.functional as F

from .judge import Wrong, agree, draws, exercise, vary

NONE = -100  # where there is no label


@exercise(1, expects="a tensor (T, T) of booleans")
def check_1(same_text_mask):
    up, more = vary((0, []), (1, [1, 9]), (3, [4, 1, 1, 6]), (2, [5, 1, 3]))
    for row, begin in (([1, 5, 6, 1, 7, 1], 1), ([5, 6, 3, 3, 1], 3)):
        row, begin = torch.tensor([i + up for i in row] + more), begin + up
        text = (row == begin).cumsum(0)  # (T,)
        same = text[:, None] == text  # (T, T)
        causal = torch.ones_like(same).tril()
        right = same & causal
        additive = torch.zeros(right.shape).masked_fill(~right, -torch.inf)
        mistakes = [
            ("the other way round: True is where a query may look", ~right),
            ("a query sees later tokens of its text", same),
            ("a query sees the texts before its own", causal),
            ("rows and columns are exchanged: a row is a query", right.T),
            ("a query may see itself too", right.tril(-1)),
            ("text before the first begin is a text too", right & (text > 0)),
            ("expected booleans, not a mask to add to scores", additive),
        ]
        agree(same_text_mask(row, begin), right, mistakes)


@exercise(2, expects="a tensor with one number")
def check_2(loss_of_parts):
    g, (V, more) = draws(3), vary((7, 0), (5, 2), (9, 1), (4, 3))
    parts, sums, counts = [], [], [11, 2, 0, 5]
    for (B, T), n in zip(((2, 6), (3, 4), (1, 5), (2, 3)), counts):
        T += more
        z = 3 * torch.randn(B, T, V, generator=g)
        y = torch.randint(V, (B, T), generator=g)
        y.view(-1)[torch.randperm(B * T, generator=g)[n:]] = NONE
        parts.append((z.requires_grad_(), y))
        flat = z.flatten(0, 1), y.flatten()
        sums.append(F.cross_entropy(*flat, reduction="sum").item())
    for some in ([0, 1], [3], [0, 1, 2, 3]):
        total, n = (sum(x[i] for i in some) for x in (sums, counts))
        means = [sums[i] / counts[i] for i in some if counts[i]]
        every, given = sum(means), [parts[i] for i in some]
        mistakes = [
            ("a mean of means: few labels count too much", every / len(means)),
            ("a mean of means, one of them 0", every / len(some)),
            ("you divide by all positions: only labels count",
             total / sum(y.numel() for _, y in given)),
            ("this is the sum; expected the mean", total),
            ("this is a sum of means", every),
            ("nan: a part without a label has no mean", torch.nan),
        ]  # fmt: skip
        found = loss_of_parts(given)
        agree(found, total / n, mistakes)
        if not getattr(found, "requires_grad", False):
            raise Wrong("the number is right, but backward cannot reach it")
