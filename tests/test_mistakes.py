"""Every mistake has one clear error, which leaves the files as they were.

A table: the damage to a valid folder, and words of the error's message. It
names the file or value, what was found and what is expected.
"""

import json
import os
import shutil
import zipfile
from functools import partial

import pytest
import torch

import llamalib
from llamalib.load import ROOT
from tests.helpers import write_checkpoint

PTH, PARAMS = "consolidated.00.pth", "params.json"
TOKENIZER = "tokenizer.model"
ALL = PTH, PARAMS, TOKENIZER
LFS = b"version https://git-lfs.github.com/spec/v1\nsize 2471645608\n"
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
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# -- ways to damage a folder -------------------------------------------------


def gone(name):
    return lambda folder: (folder / name).unlink()


def is_a_folder(name):
    def damage(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return damage


def holds(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def cut(name, share):
    """Keep a share of the bytes, or leave a number of them out (< 0)."""

    def damage(folder):
        data = (folder / name).read_bytes()
        end = int(len(data) * share) if 0 < share < 1 else len(data) + share
        (folder / name).write_bytes(data[:end])

    return damage


def params(**changes):
    def damage(folder):
        found = json.loads((folder / PARAMS).read_text()) | changes
        (folder / PARAMS).write_text(json.dumps(found))

    return damage


def tensors(change, name=PTH):
    def damage(folder):
        found = torch.load(folder / name, weights_only=True)
        change(found)
        torch.save(found, folder / name)

    return damage


def wq(change):
    return tensors(lambda found: found.update({WQ: change(found[WQ])}))


def in_float32(found):
    found.update({n: found[n].float() for n in found if "norm" not in n})


def a_flipped_bit(folder):
    data = bytearray((folder / PTH).read_bytes())
    data[len(data) // 2] ^= 16
    (folder / PTH).write_bytes(data)


def another_tokenizer(folder):
    """Leave out the last token of tokenizer.model, as params.json then says."""
    params(vocab_size=555)(folder)
    lines = (folder / TOKENIZER).read_bytes().splitlines()[:-1]
    (folder / TOKENIZER).write_bytes(b"\n".join(lines))


def same_shard(folder):
    shutil.copy(folder / "consolidated.01.pth", folder / "consolidated.03.pth")


def compressed(folder):
    """Write the archive again, as a zip program would."""
    data = zipfile.ZipFile(folder / PTH)
    with zipfile.ZipFile(folder / "new", "w", zipfile.ZIP_DEFLATED) as new:
        for name in data.namelist():
            new.writestr(name, data.read(name))
    (folder / "new").rename(folder / PTH)


def two_folders(folder):
    shutil.copytree(folder, folder / "two" / "original")
    shutil.copytree(folder / "two" / "original", folder / "three")
    for name in ALL:
        (folder / name).unlink()


def two_in_one(folder):
    shutil.copytree(folder, folder.parent / "original")
    shutil.move(folder.parent / "original", folder / "original")


# -- the table ---------------------------------------------------------------

TABLE = {
    "no folder": (shutil.rmtree, "model is no folder"),
    "no params": (gone(PARAMS), r"neither .* \(found: consolidated.00.pth, "),
    "no tokenizer": (gone(TOKENIZER), r"has no tokenizer.model \(found: "),
    "no weights": (gone(PTH), r"has no consolidated.00.pth \(found: "),
    "two folders": (two_folders, "several checkpoints: name .*three or .*two"),
    "two in one": (two_in_one, "several checkpoints: .*original"),
    "two formats": (holds("config.json", b"{}"), "both Meta's params.json"),
    "cut at 1%": (cut(PTH, 0.01), "00.pth is damaged or incomplete"),
    "cut at 99%": (cut(PTH, 0.99), "00.pth is damaged or incomplete"),
    "without a byte": (cut(PTH, -1), "00.pth is damaged or incomplete"),
    "a bit in the numbers": (a_flipped_bit, "00.pth is damaged .*CRC-32"),
    "compressed": (compressed, "00.pth is damaged .*is compressed"),
    "a shard missing": (gone("consolidated.02.pth"), "no consolidated.02.pth"),
    "last shard missing": (gone("consolidated.03.pth"), "is one missing"),
    "shard twice": (same_shard, "same part .* as consolidated.01.pth"),
    "shard of another model": (
        tensors(lambda t: t["norm.weight"].add_(1), "consolidated.01.pth"),
        "01.pth is not of the same model as the first shard: norm.weight",
    ),
    "shard of another dtype": (
        tensors(in_float32, "consolidated.02.pth"),
        "not of the same model as the first shard",
    ),
    "tensor missing": (tensors(lambda t: t.pop(WQ)), f"has no tensor {WQ}"),
    "unknown tensor": (
        tensors(lambda t: t.update(lora=torch.ones(3))),
        "00.pth has an unknown tensor lora",
    ),
    "no tensor": (
        tensors(lambda t: t.update(x=3)),
        "ordinary tensor, got a i",
    ),
    "another shape": (
        wq(lambda w: w[:32].clone()),
        rf"{WQ} has the shape \(32, 64\), but .*asks for \(64, 64\)",
    ),
    "whole numbers": (wq(lambda w: w.to(torch.int8)), "floats .*torch.int8"),
    "fewer numbers": (wq(lambda w: w[:1].expand(64, 64)), "contiguous floats"),
    "two dtypes": (wq(lambda w: w.float()), "of torch.bfloat16 and torch.flo"),
    "not JSON": (holds(PARAMS, b"{dim: 64}"), "is not JSON: .*line 1 column"),
    "not text": (holds(PARAMS, b"\xff\xfe{"), "params.json is not JSON"),
    "a list": (holds(PARAMS, b"[1]"), "must hold a JSON object, got a list"),
    "nested": (holds(PARAMS, b"[" * 100_000), "params.json is not JSON"),
    "a key twice": (holds(PARAMS, b'{"a": 1, "a": 2}'), "'a' appears twice"),
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
        another_tokenizer,
        r"shape \(556, 64\), .*\(555, 64",
    ),
}
for name in ALL:
    TABLE |= {
        f"a folder {name}": (is_a_folder(name), f"{name} is a folder, a pipe"),
        f"empty {name}": (holds(name, b""), f"{name} is empty: download"),
        f"a page {name}": (
            holds(name, PAGE),
            f"{name} is an HTML page, .*log",
        ),
        f"LFS {name}": (
            holds(name, LFS),
            f"{name} is .* of 2,471,645,608 byt",
        ),
    }


@pytest.mark.parametrize("mistake", TABLE)
def test_a_folder(valid, tmp_path, mistake):
    damage, said = TABLE[mistake]
    kind = "four" if "shard" in mistake else "one"
    folder = shutil.copytree(valid / kind, tmp_path / "model")
    damage(folder)
    before = contents(tmp_path)
    kinds = FileNotFoundError, ValueError
    with pytest.raises(kinds, match=f"(?s){said}") as error:
        llamalib.load(folder, device="cpu")
    assert str(folder) in str(error.value)
    assert len(str(error.value)) < 700 and "weights_only" not in str(error)
    assert contents(tmp_path) == before


def test_numbers_that_are_none(valid, tmp_path):
    """With check=True, which reads every number."""
    folder = shutil.copytree(valid / "one", tmp_path / "model")
    tensors(lambda found: found[WQ][0, 5:7].fill_(torch.nan))(folder)
    with pytest.raises(ValueError, match=f"{WQ} has 2 NaN or infinite"):
        llamalib.load(folder, device="cpu", check=True)


@pytest.mark.parametrize(
    "name", ["~nobody-of-that-name/x", "x" * 300, "a\0b", ROOT / "README.md"]
)
def test_an_invalid_folder_name(name):
    with pytest.raises(FileNotFoundError, match="is (no folder|a file)$"):
        llamalib.load(name)


@pytest.mark.parametrize("path", [5, b"a", True, ""])
def test_what_is_no_path(path):
    with pytest.raises(ValueError, match="path must be a folder or None, got"):
        llamalib.load(path)


def test_a_byte_order_mark_is_allowed(valid, tmp_path):
    folder = shutil.copytree(valid / "one", tmp_path / "model")
    text = (folder / PARAMS).read_bytes()
    (folder / PARAMS).write_bytes(b"\xef\xbb\xbf" + text)
    assert llamalib.load(folder, device="cpu").config.dim == 64


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_may_not_be_read(valid, name, monkeypatch):
    def refused(opened, file, *how, **more):
        if str(file).endswith(name):
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, *how, **more)

    monkeypatch.setattr("builtins.open", partial(refused, open))
    with pytest.raises(PermissionError, match=f"denied: .*{name}. Try chmod"):
        llamalib.load(valid / "one", device="cpu")


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
