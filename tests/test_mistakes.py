"""Every mistake has one clear error, which leaves the files as they were.

A table: the damage to a valid folder, the exception, and its message, which
names the file or value, what was found and what is expected.
"""

import json
import os
import re
import shutil
import zipfile
from fractions import Fraction

import numpy as np
import pytest
import torch

import llamalib
from llamalib.load import ROOT
from tests.helpers import (
    random_llama,
    small_config,
    small_ranks,
    write_checkpoint,
)

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
        "model is no folder",
    ),
    "folder empty": (
        lambda folder: [p.unlink() for p in folder.iterdir()],
        MISSING,
        r"neither Meta.s params.json nor .* config.json \(found: nothing\)",
    ),
    "no params": (
        gone(PARAMS),
        MISSING,
        r"neither .* \(found: consolidated.00.pth, tokenizer.model\)",
    ),
    "no tokenizer": (
        gone(TOKENIZER),
        MISSING,
        r"has no tokenizer.model \(found: .*\): download it again",
    ),
    "no weights": (
        gone(PTH),
        MISSING,
        r"has no consolidated.00.pth \(found: ",
    ),
    "a folder for a file": (
        lambda f: (gone(PTH)(f), (f / PTH).mkdir()),
        MISSING,
        "consolidated.00.pth is a folder, a pipe or a broken link: downl",
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
        "both Meta's params.json and Hugging Face's config.json: keep",
    ),
    **{
        f"Git LFS, {name}": (
            holds(name, LFS),
            WRONG,
            f"{name} is a Git LFS pointer to a file of 2,471,645,608 bytes: "
            "run .git lfs pull",
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
            f"{name} is empty: download it again",
        )
        for name in (PTH, PARAMS, TOKENIZER)
    },
    **{
        f"cut at {share}": (
            cut(PTH, share),
            WRONG,
            r"00.pth is damaged or incomplete \(.*\): download it again",
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
        "00.pth is damaged .*CRC-32 for file .*data.pkl",
    ),
    "a bit in the numbers": (
        flipped(PTH, 0.5),
        WRONG,
        "00.pth is damaged .*CRC-32 for file .*/data/",
    ),
    "not a number": (
        with_number(float("nan")),
        WRONG,
        f"{WQ} has 1 NaN or infinite numbers",
        CHECK,
    ),
    "infinite": (
        with_number(-float("inf"), "norm.weight"),
        WRONG,
        "norm.weight has 1 NaN or infinite numbers",
        CHECK,
    ),
    "a shard missing": (
        gone("consolidated.02.pth"),
        MISSING,
        r"has no consolidated.02.pth \(found: .*00.pth, .*01.*03",
    ),
    "the last shard missing": (
        gone("consolidated.03.pth"),
        WRONG,
        "00.pth: .* in each of 3 shards: is one missing",
    ),
    "a shard of another model": (
        tensors(lambda t: t["norm.weight"].add_(1), "consolidated.01.pth"),
        WRONG,
        "01.pth is not of the same model as the first shard: norm.weight",
    ),
    "tensor missing": (
        tensors(lambda t: t.pop(WQ)),
        WRONG,
        rf"00.pth has no tensor {WQ}: it is not of the model that .*params",
    ),
    "tensor of fewer numbers": (
        tensors(
            lambda t: t.update(
                {"output.weight": t["output.weight"][:1].expand(556, 64)}
            )
        ),
        WRONG,
        "output.weight must hold contiguous floats of 16 or 32 bits",
    ),
    "compressed": (
        compressed,
        WRONG,
        "00.pth is damaged .*is compressed",
    ),
    "tensor surplus": (
        tensors(lambda t: t.update(lora=torch.ones(3))),
        WRONG,
        "00.pth has an unknown tensor lora: it is not of the model",
    ),
    "tensor of another shape": (
        tensors(lambda t: t.update({WQ: t[WQ][:32].clone()})),
        WRONG,
        rf"{WQ} has the shape \(32, 64\), but .*asks for \(64, 64\)",
    ),
    "tensor of whole numbers": (
        tensors(lambda t: t.update({WQ: t[WQ].to(torch.int8)})),
        WRONG,
        f"{WQ} must hold contiguous floats .* got torch.int8",
    ),
    "params not JSON": (
        holds(PARAMS, b"{dim: 64}"),
        WRONG,
        "params.json is not JSON: .*line 1 column 2",
    ),
    "params not text": (holds(PARAMS, b"\xff\xfe{"), WRONG, "is not JSON"),
    "params a list": (
        holds(PARAMS, b"[1, 2]"),
        WRONG,
        "params.json must hold a JSON object, got a list",
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
        "params.json: missing key 'n_heads'$",
    ),
    "a key too many": (
        params(window=3),
        WRONG,
        "params.json: unknown key 'window'; known: dim, n_layers, ",
    ),
    "a number as a string": (
        params(dim="64"),
        WRONG,
        "params.json: dim must be a whole number from 1 to .* got '64'",
    ),
    "a negative number": (
        params(n_layers=-2),
        WRONG,
        "params.json: n_layers must be a whole number from 1 to .* got -2",
    ),
    "a billion layers": (
        params(n_layers=10**9),
        WRONG,
        "asks for 1000000000 layers, but .*00.pth has 21 tensors",
    ),
    "no finite number": (
        params(norm_eps=float("nan")),
        WRONG,
        "params.json: norm_eps must be a number from 1e-37 to 1, got nan",
    ),
    "heads that do not divide": (
        params(n_kv_heads=3),
        WRONG,
        "n_heads must be a multiple of n_kv_heads = 3, got 8",
    ),
    "vocab_size unlike the tokenizer": (
        params(vocab_size=557),
        WRONG,
        "tokenizer.model has 556 tokens, vocab_size in params.json is 557",
    ),
    "vocab_size unlike the embedding": (
        lambda f: (
            params(vocab_size=555)(f),
            lines(lambda found: found.pop())(f),
        ),
        WRONG,
        r"tok_embeddings.weight has the shape \(556, 64\), .*\(555, 64\)",
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
        "tokenizer.model is a SentencePiece model, of Llama 1 or 2; Llama 3",
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


@pytest.mark.parametrize(
    "name", ["~nobody-of-that-name/x", "x" * 300, "a\0b", ROOT / "README.md"]
)
def test_an_invalid_folder_name(name):
    with pytest.raises(FileNotFoundError, match="is (no folder|a file)$"):
        llamalib.load(name)


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
    with pytest.raises(
        PermissionError, match=f"denied: .*{name}. Try chmod u.r .*{name}"
    ):
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
    with pytest.raises(ValueError, match="holds more than tensors"):
        llamalib.load(folder, device="cpu")
    assert not (tmp_path / "it ran").exists()
    torch.load(folder / PTH, weights_only=False)  # the trap works
    assert (tmp_path / "it ran").exists()


def test_nothing_asks_to_run_code():
    """In all that the project ships but the tests."""
    pattern = r"weights_only\s*=\s*False|trust_remote_code|\beval\(|\bexec\("
    found = []
    for folder in ("llamalib", "lessons", "notebooks", "data", "bench"):
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
    # the project's own notebook, in the benchmark
    own = ["gpu.py exec("]
    assert sorted(found) == own, found


# -- arguments of a model ----------------------------------------------------


@pytest.fixture(scope="module")
def llama():
    return random_llama(small_config(context_length=8192))


IDS = "prompt_ids must be a list of token ids, "
STOP = r"stop must be a collection of token ids, or \(\) for none, "
V = "the vocabulary has 556 tokens .was another tokenizer used"
COUNT = "max_new_tokens must be a whole number >= 1, got "
HEAT = "temperature must be a number, got "
# test_checks.py has more of them
GENERATE = {
    "an id too large": (
        dict(prompt_ids=[1, 556]),
        f"prompt_ids contains 556, but {V}",
    ),
    "a negative id": (
        dict(prompt_ids=[-1]),
        f"prompt_ids contains -1, but {V}",
    ),
    "an id over int64": (
        dict(prompt_ids=[2**64]),
        f"prompt_ids contains 18446744073709551616, but {V}",
    ),
    "a text for ids": (
        dict(prompt_ids="abc"),
        IDS + "got a str; call llama.tokenizer.encode",
    ),
    "texts for ids": (dict(prompt_ids=["1"]), IDS + "but holds '1'"),
    "two dimensions": (dict(prompt_ids=[[1]]), IDS + r"but holds \[1\]"),
    "a complex id": (dict(prompt_ids=[1j]), IDS + "but holds 1j"),
    "complex ids": (
        dict(prompt_ids=torch.tensor([1j])),
        IDS + "but holds 1j",
    ),
    "a truth for an id": (dict(prompt_ids=[1, True]), IDS + "but holds True"),
    "truths for ids": (
        dict(prompt_ids=np.array([True])),
        IDS + "but holds True",
    ),
    "a tensor's truth": (
        dict(prompt_ids=[torch.tensor(True)]),
        IDS + r"but holds tensor\(True\)",
    ),
    "a number in a tensor": (
        dict(prompt_ids=[torch.tensor(1.5)]),
        IDS + r"but holds tensor\(1.5",
    ),
    "tensors of ids": (
        dict(prompt_ids=[torch.tensor([1, 2])]),
        IDS + r"but holds tensor\(\[1, 2",
    ),
    "a number in an array": (
        dict(prompt_ids=[np.array(1.5)]),
        IDS + r"but holds array\(1.5",
    ),
    "no id": (dict(prompt_ids=[None]), IDS + "but holds None"),
    "a set of ids": (dict(prompt_ids={1, 2}), IDS + "got a set"),
    "a dict of ids": (dict(prompt_ids={1: 2}), IDS + "got a dict"),
    "a generator of ids": (
        dict(prompt_ids=(i for i in (1, 2))),
        IDS + "got a generator",
    ),
    "an array of no dimension": (
        dict(prompt_ids=np.array(3)),
        IDS + r"got a tensor \(\)",
    ),
    "a long prompt": (
        dict(prompt_ids=[1] * 8192),
        "max_new_tokens=5 exceeds .* 8192 positions minus 8192 .* leave 0",
    ),
    "a longer prompt": (
        dict(prompt_ids=[1] * 9000),
        "max_new_tokens=5 exceeds .* 8192 positions minus 9000 .* leave 0",
    ),
    "fewer than none": (dict(max_new_tokens=-3), COUNT + "-3"),
    "half a token": (dict(max_new_tokens=2.5), COUNT + "2.5"),
    "a number of tokens as a text": (dict(max_new_tokens="5"), COUNT + "'5'"),
    "a temperature as a text": (dict(temperature="0.7"), HEAT + "'0.7'"),
    "hot": (dict(temperature=float("inf")), HEAT + "inf"),
    "a huge temperature": (dict(temperature=10**400), HEAT + "10000"),
    "a temperature over int64": (
        dict(temperature=10**300),
        HEAT + "10000",
    ),
    "a temperature as a fraction": (
        dict(temperature=Fraction(7, 10)),
        HEAT + r"Fraction\(7, 10\)",
    ),
    "hot, as NumPy has it": (
        dict(temperature=np.float16("inf")),
        HEAT + r"np.float16\(inf\)",
    ),
    "nearly no temperature": (
        dict(temperature=1e-40),
        "temperature must be 0 or at least 1e-20, got 1e-40",
    ),
    "top-k negative": (
        dict(temperature=1.0, top_k=-1),
        "top_k must be a whole number >= 1, got -1",
    ),
    "nearly no top-p": (
        dict(top_p=1e-320),
        "top_p must be at least 1e-20, got 1e-320",
    ),
    "a truth for a seed": (
        dict(seed=True),
        r"seed must be a whole number from 0 to 2\*\*63 - 1, .* got True",
    ),
    "a seed over int64": (dict(seed=2**63), "seed must be .* got 922337203"),
    "a stop too large": (dict(stop=[9, 600]), f"stop contains 600, but {V}"),
    "a text to stop at": (dict(stop=".\n"), STOP + "got a str"),
    "no text to stop at": (dict(stop=""), STOP + "got a str"),
    "bytes to stop at": (dict(stop=b"ab"), STOP + "got b'ab'"),
    "truth to stop at": (dict(stop=[True]), STOP + "but holds True"),
    "a word for compile": (
        dict(compile="no"),
        "compile must be True or False, got 'no'",
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


def test_a_seed_of_numpy(llama):
    """It draws what the same seed draws as an int."""
    how = dict(max_new_tokens=5, temperature=1.0, stop=())
    expected = list(llamalib.generate(llama, [1], seed=3, **how))
    for seed in (np.int64(3), np.uint8(3)):
        assert (
            list(llamalib.generate(llama, [1], seed=seed, **how)) == expected
        )


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
    "given, said",
    [
        (5, "allowed_special must be names or 'all', got 5"),
        (True, "allowed_special must be names or 'all', got True"),
        ([["<|eot_id|>"], "x"], r"special: \[\['<.eot_id.>'\], 'x'\] are no"),
        ([5, "x"], r"allowed_special: \[5, 'x'\] are no special tokens"),
        ("<|end|>", r"allowed_special: \['<.end.>'\] are no special tokens"),
    ],
)
def test_names_that_are_no_special_tokens(given, said):
    tokenizer = llamalib.Tokenizer(small_ranks())
    with pytest.raises(ValueError, match=said):
        tokenizer.encode("a", bos=True, eos=False, allowed_special=given)


@pytest.mark.parametrize(
    "ids, said",
    [
        (5, "ids must be token ids, got 5"),
        ("12", "ids must be token ids, got a str"),
        ([1.5], "ids must be token ids, but holds 1.5"),
        ([None], "ids must be token ids, but holds None"),
    ],
)
def test_ids_that_cannot_be_decoded(ids, said):
    with pytest.raises(ValueError, match=said):
        llamalib.Tokenizer(small_ranks()).decode(ids)


@pytest.mark.parametrize("path", [5, 0, b"a", ["x"], True, ""])
def test_what_is_no_path(path):
    with pytest.raises(ValueError, match="path must be a folder or None, got"):
        llamalib.load(path)
