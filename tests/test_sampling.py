"""From logits to a token: temperature, top-k, top-p, seeds, errors."""

import math

import pytest
import torch

from llamalib import next_token_probs, sample, top_k_logits, top_p_logits

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3]))


def test_top_k():
    kept = top_k_logits(LOGITS, 2)
    assert kept.isfinite().tolist() == [False, True, False, True]
    assert torch.equal(top_k_logits(LOGITS, 99), LOGITS)


@pytest.mark.parametrize(
    "p, n", [(1e-9, 1), (0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3), (1, 4)]
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(p, n):
    kept = top_p_logits(LOGITS, p).isfinite()
    assert kept.sum() == n
    assert torch.equal(kept, LOGITS >= LOGITS.sort(descending=True)[0][n - 1])


def test_order_temperature_top_k_top_p():
    probs = next_token_probs(LOGITS, temperature=0.5, top_k=3, top_p=0.85)
    # 16 : 9 : 4 : 1 after temperature; of the three that top-k leaves, two
    # reach 0.85 (25/29); of all four they would not (25/30)
    expected = torch.tensor([0, 16 / 25, 0, 9 / 25])
    assert torch.allclose(probs, expected, atol=1e-6)
    assert torch.allclose(next_token_probs(LOGITS), LOGITS.exp(), atol=1e-6)


def test_ties_at_k_are_kept():
    tied = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0])
    kept = top_k_logits(tied, 3).isfinite()
    assert kept.tolist() == [False, True, True, True, True]


def test_top_p_of_1_keeps_everything():
    """Though a float32 sum of 128,256 probabilities reaches 1 early."""
    logits = torch.randn(128_256, generator=torch.Generator().manual_seed(0))
    assert torch.equal(top_p_logits(logits, 1), logits)


HUGE = 10**400  # an int beyond float's range


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(top_k=0), "top_k must be a whole number >= 1, got 0"),
        (dict(top_k=2.0), "top_k must be a whole number >= 1, got 2.0"),
        (dict(top_k=True), "top_k must be a whole number >= 1, got True"),
        (dict(top_p=0), r"top_p must be in \(0, 1\], got 0"),
        (dict(top_p=1.5), r"top_p must be in \(0, 1\], got 1.5"),
        (dict(top_p=1e-40), "top_p must be at least 1e-20, got 1e-40"),
        (dict(temperature=-1), "temperature must be >= 0, got -1"),
        (dict(temperature=1e-40), "must be 0 or at least 1e-20, got 1e-40"),
        (dict(temperature=HUGE), "temperature must be a number, got 1000"),
        (dict(temperature=True), "temperature must be a number, got True"),
        (dict(temperature=math.nan), "temperature must be a number, got nan"),
    ],
)
@pytest.mark.parametrize("call", [next_token_probs, sample])
def test_mistakes_are_named(call, arguments, said):
    with pytest.raises(ValueError, match=said):
        call(LOGITS, **dict(temperature=1.0) | arguments)


@pytest.mark.parametrize("p", [0, -1, 2, float("nan")])
def test_a_filter_that_keeps_nothing_is_refused(p):
    with pytest.raises(ValueError, match=r"top_p must be in \(0, 1\], got"):
        top_p_logits(LOGITS, p)
    with pytest.raises(ValueError, match="top_k must be a whole number >= 1"):
        top_k_logits(LOGITS, 0)


def test_the_argmax_checks_its_arguments_too():
    for wrong in (dict(top_k=-3), dict(top_p=7.0)):
        with pytest.raises(ValueError, match="top_[kp] must be"):
            sample(LOGITS, **wrong)


def test_there_is_no_distribution_at_temperature_0():
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        next_token_probs(LOGITS, 0)


def test_at_the_bounds():
    """The coldest is the argmax, ties shared; the hottest is uniform."""
    for wide in (LOGITS, 1000 * LOGITS, 1e6 * LOGITS):
        cold = next_token_probs(wide, 1e-20)
        assert cold.tolist() == [0, 1, 0, 0]
        hot = next_token_probs(wide, 1e20)
        assert torch.equal(hot, torch.full((4,), 0.25))
        assert next_token_probs(wide, top_p=1e-20).tolist() == [0, 1, 0, 0]
    assert next_token_probs(LOGITS, 1e300).tolist() == [0.25] * 4
    tie = torch.tensor([1.0, 3.0, 3.0])
    assert next_token_probs(tie, 1e-20).tolist() == [0, 0.5, 0.5]


def test_batches():
    rows = torch.randn(2, 3, 50)
    probs = next_token_probs(rows, 0.7, 10, 0.9)
    for i in range(2):
        for j in range(3):
            alone = next_token_probs(rows[i, j], 0.7, 10, 0.9)
            assert torch.allclose(probs[i, j], alone)
    assert sample(rows).shape == (2, 3)
    assert sample(rows, temperature=1.0).shape == (2, 3)


def test_drawn_as_often_as_likely():
    g = torch.Generator().manual_seed(0)
    many = LOGITS.expand(200_000, 4)
    drawn = sample(many, temperature=1.0, generator=g)
    often = torch.bincount(drawn, minlength=4) / len(drawn)
    assert torch.allclose(often, LOGITS.exp(), atol=0.005)
    cold = sample(many[:2000], temperature=0.01, generator=g)
    assert (cold == sample(LOGITS)).all() and sample(LOGITS) == 1


def by_lists(logits, T, k, p):
    """Temperature, top-k, top-p, with sorted lists and a loop."""
    weights = [math.exp((z - max(logits)) / T) for z in logits]
    best = sorted(range(len(weights)), key=lambda i: -weights[i])[:k]
    total, kept = sum(weights[i] for i in best), []
    for i in best:
        kept.append(i)
        if sum(weights[j] for j in kept) >= p * total:
            break
    total = sum(weights[i] for i in kept)
    return [w / total if i in kept else 0.0 for i, w in enumerate(weights)]


@pytest.mark.parametrize(
    "T, k, p", [(0.7, 20, 0.9), (1.5, 5, 0.62), (2.0, 40, 0.95)]
)
def test_all_rules_agree_with_lists(T, k, p):
    logits = 3 * torch.randn(200, generator=torch.Generator().manual_seed(0))
    found = next_token_probs(logits, T, k, p)
    expected = torch.tensor(by_lists(logits.tolist(), T, k, p))
    assert torch.allclose(found, expected, atol=1e-6)
    generator = torch.Generator().manual_seed(3)
    how = dict(temperature=T, top_k=k, top_p=p, generator=generator)
    drawn = sample(logits.expand(250, -1), **how)
    assert (expected[drawn] > 0).all()  # what is cut is never drawn
