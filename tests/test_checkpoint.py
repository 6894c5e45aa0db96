"""Meta's format: finding, opening and saving a folder.

Damaged folders are in tests/test_damages.py.
"""

import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import nn

import llamalib
from llamalib.__main__ import main
from llamalib.load import POCKET, REAL, ROOT, SMOL
from tests.helpers import (
    dead_process,
    random_ids,
    random_llama,
    small_config,
    write_checkpoint,
)

PLAIN = dict(device="cpu")
MODULE = sys.modules["llamalib.load"]  # llamalib.load is the function
PTH, PARAMS = "consolidated.00.pth", "params.json"


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "model")


def change_tensors(folder, change):
    tensors = torch.load(folder / PTH, weights_only=True)
    change(tensors)
    torch.save(tensors, folder / PTH)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


# -- finding and loading -----------------------------------------------------


def test_order_of_search(tmp_path, monkeypatch):
    root, below = tmp_path / "root", tmp_path / "elsewhere" / "below"
    below.mkdir(parents=True)
    monkeypatch.setattr(MODULE, "ROOT", root)
    # the notebooks' map, which another test may have loaded, takes SMOL out
    monkeypatch.setattr(MODULE, "USUAL", [REAL, SMOL, POCKET])
    monkeypatch.chdir(below)
    monkeypatch.delenv("LLAMA_DIR")
    with pytest.raises(FileNotFoundError, match="make pocket"):
        llamalib.find_checkpoint()
    for place in (
        tmp_path / "elsewhere" / POCKET,
        below / POCKET,
        root / POCKET,
        root / SMOL,
        root / REAL,
    ):
        write_checkpoint(place)
        assert llamalib.find_checkpoint() == place
    named = write_checkpoint(tmp_path / "named")
    for quoted in str(named), f'"{named}"':  # as cmd keeps it
        monkeypatch.setenv("LLAMA_DIR", quoted)
        assert llamalib.find_checkpoint() == named
    assert llamalib.find_checkpoint(root / POCKET) == root / POCKET


USUALLY = """
from llamalib.load import POCKET, REAL, SMOL, USUAL
assert USUAL == [REAL, SMOL, POCKET]
from lessons import {lesson} as lesson
assert USUAL == [REAL, POCKET]
"""


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_gguf_that_is_no_file(tmp_path, kind):
    place = tmp_path / "m.gguf"
    if kind == "pipe":
        getattr(os, "mkfifo", Path.mkdir)(place)  # Windows has none
    elif kind == "link":
        place.symlink_to("nowhere")
    else:
        place.mkdir()
    said = r"neither Meta's .* nor a GGUF file \(found: m.gguf\)"
    with pytest.raises(FileNotFoundError, match=said):
        llamalib.load(tmp_path)


@pytest.mark.parametrize("lesson", ["nA_training", "nH_documents"])
def test_the_notebooks_do_not_open_smollm2_unasked(lesson):
    """Their outputs are the pocket Llama's."""
    command = [sys.executable, "-c", USUALLY.format(lesson=lesson)]
    subprocess.run(command, cwd=ROOT, check=True)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv", [2, 8])
@pytest.mark.parametrize("shards", [1, 2, 8])
@torch.no_grad()
def test_shards_are_joined(tmp_path, tied, kv, shards):
    config = small_config(n_kv_heads=kv, vocab_size=304 + 256)
    expected = random_llama(config, tied=tied)
    write_checkpoint(tmp_path, expected, shards=shards, dtype=torch.float32)
    llama = llamalib.load(tmp_path, check=True, **PLAIN)
    assert llama.tied is tied and not llama.training
    assert not any(p.requires_grad or p.is_meta for p in llama.parameters())
    for name, weight in expected.state_dict().items():
        assert torch.equal(llama.state_dict()[name], weight), name
    tokens = random_ids(9)
    assert torch.equal(llama(tokens), expected(tokens))


LIGHT = """
import sys, llamalib
llamalib.load(sys.argv[1], device="cpu")
heavy = "safetensors", "tokenizers", "huggingface_hub", "torch._dynamo"
print([name for name in heavy if name in sys.modules])
"""


def test_opening_imports_no_other_library(folder):
    command = [sys.executable, "-c", LIGHT, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n", done


def test_norms_in_another_dtype(folder):
    """Products need the same."""

    def in_float32(tensors):
        tensors["norm.weight"] = tensors["norm.weight"].float()

    change_tensors(folder, in_float32)
    assert llamalib.load(folder, **PLAIN).norm.weight.dtype == torch.bfloat16
    for dtype in (torch.float16, torch.float32):
        llama = llamalib.load(folder, dtype=dtype, **PLAIN)
        assert {p.dtype for p in llama.parameters()} == {dtype}
        assert llama.tied and llama(random_ids(5)).dtype == torch.float32


def test_a_byte_order_mark_is_allowed(folder):
    text = (folder / PARAMS).read_bytes()
    (folder / PARAMS).write_bytes(b"\xef\xbb\xbf" + text)
    assert llamalib.load(folder, **PLAIN).config.dim == 64


def with_output(change):
    def damage(tensors):
        tensors["output.weight"] = tensors["tok_embeddings.weight"].clone()
        change(tensors["output.weight"])

    return damage


@pytest.mark.parametrize(
    "change, tied",
    [
        (lambda t: t.pop("output.weight"), True),
        (with_output(lambda w: None), True),
        (with_output(lambda w: w[-1, -1:].add_(1)), False),
        (lambda t: t.update({"rope.freqs": torch.ones(4)}), True),
    ],
)
def test_the_output_and_older_files(folder, change, tied):
    change_tensors(folder, change)
    llama = llamalib.load(folder, **PLAIN)
    output, embedding = llama.output.weight, llama.tok_embeddings.weight
    assert llama.tied is tied and torch.equal(output, embedding) is tied
    assert "rope.freqs" not in llama.state_dict()


def test_no_bar_without_a_standard_error(folder, monkeypatch):
    """Under pythonw, or after `2>&-`, nothing can be written to it."""
    monkeypatch.setattr(sys, "stderr", None)
    checkpoint = MODULE.open_checkpoint(folder)
    assert MODULE.with_bar(checkpoint) == checkpoint.names()


@pytest.mark.parametrize("kind", ["cuda:99", "typewriter", 3.5])
def test_devices_that_are_not_here(folder, kind, monkeypatch):
    said = f"unknown device '{kind}'; available: .*cpu"
    with pytest.raises(ValueError, match=said):
        llamalib.load(folder, device=kind)
    monkeypatch.setenv("LLAMA_DEVICE", str(kind))
    with pytest.raises(ValueError, match=said):
        llamalib.load(folder)
    assert llamalib.load(folder, device="cpu").device.type == "cpu"


NO_FOLDER = "~nobody-of-that-name/x", "x" * 300, "a\0b"
WRONG = [
    *((dict(path=path), "path must be a folder") for path in (5, b"a", "")),
    *((dict(path=path), "does not exist$") for path in NO_FOLDER),
    (dict(path=ROOT / "README.md"), "README.md is neither a folder"),
    (dict(dtype=torch.int8), "dtype must be .* got torch.int8"),
    (dict(quantize="int3"), "quantize must be .* got 'int3'"),
]


@pytest.mark.parametrize("wrong, said", WRONG)
def test_a_wrong_argument(folder, wrong, said):
    kinds = FileNotFoundError, ValueError
    with pytest.raises(kinds, match=said) as error:
        llamalib.load(**dict(path=folder) | wrong)
    assert isinstance(error.value, ValueError) == ("must be" in said)


# -- saving -----------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_round_trip(tmp_path, tied):
    """A model is written to the same bytes every time."""
    first = write_checkpoint(tmp_path / "a", random_llama(tied=tied))
    llama = llamalib.load(first, **PLAIN)
    llamalib.save(llama, tmp_path / "b")
    again = llamalib.load(tmp_path / "b", check=True, **PLAIN)
    llamalib.save(again, tmp_path / "c")
    assert contents(tmp_path / "b") == contents(tmp_path / "c")
    assert again.tied is tied and again.config == llama.config
    for name, tensor in llama.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    size = (tmp_path / "c" / PTH).stat().st_size
    numbers = sum(p.numel() for p in llama.parameters())
    assert size < 2 * numbers + 20_000  # a tied matrix is written once


def test_saving_over_the_open_file(folder):
    """The mapped file is replaced, not written into."""
    llama = llamalib.load(folder, **PLAIN)
    before = llama(random_ids(5))
    llamalib.save(llama, folder)
    assert torch.equal(llama(random_ids(5)), before)
    assert torch.equal(llamalib.load(folder, **PLAIN)(random_ids(5)), before)


@pytest.mark.parametrize("error", [OSError(28, "No space"), RuntimeError()])
def test_a_full_disk_changes_nothing(folder, tmp_path, monkeypatch, error):
    """torch.save raises both; nothing stays behind."""

    def full(tensors, part):
        Path(part).write_bytes(b"half of it")
        raise error

    llama, before = llamalib.load(folder, **PLAIN), contents(folder)
    monkeypatch.setattr(torch, "save", full)
    for place in (folder, tmp_path / "new"):
        said = f"{place / PTH} cannot be written .*make room"
        with pytest.raises(OSError, match=said):
            llamalib.save(llama, place)
    assert contents(folder) == before and contents(tmp_path / "new") == {}


@pytest.mark.parametrize("fails", [PARAMS, PTH])
def test_a_file_that_cannot_be_replaced(folder, monkeypatch, fails):
    """Windows keeps the file that a loaded model is mapped from."""
    llama, before = llamalib.load(folder, **PLAIN), contents(folder)
    replace = Path.replace

    def refused(self, target):
        if self.name.startswith(fails):
            raise PermissionError(13, "Access is denied", str(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(PermissionError, match=f"{fails} cannot .*Windows"):
        llamalib.save(llama, folder)
    assert contents(folder) == before


def test_a_save_that_is_killed(folder, monkeypatch):
    """Between two files there are no settings, so no half new model opens."""
    llama, replace = llamalib.load(folder, **PLAIN), Path.replace

    def killed(self, target):
        replace(self, target)
        if Path(target).name == PTH:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    module = sys.modules["llamalib.save"]
    monkeypatch.setattr(module, "finish", lambda *parts: None)
    with pytest.raises(KeyboardInterrupt):
        llamalib.save(llama, folder)
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match="neither Meta's params.json"):
        llamalib.load(folder)


@pytest.mark.parametrize("at", range(1, 5))
def test_a_save_that_is_interrupted(folder, tmp_path, monkeypatch, at):
    """Wherever it is, the folder has the old model or the new one."""
    old, replace, calls = contents(folder), Path.replace, count(1)
    llama = llamalib.load(folder, **PLAIN)
    llama.norm.weight.zero_()
    llamalib.save(llama, tmp_path / "new")

    def stopped(self, target):
        replace(self, target)
        if next(calls) == at:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        llamalib.save(llama, folder)
    new = contents(tmp_path / "new")
    assert contents(folder) == (old if at == 1 else new)


def test_what_killed_saves_left_is_removed(folder, tmp_path):
    """Not what a process that lives writes, nor a file of another name."""
    names = PTH, PARAMS, "tokenizer.model", "older"
    gone = dead_process()
    left = [tmp_path / "new" / f"{name}.part{gone}" for name in names]
    others = [tmp_path / "new" / f"{PTH}.part{os.getppid()}"]
    others += [tmp_path / "new" / name for name in ("x.part2", f"{PTH}.part")]
    (tmp_path / "new").mkdir()
    for file in (*left, *others):
        file.write_bytes(b"half")
    llamalib.save(llamalib.load(folder, **PLAIN), tmp_path / "new")
    assert not any(file.exists() for file in left)
    assert all(file.exists() for file in others)


def test_convert_after_a_killed_one(folder, tmp_path, capsys):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / f"{PTH}.part{dead_process()}").touch()
    command = ["convert", str(folder), str(tmp_path / "new")]
    assert main(command) == 0
    assert main(command) == 1
    assert "is not empty" in capsys.readouterr().err


ANOTHER = "place for the special tokens .* or the ids that end its texts"


@pytest.mark.parametrize(
    "part, name, value, said",
    [
        ("norm", "weight", nn.Parameter(torch.ones(65)), "has the shape .65,"),
        ("", "tokenizer", None, "needs Llama 3's tokenizer"),
        ("tokenizer", "eos_id", 309, ANOTHER),
        ("tokenizer", "stop_tokens", {13}, ANOTHER),
        ("tokenizer", "n_words", 500, "500 tokens|vocab_size is 556"),
    ],
)
def test_what_metas_format_cannot_hold(
    folder, tmp_path, part, name, value, said
):
    """tests/test_huggingface.py has other special tokens and ends."""
    llama = llamalib.load(folder, **PLAIN)
    setattr(getattr(llama, part) if part else llama, name, value)
    with pytest.raises(ValueError, match=said):
        llamalib.save(llama, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_where_nothing_is_saved(folder, tmp_path):
    llama = llamalib.load(folder, **PLAIN)
    for name in ("consolidated.01.pth", "config.json"):
        new = tmp_path / f"with {name}"
        new.mkdir()
        (new / name).write_text("{}")
        with pytest.raises(ValueError, match=f"{name} is another model's"):
            llamalib.save(llama, new)
        assert set(contents(new)) == {name}
    for wrong in (None, 3, ""):
        with pytest.raises(ValueError, match="folder must be a path, got"):
            llamalib.save(llama, wrong)
    with pytest.raises(ValueError, match="llama must be a Llama, got a int"):
        llamalib.save(3, "x")


@pytest.mark.parametrize("name", ["file", "file/x"])
def test_a_place_where_no_folder_can_be(folder, tmp_path, capsys, name):
    (tmp_path / "file").touch()
    place = tmp_path / name
    said = f"{place} (cannot be written .*name another|is no folder: name a )"
    with pytest.raises(OSError, match=said):
        llamalib.save(llamalib.load(folder, **PLAIN), place)
    assert main(["convert", str(folder), str(place)]) == 1
    error = capsys.readouterr().err
    assert re.search(said, error) and ".part" not in error
