import pytest
import torch

from llamalib import keep_top_k, keep_top_p, next_token_probs, pick

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3]))


def test_top_k():
    kept = keep_top_k(LOGITS, 2)
    assert kept.isfinite().tolist() == [False, True, False, True]
    assert torch.equal(keep_top_k(LOGITS, 99), LOGITS)


@pytest.mark.parametrize(
    "p, n", [(1e-9, 1), (0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3), (1, 4)]
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(p, n):
    kept = keep_top_p(LOGITS, p).isfinite()
    assert kept.sum() == n
    assert torch.equal(kept, LOGITS >= LOGITS.sort(descending=True)[0][n - 1])


def test_order_temperature_top_k_top_p():
    probs = next_token_probs(LOGITS, temperature=0.5, top_k=3, top_p=0.85)
    # 16 : 9 : 4 : 1 after temperature; of the three that top-k leaves, two
    # reach 0.85 (25/29); of all four they would not (25/30)
    expected = torch.tensor([0, 16 / 25, 0, 9 / 25])
    assert torch.allclose(probs, expected, atol=1e-6)
    assert torch.allclose(next_token_probs(LOGITS), LOGITS.exp(), atol=1e-6)


def test_top_p_of_1_keeps_everything():
    """Though a float32 sum of 128,256 probabilities reaches 1 early."""
    logits = torch.randn(128_256, generator=torch.Generator().manual_seed(0))
    assert torch.equal(keep_top_p(logits, 1), logits)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: keep_top_k(LOGITS, 0), "top_k is 0"),
        (lambda: keep_top_p(LOGITS, 0), "top_p is 0"),
        (lambda: keep_top_p(LOGITS, 1.5), "top_p is 1.5"),
        (lambda: next_token_probs(LOGITS, 0), "temperature is 0"),
        (lambda: next_token_probs(LOGITS, -1), "temperature is -1"),
        (
            lambda: next_token_probs(LOGITS, 1e-40),
            r"temperature is 1e-40; expected 0 \(greedy\), or 1e-20 to 1e\+20",
        ),
        (lambda: next_token_probs(LOGITS, 10**400), "temperature is 1000"),
        (lambda: next_token_probs(LOGITS, True), "temperature is True"),
        (lambda: next_token_probs(LOGITS, top_p=1e-320), "top_p is 1e-320"),
        (lambda: keep_top_p(LOGITS, 1e-40), "top_p is 1e-40; expected 1e-20"),
        (lambda: keep_top_p(LOGITS, True), "top_p is True"),
        (lambda: keep_top_k(LOGITS, True), "top_k is True"),
        (lambda: pick(LOGITS, temperature=-1), "temperature is -1"),
        (lambda: pick(LOGITS, top_k=-1), "top_k is -1"),
    ],
)
def test_mistakes_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_at_the_bounds():
    """The coldest is the argmax, ties shared; the hottest is uniform."""
    for wide in (LOGITS, 1000 * LOGITS, 1e6 * LOGITS):
        cold = next_token_probs(wide, 1e-20)
        assert cold.tolist() == [0, 1, 0, 0]
        hot = next_token_probs(wide, 1e20)
        assert torch.equal(hot, torch.full((4,), 0.25))
        assert next_token_probs(wide, top_p=1e-20).tolist() == [0, 1, 0, 0]
    tie = torch.tensor([1.0, 3.0, 3.0])
    assert next_token_probs(tie, 1e-20).tolist() == [0, 0.5, 0.5]


def test_batches():
    rows = torch.randn(2, 3, 50)
    probs = next_token_probs(rows, 0.7, 10, 0.9)
    for i in range(2):
        for j in range(3):
            alone = next_token_probs(rows[i, j], 0.7, 10, 0.9)
            assert torch.allclose(probs[i, j], alone)
    assert pick(rows).shape == (2, 3)
    assert pick(rows, temperature=1.0).shape == (2, 3)


def test_drawn_as_often_as_likely():
    g = torch.Generator().manual_seed(0)
    many = LOGITS.expand(200_000, 4)
    drawn = pick(many, temperature=1.0, generator=g)
    often = torch.bincount(drawn, minlength=4) / len(drawn)
    assert torch.allclose(often, LOGITS.exp(), atol=0.005)
    cold = pick(many[:2000], temperature=0.01, generator=g)
    assert (cold == pick(LOGITS)).all() and pick(LOGITS) == 1
