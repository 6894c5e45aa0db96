"""Functions of the model are replaced, and restored afterwards."""

import math

import pytest
import torch
import torch.nn.functional as F

import llamalib
from lessons.texts import held_out_texts
from llamalib import Tokenizer, break_it, model, probe
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
    assert llamalib.text_loss(small, "abc de") == pytest.approx(mean, rel=1e-5)


def test_continuation_is_greedy(pocket):
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    new = llamalib.generate(pocket, ids, max_new_tokens=7)
    expected = pocket.tokenizer.decode(new)
    assert probe.continuation(pocket, PROMPT, 7) == expected
    # it stops at an end token
    whole = probe.continuation(pocket, PROMPT, 60)
    assert whole.endswith(".") and "<|" not in whole


def no_rotation(head_dim, end, *rest):
    return torch.tensor([1.0, 0.0]).expand(end, head_dim // 2, 2)


BROKEN = {
    "rms_norm": lambda x, weight, eps: x,
    "scale_frequencies": lambda freqs, factor: 4 * freqs,
    "precompute_freqs_cis": no_rotation,
    "apply_rotary_emb": lambda xq, xk, freqs_cis: (xq, xk),
    "causal_mask": lambda T, S=None, device=None: torch.zeros(T, S or T),
    "attention": lambda xq, xk, xv, mask=None: torch.zeros_like(
        xq.flatten(-2)
    ),
    "RMSNorm.forward": lambda self, x: x,
    "Attention.forward": lambda self, x, *rest: torch.zeros_like(x),
    "FeedForward.forward": lambda self, x: self.w2(
        F.silu(self.w3(x)) * self.w1(x)
    ),
    "TransformerBlock.forward": lambda self, x, *rest: x,
    "Llama.forward": lambda self, tokens, cache=None, last_only=False: (
        self.output(self.tok_embeddings(tokens[..., -last_only:]))
    ),
}


def test_all_that_can_be_replaced_is_broken_below():
    assert sorted(BROKEN) == sorted(probe.REPLACEABLE)


@pytest.mark.parametrize("name", BROKEN)
def test_every_part_can_be_broken_and_is_restored(pocket, name):
    """The loss, the continuation and what `generate` gives change."""
    tokens, change = torch.arange(9), {name: BROKEN[name]}
    ids = pocket.tokenizer.encode(PROMPT, bos=True, eos=False)
    how = dict(max_new_tokens=12, stop=())
    before, new = pocket(tokens), list(llamalib.generate(pocket, ids, **how))
    texts = held_out_texts(pocket)
    unchanged, broken = break_it(pocket, PROMPT, texts, **change)
    assert unchanged.continuation.startswith(" Paris.")
    assert broken.loss > unchanged.loss + 0.1
    assert broken.unchanged == unchanged.losses  # of the same texts
    assert broken.continuation != unchanged.continuation
    with llamalib.replaced(**change):
        assert list(llamalib.generate(pocket, ids, **how)) != new
    assert torch.equal(pocket(tokens), before)
    assert list(llamalib.generate(pocket, ids, **how)) == new


@pytest.mark.parametrize("name", BROKEN)
def test_an_error_restores_the_functions(small, name):
    def fails(*arguments, **options):
        raise RuntimeError("on purpose")

    tokens = torch.arange(5)
    before, public = small(tokens), vars(llamalib).copy()
    private = vars(model).copy(), vars(llamalib.Llama).copy()
    # `scale_frequencies` runs where the config asks for it
    scaled = small.config.use_scaled_rope or name != "scale_frequencies"
    if scaled:
        with pytest.raises(RuntimeError, match="on purpose"):
            break_it(small, "ab", ["abc"], **{name: fails})
    with pytest.raises(KeyboardInterrupt):
        with llamalib.replaced(**{name: fails}):
            raise KeyboardInterrupt
    assert vars(llamalib) == public
    assert (vars(model), dict(vars(llamalib.Llama))) == private
    assert torch.equal(small(tokens), before)


def test_one_inside_another(small):
    tokens = torch.arange(5)
    with llamalib.replaced(rms_norm=BROKEN["rms_norm"]):
        one = small(tokens)
        with llamalib.replaced(apply_rotary_emb=BROKEN["apply_rotary_emb"]):
            assert not torch.equal(small(tokens), one)
        assert torch.equal(small(tokens), one)


@pytest.mark.parametrize("name", ["nonsense", "repeat_kv", "Llama.to"])
def test_an_error_names_a_function_that_cannot_be_replaced(small, name):
    said = f"^{name} cannot be replaced, only rms_norm, .*Llama.forward$"
    with pytest.raises(ValueError, match=said):
        break_it(small, "ab", ["abc"], **{name: max})


def test_an_outcome_prints_three_digits_and_the_change():
    line = str(probe.Outcome((12345.678,), "a"))
    assert line == "loss over 100 | 'a'"
    assert "over 100" in str(probe.Outcome((math.nan,), "a", (1.0,)))
    assert str(probe.Outcome((0.9, 1.1), "a")) == "loss 1 | 'a'"
    line = str(probe.Outcome((2.0, 3.0), "a", (1.0, 2.5)))
    assert line == "loss 2.5 (+0.750) | 'a'"
    line = str(probe.Outcome((1.0, 2.0), "a", (2.0, 3.0)))
    assert line == "loss 1.5 (-1.000) | 'a'"


def test_the_difference_is_paired():
    """Texts differ by far more than the change does."""
    easy_and_hard, change = torch.tensor([0.5, 9.0, 3.0]), 0.01
    mean, error = llamalib.paired_difference(
        (easy_and_hard + change).tolist(), easy_and_hard.tolist()
    )
    assert mean == pytest.approx(0.01, rel=1e-4) and error < 1e-6
    mean, error = llamalib.paired_difference([1, 2, 6], [1, 1, 4])
    assert (mean, error) == pytest.approx((1, 1 / math.sqrt(3)))
