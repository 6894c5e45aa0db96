"""The doors say in one plain sentence what is wrong."""

import re

import pytest
import torch

import llamalib
from tests.helpers import random_llama

WRONG = [
    (dict(temperature=-1), "temperature must be >= 0, got -1"),
    (dict(temperature="hot"), "temperature must be a number, got 'hot'"),
    (dict(temperature=float("nan")), "temperature must be a number, got nan"),
    (dict(temperature=float("inf")), "temperature must be a number, got inf"),
    (dict(temperature=True), "temperature must be a number, got True"),
    (
        dict(temperature=1e-30),
        "temperature must be 0 or at least 1e-20, got 1e-30",
    ),
    (dict(top_k=0), "top_k must be a whole number >= 1, got 0"),
    (dict(top_k=2.0), "top_k must be a whole number >= 1, got 2.0"),
    (dict(top_k=True), "top_k must be a whole number >= 1, got True"),
    (dict(top_p=0), "top_p must be in (0, 1], got 0"),
    (dict(top_p=1.5), "top_p must be in (0, 1], got 1.5"),
    (dict(top_p=float("nan")), "top_p must be in (0, 1], got nan"),
    (dict(seed=-1), "seed must be a whole number from 0 to 2**63 - 1, or"),
    (dict(seed=2**63), "seed must be a whole number from 0 to 2**63 - 1, or"),
    (dict(seed=1.0), "seed must be a whole number from 0 to 2**63 - 1, or"),
    (dict(compile=1), "compile must be True or False, got 1"),
    (dict(max_new_tokens=0), "max_new_tokens must be a whole number >= 1"),
    (dict(max_new_tokens=True), "max_new_tokens must be a whole number >= 1"),
    (
        dict(max_new_tokens=131072),
        "max_new_tokens=131072 exceeds the context: 131072 positions minus 3 "
        "prompt tokens leave 131069",
    ),
    (
        dict(prompt_ids="hello"),
        "prompt_ids must be a list of token ids, got a str; call "
        "llama.tokenizer.encode(text, bos=True, eos=False) first",
    ),
    (
        dict(prompt_ids=[1, 99999]),
        "prompt_ids contains 99999, but the vocabulary has 556 tokens (was "
        "another tokenizer used?)",
    ),
    (dict(prompt_ids=[-1]), "prompt_ids contains -1, but the vocabulary"),
    (dict(prompt_ids=[]), "prompt_ids must hold at least one token id"),
    (dict(prompt_ids=5), "prompt_ids must be a list of token ids, got 5"),
    (dict(prompt_ids=[1.0]), "list of token ids, but holds 1.0"),
    (dict(prompt_ids=[True]), "list of token ids, but holds True"),
    (dict(prompt_ids=b"ab"), "list of token ids, got b'ab'"),
    (
        dict(prompt_ids=torch.ones(1, 2, dtype=torch.int64)),
        "prompt_ids must be a list of token ids, got a tensor (1, 2)",
    ),
    (dict(prompt_ids=torch.ones(2)), "list of token ids, but holds 1.0"),
    (dict(stop=[556]), "stop contains 556, but the vocabulary has 556"),
    (dict(stop=3), "stop must be a collection of token ids, or () for none"),
    (dict(stop=b""), "stop must be a collection of token ids, or () for none"),
    (dict(stop="."), "stop must be a collection of token ids, or () for none"),
]


@pytest.mark.parametrize("wrong, said", WRONG)
def test_generate_says_what_is_wrong(wrong, said):
    """At the call, before anything runs; generate_batch says the same."""
    llama = random_llama()
    given = dict(prompt_ids=[1, 2, 3], max_new_tokens=3) | wrong
    with pytest.raises(ValueError, match=re.escape(said)):
        llamalib.generate(llama, **given)
    prompts = [[1, 2, 3], given.pop("prompt_ids")]
    said = said.replace("prompt_ids", "prompts[1]")
    with pytest.raises(ValueError, match=re.escape(said)):
        llamalib.generate_batch(llama, prompts, **given)


@pytest.mark.parametrize("prompts", ["hello", 5, None, []])
def test_prompts_that_are_none(prompts):
    with pytest.raises(ValueError, match="^prompts must "):
        llamalib.generate_batch(random_llama(), prompts, max_new_tokens=1)


def test_what_is_no_llama():
    with pytest.raises(ValueError, match="llama must be a Llama, got a str"):
        llamalib.generate("data/pocket-llama", [1], max_new_tokens=1)


def test_next_token_probs_checks_and_refuses_temperature_0():
    logits = torch.zeros(5)
    for wrong, said in WRONG[:12]:
        with pytest.raises(ValueError, match=re.escape(said)):
            llamalib.next_token_probs(logits, **wrong)
    with pytest.raises(
        ValueError, match=r"must be > 0, got 0 \(0 is the argmax"
    ):
        llamalib.next_token_probs(logits, 0)


def test_load_says_what_is_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is no folder"):
        llamalib.load("nowhere")
    with pytest.raises(
        ValueError, match="unknown device 'tpu'; available: .*cpu"
    ):
        llamalib.load(device="tpu")
    with pytest.raises(
        FileNotFoundError,
        match=r"has neither Meta's params.json nor .* \(found: not",
    ):
        llamalib.load(tmp_path)


def test_encode_says_what_is_wrong(pocket):
    for wrong in (5, b"a", None, ["a"]):
        kind = type(wrong).__name__
        with pytest.raises(
            TypeError, match=f"encode expects a str, got {kind}"
        ):
            pocket.tokenizer.encode(wrong, bos=True, eos=False)
    with pytest.raises(ValueError, match="ids must be token ids, got a str"):
        pocket.tokenizer.decode("abc")
