"""Arguments of generate and generate_batch: each mistake has its sentence.

tests/test_sampling.py has those of sampling, tests/test_checkpoint.py load's,
tests/test_tokenizer.py encode's.
"""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import llamalib
from tests.helpers import random_llama

SEED = "seed must be a whole number from 0 to 2**63 - 1, or None"
STOP = "stop must be a collection of token ids, or () for none"
IDS = "prompt_ids must be a list of token ids, "
WRONG = [
    (dict(seed=-1), SEED),
    (dict(seed=2**63), SEED),
    (dict(seed=1.0), SEED),
    (dict(compile=1), "compile must be True or False, got 1"),
    (dict(max_new_tokens=0), "max_new_tokens must be a whole number >= 1"),
    (dict(max_new_tokens=True), "max_new_tokens must be a whole number >= 1"),
    (dict(max_new_tokens=131072), "minus 3 prompt tokens leave 131069"),
    (dict(temperature=-1), "temperature must be >= 0, got -1"),
    (dict(prompt_ids="hello"), f"{IDS}got a str; call llama.tokenizer.enc"),
    (dict(prompt_ids=[1, 999]), "prompt_ids contains 999, but the vocabulary"),
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
    for prompts in ("hello", 5, None, [], torch.tensor(2)):
        with pytest.raises(ValueError, match="^prompts must "):
            llamalib.generate_batch(random_llama(), prompts, max_new_tokens=1)
    with pytest.raises(ValueError, match="llama must be a Llama, got a str"):
        llamalib.generate("data/pocket-llama", [1], max_new_tokens=1)


# numbers, and what is often written where one belongs
anything = (
    st.floats()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 5e-324, 1e-38, 1e-320, 1e300])
    | st.sampled_from([True, False, None, "1", b"1", [1], 1j, torch.ones(1)])
)
MODEL = random_llama()


@settings(deadline=None, max_examples=500, derandomize=True)
@given(
    name=st.sampled_from(["temperature", "top_k", "top_p", "seed"]),
    value=anything,
)
def test_any_option_is_refused_at_the_call_or_gives_a_text(name, value):
    options = dict(temperature=0.7, max_new_tokens=2) | {name: value}
    try:
        ids = llamalib.generate(MODEL, [1], **options)
    except ValueError as error:
        assert str(error).startswith(f"{name} must "), error
    else:
        assert len(list(ids)) == 2


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
