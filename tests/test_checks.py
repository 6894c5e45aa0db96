"""The doors say in one plain sentence what is wrong.

Options of sampling of any kind are in tests/test_properties.py; load's
arguments in tests/test_mistakes.py, encode's in tests/test_tokenizer.py.
"""

import re

import numpy as np
import pytest
import torch

import llamalib
from tests.helpers import random_llama

SEED = "seed must be a whole number from 0 to 2**63 - 1, or None"
STOP = "stop must be a collection of token ids, or () for none"
IDS = "prompt_ids must be a list of token ids, "
WRONG = [
    (dict(temperature=-1), "temperature must be >= 0, got -1"),
    (dict(temperature="hot"), "temperature must be a number, got 'hot'"),
    (dict(temperature=float("inf")), "temperature must be a number, got inf"),
    (dict(temperature=True), "temperature must be a number, got True"),
    (dict(temperature=1e-30), "temperature must be 0 or at least 1e-20"),
    (dict(top_k=0), "top_k must be a whole number >= 1, got 0"),
    (dict(top_k=2.0), "top_k must be a whole number >= 1, got 2.0"),
    (dict(top_p=0), "top_p must be in (0, 1], got 0"),
    (dict(top_p=float("nan")), "top_p must be in (0, 1], got nan"),
    (dict(seed=-1), SEED),
    (dict(seed=2**63), SEED),
    (dict(seed=1.0), SEED),
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
        f"{IDS}got a str; call "
        "llama.tokenizer.encode(text, bos=True, eos=False) first",
    ),
    (
        dict(prompt_ids=[1, 99999]),
        "prompt_ids contains 99999, but the vocabulary has 556 tokens (was "
        "another tokenizer used?)",
    ),
    (dict(prompt_ids=[-1]), "prompt_ids contains -1, but the vocabulary"),
    (dict(prompt_ids=[]), "prompt_ids must hold at least one token id"),
    (dict(prompt_ids=5), f"{IDS}got 5"),
    (dict(prompt_ids=b"ab"), f"{IDS}got b'ab'"),
    (dict(prompt_ids=[1.0]), f"{IDS}but holds 1.0"),
    (dict(prompt_ids=[True]), f"{IDS}but holds True"),
    (dict(prompt_ids=torch.ones(1, 2)), f"{IDS}got a tensor (1, 2)"),
    (dict(prompt_ids={1, 2}), f"{IDS}got a set"),
    (dict(stop=[556]), "stop contains 556, but the vocabulary has 556"),
    (dict(stop=3), STOP),
    (dict(stop="."), STOP),
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


def test_what_is_no_prompt_and_no_llama():
    for prompts in ("hello", 5, None, []):
        with pytest.raises(ValueError, match="^prompts must "):
            llamalib.generate_batch(random_llama(), prompts, max_new_tokens=1)
    with pytest.raises(ValueError, match="llama must be a Llama, got a str"):
        llamalib.generate("data/pocket-llama", [1], max_new_tokens=1)


def test_next_token_probs_checks_and_refuses_temperature_0():
    logits = torch.zeros(5)
    for wrong, said in WRONG[:9]:
        with pytest.raises(ValueError, match=re.escape(said)):
            llamalib.next_token_probs(logits, **wrong)
    with pytest.raises(ValueError, match=r"must be > 0, got 0 \(0 is the arg"):
        llamalib.next_token_probs(logits, 0)


def test_ids_and_seeds_of_any_library():
    llama, how = random_llama(), dict(max_new_tokens=5, temperature=1.0)
    new = list(llamalib.generate(llama, [1, 2, 3], seed=3, stop=(), **how))
    for ids in (
        range(1, 4),
        np.array([1, 2, 3], dtype=np.uint64),
        [np.int64(1), torch.tensor(2), 3],
        torch.tensor([1, 2, 3], dtype=torch.uint8),
    ):
        for stop in (np.array(new[2:3]), torch.tensor(new[2:3]), {new[2]}):
            seeded = how | dict(seed=np.uint8(3), stop=stop)
            found = list(llamalib.generate(llama, ids, **seeded))
            assert found == new[: new.index(new[2])]
