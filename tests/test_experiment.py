"""Breaking the model on purpose, and putting it together again."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import random_llama, small_ranks

import llamalib
from llamalib import Tokenizer, break_it, experiment

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def small():
    llama = random_llama()
    llama.tokenizer = Tokenizer(small_ranks())
    return llama


def test_loss_is_the_mean_of_the_next_tokens(small):
    ids = small.tokenizer.encode("abc de", bos=True, eos=False)
    logits = small(torch.tensor(ids))  # (T, V)
    surprises = [
        -logits[t].log_softmax(-1)[ids[t + 1]].item()
        for t in range(len(ids) - 1)
    ]
    mean = sum(surprises) / len(surprises)
    assert experiment.loss(small, "abc de") == pytest.approx(mean, rel=1e-5)


def test_loss_of_nothing_is_refused(small):
    with pytest.raises(ValueError, match="no token to predict"):
        experiment.loss(small, "")


def test_continuation_is_greedy(pocket):
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    new = llamalib.generate(pocket, ids, max_new_tokens=7)
    wanted = pocket.tokenizer.decode(new)
    assert experiment.continuation(pocket, PROMPT, 7) == wanted
    # it ends where the model ends it
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
def test_every_part_can_be_broken_and_is_whole_after(pocket, name):
    tokens = torch.arange(9)
    before = pocket(tokens)
    whole, broken = break_it(pocket, PROMPT, **{name: BROKEN[name]})
    assert whole.continuation.startswith(" Paris.")
    assert broken.loss > whole.loss + 0.1
    assert torch.equal(pocket(tokens), before)


def test_loss_alone(pocket):
    whole, broken = break_it(
        pocket, PROMPT, max_new_tokens=0, feed_forward=BROKEN["feed_forward"]
    )
    assert whole.continuation == broken.continuation == ""
    assert broken.loss > whole.loss


def test_an_error_leaves_all_as_it_was(small):
    original = llamalib.rms_norm

    def fails(*arguments):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        break_it(small, "ab", rms_norm=fails)
    assert llamalib.rms_norm is llamalib.model.rms_norm is original


def test_what_cannot_be_replaced_is_said(small):
    with pytest.raises(ValueError, match="no function nonsense"):
        break_it(small, "ab", nonsense=max)
    with pytest.raises(ValueError, match="self_attention"):
        break_it(small, "ab", attention=max)


def test_outcome_prints_no_noise():
    line = str(experiment.Outcome(12345.678, "a"))
    assert line == "loss over 100 nats a token | 'a'"
    assert "over 100" in str(experiment.Outcome(math.nan, "a"))
    assert "loss 0.972 " in str(experiment.Outcome(0.97186, "a"))
