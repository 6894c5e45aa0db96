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


def params(**changes):
    def damage(folder):
        file = folder / PARAMS
        found = json.loads(file.read_text()) | changes
        file.write_text(json.dumps(found))

    return damage


def tensors(change, name=PTH):
    def damage(folder):
        found = torch.load(folder / name, weights_only=True)
        change(found)
        torch.save(found, folder / name)

    return damage


def with_number(number):
    def change(found):
        found[WQ].view(-1)[5] = number

    return tensors(change)


def shorter(folder):
    """Leave out the last token of tokenizer.model."""
    found = (folder / TOKENIZER).read_bytes().splitlines()[:-1]
    (folder / TOKENIZER).write_bytes(b"\n".join(found) + b"\n")


def same_shard(folder):
    first = (folder / "consolidated.01.pth").read_bytes()
    (folder / "consolidated.03.pth").write_bytes(first)


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

ALL = PTH, PARAMS, TOKENIZER
Q = {"check": True}
# name: damage, message; and options of load
TABLE = {
    "no folder": (shutil.rmtree, "model is no folder"),
    "no params": (gone(PARAMS), r"neither .* \(found: consolidated.00.pth, "),
    "no tokenizer": (gone(TOKENIZER), r"has no tokenizer.model \(found: .*: "),
    "no weights": (gone(PTH), r"has no consolidated.00.pth \(found: "),
    "two folders": (nested, "several checkpoints: name .*three or .*origina"),
    "two in one": (twice, "several checkpoints: .*original"),
    "two formats": (
        holds("config.json", b"{}"),
        "both Meta's params.json and",
    ),
    **{
        f"{kind}, {name}": (holds(name, data), f"{name} is {said}")
        for name in ALL
        for kind, data, said in (
            ("Git LFS", LFS, "a Git LFS pointer to .* 2,471,645,608 bytes: r"),
            ("a page", PAGE, "an HTML page, .*: log in and download it again"),
            ("empty", b"", "empty: download it again"),
        )
    },
    **{
        f"cut at {share}": (cut(PTH, share), "00.pth is damaged or incomplet")
        for share in (0.01, 0.5, 0.99, -1)
    },
    "a bit in the list": (flipped(PTH, b"embeddings.weight"), "CRC-32 .*pkl"),
    "a bit in the numbers": (flipped(PTH, 0.5), "00.pth is damaged .*CRC-32"),
    "compressed": (compressed, "00.pth is damaged .*is compressed"),
    "not a number": (with_number(float("nan")), f"{WQ} has 1 NaN or inf", Q),
    "shard missing": (
        gone("consolidated.02.pth"),
        "has no consolidated.02.pt",
    ),
    "last shard missing": (gone("consolidated.03.pth"), "is one missing"),
    "shard of another model": (
        tensors(lambda t: t["norm.weight"].add_(1), "consolidated.01.pth"),
        "01.pth is not of the same model as the first shard: norm.weight",
    ),
    "shard of another dtype": (
        tensors(
            lambda t: t.update(
                {n: t[n].float() for n in t if "norm" not in n}
            ),
            "consolidated.02.pth",
        ),
        "not of the same model as the first shard",
    ),
    "shard twice": (same_shard, "holds the same part .* as consolidated.01.p"),
    "tensor missing": (tensors(lambda t: t.pop(WQ)), f"has no tensor {WQ}"),
    "unknown tensor": (
        tensors(lambda t: t.update(lora=torch.ones(3))),
        "00.pth has an unknown tensor lora: it is not of the model",
    ),
    "another shape": (
        tensors(lambda t: t.update({WQ: t[WQ][:32].clone()})),
        rf"{WQ} has the shape \(32, 64\), but .*asks for \(64, 64\)",
    ),
    "whole numbers": (
        tensors(lambda t: t.update({WQ: t[WQ].to(torch.int8)})),
        f"{WQ} must hold contiguous floats .* got torch.int8",
    ),
    "fewer numbers": (
        tensors(lambda t: t.update({WQ: t[WQ][:1].expand(64, 64)})),
        f"{WQ} must hold contiguous floats",
    ),
    "no tensor": (
        tensors(lambda t: t.update(x=3)),
        "x must be an ordinary tensor, got a int",
    ),
    "two dtypes": (
        tensors(lambda t: t.update({WQ: t[WQ].float()})),
        "has matrices of torch.bfloat16 and torch.float32: expected one",
    ),
    "not JSON": (
        holds(PARAMS, b"{dim: 64}"),
        "is not JSON: .*line 1 column 2",
    ),
    "not text": (holds(PARAMS, b"\xff\xfe{"), "params.json is not JSON"),
    "a list": (holds(PARAMS, b"[1]"), "must hold a JSON object, got a list"),
    "nested": (holds(PARAMS, b"[" * 100_000), "params.json is not JSON"),
    "a key twice": (
        holds(PARAMS, b'{"dim": 64, "dim": 65}'),
        "params.json is not JSON: the key 'dim' appears twice",
    ),
    "a wrong key": (params(window=3), "params.json: unknown key 'window'; "),
    "a billion layers": (
        params(n_layers=10**9),
        "asks for 1000000000 layers, but .*00.pth has 21 tensors",
    ),
    "vocab_size too large": (
        params(vocab_size=557),
        "tokenizer.model has 556 tokens, vocab_size in params.json is 557",
    ),
    "another tokenizer": (
        lambda f: (params(vocab_size=555)(f), shorter(f)),
        r"tok_embeddings.weight has the shape \(556, 64\), .*\(555, 64\)",
    ),
}


@pytest.mark.parametrize("mistake", TABLE)
def test_a_folder(valid, tmp_path, mistake):
    damage, said, *options = TABLE[mistake]
    kinds = "four" if "shard" in mistake else "one"
    folder = shutil.copytree(valid / kinds, tmp_path / "model")
    damage(folder)
    before = contents(tmp_path)
    kind = FileNotFoundError, ValueError
    with pytest.raises(kind, match=f"(?s){said}") as error:
        llamalib.load(folder, device="cpu", **dict(*options))
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
