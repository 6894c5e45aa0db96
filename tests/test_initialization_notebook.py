"""Notebook 00's formula of the parameters, on configs drawn at random."""

import random
from dataclasses import replace

import pytest

from llamalib import LLAMA_1B
from tests.taught import taught


def test_the_formula_counts_what_the_shapes_have():
    count, by_part = taught(
        "00_initialization", "count_parameters", "parameters_by_part"
    )
    rng = random.Random(0)
    for _ in range(1000):
        KV, rep = rng.randint(1, 8), rng.randint(1, 4)
        config = replace(
            LLAMA_1B,
            n_kv_heads=KV,
            n_heads=KV * rep,
            dim=KV * rep * 2 * rng.randint(1, 9),
            n_layers=rng.randint(1, 4),
            vocab_size=rng.randint(1, 99),
        )
        tied = rng.random() < 0.5
        assert sum(by_part(config, tied).values()) == count(config, tied)


@pytest.mark.parametrize(
    "tied, n", [(True, 1_235_814_400), (False, 1_498_482_688)]
)
def test_the_1b(tied, n):
    (count,) = taught("00_initialization", "count_parameters")
    assert count(LLAMA_1B, tied) == n
