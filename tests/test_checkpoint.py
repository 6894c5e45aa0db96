import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
import torch

import llamalib
from llamalib.files import ROOT
from llamalib.formats import checks, find, placing
from llamalib.formats.meta import CONTROL, open_shard, tensor_shapes
from llamalib.tokenizer import SPECIAL_TOKENS
from tests.helpers import (
    random_ids,
    random_llama,
    small_config,
    write_checkpoint,
)

PLAIN = dict(device="cpu")


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "model")


def change_tensors(folder, change, name="consolidated.00.pth"):
    file = folder / name
    tensors = torch.load(file, weights_only=True)
    change(tensors)
    torch.save(tensors, file)


# -- finding ----------------------------------------------------------------


def test_order_of_search(tmp_path, monkeypatch):
    root, below = tmp_path / "root", tmp_path / "elsewhere" / "below"
    below.mkdir(parents=True)
    monkeypatch.setattr(find, "ROOT", root)
    monkeypatch.chdir(below)
    monkeypatch.delenv("LLAMA_DIR")
    with pytest.raises(FileNotFoundError, match="make pocket"):
        llamalib.find_checkpoint()
    above = write_checkpoint(tmp_path / "elsewhere" / find.POCKET)
    assert llamalib.find_checkpoint() == above
    here = write_checkpoint(below / find.POCKET)
    assert llamalib.find_checkpoint() == here
    pocket = write_checkpoint(root / find.POCKET)
    assert llamalib.find_checkpoint() == pocket
    real = write_checkpoint(root / find.REAL)
    assert llamalib.find_checkpoint() == real
    named = write_checkpoint(tmp_path / "named")
    monkeypatch.setenv("LLAMA_DIR", str(named))
    assert llamalib.find_checkpoint() == named
    assert llamalib.find_checkpoint(pocket) == pocket


def test_the_folder_above_original_may_be_named(tmp_path):
    folder = write_checkpoint(tmp_path / "Llama-9" / "original")
    assert llamalib.find_checkpoint(tmp_path / "Llama-9") == folder
    assert llamalib.load(tmp_path / "Llama-9", **PLAIN).name == "Llama-9"


def test_folders_that_are_not_found(tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match="nowhere .path. does not exist"
    ):
        llamalib.load(tmp_path / "nowhere")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match="found: notes.txt"):
        llamalib.load(tmp_path)
    monkeypatch.setenv("LLAMA_DIR", str(tmp_path / "x"))
    with pytest.raises(FileNotFoundError, match="LLAMA_DIR"):
        llamalib.load()


@pytest.mark.parametrize("name", ["tokenizer.model", "consolidated.00.pth"])
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=rf"has no {name} \(found: .*download it"
    ):
        llamalib.load(folder)


@pytest.mark.parametrize("path", [5, 1.5, b"x", ["x"], True, ""])
def test_what_is_no_path(path):
    with pytest.raises(ValueError, match="path is .*; expected a folder or"):
        llamalib.load(path)


EOT = "<|eot_id|>"
FILES = ["params.json", "tokenizer.model", "consolidated.00.pth"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["dangling", "loop", "pipe", "folder"])
def test_what_only_looks_like_a_file(folder, name, kind):
    path = folder / name
    path.unlink()
    try:
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(name if kind == "loop" else "nowhere")
    except (AttributeError, OSError):
        pytest.skip("this system has no pipes or links to make")
    with pytest.raises(FileNotFoundError, match="broken link") as error:
        llamalib.load(folder)
    assert f"{path} is a folder, a pipe or a broken" in str(error.value)
    assert "found" not in str(error.value)


AS_ANOTHER = """
import os, sys, llamalib
llamalib.load(sys.argv[1], device="cpu")  # so that all is imported
if int(sys.argv[3]):
    os.setuid(int(sys.argv[3]))
try:
    llamalib.load(sys.argv[2], device="cpu")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("what", ["", "original"])
@pytest.mark.parametrize("mode", [0o300, 0o600])
def test_a_folder_that_may_not_be_read(what, mode, pocket_folder):
    """It may be searched or listed alone; an administrator may do both."""
    if not hasattr(os, "geteuid"):
        pytest.skip("needs the rights of a Unix file system")
    with tempfile.TemporaryDirectory() as place:
        top = write_checkpoint(Path(place, "model", what), shards=2)
        top.chmod(mode)
        other = 0 if os.geteuid() else 65534  # nobody
        if other:
            Path(place).chmod(0o755)
            os.chown(top, other, other)
        where = top.parent if what else top
        options = map(str, (pocket_folder, where, other))
        command = [sys.executable, "-c", AS_ANOTHER, *options]
        done = subprocess.run(command, capture_output=True, text=True)
        top.chmod(0o700)
    assert done.stdout.startswith("PermissionError"), done
    assert str(top) in done.stdout and "chmod u+rx" in done.stdout


# -- loading ----------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv", [2, 8])
@pytest.mark.parametrize("shards", [1, 2, 8])
@torch.no_grad()
def test_shards_are_joined(tmp_path, tied, kv, shards):
    config = small_config(n_kv_heads=kv, vocab_size=304 + 256)
    expected = random_llama(config, tied=tied)
    write_checkpoint(tmp_path, expected, shards=shards, dtype=torch.float32)
    llama = llamalib.load(tmp_path, **PLAIN)
    assert llama.tied is tied
    assert (llama.output.weight is llama.tok_embeddings.weight) is tied
    for name, weight in expected.state_dict().items():
        assert torch.equal(llama.state_dict()[name], weight), name
    tokens = random_ids(9)
    assert torch.equal(llama(tokens), expected(tokens))


def test_properties_of_a_loaded_model(folder):
    llama = llamalib.load(folder, **PLAIN)
    assert llama.dtype == torch.bfloat16 and llama.device.type == "cpu"
    assert llama.name == "model"
    assert not llama.training
    assert not any(p.requires_grad for p in llama.parameters())
    assert llama.tokenizer.n_words == llama.config.vocab_size
    names = set(llama.state_dict())
    assert names == set(tensor_shapes(llama.config))
    assert len(list(llama.parameters())) == len(names) - 1  # tied: once


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32]
)
def test_dtypes(folder, dtype):
    llama = llamalib.load(folder, dtype=dtype, **PLAIN)
    assert {p.dtype for p in llama.parameters()} == {dtype}
    assert llama.output.weight is llama.tok_embeddings.weight
    assert llama(random_ids(5)).dtype == torch.float32


def test_norms_in_another_dtype(folder):
    """All weights get the embedding's, so that products need one dtype."""

    def in_float32(tensors):
        tensors["norm.weight"] = tensors["norm.weight"].float()

    change_tensors(folder, in_float32)
    llama = llamalib.load(folder, **PLAIN)
    assert {p.dtype for p in llama.parameters()} == {torch.bfloat16}
    assert llama(random_ids(5)).isfinite().all()


def test_output_may_be_left_out_or_written_twice(folder):
    change_tensors(folder, lambda t: t.pop("output.weight"))
    assert llamalib.load(folder, **PLAIN).tied

    def twice(tensors):
        tensors["output.weight"] = tensors["tok_embeddings.weight"].clone()

    change_tensors(folder, twice)
    assert llamalib.load(folder, **PLAIN).tied


def test_an_output_that_is_almost_the_embedding(folder):
    """Only the first row is equal."""

    def almost(tensors):
        tensors["output.weight"] = tensors["tok_embeddings.weight"].clone()
        tensors["output.weight"][-1, -1] += 1

    change_tensors(folder, almost)
    llama = llamalib.load(folder, **PLAIN)
    assert not llama.tied
    assert not torch.equal(llama.output.weight, llama.tok_embeddings.weight)


def test_rope_freqs_of_older_files_are_ignored(folder):
    change_tensors(folder, lambda t: t.update({"rope.freqs": torch.ones(4)}))
    assert "rope.freqs" not in llamalib.load(folder, **PLAIN).state_dict()


def test_mapped_not_copied(folder):
    """In the file's own dtype the CPU's weights are the file's pages."""
    llama = llamalib.load(folder, **PLAIN)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs Linux's list of mapped files")
    where = llama.state_dict()["layers.0.attention.wq.weight"].data_ptr()
    for line in maps.read_text().splitlines():
        start, end = (int(x, 16) for x in line.split()[0].split("-"))
        if start <= where < end:
            assert line.endswith(str(folder / "consolidated.00.pth"))
            return
    raise AssertionError("the weight is nowhere in memory")


def resident(file) -> int:
    """Return the bytes of a mapped file in this process's memory."""
    found, counted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            counted = line.endswith(str(file))
        elif counted and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


def test_pages_of_a_copied_tensor_are_released(tmp_path):
    """They can be read again; memory that is not mapped is left alone."""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("needs Linux's list of mapped files")
    folder = write_checkpoint(tmp_path / "model", random_llama())
    file = folder / "consolidated.00.pth"
    tensors = open_shard(file)
    expected = {name: tensor.clone() for name, tensor in tensors.items()}
    held = resident(file)
    assert held > 100_000
    for tensor in tensors.values():
        placing.release_pages(tensor, folder)
    # of each tensor the first and the last page may be shared
    assert resident(file) < held / 2
    for tensor in expected.values():
        placing.release_pages(tensor, folder)
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name]), name
        assert tensor.abs().sum() > 0


@pytest.mark.parametrize(
    "device", ["cuda", "mps", "cuda:99", "typewriter", 3.5]
)
def test_devices_that_are_not_here(folder, device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA GPU")
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has an Apple GPU")
    with pytest.raises(
        ValueError, match=f"unknown device '{device}'; available: "
    ):
        llamalib.load(folder, device=device)


def test_the_device_by_an_environment_variable(folder, monkeypatch):
    monkeypatch.setenv("LLAMA_DEVICE", "typewriter")
    with pytest.raises(ValueError, match="unknown device 'typewriter'; av"):
        llamalib.load(folder)
    assert llamalib.load(folder, device="cpu").device.type == "cpu"
    monkeypatch.setenv("LLAMA_DEVICE", "cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert llamalib.load(folder).device.type == "cpu"


def test_an_unsupported_dtype(folder):
    with pytest.raises(ValueError, match="dtype is torch.int8"):
        llamalib.load(folder, dtype=torch.int8)


# -- what does not fit ------------------------------------------------------

WQ = "layers.1.attention.wq.weight"


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t.pop(WQ), f"has no tensor {WQ}"),
        (lambda t: t.pop("norm.weight"), "has no tensor norm.weight"),
        (lambda t: t.update(x=torch.ones(1)), "unknown tensor x"),
        (
            lambda t: t.update({WQ: t[WQ][:63]}),
            rf"{WQ} is \(63, 64\); expected \(64, 64\)",
        ),
        (
            lambda t: t.update({WQ: torch.tensor(1.0)}),
            rf"{WQ} is \(\); expected \(64, 64\)",
        ),
        (
            lambda t: t.update({WQ: t[WQ].to(torch.int8)}),
            f"{WQ} is 'torch.int8",
        ),
        (
            lambda t: t.update({WQ: t[WQ].to_sparse()}),
            f"{WQ} is .*sparse",
        ),
        (lambda t: t.update(x=3), "x is 3; expected a tensor"),
        (lambda t: t.update({"layers.foo": torch.ones(1)}), "layers.foo"),
    ],
)
def test_tensors_that_do_not_fit(folder, change, said):
    change_tensors(folder, change)
    with pytest.raises(ValueError, match=said) as error:
        llamalib.load(folder)
    assert str(folder) in str(error.value)


def test_params_of_another_model(folder):
    params = json.loads((folder / "params.json").read_text())
    params["n_layers"] = 3
    (folder / "params.json").write_text(json.dumps(params))
    with pytest.raises(ValueError, match="has no tensor layers.2"):
        llamalib.load(folder)
    params["vocab_size"] = 1000
    (folder / "params.json").write_text(json.dumps(params))
    with pytest.raises(
        ValueError, match="is 556; expected 1000, the vocab_size"
    ):
        llamalib.load(folder)


@pytest.mark.parametrize(
    "key, value, kind",
    [
        ("vision_chunk_size", 448, "vision"),
        ("quantization_args", {"group_size": 32}, "quantized"),
    ],
)
def test_other_kinds_of_checkpoint(folder, key, value, kind):
    params = json.loads((folder / "params.json").read_text())
    (folder / "params.json").write_text(json.dumps(params | {key: value}))
    with pytest.raises(
        ValueError, match=f"params.json: .{key}. belongs to a {kind}"
    ):
        llamalib.load(folder)


def test_shards_that_do_not_fit(tmp_path):
    folder = write_checkpoint(tmp_path / "four", shards=4)
    (folder / "consolidated.01.pth").rename(folder / "consolidated.09.pth")
    with pytest.raises(FileNotFoundError, match="has no consolidated.01.pth"):
        llamalib.load(folder)
    (folder / "consolidated.09.pth").rename(folder / "consolidated.01.pth")
    (folder / "consolidated.03.pth").unlink()
    with pytest.raises(ValueError, match="of 3 shard.*one missing"):
        llamalib.load(folder)
    other = write_checkpoint(
        tmp_path / "other", random_llama(seed=1), shards=4
    )
    (other / "consolidated.03.pth").rename(folder / "consolidated.03.pth")
    with pytest.raises(ValueError, match="03.pth: .*norm.weight is not as in"):
        llamalib.load(folder)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t.pop(WQ), f"has no tensor {WQ}"),
        (lambda t: t.pop("output.weight"), "one has no output.weight"),
        (
            lambda t: t.update({WQ: t[WQ][:, :9].clone()}),
            rf"{WQ} is \(16, 9\); expected \(16, 64\) in each of 4",
        ),
        (lambda t: t.update({WQ: t[WQ].float()}), f"{WQ} is torch.float32"),
        (lambda t: t.update({WQ: t[WQ].to(torch.int8)}), f"{WQ} is 'torch.in"),
        (lambda t: t.update({"layers.foo": torch.ones(1)}), "layers.foo"),
    ],
)
def test_a_shard_that_does_not_fit(tmp_path, change, said):
    """Checked before anything is joined; the file is named."""
    folder = write_checkpoint(tmp_path, shards=4)
    change_tensors(folder, change, "consolidated.02.pth")
    with pytest.raises(ValueError, match=f"consolidated.02.pth.*{said}"):
        llamalib.load(folder)


def test_a_backup_copy_is_not_a_shard(folder):
    copy = folder / "consolidated.00.backup.pth"
    copy.write_bytes((folder / "consolidated.00.pth").read_bytes())
    assert llamalib.load(folder, **PLAIN).name == "model"


@pytest.mark.parametrize("data", [b"text", b"PK\x03\x04"])
def test_files_that_are_not_checkpoints(folder, data):
    file = folder / "consolidated.00.pth"
    file.write_bytes(data)
    with pytest.raises(ValueError, match="cannot be opened") as error:
        llamalib.load(folder)
    assert str(file) in str(error.value)


def with_attributes(tensors):
    tensors[WQ] = torch.nn.Parameter(tensors[WQ])
    tensors[WQ].is_contiguous = tensors[WQ].data_ptr = 5


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "made", [torch.empty(64, 64, device="meta"), "nested", "negated"]
)
def test_tensors_without_plain_numbers(folder, made):
    if made == "nested":
        made = torch.nested.nested_tensor([torch.ones(64, 64)] * 2)
    if made == "negated":
        made = torch._neg_view(torch.ones(64, 64))
    change_tensors(folder, lambda t: t.update({WQ: made}))
    with pytest.raises(ValueError, match=f"{WQ} is .*expected a plain tensor"):
        llamalib.load(folder, **PLAIN)


def test_what_was_pickled_with_a_parameter_is_left_out(folder):
    expected = llamalib.load(folder, **PLAIN)(random_ids(5))
    change_tensors(folder, with_attributes)
    llama = llamalib.load(folder, **PLAIN)
    assert torch.equal(llama(random_ids(5)), expected)


def test_long_names_are_cut_and_on_one_line(folder):
    """A file must not write to the terminal, nor fill it."""
    name = "\x1b[31m\n" + "k" * 200_000
    params = json.loads((folder / "params.json").read_text())
    texts = [json.dumps(params | {name: 1}), f'{{"{"k" * 9999}": 1, "a": 2}}']
    texts.append(texts[1].replace('"a"', f'"{"k" * 9999}"'))
    for text in texts:
        (folder / "params.json").write_text(text)
        with pytest.raises(ValueError) as error:
            llamalib.load(folder, **PLAIN)
        assert len(str(error.value)) < 600 and "\x1b" not in str(error.value)
    (folder / "params.json").write_text(json.dumps(params))
    for found in (torch.ones(1), 5):
        change_tensors(folder, lambda t: t.update({name: found}))
        with pytest.raises(ValueError) as error:
            llamalib.load(folder, **PLAIN)
        said = str(error.value)
        assert len(said) < 600 and said.isprintable()
    (folder / "params.json").unlink()
    (folder / "a\x1b[31m").touch()
    with pytest.raises(FileNotFoundError, match=r"found: a\\x1b\[31m, con"):
        llamalib.load(folder)


# -- damaged archives --------------------------------------------------------


def open_damaged(file, data: bytes, at: int, bits: int):
    """Return the tensors after the bits of a byte are flipped, or None."""
    changed = bytearray(data)
    changed[at] ^= bits
    file.unlink(missing_ok=True)  # an open mapping keeps the old file
    file.write_bytes(changed)
    try:
        return open_shard(file)
    except ValueError as error:
        assert str(file) in str(error)
        return None


def damages(folder, seed=0):
    """Yield the tensors read after each damage outside of the numbers."""
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "a": torch.randn(5, 7, generator=generator).bfloat16(),
        "b": torch.randn(40, generator=generator),
        "c": torch.randn(3, 3, generator=generator),
    }
    file, rng = folder / "consolidated.00.pth", random.Random(seed)
    data, numbers = torch_file(file, tensors), set()
    for tensor in tensors.values():
        part = bytes(tensor.view(torch.uint8).flatten().tolist())
        assert data.count(part) == 1
        start = data.index(part)
        numbers |= set(range(start, start + len(part)))
    for at in sorted(set(range(len(data))) - numbers):
        for bits in (1 << rng.randrange(8), rng.randrange(1, 256)):
            found = open_damaged(file, data, at, bits)
            same = bool(found) and found.keys() == tensors.keys()
            same = same and all(
                found[n].dtype == tensors[n].dtype
                and torch.equal(found[n], tensors[n])
                for n in tensors
            )
            yield at, bits, found is not None, same


def test_a_damaged_header_never_gives_other_numbers(tmp_path):
    """Every byte of the headers and of the list at the end, two damages."""
    found = list(damages(tmp_path))
    wrong = [(at, bits) for at, bits, opened, same in found if opened > same]
    assert len(found) > 3000 and wrong == []
    assert 0 < sum(opened for *_, opened, _ in found) < len(found)


def test_that_test_finds_wrong_numbers(tmp_path, monkeypatch):
    """Without the check of each record, some damages give other numbers."""
    monkeypatch.setattr(checks, "check_records", lambda archive, records: 0)
    assert any(opened > same for *_, opened, same in damages(tmp_path))


def test_a_damaged_header_of_the_pocket(tmp_path, pocket_folder):
    data = (pocket_folder / "consolidated.00.pth").read_bytes()
    assert len(data) > 3810794
    assert open_damaged(tmp_path / "x.pth", data, 3810794, 1) is None


def test_a_record_that_is_marked_as_a_folder(tmp_path):
    """PyTorch would not read it, and take what its memory held before."""
    file = tmp_path / "x.pth"
    data = bytearray(torch_file(file, {"a": torch.ones(4)}))
    assert open_shard(file).keys() == {"a"}
    data[data.index(b"PK\x01\x02") + 38] |= 0x10  # of the first entry
    file.unlink()
    file.write_bytes(data)
    with pytest.raises(ValueError, match="data.pkl is .* a folder'; expected"):
        open_shard(file)


def torch_file(file, tensors) -> bytes:
    torch.save(tensors, file)
    return file.read_bytes()


def test_records_that_overlap(tmp_path):
    """Two entries of the list for the same data."""
    file = tmp_path / "x.pth"
    torch.save({"a": torch.ones(4), "b": torch.zeros(4)}, file)
    with zipfile.ZipFile(file, "a") as archive:
        by_name = {r.filename[-6:]: r for r in archive.infolist()}
        by_name["data/1"].header_offset = by_name["data/0"].header_offset
        archive.comment = b"so that it is written"
    with pytest.raises(ValueError, match="cannot be opened as a PyTorch"):
        open_shard(file)


# -- saving -----------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_round_trip(tmp_path, tied):
    first = write_checkpoint(tmp_path / "a", random_llama(tied=tied))
    llama = llamalib.load(first, **PLAIN)
    llamalib.save(llama, tmp_path / "b", first / "tokenizer.model")
    llamalib.save(
        llamalib.load(tmp_path / "b", **PLAIN),
        tmp_path / "c",
        first / "tokenizer.model",
    )
    for name in ("params.json", "tokenizer.model", "consolidated.00.pth"):
        b, c = (tmp_path / x / name for x in "bc")
        assert b.read_bytes() == c.read_bytes(), name
    again = llamalib.load(tmp_path / "c", **PLAIN)
    assert again.tied is tied and again.config == llama.config
    for name, tensor in llama.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    size = (tmp_path / "c" / "consolidated.00.pth").stat().st_size
    numbers = sum(p.numel() for p in llama.parameters())
    assert size < 2 * numbers + 20_000  # a tied matrix is written once


@pytest.mark.parametrize("error", [OSError(28, "No space"), RuntimeError()])
def test_a_disk_that_is_full_is_named(folder, tmp_path, monkeypatch, error):
    """torch.save raises both; nothing stays behind."""

    def full(tensors, part):
        Path(part).write_bytes(b"half of it")
        raise error

    llama = llamalib.load(folder, **PLAIN)
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="00.pth cannot be written .*make room"):
        llamalib.save(llama, tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


LIMITED = """
import resource, sys, llamalib
llama = llamalib.load(sys.argv[1], device="cpu")
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    llamalib.save(llama, sys.argv[2])
except OSError as error:
    print(error)
"""


def test_a_limit_of_the_file_size(folder, tmp_path):
    """A real failure inside of torch.save."""
    pytest.importorskip("resource", reason="Windows has no such limit")
    new = tmp_path / "new"
    command = [sys.executable, "-c", LIMITED, str(folder), str(new)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    said = f"{new / 'consolidated.00.pth'} cannot be written"
    assert said in done.stdout and done.returncode == 0, done
    assert list(new.iterdir()) == []


def test_a_file_that_cannot_be_replaced(folder, monkeypatch):
    """Windows keeps the file that a loaded model is mapped from."""
    llama = llamalib.load(folder, **PLAIN)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def refused(self, target):
        raise PermissionError(13, "Access is denied", str(self))

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(
        PermissionError, match="00.pth cannot be written .*denied.*Windows"
    ):
        llamalib.save(llama, folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_saving_without_room_changes_nothing(folder, monkeypatch):
    llama = llamalib.load(folder, **PLAIN)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    other = random_llama(small_config(norm_eps=0.01))

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        llamalib.save(other, folder, folder / "tokenizer.model")
    after = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert after == before
    assert llamalib.load(folder, **PLAIN).config == llama.config


def test_saving_next_to_other_shards(tmp_path):
    folder = write_checkpoint(tmp_path, shards=2)
    with pytest.raises(
        ValueError, match="consolidated.01.pth.*expected none: name an"
    ):
        llamalib.save(random_llama(), folder, folder / "tokenizer.model")
    assert llamalib.load(folder, **PLAIN).config.dim == 64


def test_no_room_in_memory(folder, monkeypatch):
    def full(*args):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 9")

    monkeypatch.setattr(torch.Tensor, "to", full)
    with pytest.raises(MemoryError, match="no room for tok_embeddings.*dtype"):
        llamalib.load(folder, **PLAIN)


def test_saving_over_the_open_file(folder):
    """The mapped file is replaced, not written into."""
    llama = llamalib.load(folder, **PLAIN)
    before = llama(random_ids(5))
    llamalib.save(llama, folder, folder / "tokenizer.model")
    assert torch.equal(llama(random_ids(5)), before)
    again = llamalib.load(folder, **PLAIN)
    assert torch.equal(again(random_ids(5)), before)


def test_a_surplus_shard(tmp_path):
    """What is expected is a part, not what was found."""
    folder = write_checkpoint(tmp_path)
    copy = (folder / "consolidated.00.pth").read_bytes()
    (folder / "consolidated.01.pth").write_bytes(copy)
    said = r"is \(556, 64\); expected \(278, 64\) in each of 2 .* extra"
    with pytest.raises(ValueError, match=said):
        llamalib.load(folder)


@pytest.mark.parametrize("name", ["nowhere/tokenizer.model", ""])
def test_saving_with_no_tokenizer_file(folder, tmp_path, name):
    llama = llamalib.load(folder, **PLAIN)
    with pytest.raises(FileNotFoundError, match="is missing, or is a folder"):
        llamalib.save(llama, tmp_path / "new", tmp_path / name)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_saving_onto_a_file(folder, tmp_path, name):
    (tmp_path / "file").write_text("mine")
    llama = llamalib.load(folder, **PLAIN)
    with pytest.raises(OSError, match=f"{name} cannot be .*another folder"):
        llamalib.save(llama, tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


def test_saving_a_norm_of_another_shape(folder, tmp_path):
    """`load` would refuse the file."""
    llama = llamalib.load(folder, **PLAIN)
    llama.norm.weight = torch.nn.Parameter(torch.ones(65).bfloat16())
    said = r"norm.weight is \(65,\); expected \(64,\)"
    with pytest.raises(ValueError, match=said):
        llamalib.save(llama, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_saving_among_hugging_faces_files(tmp_path):
    """A folder with both formats could not be opened."""
    (tmp_path / "config.json").write_text("{}")
    source = write_checkpoint(tmp_path / "source")
    llama = llamalib.load(source, **PLAIN)
    with pytest.raises(ValueError, match="what is in .*config.json.*another"):
        llamalib.save(llama, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "source"}


def test_a_wrong_tokenizer_file(folder, tmp_path):
    """Found before anything is written."""
    llama, new = llamalib.load(folder, **PLAIN), tmp_path / "new"
    other = write_checkpoint(
        tmp_path / "other", random_llama(small_config(vocab_size=600))
    )
    broken = tmp_path / "tokenizer.model"
    broken.write_bytes(b"nothing of the kind")
    for file, kind in (
        (other / "tokenizer.model", ValueError),
        (broken, ValueError),
        (tmp_path / "none", FileNotFoundError),
    ):
        with pytest.raises(kind, match=str(file)):
            llamalib.save(llama, new, file)
        assert not new.exists()


# -- control tokens ----------------------------------------------------------


def with_control(folder, change):
    """Return a model whose tokenizer was changed."""
    llama = llamalib.load(folder, **PLAIN)
    change(llama.tokenizer)
    return llama


def renamed(tokenizer):
    """Exchange <|eot_id|> with another name, and rename a third."""
    names = sorted(tokenizer.special_tokens, key=tokenizer.special_tokens.get)
    names[9], names[20], names[30] = names[20], names[9], "<|im_start|>"
    first = len(tokenizer.ranks)
    special = {name: first + i for i, name in enumerate(names)}
    tokenizer.__init__(tokenizer.ranks, special)


CHAT = [{"role": "user", "content": "abc <|eot_id|>"}]


def text_of(llama):
    """Return the greedy continuation of a short prompt."""
    prompt = llama.tokenizer.encode("ab", bos=True, eos=False)
    return list(llamalib.generate(llama, prompt, max_new_tokens=60))


def facts_of(tokenizer):
    """Return all that a text or a dialogue depends on."""
    return (
        tokenizer.ranks,
        tokenizer.special_tokens,
        tokenizer.stop_tokens,
        (tokenizer.bos_id, tokenizer.eos_id, tokenizer.eot_id),
        tokenizer.encode_chat(CHAT),
        tokenizer.encode("abc", bos=True, eos=True),
    )


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        renamed,
        lambda t: setattr(t, "stop_tokens", frozenset([13, 303])),
        lambda t: setattr(t, "stop_tokens", frozenset()),
        lambda t: setattr(t, "eos_id", 309),
    ],
)
def test_control_tokens_are_kept(folder, tmp_path, change, given):
    """Meta's files have no place for them."""
    llama, again = with_control(folder, change), tmp_path / "again"
    assert facts_of(llama.tokenizer) != facts_of(
        llamalib.load(folder, **PLAIN).tokenizer
    )
    file = folder / "tokenizer.model" if given else None
    llamalib.save(llama, again, file)
    found = llamalib.load(again, **PLAIN)
    assert facts_of(found.tokenizer) == facts_of(llama.tokenizer)
    assert text_of(found) == text_of(llama)


def test_llama_3s_own_control_tokens_need_no_file(folder):
    """A file of an earlier model is written over."""
    llamalib.save(llamalib.load(folder, **PLAIN), folder)
    assert {p.name for p in folder.iterdir()} == set(FILES)
    llama = with_control(folder, renamed)
    llamalib.save(llama, folder)
    assert (folder / CONTROL).is_file()
    plain = with_control(folder, lambda t: t.__init__(t.ranks))
    llamalib.save(plain, folder)
    found = llamalib.load(folder, **PLAIN).tokenizer
    assert list(found.special_tokens) == SPECIAL_TOKENS


@pytest.mark.parametrize(
    "changes",
    [
        dict(special_tokens=SPECIAL_TOKENS[:-1]),
        dict(special_tokens=SPECIAL_TOKENS[:-1] + ["<|eot_id|>"]),
        dict(special_tokens=["<|other|>"] + SPECIAL_TOKENS[1:]),
        dict(special_tokens=SPECIAL_TOKENS[:-1] + [""]),
        dict(special_tokens=SPECIAL_TOKENS[:-1] + ["\ud800"]),
        dict(special_tokens=SPECIAL_TOKENS[:-1] + [5]),
        dict(special_tokens={}),
        dict(eos_id=None),
        dict(eos_id=556),
        dict(stop_tokens=[True]),
        dict(stop_tokens=[-1]),
        dict(stop_tokens=5),
    ],
)
def test_control_tokens_that_do_not_fit(folder, changes):
    llamalib.save(with_control(folder, renamed), folder)
    facts = json.loads((folder / CONTROL).read_text())
    (folder / CONTROL).write_text(json.dumps(facts | changes))
    said = f"the content of .*{CONTROL} is .*; expected .* 256 special_tokens"
    with pytest.raises(ValueError, match=said):
        llamalib.load(folder, **PLAIN)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t.special_tokens.update(more=5), "the tokenizer is"),
        (lambda t: t.special_tokens.update({EOT: 556}), "in a row after"),
        (lambda t: setattr(t, "n_words", 500), "vocab_size is 556"),
        (lambda t: setattr(t, "eos_id", None), "eos_id and stop_tokens"),
    ],
)
def test_control_tokens_that_cannot_be_kept(folder, tmp_path, change, said):
    llama = with_control(folder, change)
    with pytest.raises(ValueError, match=said):
        llamalib.save(llama, tmp_path / "new")
    assert not (tmp_path / "new").exists()
