r"""Checks of the exercises of notebook 00: names, shapes and counts."""

from dataclasses import replace
from functools import cache
from math import prod

import torch

from ..load import tensor_shapes
from ..model import LLAMA_1B
from .judge import Wrong, agree, as_tensor, exercise, vary


def models():
    """Return a tiny model, the 1B and the 8B, or in a hidden check others."""
    k = vary(1, 2, 3, 5)
    one = replace(LLAMA_1B, dim=2048 * k, n_layers=15 + k)
    more = dict(n_layers=31 + k, ffn_dim_multiplier=1.3, multiple_of=1024)
    tiny = dict(dim=8 * k, n_layers=11 + k, vocab_size=9 + k)
    tiny = replace(one, **tiny, n_heads=2 * k, n_kv_heads=2)
    return tiny, one, replace(one, dim=4096 * k, **more)


@exercise(1, expects="a dict with a number for each part")
def check_1(answer):
    for shapes in map(tensor_shapes, models()[:2]):
        found, expected = answer(shapes), count_parts(shapes)
        mistakes = [(m, count_parts(shapes, *how)) for m, *how in PARTS]
        if isinstance(found, dict):
            keys = [*expected, *found]
            odd = [k for k in keys if found.get(k) != expected.get(k)]
            mistakes.append((f"{odd[:1]} is missing or wrong", found))
        agree(found, expected, mistakes, tolerance=0)
    return f"the {len(expected)} parts of the 1B"


def part_of(name: str) -> str:
    words = name.split(".")[:-1]
    return ".".join(words[2:] if words[0] == "layers" else words)


def one_digit(name: str) -> str:
    return name[9 * name.startswith("layers.") : -7]


def count_parts(shapes, part=part_of, size=prod, add=1) -> dict:
    found = {}
    for name, shape in shapes.items():
        before = found.get(part(name), 0)
        found[part(name)] = add * before + size(shape)
    return found


PARTS = (
    ("the layers are not added up", part_of, prod, 0),
    ("attention.wq is the part, not wq alone", lambda n: n.split(".")[-2]),
    ("a part does not end in .weight", lambda n: f"{part_of(n)}.weight"),
    ("a part has no layer's number", lambda n: n[:-7]),
    ("a layer's number may have two digits", one_digit),
    ("multiply the sizes of a shape; they were added", part_of, sum),
    ("count parameters, not tensors", part_of, lambda shape: 1),
)


@exercise(2, expects="a dict of five numbers")
def check_2(answer):
    for c in (*models()[1:], models()[0]):
        found, expected = answer(tensor_shapes(c)), settings(c)
        if isinstance(found, dict) and found.keys() != expected.keys():
            keys = f"{str([*found])[:80]}; expected {[*expected]}"
            raise Wrong(f"the keys are {keys}")
        if not isinstance(found, dict):
            agree(found, expected)
        for key, (value, *mistakes) in expected.items():
            agree(found[key], value, mistakes, 0, key)
    return "the settings of the 1B, the 8B and a tiny model"


def settings(c) -> dict:
    """Return by key the right value, and likely mistakes with theirs."""
    D, L, V, F = c.dim, c.n_layers, c.vocab_size, c.hidden_dim
    last = int(max(map(str, range(L))))  # "9" is after "15"
    text = "n_layers: as strings '9' is after '15'; compare ints"
    other = "is the other size: a matrix (n, m) maps m numbers to n"
    count_from_0 = "n_layers is the last number, but layers count from 0"
    group = "group_size: rows of wq over rows of wk, not under"
    group_size = c.n_heads // c.n_kv_heads
    tensors = "n_layers: those are tensors; a layer has nine"
    return dict(
        dim=(D, (f"dim {other}", V), (f"dim {other}", F)),
        n_layers=(
            *(L, (count_from_0, L - 1), (text, last), (text, last + 1)),
            (tensors, 9 * L + 3),
        ),
        vocab_size=(V, (f"vocab_size {other}", D)),
        hidden_dim=(F, (f"hidden_dim {other}", D)),
        group_size=(group_size, (group, 1 / group_size)),
    )


@exercise(3, expects="a whole number")
def check_3(answer):
    cases = list(budgets())
    right, found = [fit(*c) for c in cases], [answer(*c) for c in cases]
    for each, expected in zip(found, right):
        if (number := as_tensor(each)) is None or number.dim():
            agree(each, expected)
        if number < 0:
            raise Wrong("fewer than no layers; expected 0 if none fits")
    mistakes = [(m, [fit(*c, **how) for c in cases]) for m, how in LAYERS]
    agree(found, right, mistakes, 0, "the number of layers")
    if any(isinstance(each, float) for each in found):
        raise Wrong("the numbers are right; expected them as int")
    return f"{len(cases)} budgets"


def budgets():
    """Yield (config, bytes, dtype, tied): just enough, a byte less, more."""
    for c, tied in zip(models(), (False, True, False)):
        for dtype in (torch.bfloat16, torch.float32):
            yield c, 0, dtype, tied
            for n_layers in vary((1, 2, 7, 33), (2, 5, 8, 21), (3, 1, 17, 4)):
                layer, around = weigh(c, 2 - tied)
                exact = (n_layers * layer + around) * dtype.itemsize
                for budget in (exact - 1, exact, exact + layer):
                    yield c, budget, dtype, tied


@cache
def weigh(c, matrices: int) -> tuple[int, int]:
    """Return the parameters of a layer, and of what is around the layers."""
    shapes = tensor_shapes(replace(c, n_layers=1)).items()
    layer = sum(prod(s) for name, s in shapes if name.startswith("layers."))
    return layer, (matrices * c.vocab_size + 1) * c.dim


def fit(c, budget, dtype, tied, size=0, n=0, around=1, up=0, less=0) -> int:
    """Return how many layers fit, or what one of the mistakes gives."""
    layer, rest = weigh(c, n or 2 - tied)
    left = budget // (size or dtype.itemsize) - around * (rest - less * c.dim)
    return max((left + up * (layer - 1)) // layer, 0)


LAYERS = (
    ("count what is around the layers, too", dict(around=0)),
    ("a tied output is not counted", dict(n=2)),
    ("an output that is not tied is counted", dict(n=1)),
    ("the last norm has parameters, too", dict(less=1)),
    ("the last layer must fit whole: round down", dict(up=1)),
    ("the dtype says how many bytes a number has", dict(size=2)),
    ("the budget is in bytes, not in numbers", dict(size=1)),
)
