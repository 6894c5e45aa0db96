import pytest
import torch
from helpers import random_ids, random_llama, small_config, small_ranks

import llamalib


def naive(llama, ids, n):
    """Greedy, all computed anew for every token."""
    ids = list(ids)
    for _ in range(n):
        ids.append(llama(torch.tensor(ids))[-1].argmax().item())
    return ids[-n:]


@torch.no_grad()
def test_cached_is_uncached():
    llama = random_llama()
    prompt = random_ids(6).tolist()
    found = list(llamalib.generate(llama, prompt, max_new_tokens=500))
    assert found == naive(llama, prompt, 500)


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


def test_lazy_and_leaves_the_model_usable():
    llama = random_llama()
    whole = list(llamalib.generate(llama, [1, 2], max_new_tokens=9))
    ids = llamalib.generate(llama, [1, 2], max_new_tokens=9)
    assert [next(ids), next(ids)] == whole[:2]
    assert not torch.is_inference_mode_enabled()
    ids.close()
    assert list(llamalib.generate(llama, [1, 2], max_new_tokens=9)) == whole


def test_one_pass_a_token(monkeypatch):
    """The prompt goes in once, then one token at a time, the last never."""
    llama = random_llama()
    seen = []
    forward = llama.forward

    def count(tokens, *args, **kwargs):
        seen.append(tokens.shape[1])
        return forward(tokens, *args, **kwargs)

    monkeypatch.setattr(llama, "forward", count)
    list(llamalib.generate(llama, random_ids(7), max_new_tokens=4))
    assert seen == [7, 1, 1, 1]


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(prompt_ids=[]), r"\(0,\)"),
        (dict(prompt_ids=[[1]]), r"\(1, 1\)"),
        (dict(prompt_ids=[1.5]), "float32"),
        (dict(prompt_ids=[-1]), "-1"),
        (dict(prompt_ids=[556]), "556"),
        (dict(max_new_tokens=0), "max_new_tokens is 0"),
        (dict(max_new_tokens=-3), "max_new_tokens is -3"),
        (dict(max_new_tokens=2.0), "max_new_tokens is 2.0"),
        (dict(max_new_tokens=8192), "at most 8191"),
        (dict(temperature=-1), "temperature is -1"),
        (dict(temperature=float("nan")), "temperature is nan"),
        (dict(prompt_ids="hello"), "prompt_ids are 'hello'"),
        (dict(stop="."), r"stop is \."),
        (dict(stop=5), "stop is 5"),
        (dict(stop=[556]), r"stop is \[556\]; .* 0 to 555"),
        (dict(seed="a"), "seed is 'a'"),
        (dict(seed=2**70), "seed is 1180"),
        (dict(temperature="1"), "temperature is '1'"),
        (dict(temperature=None), "temperature is None"),
        (dict(top_p="x"), "top_p is 'x'"),
        (dict(top_k=0), "top_k is 0"),
        (dict(top_p=0), "top_p is 0"),
        (dict(top_p=1.1), "top_p is 1.1"),
    ],
)
def test_mistakes_are_named_at_the_call(change, said):
    arguments = dict(prompt_ids=[1], max_new_tokens=1) | change
    with pytest.raises(ValueError, match=said):
        llamalib.generate(random_llama(), **arguments)


def test_scaled_models_take_longer_prompts():
    llama = random_llama(small_config(use_scaled_rope=True))
    llamalib.generate(llama, [1], max_new_tokens=131071)
    with pytest.raises(ValueError, match="131072 positions"):
        llamalib.generate(llama, [1], max_new_tokens=131072)
