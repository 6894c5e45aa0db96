import math
import sys

import pytest
import torch
import torch.nn.functional as F
from checkpoint import LLAMA_1B
from helpers import random_ids, random_llama, small_config
from torch.utils.flop_counter import FlopCounterMode

from llamalib import (
    ModelArgs,
    apply_rotary_emb,
    attention,
    causal_mask,
    precompute_freqs_cis,
    scale_frequencies,
)
from llamalib.formats.find import ROOT
from llamalib.long_context import (
    capped_attention,
    final_states,
    frequencies,
    long_rows,
    plant,
    position_losses,
    prefill_operations,
    raise_base,
    slow_by_wavelength,
    turns_at,
    window_mask,
)

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import corpus  # noqa: E402
import train  # noqa: E402


def plain(hd=64, theta=500000.0):
    return theta ** (-torch.arange(0, hd, 2) / hd)


# -- rows ------------------------------------------------------------------


def test_rows_are_those_of_the_training(pocket):
    """Of the length it was trained at, to the token."""
    found = long_rows(
        corpus.documents("a", 10**6), pocket.tokenizer, 5, train.ROW
    )
    wanted = train.pack_rows(corpus.documents("a", 10**6), pocket.tokenizer, 5)
    assert found.dtype == torch.int64
    assert found.tolist() == wanted.tolist()


def test_a_row_starts_with_a_document_and_has_a_target_more(pocket):
    t = pocket.tokenizer
    rows = long_rows(["one two"] * 100, t, 3, 10)
    assert rows.shape == (3, 11)
    document = t.encode("one two", bos=True, eos=True)
    for row in rows.tolist():
        assert row == (document * 11)[:11]


def test_a_document_that_just_fills_a_row(pocket):
    """Its end is the last id read: the target is the next one's begin."""
    document = pocket.tokenizer.encode("one two", bos=True, eos=True)
    rows = long_rows(["one two"] * 9, pocket.tokenizer, 2, len(document))
    assert rows.tolist() == [[*document, document[0]]] * 2


def test_too_few_documents(pocket):
    with pytest.raises(ValueError, match="fill 1 of 2 rows"):
        long_rows(["one two three"] * 9, pocket.tokenizer, 2, 24)


# -- turns and losses ------------------------------------------------------


@pytest.mark.parametrize("factor", [None, 8.0, 32.0])
def test_frequencies_and_turns_are_the_models(factor):
    config = small_config(
        use_scaled_rope=factor is not None, rope_scaling_factor=factor
    )
    found = turns_at(frequencies(config), torch.arange(9000))
    wanted = precompute_freqs_cis(
        config.head_dim, 9000, config.rope_theta, factor
    )
    assert torch.equal(found, wanted)


def test_turns_at_any_positions():
    f = plain(8)
    turns = turns_at(f, torch.tensor([3.5, -2.0]))
    assert torch.allclose(turns[0].real, (3.5 * f).cos())
    assert torch.allclose(turns[0].imag, (3.5 * f).sin())
    assert torch.allclose(turns[1], turns_at(f, torch.tensor([2]))[0].conj())


@pytest.mark.parametrize("tied", [True, False])
def test_losses_are_the_models(tied):
    """Of several rows, and more positions than one piece of the head."""
    llama = random_llama(tied=tied)
    rows = random_ids(2, 301)
    turns = turns_at(frequencies(llama.config), torch.arange(300))
    found = position_losses(llama, rows, turns)
    logits = llama(rows[:, :-1])
    wanted = F.cross_entropy(logits.mT, rows[:, 1:], reduction="none")
    assert found.shape == (2, 300)
    assert torch.allclose(found, wanted, atol=1e-4)


def test_states_follow_turns_mask_and_attend():
    llama = random_llama()
    tokens = random_ids(1, 12)
    freqs = frequencies(llama.config)
    here, there = (turns_at(freqs, torch.arange(12) + n) for n in (0, 500))
    usual = final_states(llama, tokens, here)
    assert torch.allclose(final_states(llama, tokens, there), usual, atol=1e-3)
    stretched = turns_at(freqs, 5 * torch.arange(12))
    assert not torch.allclose(
        final_states(llama, tokens, stretched), usual, atol=1e-2
    )
    blind = final_states(llama, tokens, here, window_mask(12, 1))
    alone = final_states(llama, tokens[:, 7:8], here[:1])
    assert torch.allclose(blind[:, 7], alone[:, 0], atol=1e-4)
    calls = []

    def attend(*qkv_mask):
        calls.append(1)
        return attention(*qkv_mask)

    other = final_states(llama, tokens, here, attend=attend)
    assert torch.allclose(other, usual, atol=1e-4)
    assert len(calls) == llama.config.n_layers


def test_losses_can_be_learned_from():
    llama = random_llama().requires_grad_(True)
    rows = random_ids(2, 20)
    turns = turns_at(frequencies(llama.config), torch.arange(19))
    position_losses(llama, rows, turns).mean().backward()
    assert all(p.grad is not None for p in llama.parameters())


# -- windows and caps ------------------------------------------------------


@pytest.mark.parametrize("T, window", [(1, 1), (7, 1), (7, 3), (5, 9)])
def test_window(T, window):
    mask = window_mask(T, window)
    for m in range(T):
        for n in range(T):
            sees = 0 <= m - n < window
            assert mask[m, n] == (0 if sees else -math.inf)


def heads(T, H=4, KV=2, hd=8, B=2):
    g = torch.Generator().manual_seed(T)
    shapes = ((B, T, H, hd), (B, T, KV, hd), (B, T, KV, hd))
    return [torch.randn(shape, generator=g) for shape in shapes]


@pytest.mark.parametrize("cap", [0, 1, 3, 5])
def test_capped_by_loops(cap):
    T, f = 6, plain(8, 100.0)
    q, k, v = heads(T)
    turned = apply_rotary_emb(q, k, turns_at(f, torch.arange(T)))
    found = capped_attention(f, cap)(*turned, v, causal_mask(T))
    assert found.shape == (2, T, 32)
    for b, m, h in ((0, 5, 0), (1, 3, 1), (0, 4, 2), (1, 5, 3)):
        scores = []
        for n in range(m + 1):
            turn = torch.polar(torch.ones(4), min(m - n, cap) * f)  # (hd/2,)
            z = torch.view_as_complex(q[b, m, h].unflatten(0, (4, 2)))
            z = torch.view_as_real(z * turn).flatten()
            scores.append(z @ k[b, n, h // 2] / math.sqrt(8))
        weights = torch.stack(scores).softmax(-1)
        wanted = weights @ v[b, : m + 1, h // 2]
        at = slice(8 * h, 8 * h + 8)
        assert torch.allclose(found[b, m, at], wanted, atol=1e-5)


def test_no_distance_over_the_cap_is_plain_attention():
    T, f = 9, plain(8)
    q, k, v = heads(T)
    turned = apply_rotary_emb(q, k, turns_at(f, torch.arange(T)))
    usual = attention(*turned, v, causal_mask(T))
    for cap in (T - 1, 100):
        found = capped_attention(f, cap)(*turned, v, causal_mask(T))
        assert torch.allclose(found, usual, atol=1e-5)
    low = capped_attention(f, 2)(*turned, v, causal_mask(T))
    assert torch.allclose(low[:, :3], usual[:, :3], atol=1e-5)
    assert (low[:, 3:] - usual[:, 3:]).abs().amax(-1).min() > 1e-4


def test_weights_are_noted():
    T, f, seen = 5, plain(8), []
    q, k, v = heads(T)
    capped_attention(f, 2, seen.append)(q, k, v, causal_mask(T))
    assert len(seen) == 4
    for weights in seen:
        assert weights.shape == (2, T, T)
        assert torch.allclose(weights.sum(-1), torch.ones(2, T))
        assert weights.triu(1).eq(0).all()


# -- other frequencies -----------------------------------------------------


@pytest.mark.parametrize("hd", [32, 64, 128])
@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_with_8192_it_is_metas_rule(hd, factor):
    found = slow_by_wavelength(plain(hd), factor, 8192)
    wanted = scale_frequencies(plain(hd), factor)
    assert torch.allclose(found, wanted, rtol=1e-5, atol=0)


def test_kept_mixed_slowed():
    turns = torch.tensor([0.01, 0.999, 1.0, 2.5, 4.0, 4.001, 90.0])
    freqs = turns * math.tau / 256
    ratio = slow_by_wavelength(freqs, 4.0, 256) / freqs
    wanted = torch.tensor([0.25, 0.25, 0.25, 0.625, 1, 1, 1])
    assert torch.allclose(ratio, wanted, atol=1e-5)
    other = slow_by_wavelength(freqs, 4.0, 256, low=0.5, high=1.0) / freqs
    assert torch.allclose(other[3:], torch.ones(4))
    assert torch.equal(slow_by_wavelength(freqs, 1.0, 256), freqs)


def test_only_turns_count():
    """Pairs twice as fast, in half the length, are slowed alike."""
    f = plain(64)
    once = slow_by_wavelength(f, 8.0, 1024)
    twice = slow_by_wavelength(2 * f, 8.0, 512)
    assert torch.allclose(twice, 2 * once, rtol=1e-5, atol=0)
    assert not torch.allclose(slow_by_wavelength(f, 8.0, 512), once)


@pytest.mark.parametrize("hd", [32, 64, 128])
def test_a_raised_base(hd):
    for factor in (2.0, 8.0):
        found = raise_base(plain(hd), factor)
        wanted = plain(hd, 500000.0 * factor ** (hd / (hd - 2)))
        assert torch.allclose(found, wanted, rtol=1e-4, atol=0)
        assert found[0] == 1
        assert torch.isclose(found[-1] * factor, plain(hd)[-1], rtol=1e-4)
    assert torch.equal(raise_base(torch.ones(1), 8.0), torch.ones(1))


# -- needles and costs -----------------------------------------------------


def test_plant():
    needles, filler = [[1], [2], [3]], [[0, 0]] * 100
    assert plant(needles, filler, 12) == [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3]
    assert plant(needles, filler, 11) == [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3]
    assert plant(needles, filler, 10) == [1, 0, 0, 2, 0, 0, 0, 0, 3]
    for room in (0, 3, 4):
        assert plant(needles, filler, room) == [1, 2, 3]
    assert plant([[1], [2, 2]], [[0]] * 2, 9) == [1, 0, 0, 2, 2]
    assert plant([[1], [2]], iter([[0], [7] * 50, [0]]), 9) == [1, 0, 2]


def test_operations_are_what_pytorch_counts():
    llama = random_llama(
        small_config(dim=48, n_layers=3, n_heads=6, n_kv_heads=3)
    )
    for T in (2, 9, 33):
        with FlopCounterMode(display=False) as counter:
            llama(random_ids(T), last_only=True, attend=attention)
        found = prefill_operations(llama.config, T)
        assert counter.get_total_flops() == sum(found)
        assert found[1] == 4 * 3 * T * T * 48


def test_operations_of_wide_heads():
    config = small_config(head_width=32)
    llama = random_llama(config)
    with FlopCounterMode(display=False) as counter:
        llama(random_ids(7), last_only=True, attend=attention)
    assert counter.get_total_flops() == sum(prefill_operations(config, 7))


def test_the_1b_at_full_length():
    one_b = ModelArgs(**LLAMA_1B)
    weights, mixing = prefill_operations(one_b, 131072)
    assert round(mixing / (weights + mixing), 3) == 0.898
