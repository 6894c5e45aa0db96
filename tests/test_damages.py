"""Damaged folders: one clear error each, which leaves the files as they were.

The error names the file or value, what was found and what is expected. First
a table of the damages that people meet, then any damage at all.
"""

import json
import os
import random
import shutil
import struct
import sys
import zipfile
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import llamalib
from llamalib.meta import open_shard
from llamalib.tensors import tensor_shapes
from tests.helpers import write_checkpoint
from tests.test_huggingface import change_tokenizer, write_folder

MODULE = sys.modules["llamalib.meta"]
PTH, PARAMS = "consolidated.00.pth", "params.json"
TOKENIZER = "tokenizer.model"
ALL = PTH, PARAMS, TOKENIZER
LAST = "consolidated.03.pth"
LFS = b"version https://git-lfs.github.com/spec/v1\nsize 2471645608\n"
PAGE = b"\r\n<!DOCTYPE html>\n<html><title>Sign in</title></html>"
WQ = "layers.1.attention.wq.weight"


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """Return valid folders: with one shard and four, of Hugging Face's kind."""
    folder = tmp_path_factory.mktemp("valid")
    write_checkpoint(folder / "one")
    write_checkpoint(folder / "four", shards=4)
    write_folder(folder / "hugging face")
    # with a tokenizer for the library
    change_tokenizer(write_folder(folder / "library"))
    return folder


@pytest.fixture
def folder(valid, tmp_path):
    return shutil.copytree(valid / "one", tmp_path / "model")


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# -- ways to damage a folder -------------------------------------------------


def changed(name, change):
    """Give a file what change(its bytes) returns; it is gone if None."""

    def damage(folder):
        data = change((folder / name).read_bytes())
        (folder / name).unlink()
        if data is not None:
            (folder / name).write_bytes(data)

    return damage


def gone(name):
    return changed(name, lambda data: None)


def holds(name, data):
    return changed(name, lambda _: data)


def params(**changes):
    return changed(
        PARAMS, lambda text: json.dumps(json.loads(text) | changes).encode()
    )


def is_a_folder(name):
    def damage(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

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


def nan_in_safetensors(folder):
    file = folder / "model.safetensors"
    found = load_file(file)
    name = "model.layers.1.self_attn.q_proj.weight"
    found[name][0, 5:7] = torch.nan
    save_file(found, file, metadata={"format": "pt"})


def flipped(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :]


def another_tokenizer(folder):
    """Leave out the last token of tokenizer.model, as params.json then says."""
    params(vocab_size=555)(folder)
    changed(TOKENIZER, lambda data: data[: data[:-1].rindex(b"\n")])(folder)


def same_shard(folder):
    shutil.copy(folder / "consolidated.01.pth", folder / "consolidated.03.pth")


def compressed(folder):
    """Write the archive again, as a zip program would."""
    data = zipfile.ZipFile(folder / PTH)
    with zipfile.ZipFile(folder / "new", "w", zipfile.ZIP_DEFLATED) as new:
        for name in data.namelist():
            new.writestr(name, data.read(name))
    (folder / "new").replace(folder / PTH)


def records(change):
    """Let change the records of the archive, pairs of name and bytes."""

    def damage(folder):
        data = zipfile.ZipFile(folder / PTH)
        pairs = [(name, data.read(name)) for name in data.namelist()]
        with zipfile.ZipFile(folder / "new", "w") as new:
            for pair in change(pairs):
                new.writestr(*pair)
        (folder / "new").replace(folder / PTH)

    return damage


def shorter(pairs):
    return [(n, d[:-64] if n.endswith("/data/3") else d) for n, d in pairs]


def two_folders(folder):
    shutil.copytree(folder, folder / "two" / "original")
    shutil.copytree(folder / "two" / "original", folder / "three")
    for name in ALL:
        (folder / name).unlink()


def two_in_one(folder):
    shutil.copytree(folder, folder.parent / "original")
    shutil.move(folder.parent / "original", folder / "original")


def both_formats(folder):
    (folder / "config.json").write_text("{}")


# -- the table ---------------------------------------------------------------

TABLE = {
    "no folder": (shutil.rmtree, "model does not exist"),
    "no params": (gone(PARAMS), r"neither .* \(found: consolidated.00.pth, "),
    "no tokenizer": (gone(TOKENIZER), r"has no tokenizer.model \(found: "),
    "no weights": (gone(PTH), r"has no consolidated.00.pth \(found: "),
    "two folders": (two_folders, "several checkpoints: name .*three or .*two"),
    "two in one": (two_in_one, "several checkpoints: .*original"),
    "two formats": (both_formats, "both Meta's params.json"),
    "cut": (changed(PTH, lambda d: d[:-1]), "00.pth is damaged or incomplete"),
    "a bit": (changed(PTH, flipped), "00.pth is damaged .*CRC-32"),
    "compressed": (compressed, "00.pth is damaged .*is compressed"),
    "a short record": (records(shorter), "00.pth is damaged.* not as long as"),
    "a record twice": (
        records(lambda p: [*p, p[0]]),
        "00.pth is damaged .*on",
    ),
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
    "not a number": (
        tensors(lambda t: t[WQ][0, 5:7].fill_(torch.nan)),
        f"00.pth: {WQ} has 2 NaN or infinite numbers: download it again",
    ),
    "infinite, in a shard": (
        tensors(lambda t: t[WQ][0, 5].fill_(-torch.inf), LAST),
        f"03.pth: {WQ} has 1 NaN or infinite",
    ),
    "not a number, in a shard's norm": (
        tensors(lambda t: t["norm.weight"][5].fill_(torch.nan), LAST),
        "03.pth: norm.weight has 1 NaN or infinite",
    ),
    "not JSON": (holds(PARAMS, b"{dim: 64}"), "is not JSON: .*line 1 column"),
    "no dim": (
        changed(PARAMS, lambda text: text.replace(b'"dim": 64, ', b"")),
        "params.json: missing key 'dim'",
    ),
    "a list": (holds(PARAMS, b"[1]"), "must hold a JSON object, got a list"),
    "not text": (holds(PARAMS, b"\xff\xfe{"), "params.json is not JSON"),
    "a key twice": (holds(PARAMS, b'{"a": 1, "a": 2}'), "'a' appears twice"),
    "a billion layers": (
        params(n_layers=10**9),
        "asks for 1000000000 layers, but .*00.pth has 21 tensors",
    ),
    "vocab_size too large": (
        params(vocab_size=557),
        "tokenizer.model has 556 tokens, vocab_size in params.json is 557",
    ),
    "vocab_size too small": (
        params(vocab_size=555),
        "tokenizer.model has 556 tokens, vocab_size in params.json is 555",
    ),
    "another tokenizer": (another_tokenizer, r"\(556, 64\), .*\(555, 64"),
}
WHOLE = "must be a whole number from 1 to 2147483647, got"
for wrong, said in (
    (dict(window=3), "unknown key 'window'; known: dim"),
    (dict(dim="64"), f"dim {WHOLE} '64'"),
    (dict(dim=64.0), f"dim {WHOLE} 64.0"),
    (dict(n_layers=0), f"n_layers {WHOLE} 0"),
    (dict(n_layers=True), f"n_layers {WHOLE} True"),
    (dict(n_kv_heads=None), f"n_kv_heads {WHOLE} None"),
    (dict(n_kv_heads=3), "n_heads must be a multiple of n_kv_heads = 3"),
    (dict(dim=65), "dim must be a multiple of n_heads = 8, got 65"),
    (dict(dim=72), "must be even, for RoPE's pairs, got 9"),
    (dict(use_scaled_rope=1), "use_scaled_rope must be true or false"),
):
    TABLE[str(wrong)] = params(**wrong), f"params.json: .*{said}"
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


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", TABLE)
def test_a_damage_that_people_meet(valid, tmp_path, name):
    damage, said = TABLE[name]
    kind = "four" if "shard" in name else "one"
    folder = shutil.copytree(valid / kind, tmp_path / "model")
    damage(folder)
    before = contents(tmp_path)
    kinds = FileNotFoundError, ValueError
    with pytest.raises(kinds, match=f"(?s){said}") as error:
        llamalib.load(folder, device="cpu")
    assert str(folder) in str(error.value)
    assert len(str(error.value)) < 700 and "weights_only" not in str(error)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_may_not_be_read(valid, name, monkeypatch):
    def refused(opened, file, *how, **more):
        if str(file).endswith(name):
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, *how, **more)

    monkeypatch.setattr("builtins.open", partial(refused, open))
    with pytest.raises(PermissionError, match=f"denied: .*{name}. Try chmod"):
        llamalib.load(valid / "one", device="cpu")


class Trap:
    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return os.mkdir, (str(self.flag),)


@pytest.mark.parametrize("where", ["value", "key", "whole"])
def test_code_in_a_file_is_never_run(folder, tmp_path, where):
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


# -- archives ----------------------------------------------------------------


def test_check_reads_the_numbers_of_large_files(folder, monkeypatch):
    monkeypatch.setattr(MODULE, "SMALL", 0)
    changed(PTH, flipped)(folder)
    assert llamalib.load(folder, device="cpu")
    with pytest.raises(ValueError, match=r"damaged .*CRC-32 for file .*data/"):
        llamalib.load(folder, device="cpu", check=True)


@pytest.mark.parametrize("check", [False, True])
def test_a_damaged_header_never_gives_other_numbers(
    tmp_path, monkeypatch, check
):
    """Each byte outside of the numbers; of a large file, with check=True.

    The bits that change nothing are those of dates, for example.
    """
    monkeypatch.setattr(MODULE, "SMALL", 0 if check else MODULE.SMALL)
    tensors = {"a": torch.randn(5, 7).bfloat16(), "b": torch.randn(40)}
    file, draw, numbers = tmp_path / PTH, random.Random(0), set()
    torch.save(tensors, file)
    data, opened = file.read_bytes(), 0
    for tensor in tensors.values():
        part = bytes(tensor.view(torch.uint8).flatten().tolist())
        start = data.index(part)
        numbers |= set(range(start, start + len(part)))
    for at in sorted(set(range(len(data))) - numbers):
        other = bytes([data[at] ^ draw.randrange(1, 256)])
        file.unlink()  # an open mapping keeps the old file
        file.write_bytes(data[:at] + other + data[at + 1 :])
        try:
            found = open_shard(file, check)
        except ValueError as error:
            assert str(file) in str(error)
            continue
        opened += 1
        assert found.keys() == tensors.keys(), at
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype, at
            assert torch.equal(found[name], tensor), at
    assert 0 < opened < len(data) - len(numbers)


def test_not_a_number_in_a_large_file(valid, tmp_path, monkeypatch):
    """It is not read when it is opened, unless `check` asks for it."""
    monkeypatch.setattr("llamalib.tensors.SMALL", 0)
    for kind, name, wrong in (
        ("one", PTH, tensors(lambda t: t[WQ][0, 5:7].fill_(torch.nan))),
        ("hugging face", "model.safetensors", nan_in_safetensors),
    ):
        folder = shutil.copytree(valid / kind, tmp_path / name)
        wrong(folder)
        assert llamalib.load(folder, device="cpu")
        with pytest.raises(ValueError, match=f"{WQ} has 2 NaN or infinite nu"):
            llamalib.load(folder, device="cpu", check=True)
        monkeypatch.setattr("llamalib.tensors.SMALL", 10**8)
        with pytest.raises(ValueError, match=f"{name}: .* has 2 NaN or infin"):
            llamalib.load(folder, device="cpu")
        monkeypatch.setattr("llamalib.tensors.SMALL", 0)


# -- any damage --------------------------------------------------------------

STRANGE = [b"", b"\0", b"\xff" * 9, b"null", b"{}", b"[]", b"NaN", b"1e999"]
numbers = st.integers(0, 2**64 - 1).map(lambda n: struct.pack("<Q", n))
pieces = st.binary(max_size=20) | st.sampled_from(STRANGE) | numbers
# At a share of a file's length, bytes give way to others; or a bit is another.
lengths = st.sampled_from([0, 1, 9, 100, 10**9])
mutation = st.tuples(st.floats(0, 1), lengths, pieces | st.integers(0, 7))
# values in a config where others belong
values = st.sampled_from(
    [0, 1, -1, 2, 3, 7, 1.5, 10**9, 10**30, 10**400, 2**63, "8", "", None]
    + [True, [], {}, [1], float("nan"), float("inf"), 1e-300, 1e300]
)
# of a file's bytes, or of a setting: which one, and its new value
damages = st.lists(mutation, min_size=1, max_size=3) | st.tuples(
    st.integers(0, 40), values
)
kinds = st.sampled_from(["one", "four", "hugging face", "library"])
DOCUMENTED = FileNotFoundError, PermissionError, ValueError, MemoryError
# made once, changed many times
ONCE = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def mutated(data: bytes, share, length, change) -> bytes:
    """Insert, overwrite, delete, cut off or flip something."""
    at = int(share * len(data))
    if isinstance(change, int):
        change, length = bytes(b ^ 1 << change for b in data[at : at + 1]), 1
    return data[:at] + change + data[at + length :]


def changed_json(data: bytes, which: int, value) -> bytes:
    """Change the value of one of the keys, or remove the key."""
    found = json.loads(data)
    key = sorted(found)[which % len(found)]
    if which % 7 == 6:
        del found[key]
    else:
        found[key] = value
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    "how",
    [  # the same each time; in `make test-slow` many more
        settings(ONCE, max_examples=200, derandomize=True),
        pytest.param(
            settings(ONCE, max_examples=4000), marks=pytest.mark.slow
        ),
    ],
    ids=["hundreds", "thousands"],
)
def test_any_damage_has_a_clear_error(valid, tmp_path, how):
    """Or the model has the shapes of its config, and can be read whole."""
    folder = tmp_path / "model"

    @how
    @given(kinds, st.integers(0, 9), damages)
    def check(kind, i, damage):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(valid / kind, folder)
        files = sorted(folder.iterdir())
        if isinstance(damage, tuple):
            names = PARAMS, "config.json"
            file = next(file for file in files if file.name in names)
            data = changed_json(file.read_bytes(), *damage)
        else:
            file = files[i % len(files)]
            data = file.read_bytes()
            for one in damage:
                data = mutated(data, *one)
        file.write_bytes(data)
        try:
            llama = llamalib.load(folder, device="cpu")
        except DOCUMENTED as error:
            assert type(error) in DOCUMENTED, repr(error)
            assert str(folder) in str(error), error
        else:
            shapes = tensor_shapes(llama.config)
            found = {n: tuple(w.shape) for n, w in llama.state_dict().items()}
            assert found == shapes
            # nothing is beyond the file's end
            assert all(w.isfinite().all() for w in llama.parameters())
        assert file.read_bytes() == data

    check()
