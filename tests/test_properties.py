"""Properties of any damage and of any text, tried with many of them.

`make test` tries a hundred folders, `make test-slow` two thousand.
"""

import json
import shutil
import struct
import time

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llamalib
from llamalib import Tokenizer
from llamalib.load import ROOT, tensor_shapes
from tests.helpers import random_llama, small_config, write_checkpoint
from tests.test_huggingface import change_tokenizer, write_folder

DOCUMENTED = (FileNotFoundError, PermissionError, ValueError, MemoryError)
SECONDS = 5
# made once, changed many times
ONCE = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# a hundred, the same each time; in `make test-slow` many more
HOW_MANY = pytest.mark.parametrize(
    "how",
    [
        settings(ONCE, max_examples=100, derandomize=True),
        pytest.param(
            settings(ONCE, max_examples=2000), marks=pytest.mark.slow
        ),
    ],
    ids=["a hundred", "thousands"],
)


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """Return small folders of each format."""
    folder = tmp_path_factory.mktemp("valid")
    llama = random_llama(small_config(n_layers=1))
    write_checkpoint(folder / "metas", llama)
    write_checkpoint(folder / "shards", llama, shards=2)
    write_folder(folder / "hugging face", llama)
    # with a tokenizer for the library
    change_tokenizer(write_folder(folder / "library", llama))
    return folder


# -- damaged folders ---------------------------------------------------------

STRANGE = [b"", b"\0", b"\xff" * 9, b"null", b"{}", b"[]", b"NaN", b"1e999"]
numbers = st.integers(0, 2**64 - 1).map(lambda n: struct.pack("<Q", n))
pieces = st.binary(max_size=20) | st.sampled_from(STRANGE) | numbers
KINDS = "flip", "overwrite", "insert", "delete", "cut", "repeat", "swap"
# a change of a file's bytes, between two shares of their length
mutation = st.tuples(
    st.sampled_from(KINDS),
    st.floats(0, 1),
    st.floats(0, 1),
    pieces,
    st.integers(0, 7),
)


def mutated(data: bytes, how, at, to, piece, bit) -> bytes:
    start, end = sorted((int(at * len(data)), int(to * len(data))))
    if how == "flip":
        flipped = [byte ^ 1 << bit for byte in data[start : start + 1]]
        return data[:start] + bytes(flipped) + data[start + 1 :]
    return {
        "overwrite": data[:start] + piece + data[start + len(piece) :],
        "insert": data[:start] + piece + data[start:],
        "delete": data[:start] + data[end:],
        "cut": data[:start],
        "repeat": data[:end] + data[start:],
        "swap": data[end:] + data[start:end] + data[:start],
    }[how]


# values in a config where others belong
values = st.sampled_from(
    [0, 1, -1, 2, 3, 7, 1.5, 10**9, 10**30, 10**400, 2**63, "8", "", None]
    + [True, [], {}, [1], float("nan"), float("inf"), 1e-300, 1e300]
)


def changed_json(data: bytes, which: int, value) -> bytes:
    """Change the value of one of the keys, or remove the key."""
    found = json.loads(data)
    key = sorted(found)[which % len(found)]
    if which % 7 == 6:
        del found[key]
    else:
        found[key] = value
    return json.dumps(found).encode()


def try_folder(valid, place, kind, choose, change):
    """Load a folder with one file changed: right shapes, or an error."""
    folder = place / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(valid / kind, folder)
    file = choose(sorted(folder.iterdir()))
    data = change(file.read_bytes())
    file.write_bytes(data)
    start = time.monotonic()
    try:
        llama = llamalib.load(folder, device="cpu")
    except DOCUMENTED as error:
        assert type(error) in DOCUMENTED, repr(error)
        assert str(folder) in str(error), error
    else:
        shapes = tensor_shapes(llama.config)
        found = {n: tuple(w.shape) for n, w in llama.state_dict().items()}
        assert found == shapes
        # every number can be read: nothing is beyond the file's end
        assert all(w.float().sum() is not None for w in llama.parameters())
    assert time.monotonic() - start < SECONDS
    assert file.read_bytes() == data


kinds = st.sampled_from(["metas", "shards", "hugging face", "library"])


@HOW_MANY
def test_any_damage_has_a_clear_error(valid, tmp_path, how):
    @how
    @given(
        kinds, st.integers(0, 9), st.lists(mutation, min_size=1, max_size=3)
    )
    def check(kind, i, changes):
        def change(data):
            for one in changes:
                data = mutated(data, *one)
            return data

        try_folder(valid, tmp_path, kind, lambda f: f[i % len(f)], change)

    check()


@HOW_MANY
def test_any_config_has_a_clear_error(valid, tmp_path, how):
    names = "params.json", "config.json"

    @how
    @given(kinds, st.integers(0, 40), values)
    def check(kind, which, value):
        def choose(files):
            return next(file for file in files if file.name in names)

        def change(data):
            return changed_json(data, which, value)

        try_folder(valid, tmp_path, kind, choose, change)

    check()


# -- texts and ids -----------------------------------------------------------

POCKET = ROOT / "data" / "pocket-llama" / "tokenizer.model"
tokenizer = Tokenizer.from_file(POCKET)
# any code point, lone surrogates too, and what a tokenizer may trip over
texts = st.text(max_size=200) | st.text(
    alphabet=st.characters(exclude_categories=[]), max_size=50
)
PARTS = [" ", "\n", "\r\n", "a", "1", "'s", "<|eot_id|>", "🦙", "é", "\0"]
texts |= st.lists(st.sampled_from(PARTS), max_size=80).map("".join)


@settings(ONCE, max_examples=500)
@given(text=texts)
def test_any_text_comes_back(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(ValueError, match="surrogates not allowed"):
            tokenizer.encode(text, bos=False, eos=False)
        return
    ids = tokenizer.encode(text, bos=False, eos=False)
    assert tokenizer.decode(ids) == text
    assert "".join(tokenizer.decode_stream(ids)) == text
    assert all(0 <= i < tokenizer.n_words - 256 for i in ids)


@settings(ONCE, max_examples=200)
@given(ids=st.lists(st.integers(0, tokenizer.n_words - 1), max_size=40))
def test_any_ids_have_a_text(ids):
    text = tokenizer.decode(ids)
    assert "".join(tokenizer.decode_stream(ids)) == text
    assert tokenizer.decode_bytes(ids).decode(errors="replace") == text


# -- sampling ----------------------------------------------------------------

model = random_llama()
# numbers, and what is often written where one belongs
numbers_of_any_kind = (
    st.floats()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 5e-324, 1e-38, 1e-320, 1e300])
    | st.sampled_from([True, False, None, "1", b"1", [1], 1j, torch.ones(1)])
)
SAMPLING = "temperature", "top_k", "top_p", "seed"


@settings(ONCE, max_examples=500, derandomize=True)
@given(name=st.sampled_from(SAMPLING), value=numbers_of_any_kind)
def test_any_option_is_refused_at_the_call_or_gives_a_text(name, value):
    options = dict(temperature=0.7, max_new_tokens=2) | {name: value}
    try:
        ids = llamalib.generate(model, [1], **options)
    except ValueError as error:
        assert str(error).startswith(f"{name} must "), error
    else:
        assert len(list(ids)) == 2
