"""Notebook 00's formula of the parameters, on configs drawn at random."""

import random
from dataclasses import replace

import pytest

from lessons.n00_initialization import LARGER, by_place
from llamalib import LLAMA_1B
from tests.taught import taught


def test_the_formula_counts_what_the_shapes_have():
    count, formula = taught(
        "00_initialization", "count_parameters", "parameters_by_formula"
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
        assert formula(config, tied) == count(config, tied)


@pytest.mark.parametrize(
    "tied, n", [(True, 1_235_814_400), (False, 1_498_482_688)]
)
def test_the_1b(tied, n):
    (count,) = taught("00_initialization", "count_parameters")
    assert count(LLAMA_1B, tied) == n


@pytest.mark.parametrize(
    "name, n",
    [
        ("Llama 3.2-3B", 3_212_749_824),
        ("Llama 3.1-8B", 8_030_261_248),
        ("Llama 3.1-70B", 70_553_706_496),
    ],
)
def test_the_larger_llamas_have_the_published_numbers(name, n):
    (count,) = taught("00_initialization", "count_parameters")
    assert count(*LARGER[name]) == sum(by_place(*LARGER[name]).values()) == n


def test_the_picture_counts_each_place():
    """The sums are those of the notebook's table for the 1B."""
    block, D, V = 60_821_504, 2048, 128_256
    found = by_place(LLAMA_1B, True)
    assert found == {
        "embedding": V * D,
        "attention": 16 * (8_388_608 + 2_097_152),
        "feed-forward": 16 * 50_331_648,
        "norms": 16 * 4096 + D,
    }
    assert sum(found.values()) == 16 * block + V * D + D
    assert by_place(LLAMA_1B, False) == found | {"output": V * D}
