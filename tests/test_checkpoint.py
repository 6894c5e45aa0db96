import json
from pathlib import Path

import pytest
import torch

import llamalib
from llamalib.formats import find, placing
from llamalib.formats.meta import open_shard
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
    with pytest.raises(FileNotFoundError, match="nowhere .path. is not"):
        llamalib.load(tmp_path / "nowhere")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match="it holds: notes.txt"):
        llamalib.load(tmp_path)
    monkeypatch.setenv("LLAMA_DIR", str(tmp_path / "x"))
    with pytest.raises(FileNotFoundError, match="LLAMA_DIR"):
        llamalib.load()


@pytest.mark.parametrize("name", ["tokenizer.model", "consolidated.00.pth"])
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"no file {name}"):
        llamalib.load(folder)


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
    assert names == set(llamalib.tensor_shapes(llama.config))
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
    with pytest.raises(ValueError, match="device is"):
        llamalib.load(folder, device=device)


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
    with pytest.raises(ValueError, match=f"{key} is .*: a {kind}"):
        llamalib.load(folder)


def test_shards_that_do_not_fit(tmp_path):
    folder = write_checkpoint(tmp_path / "four", shards=4)
    (folder / "consolidated.01.pth").rename(folder / "consolidated.09.pth")
    with pytest.raises(FileNotFoundError, match="no file consolidated.01.pth"):
        llamalib.load(folder)
    (folder / "consolidated.09.pth").rename(folder / "consolidated.01.pth")
    (folder / "consolidated.03.pth").unlink()
    with pytest.raises(ValueError, match="in 3 shard.*is one missing"):
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
            rf"{WQ} is \(16, 9\); expected \(64, 64\), in 4 shard",
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
    assert {n: after[n] for n in before} == before
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
