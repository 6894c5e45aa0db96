"""Functions of the model are replaced, and restored afterwards."""

import math

import pytest
import torch
import torch.nn.functional as F

import llamalib
from llamalib import Tokenizer, break_it
from llamalib.course import experiment
from tests.helpers import random_llama, small_ranks

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def small():
    llama = random_llama()
    llama.tokenizer = Tokenizer(small_ranks())
    return llama


def test_loss_is_the_mean_over_the_next_tokens(small):
    ids = small.tokenizer.encode("abc de", bos=True, eos=False)
    logits = small(torch.tensor(ids))  # (T, V)
    surprises = [
        -logits[t].log_softmax(-1)[ids[t + 1]].item()
        for t in range(len(ids) - 1)
    ]
    mean = sum(surprises) / len(surprises)
    assert experiment.loss(small, "abc de") == pytest.approx(mean, rel=1e-5)


def test_a_text_without_a_token_to_predict_is_refused(small):
    with pytest.raises(ValueError, match="text is ''; expected a token"):
        experiment.loss(small, "")


def test_continuation_is_greedy(pocket):
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    new = llamalib.generate(pocket, ids, max_new_tokens=7)
    expected = pocket.tokenizer.decode(new)
    assert experiment.continuation(pocket, PROMPT, 7) == expected
    # it stops at an end token
    whole = experiment.continuation(pocket, PROMPT, 60)
    assert whole.endswith(".") and "<|" not in whole


BROKEN = {
    "rms_norm": lambda x, weight, eps: x,
    "apply_rotary_emb": lambda xq, xk, freqs_cis: (xq, xk),
    "causal_mask": lambda T, S=None, device=None: torch.zeros(T, S or T),
    "feed_forward": lambda x, w1, w2, w3: F.linear(
        F.silu(F.linear(x, w3)) * F.linear(x, w1), w2
    ),
    "self_attention": lambda x, *weights, **options: torch.zeros_like(x),
    "transformer_block": lambda x, *rest, **options: x,
    "precompute_freqs_cis": lambda head_dim, end, *rest: torch.ones(
        end, head_dim // 2, dtype=torch.complex64
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_every_part_can_be_broken_and_is_restored(pocket, name):
    tokens = torch.arange(9)
    before = pocket(tokens)
    unchanged, broken = break_it(pocket, PROMPT, **{name: BROKEN[name]})
    assert unchanged.continuation.startswith(" Paris.")
    assert broken.loss > unchanged.loss + 0.1
    assert torch.equal(pocket(tokens), before)


def test_loss_alone(pocket):
    unchanged, broken = break_it(
        pocket, PROMPT, max_new_tokens=0, feed_forward=BROKEN["feed_forward"]
    )
    assert unchanged.continuation == broken.continuation == ""
    assert broken.loss > unchanged.loss


def test_an_error_restores_the_functions(small):
    original = llamalib.rms_norm

    def fails(*arguments):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        break_it(small, "ab", rms_norm=fails)
    assert llamalib.rms_norm is llamalib.model.rms_norm is original


def test_an_error_names_a_function_that_cannot_be_replaced(small):
    with pytest.raises(ValueError, match="'nonsense'; expected one of"):
        break_it(small, "ab", nonsense=max)
    with pytest.raises(ValueError, match="self_attention"):
        break_it(small, "ab", attention=max)


def test_an_outcome_prints_three_digits():
    line = str(experiment.Outcome((12345.678,), "a"))
    assert line == "loss over 100 | 'a'"
    assert "over 100" in str(experiment.Outcome((math.nan,), "a"))
    assert str(experiment.Outcome((0.9, 1.1), "a")) == "loss 1 | 'a'"


def test_a_small_difference_is_none():
    """Below two standard errors, whichever sign it has."""
    for mean, words in (
        (0.3, "loss 2 (+0.300 ± 0.100) | ''"),
        (-0.3, "loss 2 (-0.300 ± 0.100) | ''"),
        (0.19, "loss 2, no difference (+0.190 ± 0.100) | ''"),
        (-0.19, "loss 2, no difference (-0.190 ± 0.100) | ''"),
    ):
        assert str(experiment.Outcome((2.0,), "", (mean, 0.1))) == words


def test_the_difference_is_paired():
    """Texts differ by far more than the change does."""
    easy_and_hard, change = torch.tensor([0.5, 9.0, 3.0]), 0.01
    mean, error = experiment.paired_difference(
        (easy_and_hard + change).tolist(), easy_and_hard.tolist()
    )
    assert mean == pytest.approx(0.01, rel=1e-4) and error < 1e-6
    mean, error = experiment.paired_difference([1, 2, 6], [1, 1, 4])
    assert (mean, error) == pytest.approx((1, 1 / math.sqrt(3)))


def test_the_texts_are_held_out(small, pocket):
    texts = experiment.held_out_texts(pocket)
    drawn = experiment.own_documents(56, seed="held out")
    # 16.4 million tokens are fewer than 400,000 texts
    trained = set(drawn) & set(experiment.own_documents(400_000, seed="train"))
    assert texts == [text for text in drawn if text not in trained]
    assert len(texts) == 50
    assert experiment.held_out_texts(small) == texts


def test_texts_are_two_or_more(small):
    for texts in ("a story", ["one"], []):
        with pytest.raises(ValueError, match="two texts or more"):
            break_it(small, "ab", texts, rms_norm=BROKEN["rms_norm"])
    unchanged, broken = break_it(
        small, "ab", ["abc", "de fg"], rms_norm=BROKEN["rms_norm"]
    )
    assert len(unchanged.losses) == len(broken.losses) == 2
    change = experiment.paired_difference(broken.losses, unchanged.losses)
    assert broken.change == change
