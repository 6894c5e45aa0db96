import gc
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import llamalib
from lessons.texts import STORY
from tests.helpers import random_ids, random_llama, small_config, small_ranks


def naive(llama, ids, n):
    """Greedy, the whole text again for every token."""
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


IDS = "prompt_ids must be a list of token ids, "
COUNT = "max_new_tokens must be a whole number >= 1, got"
SEED = r"seed must be a whole number from 0 to 2\*\*63 - 1, or None, got"
STOP = r"stop must be a collection of token ids, or \(\) for none, "
FOREIGN = "contains 556, but the vocabulary has 556 tokens"


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(llama="a folder"), r"llama must be a Llama, got a str; call"),
        (dict(prompt_ids=[]), "prompt_ids must hold at least one token id"),
        (dict(prompt_ids=torch.tensor([])), "prompt_ids must hold at least"),
        (dict(prompt_ids=[[1]]), IDS + r"but holds \[1\]"),
        (dict(prompt_ids=torch.tensor([[1]])), IDS + r"got a tensor \(1, 1\)"),
        (dict(prompt_ids=[1.5]), IDS + "but holds 1.5"),
        (dict(prompt_ids=torch.tensor([1.0])), IDS + "but holds 1.0"),
        (dict(prompt_ids=[True]), IDS + "but holds True"),
        (dict(prompt_ids=[-1]), "prompt_ids contains -1"),
        (dict(prompt_ids=[556]), "prompt_ids " + FOREIGN),
        (dict(prompt_ids=5), IDS + "got 5"),
        (dict(prompt_ids=b"hello"), IDS + "got b'hello'"),
        (dict(prompt_ids="hello"), IDS + "got a str; call llama.tokenizer"),
        (dict(max_new_tokens=0), f"{COUNT} 0"),
        (dict(max_new_tokens=-3), f"{COUNT} -3"),
        (dict(max_new_tokens=2.0), f"{COUNT} 2.0"),
        (dict(max_new_tokens=True), f"{COUNT} True"),
        (dict(temperature=-1), "temperature must be >= 0, got -1"),
        (dict(temperature=float("nan")), "temperature must be a number, got"),
        (dict(temperature="1"), "temperature must be a number, got '1'"),
        (dict(temperature=None), "temperature must be a number, got None"),
        (dict(top_p="x"), r"top_p must be in \(0, 1\], got 'x'"),
        (dict(top_k=0), "top_k must be a whole number >= 1, got 0"),
        (dict(top_p=0), r"top_p must be in \(0, 1\], got 0"),
        (dict(top_p=1.1), r"top_p must be in \(0, 1\], got 1.1"),
        (dict(stop="."), STOP + "got a str"),
        (dict(stop=5), STOP + "got 5"),
        (dict(stop=[556]), f"stop {FOREIGN}"),
        (dict(seed="a"), f"{SEED} 'a'"),
        (dict(seed=-1), f"{SEED} -1"),
        (dict(seed=2**70), f"{SEED} 1180"),
        (dict(compile=1), "compile must be True or False, got 1"),
    ],
)
def test_mistakes_are_named_at_the_call(change, said):
    arguments = dict(prompt_ids=[1], max_new_tokens=1) | change
    llama = arguments.pop("llama", random_llama())
    with pytest.raises(ValueError, match=said):
        llamalib.generate(llama, **arguments)


@pytest.mark.parametrize("length", [8192, 131072])
def test_no_text_exceeds_the_context(length):
    llama = random_llama(small_config(context_length=length))
    prompt, n = [1, 2, 3], length - 3
    llamalib.generate(llama, prompt, max_new_tokens=n)
    said = f"max_new_tokens={n + 1} exceeds the context: {length} positions "
    said += f"minus 3 prompt tokens leave {n}"
    with pytest.raises(ValueError, match=said):
        llamalib.generate(llama, prompt, max_new_tokens=n + 1)
    with pytest.raises(ValueError, match=said):
        llamalib.generate_batch(llama, [[1], prompt], max_new_tokens=n + 1)


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
    rows = random_ids(3, 6)
    how = dict(max_new_tokens=20)
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


def test_batch_stops_when_all_have(monkeypatch):
    llama = random_llama()
    prompts = [[1, 2, 3], [4]]
    alone = [
        list(llamalib.generate(llama, p, max_new_tokens=30)) for p in prompts
    ]
    ends = [ids[5] for ids in alone]
    steps = []
    forward = llama.forward

    def count(tokens, *args, **kwargs):
        steps.append(tokens.shape)
        return forward(tokens, *args, **kwargs)

    monkeypatch.setattr(llama, "forward", count)
    found = llamalib.generate_batch(
        llama, prompts, max_new_tokens=30, stop=ends
    )
    first = [next(i for i, t in enumerate(ids) if t in ends) for ids in alone]
    assert found == [ids[:n] for ids, n in zip(alone, first)]
    assert steps == [(2, 3)] + [(2, 1)] * max(first)


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
        cache = llamalib.KVCache(llama.config, 9, 3, padding)
        out = [llamalib.prefill(llama, tokens, cache, chunk=chunk)]
        for token in random_ids(4, 3, seed=1):
            out.append(llamalib.decode_one(llama, token, cache))
        logits.append(torch.stack(out))
    assert torch.equal(*logits) and logits[0].isfinite().all()


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(prompts=[]), "prompts must hold at least one prompt, got none"),
        (dict(prompts="ab"), "prompts must be a list of prompts, got 'ab'"),
        (dict(prompts=5), "prompts must be a list of prompts, got 5"),
        (dict(prompts=["ab"]), IDS + "got a str; call llama.tokenizer"),
        (dict(prompts=[[1], []]), r"prompts\[1\] must hold at least one"),
        (dict(prompts=[1, 2]), r"prompts\[0\] must be a list .* got 1"),
        (dict(prompts=[[1], [556]]), rf"prompts\[1\] {FOREIGN}"),
        (dict(max_new_tokens=0), f"{COUNT} 0"),
        (dict(seed=-1), f"{SEED} -1"),
        (dict(stop=5), STOP + "got 5"),
        (dict(temperature=-1), "temperature must be >= 0, got -1"),
    ],
)
def test_mistakes_in_a_batch_are_named(change, said):
    arguments = dict(prompts=[[1], [2]], max_new_tokens=3) | change
    with pytest.raises(ValueError, match=said):
        llamalib.generate_batch(random_llama(), **arguments)


def live_bytes():
    """Of all tensors that there are, each memory once."""
    gc.collect()
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in gc.get_objects()
        if type(t) in (torch.Tensor, torch.nn.Parameter)
    }
    return sum(storages.values())


def test_only_the_cache_grows_with_length():
    llama = random_llama()
    config, sizes = llama.config, {}
    for n in (20, 220):
        ids = llamalib.generate(llama, [1, 2, 3], max_new_tokens=n, stop=())
        for _ in range(n - 1):
            next(ids)
        sizes[n] = live_bytes()
        del ids
    keys_and_values = 2 * config.n_layers * config.n_kv_heads
    a_position = 4 * config.head_dim * (keys_and_values + 1)  # 1: RoPE's
    assert sizes[220] - sizes[20] == 200 * a_position


MANY = """
import re, sys, torch, llamalib

def resident():
    status = open("/proc/self/status").read()
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", status)[1]) * 1024

llama = llamalib.load(device="cpu", dtype=torch.float32)
ids = llama.tokenizer.encode("Once upon a time", bos=True, eos=False)

def run(times):
    for _ in range(times):
        list(llamalib.generate(llama, ids, max_new_tokens=12, stop=()))
    return resident()

print(-run(20) + run(200))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="reads a process's memory where Linux shows it",
)
def test_many_generations_keep_no_memory():
    done = subprocess.run(
        [sys.executable, "-c", MANY], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 5e6
