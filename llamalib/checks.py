"""One sentence for a wrong argument: what it is, and what was expected."""

import operator
from collections.abc import Iterable

import torch
from torch import Tensor


def expect(ok: bool, name: str, found, expected: str) -> None:
    """Raise ValueError with name, value and expectation unless ok."""
    if not ok:
        raise ValueError(f"{name} is {repr(found)[:200]}; expected {expected}")


def is_count(n) -> bool:
    """Return whether n is a whole number from 1; True is not."""
    return type(n) is int and n >= 1


def check_ids(name: str, tokens: Tensor, V: int) -> None:
    """Raise ValueError unless all ids are integers from 0 to V - 1."""
    if tokens.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} are {tokens.dtype}; expected torch.int64")
    as_ids(name, map(int, tokens.aminmax()), V)


def as_ids(name: str, ids: Iterable, V: int, expected="token ids") -> list:
    """Return ids as a list of ints from 0 to V - 1, or raise ValueError."""
    ok = isinstance(ids, Iterable) and getattr(ids, "ndim", 1) == 1
    ok = ok and not isinstance(ids, (str, bytes, bytearray, memoryview))
    # a tensor's all at once: reading each would wait for a GPU
    found = list(getattr(ids, "tolist", ids.__iter__)()) if ok else ()
    try:  # no floats
        numbers = [operator.index(i) for i in found]
    except TypeError:
        ok = False
    expect(ok and bool not in map(type, found), name, ids, expected)
    own = f"0 to {V - 1}, as this checkpoint's own tokenizer gives"
    for i in numbers and (min(numbers), max(numbers)):
        expect(0 <= i < V, f"an id in {name}", i, own)
    return numbers
