"""A generation that is stopped leaves the model as it was."""

import pytest
import torch

import llamalib
from tests.helpers import random_llama

PROMPT = [1, 2, 3]


def greedy(llama, n=12, **how):
    new = llamalib.generate(llama, PROMPT, max_new_tokens=n, stop=(), **how)
    return list(new)


def test_wherever_it_is_interrupted(monkeypatch):
    """In every operation of a decode step, one after another."""
    llama = random_llama()
    expected, at = greedy(random_llama()), 0
    operations, silu = [0], torch.nn.functional.silu
    linear = torch.nn.functional.linear

    def counted(function):
        def run(*args):
            operations[0] += 1
            if operations[0] == at:
                raise KeyboardInterrupt
            return function(*args)

        return run

    for place in range(1, 60):
        at, operations[0] = place, 0
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.functional, "silu", counted(silu))
            patch.setattr(torch.nn.functional, "linear", counted(linear))
            with pytest.raises(KeyboardInterrupt):
                greedy(llama)
    assert greedy(llama) == expected
    batch = llamalib.generate_batch(
        llama, [PROMPT, PROMPT], max_new_tokens=12, stop=()
    )
    assert batch == [expected, expected]
