"""The functions of appendix D: positions, masks, frequencies, needles."""

import math
import sys

import pytest
import torch
import torch.nn.functional as F

from lessons.nD_long_context import insert_needles
from llamalib import (
    precompute_freqs_cis,
    scale_frequencies,
)
from llamalib.load import ROOT
from tests.helpers import random_ids, random_llama, small_config
from tests.taught import taught

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import long_context as recipe  # noqa: E402

rotations_at, window_mask, slow_by_wavelength = taught(
    "D_long_context", "rotations_at", "window_mask", "slow_by_wavelength"
)
logits_with, position_losses = taught(
    "D_long_context", "logits_with", "position_losses"
)
(raise_base,) = taught("D_long_context", "raise_base")


def plain(hd=64, theta=500000.0):
    return theta ** (-torch.arange(0, hd, 2) / hd)


# -- rotations and losses --------------------------------------------------


def frequencies(config):
    """The model's own, as the notebook reads them."""
    rope = config.rope_theta, config.scaling_factor
    first = precompute_freqs_cis(config.head_dim, 2, *rope)[1]
    return torch.view_as_complex(first).angle()


@pytest.mark.parametrize("factor", [None, 8.0, 32.0])
def test_rotations_are_the_models(factor):
    config = small_config(
        use_scaled_rope=factor is not None, rope_scaling_factor=factor
    )
    found = rotations_at(frequencies(config), torch.arange(2000))
    expected = precompute_freqs_cis(
        config.head_dim, 2000, config.rope_theta, factor
    )
    assert torch.allclose(found, expected, atol=1e-3)


def test_dividing_positions_is_dividing_frequencies():
    found = rotations_at(plain(), torch.arange(500) / 4)
    expected = rotations_at(plain() / 4, torch.arange(500))
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.allclose(found, expected.roll(1, 0), atol=1e-2)


@pytest.mark.parametrize("tied", [True, False])
def test_losses_are_the_models(tied):
    llama = random_llama(tied=tied)
    rows = random_ids(2, 301)
    rotations = rotations_at(frequencies(llama.config), torch.arange(300))
    found = position_losses(llama, rows, rotations)
    logits = llama(rows[:, :-1])
    expected = F.cross_entropy(logits.mT, rows[:, 1:], reduction="none")
    assert found.shape == (2, 300)
    assert torch.allclose(found, expected, atol=1e-4)


def test_logits_follow_rotations_and_mask():
    llama = random_llama()
    tokens = random_ids(1, 12)
    freqs = frequencies(llama.config)
    here, there = (rotations_at(freqs, torch.arange(12) + n) for n in (0, 500))
    usual = logits_with(llama, tokens, here)
    assert torch.allclose(llama(tokens), usual, atol=1e-4)
    assert torch.allclose(logits_with(llama, tokens, there), usual, atol=1e-3)
    stretched = rotations_at(freqs, 5 * torch.arange(12))
    assert not torch.allclose(
        logits_with(llama, tokens, stretched), usual, atol=1e-2
    )
    blind = logits_with(llama, tokens, here, window_mask(12, 1))
    alone = logits_with(llama, tokens[:, 7:8], here[:1])
    assert torch.allclose(blind[:, 7], alone[:, 0], atol=1e-4)


# -- windows ----------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 3, 8, 20])
def test_a_window_shows_the_last_keys(window):
    seen = window_mask(8, window)
    for m in range(8):
        for n in range(8):
            visible = 0 <= m - n < window
            assert seen[m, n] == (0 if visible else -math.inf)


# -- other frequencies -----------------------------------------------------


def test_kept_mixed_slowed():
    made = torch.tensor([0.01, 0.999, 1.0, 2.5, 4.0, 4.001, 90.0])
    freqs = made * math.tau / 256
    ratio = slow_by_wavelength(freqs, 4.0, 256) / freqs
    expected = torch.tensor([0.25, 0.25, 0.25, 0.625, 1, 1, 1])
    assert torch.allclose(ratio, expected, atol=1e-5)
    other = slow_by_wavelength(freqs, 4.0, 256, low=0.5, high=1.0) / freqs
    assert torch.allclose(other[3:], torch.ones(4))
    assert torch.equal(slow_by_wavelength(freqs, 1.0, 256), freqs)


@pytest.mark.parametrize("factor", [8.0, 32.0])
@pytest.mark.parametrize("hd", [64, 128])
def test_the_rule_for_8192_is_the_models(hd, factor):
    found = slow_by_wavelength(plain(hd), factor, 8192)
    expected = scale_frequencies(plain(hd), factor)
    assert torch.allclose(found, expected, rtol=1e-5, atol=0)
    assert (found.diff() < 0).all()  # slower from pair to pair


def test_a_raised_base_slows_the_last_pair_by_the_factor():
    ratio = plain() / raise_base(plain(), 32.0)
    assert ratio[0] == 1 and ratio[-1] == pytest.approx(32.0)
    other = plain(theta=500000.0 * 32 ** (64 / 62))
    assert torch.allclose(raise_base(plain(), 32.0), other, rtol=1e-4, atol=0)


# -- the recipe -------------------------------------------------


@pytest.mark.parametrize(
    "window, first", [(None, 0), (10, 0), (10, 1), (3, 2)]
)
def test_pieces_through_the_cache_are_the_whole(window, first, monkeypatch):
    monkeypatch.setattr(recipe, "PIECE", 8)
    llama, ids = random_llama(), random_ids(1, 41)[0]
    i = torch.arange(40)
    seen = (i[:, None] - i < (window or 40)) | (i < first)
    mask = torch.where(seen.tril(), 0.0, -math.inf)
    freqs = frequencies(llama.config) / 3
    rotations = rotations_at(freqs, i)
    whole = position_losses(llama, ids[None], rotations, mask)
    found = recipe.losses_of(
        llama, ids, lambda f: f / 3, window=window, first=first
    )
    expected = whole.view(5, 8).mean(1).tolist()
    assert found == pytest.approx(expected, abs=2e-3)


def test_the_recipe_has_the_notebooks_rule():
    found = recipe.scaled(plain(), 2.0)
    expected = slow_by_wavelength(plain(), 2.0, 8192)
    assert torch.allclose(found, expected, rtol=1e-6, atol=0)


# -- needles -----------------------------------------------------


def test_needles_are_spread_evenly():
    needles, filler = [[1], [2], [3]], [[0, 0]] * 100
    for room in (11, 12):
        found = insert_needles(needles, filler, room)
        assert found == [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3]
    assert insert_needles(needles, filler, 10) == [1, 0, 0, 2, 0, 0, 0, 0, 3]
    assert insert_needles(needles, filler, 4) == [1, 2, 3]
    assert insert_needles([[1], [2]], iter([[0], [7] * 50]), 9) == [1, 0, 2]
