"""One sentence for a wrong argument: what it is, and what was expected."""

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
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"{name} are {tokens.dtype}; expected integers")
    low, high = map(int, tokens.aminmax())
    expected = f"0 to {V - 1}, as this checkpoint's own tokenizer gives"
    for i in (low, high):
        expect(0 <= i < V, f"an id in {name}", i, expected)
