"""Every mistake has one clear error, which leaves the files as they were.

A table: the damage to a valid folder, the exception, and its message, which
names the file or value, what was found and what is expected.
"""

import json
import os
import re
import shutil
import zipfile

import numpy as np
import pytest
import torch

import llamalib
from llamalib.files import ROOT
from tests.helpers import random_llama, small_ranks, write_checkpoint

PTH, PARAMS, TOKENIZER = (
    "consolidated.00.pth",
    "params.json",
    "tokenizer.model",
)
LFS = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32\nsize 2471645608\n"
)
PAGE = b"\r\n<!DOCTYPE html>\n<html><title>Sign in</title></html>"
WQ = "layers.1.attention.wq.weight"


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """Two folders, with one shard and with four."""
    folder = tmp_path_factory.mktemp("valid")
    write_checkpoint(folder / "one")
    write_checkpoint(folder / "four", shards=4)
    return folder


def contents(folder):
    return {
        p.relative_to(folder): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file()
    }


# -- ways to damage a folder -------------------------------------------------


def gone(name):
    return lambda folder: (folder / name).unlink()


def holds(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def cut(name, share):
    """Keep a share of the bytes, or leave a number of them out (< 0)."""

    def damage(folder):
        data = (folder / name).read_bytes()
        end = int(len(data) * share) if 0 < share < 1 else len(data) + share
        (folder / name).write_bytes(data[:end])

    return damage


def flipped(name, where):
    """Flip a bit, after some bytes or at a share of the file."""

    def damage(folder):
        data = bytearray((folder / name).read_bytes())
        if isinstance(where, bytes):
            data[data.index(where) + len(where)] ^= 16
        else:
            data[int(where * len(data))] ^= 16
        (folder / name).write_bytes(data)

    return damage


def params(*gone, **changes):
    def damage(folder):
        file = folder / PARAMS
        found = json.loads(file.read_text()) | changes
        kept = {key: v for key, v in found.items() if key not in gone}
        file.write_text(json.dumps(kept))

    return damage


def tensors(change, name=PTH):
    def damage(folder):
        found = torch.load(folder / name, weights_only=True)
        change(found)
        torch.save(found, folder / name)

    return damage


def with_number(number, name=WQ):
    def change(found):
        found[name] = found[name].clone()
        found[name].view(-1)[5] = number

    return tensors(change)


def lines(change):
    """tokenizer.model with its list of lines changed."""

    def damage(folder):
        found = (folder / TOKENIZER).read_bytes().splitlines()
        change(found)
        (folder / TOKENIZER).write_bytes(b"\n".join(found) + b"\n")

    return damage


def compressed(folder):
    """Write the archive again, as a zip program would."""
    data = zipfile.ZipFile(folder / PTH)
    with zipfile.ZipFile(folder / "new", "w", zipfile.ZIP_DEFLATED) as new:
        for name in data.namelist():
            new.writestr(name, data.read(name))
    (folder / "new").rename(folder / PTH)


def nested(folder):
    """Put two checkpoints into subfolders."""
    shutil.copytree(folder, folder / "two" / "original")
    shutil.copytree(folder / "two" / "original", folder / "three")
    for name in (PTH, PARAMS, TOKENIZER):
        (folder / name).unlink()


def twice(folder):
    shutil.copytree(folder, folder.parent / "original")
    shutil.move(folder.parent / "original", folder / "original")


# -- the table ---------------------------------------------------------------

MISSING, WRONG = FileNotFoundError, ValueError
CHECK = dict(check=True)
# damage, exception, message; and options of load
TABLE = {
    "folder missing": (
        lambda folder: shutil.rmtree(folder),
        MISSING,
        r"\(path\) is not there; expected a folder with .*params.json",
    ),
    "folder empty": (
        lambda folder: [p.unlink() for p in folder.iterdir()],
        MISSING,
        "has no params.json, it holds: nothing; expected",
    ),
    "no params": (
        gone(PARAMS),
        MISSING,
        "has no params.json, it holds: consolidated.00.pth, tokenizer.model",
    ),
    "no tokenizer": (
        gone(TOKENIZER),
        MISSING,
        "has no file tokenizer.model, it h",
    ),
    "no weights": (gone(PTH), MISSING, "has no file consolidated.00.pth, it"),
    "a folder for a file": (
        lambda f: (gone(PTH)(f), (f / PTH).mkdir()),
        MISSING,
        "has consolidated.00.pth, which is a folder, a pipe or a broken",
    ),
    "two folders": (
        nested,
        WRONG,
        "several checkpoints: name .*three or .*original",
    ),
    "two in one": (twice, WRONG, "several checkpoints: .*original"),
    "two formats": (
        holds("config.json", b"{}"),
        WRONG,
        "both params.json, Meta's, and config.json, Hugging Face's: keep",
    ),
    **{
        f"Git LFS, {name}": (
            holds(name, LFS),
            WRONG,
            f"{name} is .* Git LFS pointer to one of 2,471,645,608 bytes: .*"
            "git lfs pull",
        )
        for name in (PTH, PARAMS, TOKENIZER)
    },
    **{
        f"a page, {name}": (
            holds(name, PAGE),
            WRONG,
            f"{name} is an HTML page, .*: log in and download it again",
        )
        for name in (PTH, PARAMS, TOKENIZER)
    },
    **{
        f"empty, {name}": (
            holds(name, b""),
            WRONG,
            rf"{name} is empty \(0 bytes\): download it again",
        )
        for name in (PTH, PARAMS, TOKENIZER)
    },
    **{
        f"cut at {share}": (
            cut(PTH, share),
            WRONG,
            r"00.pth cannot be opened .* Its [\d,]+ bytes are incomplete.*"
            "compare the size",
        )
        for share in (0.01, 0.5, 0.99, -1)
    },
    "a tokenizer cut short": (
        cut(TOKENIZER, 0.01),
        WRONG,
        "tokenizer.model",
    ),
    "a bit in the list of tensors": (
        flipped(PTH, b"tok_embeddings.weight"),
        WRONG,
        "00.pth cannot be opened .*CRC-32 for file .*data.pkl",
    ),
    "a bit in the numbers": (
        flipped(PTH, 0.5),
        WRONG,
        "00.pth cannot be opened .*CRC-32 for file .*/data/",
        CHECK,
    ),
    "not a number": (
        with_number(float("nan")),
        WRONG,
        f"the number of NaN and infinities in {WQ} is 1; expected 0",
        CHECK,
    ),
    "infinite": (
        with_number(-float("inf"), "norm.weight"),
        WRONG,
        "the number of NaN and infinities in norm.weight is 1; expected 0",
        CHECK,
    ),
    "a shard missing": (
        gone("consolidated.02.pth"),
        MISSING,
        "has no file consolidated.02.pth, it holds: .*00.pth, .*01.*03",
    ),
    "the last shard missing": (
        gone("consolidated.03.pth"),
        WRONG,
        r"00.pth: .* is .*; expected .*of 3 shard.s.: one missing",
    ),
    "a shard of another model": (
        tensors(lambda t: t["norm.weight"].add_(1), "consolidated.01.pth"),
        WRONG,
        "01.pth: norm.weight is not as in the first shard",
    ),
    "tensor missing": (
        tensors(lambda t: t.pop(WQ)),
        WRONG,
        rf"00.pth has no tensor {WQ} \(1 in all\), and params.json asks for 21",
    ),
    "tensor of fewer numbers": (
        tensors(
            lambda t: t.update(
                {"output.weight": t["output.weight"][:1].expand(556, 64)}
            )
        ),
        WRONG,
        "output.weight is .* contiguous: False'; expected contiguous",
    ),
    "compressed": (
        compressed,
        WRONG,
        "00.pth cannot be opened .*is 'compressed or a folder'; expected stor",
    ),
    "tensor surplus": (
        tensors(lambda t: t.update(lora=torch.ones(3))),
        WRONG,
        "00.pth has an unknown tensor lora .*params.json asks for",
    ),
    "tensor of another shape": (
        tensors(lambda t: t.update({WQ: t[WQ][:32].clone()})),
        WRONG,
        rf"{WQ} is \(32, 64\); expected \(64, 64\)",
    ),
    "tensor of whole numbers": (
        tensors(lambda t: t.update({WQ: t[WQ].to(torch.int8)})),
        WRONG,
        f"{WQ} is 'torch.int8, .*expected contiguous floats",
    ),
    "params not JSON": (
        holds(PARAMS, b"{dim: 64}"),
        WRONG,
        "params.json is not JSON: .*line 1 column 2.*take the file",
    ),
    "params not text": (holds(PARAMS, b"\xff\xfe{"), WRONG, "is not JSON"),
    "params a list": (
        holds(PARAMS, b"[1, 2]"),
        WRONG,
        "params.json holds a list; expected an object",
    ),
    "params nested without end": (
        holds(PARAMS, b"[" * 100_000),
        WRONG,
        "params.json is not JSON",
    ),
    "a key twice": (
        holds(PARAMS, b'{"dim": 64, "dim": 65}'),
        WRONG,
        "params.json is not JSON: the key 'dim' appears twice",
    ),
    "a key missing": (
        params("n_heads"),
        WRONG,
        "params.json: the list of missing keys is .'n_heads'.; expected dim, n_layers",
    ),
    "a key too many": (params(window=3), WRONG, "unknown keys is .'window'"),
    "a number as a string": (
        params(dim="64"),
        WRONG,
        "params.json: dim is '64'; expected a whole number from 1",
    ),
    "a negative number": (
        params(n_layers=-2),
        WRONG,
        "n_layers is -2; expected a whole number from 1",
    ),
    "a billion layers": (
        params(n_layers=10**9),
        WRONG,
        "the number of layers is 1000000000; expected less: .* 21 tensors",
    ),
    "no finite number": (
        params(norm_eps=float("nan")),
        WRONG,
        "norm_eps is nan; expected a number from 1e-37 to 1",
    ),
    "heads that do not divide": (
        params(n_kv_heads=3),
        WRONG,
        "n_heads is 8; expected a multiple of n_kv_heads = 3",
    ),
    "vocab_size unlike the tokenizer": (
        params(vocab_size=557),
        WRONG,
        "tokenizer.model is 556; expected 557, the vocab_size in params.json",
    ),
    "vocab_size unlike the embedding": (
        lambda f: (
            params(vocab_size=555)(f),
            lines(lambda found: found.pop())(f),
        ),
        WRONG,
        r"tok_embeddings.weight is \(556, 64\); expected \(555, 64\)",
    ),
    "a line that is no base64": (
        lines(lambda found: found.__setitem__(7, b"!!! 7")),
        WRONG,
        "tokenizer.model, line 8: b'!!! 7' is not a new token in base64",
    ),
    "a rank twice": (
        lines(lambda found: found.insert(8, found[7])),
        WRONG,
        "tokenizer.model, line 9: .* is not a new token .* rank 8",
    ),
    "a gap in the ranks": (
        lines(lambda found: found.pop(7)),
        WRONG,
        "tokenizer.model, line 8: .* is not a new token .* rank 7",
    ),
    "SentencePiece's": (
        holds(TOKENIZER, b"\n\x0e\n\x05<unk>\x15\x00\x00"),
        WRONG,
        "tokenizer.model is 'SentencePiece, of Llama 1 and 2'; expected",
    ),
}
SHARDED = ("a shard missing", "the last shard missing", "a shard of another m")


@pytest.mark.parametrize("mistake", TABLE)
def test_a_folder(valid, tmp_path, mistake):
    damage, kind, said, *options = TABLE[mistake]
    kinds = "four" if mistake.startswith(SHARDED) else "one"
    folder = shutil.copytree(valid / kinds, tmp_path / "model")
    damage(folder)
    before = contents(tmp_path)
    with pytest.raises(kind, match=f"(?s){said}") as error:
        llamalib.load(folder, device="cpu", **dict(*options))
    assert type(error.value) is kind
    assert str(folder) in str(error.value)
    assert len(str(error.value)) < 700 and "weights_only" not in str(error)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["~nobody-of-that-name/x", "x" * 300])
def test_an_invalid_folder_name(name):
    with pytest.raises(FileNotFoundError, match="expected a folder with"):
        llamalib.load(name)


def test_a_file_for_a_folder(valid):
    with pytest.raises(FileNotFoundError, match="a file, not a folder"):
        llamalib.load(valid / "one" / PTH)


def test_a_byte_order_mark_is_allowed(valid, tmp_path):
    folder = shutil.copytree(valid / "one", tmp_path / "model")
    text = (folder / PARAMS).read_bytes()
    (folder / PARAMS).write_bytes(b"\xef\xbb\xbf" + text)
    assert llamalib.load(folder, device="cpu").config.dim == 64


@pytest.mark.parametrize("name", [PTH, PARAMS, TOKENIZER])
def test_a_file_that_may_not_be_read(valid, tmp_path, name, monkeypatch):
    folder = shutil.copytree(valid / "one", tmp_path / "model")
    (folder / name).chmod(0)
    if os.access(folder / name, os.R_OK):  # an administrator may
        import builtins

        opened = builtins.open

        def refused(file, *how, **more):
            if str(file) == str(folder / name):
                raise PermissionError(13, "Permission denied", str(file))
            return opened(file, *how, **more)

        monkeypatch.setattr(builtins, "open", refused)
    with pytest.raises(PermissionError, match=f"{name} may not be read by y"):
        llamalib.load(folder, device="cpu")


def test_check_finds_nothing_in_a_valid_folder(valid):
    for kind in ("one", "four"):
        llamalib.load(valid / kind, device="cpu", check=True)


# -- code in a file ----------------------------------------------------------


class Trap:
    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return os.mkdir, (str(self.flag),)


@pytest.mark.parametrize("where", ["value", "key", "whole"])
def test_code_in_a_file_is_never_run(valid, tmp_path, where):
    folder = shutil.copytree(valid / "one", tmp_path / "model")
    trap = Trap(tmp_path / "it ran")
    found = torch.load(folder / PTH, weights_only=True)
    if where == "value":
        found["norm.weight"] = trap
    elif where == "key":
        found[trap] = torch.ones(2)
    else:
        found = trap
    torch.save(found, folder / PTH)
    with pytest.raises(ValueError, match="holds more than tensors .posix|nt"):
        llamalib.load(folder, device="cpu")
    assert not (tmp_path / "it ran").exists()
    torch.load(folder / PTH, weights_only=False)  # the trap works
    assert (tmp_path / "it ran").exists()


def test_nothing_asks_to_run_code():
    """In all that the project ships but the tests."""
    pattern = r"weights_only\s*=\s*False|trust_remote_code|\beval\(|\bexec\("
    found = []
    for folder in ("llamalib", "notebooks", "data", "bench"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".py", ".ipynb"):
                continue
            if ".ipynb_checkpoints" in path.parts or "build" in path.parts:
                continue
            text = path.read_text(encoding="utf-8")
            for match in re.finditer(pattern, text):
                before = text[: match.start()]
                if not before.endswith("."):  # model.eval(): another thing
                    found.append(f"{path.name} {match[0]}")
    # the project's own notebooks, for `python -m llamalib run`, two benches and
    # the judge; a learner's cells, in the sandbox of grading
    own = ["__main__.py exec(", "cells.py exec(", "judging.py eval("]
    own += ["widgets.py exec(", "worker.py exec("]
    assert sorted(found) == own, found


# -- arguments of a model ----------------------------------------------------


@pytest.fixture(scope="module")
def llama():
    return random_llama()


GENERATE = {
    "an id too large": (dict(prompt_ids=[1, 556]), "an id in prompt_ids is 556; expected 0 to"),
    "a negative id": (dict(prompt_ids=[-1]), "is -1; expected 0 to 555"),
    "ids with a point": (
        dict(prompt_ids=[1.0]),
        r"prompt_ids is \[1.0\]; expected",
    ),
    "a text for ids": (dict(prompt_ids="abc"), "is 'abc'; expected .T,. ids"),
    "an empty prompt": (
        dict(prompt_ids=[]),
        r"is \[\]; expected \(T,\) ids",
    ),
    "two dimensions": (
        dict(prompt_ids=[[1]]),
        r"is \[\[1\]\]; expected \(T,\) ids",
    ),
    "a long prompt": (
        dict(prompt_ids=[1] * 8192),
        "at most 0: the prompt has 8192 tokens of 8192 positions",
    ),
    "a longer prompt": (
        dict(prompt_ids=[1] * 9000),
        "at most 0: the prompt has 9000 tokens of 8192 positions",
    ),
    "no new tokens": (dict(max_new_tokens=0), "max_new_tokens is 0; expected"),
    "fewer than none": (dict(max_new_tokens=-3), "max_new_tokens is -3"),
    "half a token": (dict(max_new_tokens=2.5), "max_new_tokens is 2.5"),
    "cold": (dict(temperature=-0.1), "temperature is -0.1"),
    "no temperature": (dict(temperature=float("nan")), "temperature is nan"),
    "top-k 0": (dict(temperature=1.0, top_k=0), "top_k is 0"),
    "top-k negative": (dict(temperature=1.0, top_k=-1), "top_k is -1"),
    "top-p 0": (dict(temperature=1.0, top_p=0.0), "top_p is 0.0"),
    "top-p over 1": (dict(temperature=1.0, top_p=1.5), "top_p is 1.5"),
    "a seed": (dict(seed=-1), "seed is -1"),
    "a stop": (dict(stop=[556]), "an id in stop is 556"),
    "a text to stop at": (
        dict(stop=".\n"),
        r"stop is '\.\\n'; expected a coll",
    ),
    "no text to stop at": (dict(stop=""), "stop is ''; expected a collection"),
    "bytes to stop at": (dict(stop=b"ab"), "stop is b'ab'; expected"),
    "truth to stop at": (dict(stop=[True]), r"stop is \[True\]; expected"),
    "a complex id": (dict(prompt_ids=[1j]), r"prompt_ids is \[1j\]; expected"),
    "complex ids": (
        dict(prompt_ids=torch.tensor([1j])),
        "prompt_ids is tensor",
    ),
    "a truth for an id": (
        dict(prompt_ids=[1, True]),
        r"prompt_ids is \[1, True\]; expected \(T,\) ids",
    ),
    "truths for ids": (
        dict(prompt_ids=np.array([True])),
        "prompt_ids is array",
    ),
    "texts for ids": (dict(prompt_ids=["1"]), r"prompt_ids is \['1'\]"),
    "bytes for ids": (dict(prompt_ids=b"ab"), "prompt_ids is b'ab'; expected"),
    "a set of ids": (
        dict(prompt_ids={1, 2}),
        "prompt_ids is {1, 2}; expected",
    ),
    "a generator of ids": (
        dict(prompt_ids=(i for i in (1, 2))),
        "prompt_ids is <generator",
    ),
    "an id alone": (dict(prompt_ids=5), "prompt_ids is 5; expected"),
    "an array of no dimension": (
        dict(prompt_ids=np.array(3)),
        r"prompt_ids is array\(3\); expected",
    ),
    "an id over int64": (
        dict(prompt_ids=[2**64]),
        "an id in prompt_ids is 18446744073709551616; expected 0 to 555",
    ),
    "a number of tokens as a text": (
        dict(max_new_tokens="5"),
        "max_new_tokens is '5'",
    ),
    "a truth for a number": (
        dict(max_new_tokens=True),
        "max_new_tokens is True",
    ),
    "a temperature as a text": (
        dict(temperature="0.7"),
        "temperature is '0.7'",
    ),
    "hot": (dict(temperature=float("inf")), "temperature is inf; expected 0"),
    "a truth for a temperature": (
        dict(temperature=True),
        "temperature is True; expected 0",
    ),
    "a huge temperature": (dict(temperature=10**400), "temperature is 10000"),
    "nearly no temperature": (dict(temperature=1e-40), "temperature is 1e-40"),
    "nearly no top-p": (dict(top_p=1e-320), "top_p is 1e-320; expected 1e-20"),
    "a truth for a seed": (dict(seed=True), "seed is True; expected"),
    "a word for compile": (
        dict(compile="no"),
        "compile is 'no'; expected True or False",
    ),
}


@pytest.mark.parametrize("mistake", GENERATE)
def test_a_generation(llama, mistake):
    """Refused by the call, before any token; the model is as it was."""
    changes, said = GENERATE[mistake]
    asked = dict(prompt_ids=[1, 2], max_new_tokens=5, stop=()) | changes
    with pytest.raises(ValueError, match=said):
        llamalib.generate(llama, **asked)
    assert len(list(llamalib.generate(llama, [1], max_new_tokens=3))) <= 3


@pytest.mark.parametrize(
    "ids",
    [
        range(1, 4),
        (1, 2, 3),
        np.array([1, 2, 3]),
        np.array([1, 2, 3], dtype=np.uint64),
        [np.int64(1), torch.tensor(2), 3],
        torch.tensor([1, 2, 3], dtype=torch.uint8),
    ],
)
def test_ids_of_any_library(llama, ids):
    new = list(llamalib.generate(llama, [1, 2, 3], max_new_tokens=5, stop=()))
    how = dict(max_new_tokens=5)
    assert list(llamalib.generate(llama, ids, stop=(), **how)) == new
    for stop in (np.array(new[2:3]), torch.tensor(new[2:3]), {new[2]}):
        found = list(llamalib.generate(llama, ids, stop=stop, **how))
        assert found == new[: new.index(new[2])]


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda m: llamalib.load(5), "path is 5; expected a folder or None"),
        (lambda m: llamalib.load(0), "path is 0; expected a folder or None"),
        (lambda m: llamalib.load(b"a"), "path is b'a'; expected a folder"),
        (
            lambda m: llamalib.generate("pocket", [1], max_new_tokens=1),
            "llama is 'pocket'; expected a Llama, as from `load`",
        ),
        (
            lambda m: llamalib.generate_batch(m, None, max_new_tokens=1),
            "prompts is None; expected a list of prompts",
        ),
        (
            lambda m: llamalib.generate_batch(None, [[1]], max_new_tokens=1),
            "^llama is None; expected a Llama",
        ),
        (
            lambda m: llamalib.generate_batch(m, "ab", max_new_tokens=1),
            r"prompts\[0\]: prompt_ids is 'a'; expected",
        ),
        (
            lambda m: llamalib.generate_batch(m, [[1], ""], max_new_tokens=1),
            r"prompts\[1\]: prompt_ids is ''; expected",
        ),
        (lambda m: m.new_cache(True), "max_seq_len is True; expected a whole"),
        (lambda m: m.new_cache(9, "2"), "batch_size is '2'; expected a whole"),
        (lambda m: m.new_cache(9, 2, [0, 1]), r"dtype and shape is \(None, "),
        (lambda m: m.tokenizer.decode(5), "ids is 5; expected token ids"),
        (
            lambda m: m.tokenizer.decode("12"),
            "ids is '12'; expected token ids",
        ),
        (lambda m: m.tokenizer.decode([1.5]), r"ids is \[1.5\]; expected"),
        (lambda m: m.tokenizer.decode([None]), r"ids is \[None\]; expected"),
        (
            lambda m: m.tokenizer.encode(
                "a", bos=True, eos=False, allowed_special=True
            ),
            "allowed_special is True; expected special tokens' names",
        ),
        (
            lambda m: m.tokenizer.encode_chat(5),
            "messages is 5; expected a list",
        ),
        (lambda m: m.tokenizer.encode_chat([]), r"messages is \[\]; expected"),
        (
            lambda m: m.tokenizer.encode_chat("Hi"),
            "messages is 'Hi'; expected",
        ),
    ],
)
def test_other_arguments(llama, call, said):
    llama.tokenizer = llamalib.Tokenizer(small_ranks())
    with pytest.raises(ValueError, match=said):
        call(llama)


@pytest.mark.parametrize(
    "ids, said",
    [
        (torch.tensor([1, 556]), "an id in tokens is 556; expected 0 to 555"),
        (torch.tensor([-1]), "an id in tokens is -1; expected"),
        (torch.tensor([1.0]), "tokens are torch.float32"),
        (
            torch.tensor([], dtype=torch.int64),
            r"tokens are \(0,\); expected a tensor",
        ),
        ([1, 2], "tokens are list"),
    ],
)
def test_a_pass(llama, ids, said):
    with pytest.raises(ValueError, match=said):
        llama(ids)


def test_a_gpu_without_room(valid, monkeypatch):
    """On a machine that seems to have one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda d: (1000, 9999))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda d: (9, 0))
    numbers = sum(p.numel() for p in random_llama().parameters())
    said = f"take {2 * numbers:,} bytes in torch.bfloat16, and cuda has 1,000"
    with pytest.raises(MemoryError, match=said):
        llamalib.load(valid / "one", device="cuda")
