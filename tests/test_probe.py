"""Functions of the model are replaced, and restored afterwards."""

import math
import sys
import threading
from dataclasses import replace
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

import llamalib
from lessons import n07_lm_head as nb07
from lessons.exercises import SOLUTIONS, sections
from lessons.texts import held_out_texts
from llamalib import Tokenizer, break_it, model, probe
from tests.helpers import random_llama, small_config, small_ranks

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
    texts = held_out_texts(pocket)[:6]
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
    replaced = llamalib.replaced(**{name: fails})
    with pytest.raises(KeyboardInterrupt), replaced:
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


def test_contexts_close_in_any_order(small, monkeypatch):
    """The last opened counts; then the originals are back, everywhere."""
    late = ModuleType("llamalib.late")  # imported while one is open
    original, tokens = model.rms_norm, torch.arange(5)
    functions = [
        lambda x, weight, eps: x,
        BROKEN["rms_norm"],
        lambda x, weight, eps: x / 2,
    ]
    before, seen = small(tokens), []
    contexts = [llamalib.replaced(rms_norm=each) for each in functions]
    for each in contexts:
        each.__enter__()
        seen.append({model.rms_norm, llamalib.rms_norm})
    late.rms_norm = model.rms_norm
    monkeypatch.setitem(sys.modules, "llamalib.late", late)
    for i in (1, 2, 0):
        contexts[i].__exit__(None, None, None)
        seen.append({model.rms_norm, llamalib.rms_norm, late.rms_norm})
    left = functions[2], functions[0], original
    assert seen == [{each} for each in (*functions, *left)]
    assert torch.equal(small(tokens), before)


# -- two threads -------------------------------------------------------------


def changed(llama, tokens, **functions):
    """Return the logits with replaced functions."""
    with llamalib.replaced(**functions), torch.no_grad():
        return llama(tokens)


def broken(llama, tokens):
    how = dict(max_new_tokens=1, rms_norm=BROKEN["rms_norm"])
    return break_it(llama, "ab", ["abc de"], **how)


def maps(llama, tokens):
    return llamalib.attention_maps(llama, tokens)


def recorded(llama, tokens):
    return [*llamalib.record(llama, tokens).values()]


def without_norm(llama, tokens):
    return changed(llama, tokens, rms_norm=lambda x, weight, eps: x)


def without_rope(llama, tokens):
    unrotated = lambda xq, xk, freqs_cis: (xq, xk)  # noqa: E731
    return changed(llama, tokens, apply_rotary_emb=unrotated)


def without_mask(llama, tokens, attention=model.attention):
    def unmasked(xq, xk, xv, mask):
        return attention(xq, xk, xv)

    return changed(llama, tokens, attention=unmasked)


def plain(llama, tokens):
    with torch.no_grad():
        return llama(tokens)


def same(found, expected):
    if isinstance(found, torch.Tensor):
        return torch.equal(found, expected)
    if isinstance(found, list):
        return all(map(torch.equal, found, expected))
    return found == expected


@pytest.mark.parametrize(
    "pair",
    [
        (maps, maps),
        (recorded, recorded),
        (maps, without_mask),
        (maps, plain),
        (recorded, plain),
        (recorded, without_norm),
        (without_norm, without_rope),
        (broken, maps),
        (broken, broken),
    ],
    ids=lambda pair: " and ".join(each.__name__ for each in pair),
)
def test_two_threads_do_not_disturb_each_other(small, pair):
    """Each gets what it gets alone; afterwards nothing is replaced."""
    before, start = vars(model).copy(), threading.Barrier(2)
    given = torch.arange(5), torch.arange(50, 58)
    expected = [each(small, ids) for each, ids in zip(pair, given)]
    right, interval = [0, 0], sys.getswitchinterval()

    def work(i):
        start.wait()
        for _ in range(20):
            right[i] += same(pair[i](small, given[i]), expected[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    sys.setswitchinterval(1e-4)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert right == [20, 20]
    assert vars(model) == before


# -- wrong arguments ---------------------------------------------------------


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


@pytest.mark.parametrize("others", [[1], [1, 2], [1, 2, 3, 4], []])
def test_losses_come_in_pairs(others):
    said = f"^losses and others .* same texts, .* 3 and {len(others)}$"
    with pytest.raises(ValueError, match=said):
        llamalib.paired_difference([1, 2, 3], others)
    if len(others) == 1:  # it has no standard error
        with pytest.raises(ValueError, match="two or more, got 1 and 1$"):
            llamalib.paired_difference(others, others)


@pytest.mark.parametrize("texts", ["Hello", [], "", 5, iter(())])
def test_texts_are_a_list(small, texts):
    with pytest.raises(
        ValueError, match="^texts must be a list of texts, got"
    ):
        break_it(small, "ab", texts, rms_norm=BROKEN["rms_norm"])


def test_texts_may_come_from_a_generator(small):
    """They are read twice."""
    texts = ["abc", "de"]
    first = break_it(small, "ab", (text for text in texts))
    assert first == break_it(small, "ab", texts)


@pytest.mark.parametrize("n", [-3, True, 1.5])
def test_a_number_of_tokens_that_is_none(small, n):
    with pytest.raises(ValueError, match="max_new_tokens must be a whole num"):
        break_it(small, "ab", ["abc"], max_new_tokens=n)


def test_a_text_without_a_token_has_no_loss(small):
    with pytest.raises(ValueError, match="^text has no token to predict: ''$"):
        llamalib.text_loss(small, "")


def test_attention_maps_are_of_one_text(small):
    tokens = torch.arange(6).view(2, 3)
    with pytest.raises(ValueError, match=r"one text, .* shape \(2, 3\): call"):
        llamalib.attention_maps(small, tokens)
    for wrong in (tokens[None, :1], tokens[0, 0]):
        with pytest.raises(ValueError, match="takes one text"):
            llamalib.attention_maps(small, wrong)
    found = llamalib.attention_maps(small, tokens[:1])
    assert torch.equal(found, llamalib.attention_maps(small, tokens[0]))


@pytest.mark.parametrize("make", [nb07.first_try, nb07.broken])
def test_a_llama_with_a_fault_leaves_its_model_alone(small, make):
    """It has the same weights in memory, and one block that is wrong."""
    tokens = torch.arange(6)
    before, found = small(tokens), make(small)
    assert not torch.equal(found(tokens), before)
    assert torch.equal(small(tokens), before)
    kept = {w.data_ptr() for w in small.parameters()}
    assert {w.data_ptr() for w in found.parameters()} == kept
    pairs = zip(small.layers, found.layers, strict=True)
    c, x = small.config, torch.randn(6, small.config.dim)
    angles = model.precompute_freqs_cis(c.head_dim, 6, c.rope_theta)
    given = angles, model.causal_mask(6)
    wrong = [not torch.equal(a(x, *given), b(x, *given)) for a, b in pairs]
    assert sum(wrong) == 1


def test_hooks_that_stay_on_a_model_are_named():
    """A right answer to 07's third exercise that does not clean up."""
    file = SOLUTIONS / "07_lm_head.py"
    (source,) = (s for n, _, s in sections(file) if n == 3)
    names = {"torch": torch}
    exec(source.replace("hook.remove()", "pass"), names)
    config = replace(small_config(), vocab_size=200)
    llama = random_llama(config)  # the check asks for ids up to 119
    right, words = nb07.check_3.verdict(names["first_wrong"], llama)
    assert right is False and "your hooks stay" in words
    exec(source, names)  # the next try cleans up; the old hooks are there
    assert nb07.check_3.verdict(names["first_wrong"], llama)[0] is True
