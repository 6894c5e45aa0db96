"""The loops that generate: greedy, sampled, in batches, with stop ids."""

from functools import partial

import pytest
import torch

import llamalib
from lessons.texts import STORY
from llamalib.batch import PaddedCache
from tests.helpers import (
    live_bytes,
    random_ids,
    random_llama,
    small_config,
    small_ranks,
)
from tests.taught import taught


def naive(llama, ids, n):
    """Greedy, the whole text again for every token."""
    ids = list(ids)
    for _ in range(n):
        ids.append(llama(torch.tensor(ids))[-1].argmax().item())
    return ids[-n:]


@pytest.fixture
def passes(monkeypatch):
    """Note the shape of each pass's tokens."""
    seen, forward = [], llamalib.Llama.forward

    def noted(llama, tokens, *args, **kwargs):
        seen.append(tuple(tokens.shape))
        return forward(llama, tokens, *args, **kwargs)

    monkeypatch.setattr(llamalib.Llama, "forward", noted)
    return seen


@torch.no_grad()
def test_cached_is_uncached(passes):
    """The prompt goes in once, then one token at a time, the last never."""
    llama = random_llama()
    prompt = random_ids(6).tolist()
    found = list(llamalib.generate(llama, prompt, max_new_tokens=200))
    assert passes == [(1, 6)] + 199 * [(1, 1)]
    assert found == naive(llama, prompt, 200)


def test_lists_tensors_and_seeds():
    llama = random_llama()
    prompt = random_ids(4)
    how = dict(max_new_tokens=20, temperature=1.0)
    one, two, three = (
        list(llamalib.generate(llama, p, seed=seed, **how))
        for p, seed in ((prompt, 1), (prompt.tolist(), 1), (prompt, 2))
    )
    assert one == two and one != three
    greedy = list(llamalib.generate(llama, prompt, max_new_tokens=20))
    for narrow in (dict(top_k=1), dict(top_p=1e-6)):
        found = list(llamalib.generate(llama, prompt, **how, **narrow))
        assert found == greedy


def test_where_it_stops():
    llama = random_llama()
    whole = list(llamalib.generate(llama, [1], max_new_tokens=30))
    end = whole[7]
    first = whole.index(end)
    stopped = llamalib.generate(llama, [1], max_new_tokens=30, stop=[end])
    assert list(stopped) == whole[:first]
    tensor = torch.tensor([end])
    again = llamalib.generate(llama, [1], max_new_tokens=30, stop=tensor)
    assert list(again) == whole[:first]
    assert len(list(llamalib.generate(llama, [1], max_new_tokens=3))) == 3


@torch.no_grad()
def test_stops_at_the_tokenizers_end_tokens():
    llama = random_llama()
    llama.tokenizer = llamalib.Tokenizer(small_ranks())
    end = llama.tokenizer.eos_id
    whole = naive(llama, [5], 10)
    assert end not in whole
    # make the end token as likely as the fourth token was, and a little more
    weight = llama.tok_embeddings.weight
    weight[end] = 1.01 * weight[whole[3]]
    short = list(llamalib.generate(llama, [5], max_new_tokens=10))
    on = list(llamalib.generate(llama, [5], max_new_tokens=10, stop=()))
    assert short == on[: len(short)] and on[len(short)] == end
    assert len(on) == 10


def test_two_generations_at_once():
    """Each has its own cache, and its own random numbers."""
    llama = random_llama()
    how = dict(max_new_tokens=20, temperature=1.0, stop=())
    prompts = [1, 2, 3], [4, 5]
    expected = [
        list(llamalib.generate(llama, ids, seed=7, **how)) for ids in prompts
    ]
    both = [llamalib.generate(llama, ids, seed=7, **how) for ids in prompts]
    assert [list(ids) for ids in zip(*zip(*both))] == expected


def test_lazy_and_leaves_the_model_usable():
    llama = random_llama()
    whole = list(llamalib.generate(llama, [1, 2], max_new_tokens=9))
    ids = llamalib.generate(llama, [1, 2], max_new_tokens=9)
    assert [next(ids), next(ids)] == whole[:2]
    assert not torch.is_inference_mode_enabled()
    ids.close()
    assert list(llamalib.generate(llama, [1, 2], max_new_tokens=9)) == whole


def test_no_text_exceeds_the_context():
    llama = random_llama(small_config(context_length=8192))
    prompt, n = [1, 2, 3], 8192 - 3
    llamalib.generate(llama, prompt, max_new_tokens=n)
    said = f"max_new_tokens={n + 1} exceeds the context: 8192 positions "
    said += f"minus 3 prompt tokens leave {n}"
    for prompts in ([prompt], [[1], prompt]):
        with pytest.raises(ValueError, match=said):
            llamalib.generate_batch(llama, prompts, max_new_tokens=n + 1)


def test_batch_is_each_alone(pocket):
    """Prompts of 1 to 40 tokens, one of them twice."""
    encode = partial(pocket.tokenizer.encode, bos=True, eos=False)
    texts = ["", "The capital of France is", "Once upon a time", STORY, ""]
    prompts = [encode(text) for text in texts]
    for how in (dict(stop=()), dict()):
        found = llamalib.generate_batch(
            pocket, prompts, max_new_tokens=40, **how
        )
        expected = [
            list(llamalib.generate(pocket, p, max_new_tokens=40, **how))
            for p in prompts
        ]
        assert found == expected
    assert len({len(ids) for ids in found}) > 1  # each has its own stop


def test_batch_of_equal_lengths_and_of_one():
    llama = random_llama()
    rows, how = random_ids(3, 6), dict(max_new_tokens=20)
    expected = [list(llamalib.generate(llama, row, **how)) for row in rows]
    assert llamalib.generate_batch(llama, rows, **how) == expected
    assert llamalib.generate_batch(llama, [rows[1]], **how) == expected[1:2]


def test_batch_draws_as_each_alone():
    llama = random_llama()
    prompts = [[1, 2, 3], [4], [1, 2, 3]]
    how = dict(max_new_tokens=20, temperature=1.0, top_k=50)
    found = llamalib.generate_batch(llama, prompts, seed=5, **how)
    expected = [
        list(llamalib.generate(llama, p, seed=5 + b, **how))
        for b, p in enumerate(prompts)
    ]
    assert found == expected and found[0] != found[2]
    llamalib.generate_batch(llama, prompts, **how)  # not reproducible


def test_batch_stops_when_all_have(passes):
    llama = random_llama()
    prompts, how = [[1, 2, 3], [4]], dict(max_new_tokens=30)
    alone = [list(llamalib.generate(llama, p, **how)) for p in prompts]
    ends = [ids[5] for ids in alone]
    first = [next(i for i, t in enumerate(ids) if t in ends) for ids in alone]
    passes.clear()
    found = llamalib.generate_batch(llama, prompts, **how, stop=ends)
    assert found == [ids[:n] for ids, n in zip(alone, first)]
    assert passes == [(2, 3)] + [(2, 1)] * max(first)


@torch.no_grad()
@pytest.mark.parametrize("chunk", [1, 3, 5])
def test_padding_is_never_seen(chunk):
    llama = random_llama()
    padding = torch.tensor([0, 4, 2])
    logits = []
    for pad in (0, 299):
        tokens = random_ids(3, 5)
        for row, n in zip(tokens, padding):
            row[:n] = pad
        cache = PaddedCache(llama.config, 9, padding)
        out = [llamalib.prefill(llama, tokens, cache, chunk=chunk)]
        for token in random_ids(4, 3, seed=1):
            out.append(llamalib.decode_one(llama, token, cache))
        logits.append(torch.stack(out))
    assert torch.equal(*logits) and logits[0].isfinite().all()


def test_only_the_cache_grows_with_length():
    llama = random_llama()
    before, config, sizes = live_bytes(), llama.config, {}
    for n in (20, 220):
        ids = llamalib.generate(llama, [1, 2, 3], max_new_tokens=n, stop=())
        for _ in range(n - 1):
            next(ids)
        sizes[n] = live_bytes()
        del ids
        assert live_bytes() == before  # no generation leaves any behind
    keys_and_values = 2 * config.n_layers * config.n_kv_heads
    a_position = 4 * config.head_dim * (keys_and_values + 1)  # 1: RoPE's
    assert sizes[220] - sizes[20] == 200 * a_position


# -- guessed tokens (appendix G)


def test_guesses_change_the_passes_and_not_the_text(passes):
    """Right, wrong, half right, too few: the ids are those of greedy."""
    (speculative,) = taught("G_speed", "speculative")
    llama, prompt = random_llama(), random_ids(6).tolist()
    expected = list(llamalib.generate(llama, prompt, max_new_tokens=40))
    whole = prompt + expected

    def guesses(right, wrong):
        def propose(text, k):
            assert text == whole[: len(text)] and k == 4
            n = len(text)
            return whole[n : n + right] + [(whole[n] + 1) % 256] * wrong

        return propose

    for right, wrong in ((0, 0), (0, 4), (2, 2), (1, 0), (4, 0)):
        del passes[:]
        propose, n = guesses(right, wrong), 39 - (39 - 1) % (right + 1)
        found, noted = speculative(llama, propose, prompt, n, 4)
        assert found == expected[:n]
        assert passes == [(1, 6)] + [(1, 1 + right + wrong)] * len(noted)
        assert noted == [(right + wrong, right)] * ((n - 1) // (right + 1))


def test_a_look_up_finds_the_last_place():
    (lookup,) = taught("G_speed", "lookup")
    text = [1, 2, 3, 4, 1, 2, 5, 6, 7, 1, 2]
    assert lookup(text, 4) == [5, 6, 7, 1]
    assert lookup(text, 2) == [5, 6]
    assert lookup(text, 4, n=1) == [5, 6, 7, 1]
    assert lookup([1, 2, 3], 4) == [] == lookup([1], 4)
    assert lookup([7, 7, 7], 4) == [7]
