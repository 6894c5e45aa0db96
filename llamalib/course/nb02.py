r"""Checks of the exercises of notebook 02."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from .judge import Wrong, agree, as_tensor, draws, exercise, vary


@exercise(1, "a tensor (B, T, V) of zeros and ones")
def check_1(answer):
    g, n = draws(1), vary(0, 1, 2, 4)
    for shape, V in (((2 + n, 5), 11 + n), ((3 + n, 3 + n), 9 - n)):
        # the largest id is below V - 1
        ids = torch.randint(0, V - 2, shape, generator=g)  # (B, T)
        expected = F.one_hot(ids, V).float()  # (B, T, V)
        found = answer(ids, V)
        agree(found, expected, one_hot_mistakes(ids, expected))
        if isinstance(found, Tensor) and not found.is_floating_point():
            words = "a float32 table cannot be multiplied by it"
            raise Wrong(f"the result is {found.dtype}: {words}")
    return "the product with a table is the lookup"


def one_hot_mistakes(ids: Tensor, expected: Tensor) -> Iterator[tuple]:
    each = torch.arange(expected.shape[-1])  # (V,)
    words = "V is taken from the largest id; use the argument V"
    yield words, F.one_hot(ids)
    yield "V is before T; expected (B, T, V)", expected.mT
    for step in (1, -1):
        yield "the 1 is one index off the id", expected.roll(step, -1)
    for several in (ids[..., None] >= each, ids[..., None] <= each):
        yield "a row has several ones; expected one", several
    yield "zeros and ones are exchanged", 1 - expected


@exercise(2, "the ids of k tokens, nearest first")
def check_2(answer):
    g, n = draws(2), vary(0, 1, 2, 3)
    scale = torch.rand(60 + n, 1, generator=g) * 3 + 0.2
    table = torch.randn(60 + n, 4, generator=g) * scale  # of all lengths
    line = torch.arange(12.0)[:, None] ** 2 * torch.tensor([1.0, 2.0])
    line[2 + n] = line[5 + n]  # two equal rows; whole numbers are exact
    for rows, i, k in ((table, 7 + n, 9), (table, n, 5), (line, 5 + n, 4)):
        found = answer(rows, i, k)
        numbers = as_tensor(found)
        if numbers is not None and i in numbers.flatten().tolist():
            raise Wrong("the token itself is among its neighbours")
        distance = (rows - rows[i]).norm(dim=1)  # (V,)
        distance[i] = torch.inf
        expected = distance.topk(k, largest=False)
        agree(found, expected.indices, distance_mistakes(rows, i, expected))
    return "nearest first"


def distance_mistakes(table: Tensor, i: int, expected) -> Iterator[tuple]:
    values, indices = expected
    for shown in (values, values**2):
        words = "these are distances; expected ids (topk's .indices)"
        yield words, shown
    yield "the furthest of them is first", indices.flip(0)
    yield "the right tokens, but not nearest first", indices.sort().values
    dots, length = table @ table[i], table.norm(dim=1)  # (V,) each
    squares = length**2 - 2 * dots  # |w_i|² is the same for all
    for words, score in (
        ("sorted by cosine: the lengths count here", dots / length),
        ("sorted by dot product: |w_v|² is missing", dots),
        ("these are the furthest; expected the nearest", squares),
        ("the sign of 2 a·b is wrong", -(length**2) - 2 * dots),
        ("2 a·b lacks its 2", dots - length**2),
        ("|w_v| is not squared", 2 * dots - length),
    ):
        score[i] = -torch.inf
        yield words, score.topk(len(indices)).indices


def sinusoids(T: int, D: int) -> Tensor:
    """Return the sines and cosines of T positions, in pairs, (T, D)."""
    angle = torch.arange(T)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


@exercise(3, "a tensor (n, D)")
def check_3(answer):
    n = vary(0, 1, 2, 3)
    for D, start, k in ((8, 3, 5 + n), (12, 20, -7), (16, 11, 2), (8, 4, 0)):
        table = sinusoids(64, D + 4 * n)[n:]
        rows, expected = table[start : start + 9], table[start + k :][:9]
        agree(answer(rows, k), expected, shift_mistakes(rows, k), 1e-3)
    return "each pair rotates by k times its frequency"


def shift_mistakes(rows: Tensor, k: int) -> Iterator[tuple]:
    D, pair = rows.shape[1], torch.arange(0, rows.shape[1], 2)  # 2i
    sin, cos = rows[:, 0::2], rows[:, 1::2]  # (n, D/2)
    angle = k / 10000 ** (pair / D)  # (D/2,)
    yield "nothing has moved", rows
    yield "these are k positions earlier", paired(sin, cos, -angle)
    words = "the pairs are neighbours: columns 2i and 2i + 1, not halves"
    yield words, torch.cat(rotated(*rows.chunk(2, 1), angle), 1)
    words = "pairs count from 0: the first rotates by k"
    yield words, paired(sin, cos, k / 10000 ** ((pair + 2) / D))
    words = "the exponent is i/D; expected 2i/D"
    yield words, paired(sin, cos, k / 10000 ** (pair / 2 / D))
    words = "all sines are before all cosines; expected pairs"
    yield words, torch.cat(rotated(sin, cos, angle), 1)
    late = rotated(sin, cos, angle)[0]  # the sines are overwritten first
    late = torch.stack([late, cos * angle.cos() - late * angle.sin()], -1)
    yield "the cosines use sines that are rotated already", late.flatten(1)


def rotated(sin: Tensor, cos: Tensor, angle: Tensor) -> tuple:
    new_sin = sin * angle.cos() + cos * angle.sin()
    return new_sin, cos * angle.cos() - sin * angle.sin()


def paired(sin: Tensor, cos: Tensor, angle: Tensor) -> Tensor:
    return torch.stack(rotated(sin, cos, angle), -1).flatten(1)
