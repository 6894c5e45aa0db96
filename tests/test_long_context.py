"""The functions of appendix D: positions, masks, frequencies, needles."""

import math

import pytest
import torch
import torch.nn.functional as F

from llamalib import (
    apply_rotary_emb,
    attention,
    causal_mask,
    precompute_freqs_cis,
    scale_frequencies,
)
from tests.helpers import random_ids, random_llama, small_config
from tests.taught import taught

rope_frequencies, rotations_at, window_mask = taught(
    "D_long_context", "rope_frequencies", "rotations_at", "window_mask"
)
final_states, position_losses = taught(
    "D_long_context", "final_states", "position_losses"
)
capped_attention, slow_by_wavelength = taught(
    "D_long_context", "capped_attention", "slow_by_wavelength"
)
insert_needles, raise_base = taught(
    "D_long_context", "insert_needles", "raise_base"
)


def plain(hd=64, theta=500000.0):
    return theta ** (-torch.arange(0, hd, 2) / hd)


# -- rotations and losses --------------------------------------------------


@pytest.mark.parametrize("factor", [None, 8.0, 32.0])
def test_frequencies_and_rotations_are_the_models(factor):
    config = small_config(
        use_scaled_rope=factor is not None, rope_scaling_factor=factor
    )
    found = rotations_at(rope_frequencies(config), torch.arange(9000))
    expected = precompute_freqs_cis(
        config.head_dim, 9000, config.rope_theta, factor
    )
    assert torch.equal(found, expected)


def test_dividing_positions_is_dividing_frequencies():
    found = rotations_at(plain(), torch.arange(500) / 4)
    expected = rotations_at(plain() / 4, torch.arange(500))
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.allclose(found, expected.roll(1, 0), atol=1e-2)


@pytest.mark.parametrize("tied", [True, False])
def test_losses_are_the_models(tied):
    """Also for more positions than one piece of the head."""
    llama = random_llama(tied=tied)
    rows = random_ids(2, 301)
    rotations = rotations_at(rope_frequencies(llama.config), torch.arange(300))
    found = position_losses(llama, rows, rotations)
    logits = llama(rows[:, :-1])
    expected = F.cross_entropy(logits.mT, rows[:, 1:], reduction="none")
    assert found.shape == (2, 300)
    assert torch.allclose(found, expected, atol=1e-4)


def test_states_follow_rotations_and_mask():
    llama = random_llama()
    tokens = random_ids(1, 12)
    freqs = rope_frequencies(llama.config)
    here, there = (rotations_at(freqs, torch.arange(12) + n) for n in (0, 500))
    usual = final_states(llama, tokens, here)
    assert torch.allclose(final_states(llama, tokens, there), usual, atol=1e-3)
    stretched = rotations_at(freqs, 5 * torch.arange(12))
    assert not torch.allclose(
        final_states(llama, tokens, stretched), usual, atol=1e-2
    )
    blind = final_states(llama, tokens, here, window_mask(12, 1))
    alone = final_states(llama, tokens[:, 7:8], here[:1])
    assert torch.allclose(blind[:, 7], alone[:, 0], atol=1e-4)


# -- windows and caps ------------------------------------------------------


@pytest.mark.parametrize("window", [1, 3, 8, 20])
def test_a_window_shows_the_last_keys(window):
    seen = window_mask(8, window)
    for m in range(8):
        for n in range(8):
            visible = 0 <= m - n < window
            assert seen[m, n] == (0 if visible else -math.inf)


def heads(T, H=4, KV=2, hd=8, B=2):
    g = torch.Generator().manual_seed(T)
    shapes = ((B, T, H, hd), (B, T, KV, hd), (B, T, KV, hd))
    return [torch.randn(shape, generator=g) for shape in shapes]


@pytest.mark.parametrize("cap", [0, 1, 3, 5])
def test_capped_by_loops(cap):
    T, f = 6, plain(8, 100.0)
    q, k, v = heads(T)
    rotated = apply_rotary_emb(q, k, rotations_at(f, torch.arange(T)))
    found = capped_attention(f, cap)(*rotated, v, causal_mask(T))
    assert found.shape == (2, T, 32)
    for b, m, h in ((0, 5, 0), (1, 3, 1), (0, 4, 2), (1, 5, 3)):
        scores = []
        for n in range(m + 1):
            by = torch.polar(torch.ones(4), min(m - n, cap) * f)  # (hd/2,)
            z = torch.view_as_complex(q[b, m, h].unflatten(0, (4, 2)))
            z = torch.view_as_real(z * by).flatten()
            scores.append(z @ k[b, n, h // 2] / math.sqrt(8))
        weights = torch.stack(scores).softmax(-1)
        expected = weights @ v[b, : m + 1, h // 2]
        at = slice(8 * h, 8 * h + 8)
        assert torch.allclose(found[b, m, at], expected, atol=1e-5)


def test_without_a_distance_over_the_cap_nothing_changes():
    f = plain(8, 100.0)
    q, k, v = heads(6)
    q, k = apply_rotary_emb(q, k, rotations_at(f, torch.arange(6)))
    found = capped_attention(f, 5)(q, k, v, causal_mask(6))
    assert torch.allclose(found, attention(q, k, v, causal_mask(6)), atol=1e-5)


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


# -- needles -----------------------------------------------------


def test_needles_are_spread_evenly():
    needles, filler = [[1], [2], [3]], [[0, 0]] * 100
    for room in (11, 12):
        found = insert_needles(needles, filler, room)
        assert found == [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3]
    assert insert_needles(needles, filler, 10) == [1, 0, 0, 2, 0, 0, 0, 0, 3]
    assert insert_needles(needles, filler, 4) == [1, 2, 3]
    assert insert_needles([[1], [2]], iter([[0], [7] * 50]), 9) == [1, 0, 2]
