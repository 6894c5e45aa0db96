r"""Meta's format: params.json, tokenizer.model and consolidated.00.pth, 01, …

Nothing that a file holds is ever run.
"""

import pickle
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from .checks import (
    damaged,
    read_json,
    reject_lookalikes,
    require,
    require_file,
    shown,
)
from .config import config_of
from .model import ModelArgs
from .tensors import (
    SMALL,
    Checkpoint,
    are_equal,
    check_finite,
    check_tensors,
    is_tied,
    shard_axis,
)
from .tokenizer import Tokenizer

SETTINGS = "params.json"


def read_config(folder: Path) -> ModelArgs:
    """Return the settings of params.json."""
    file = require_file(folder, SETTINGS)
    return config_of(read_json(file), file)


def read_checkpoint(folder: Path, check: bool = False) -> Checkpoint:
    """Open a folder in this format; see `load` for check."""
    config = read_config(folder)
    tokenizer = read_tokenizer(folder, config.vocab_size)
    shards = read_shards(folder, config, check)
    dtype = shards[0]["tok_embeddings.weight"].dtype
    tied = all(map(is_tied, shards))

    def parts(name: str, dtype) -> list[Tensor]:
        found = [shard[name] for shard in shards]
        return found[:1] if shard_axis(name) is None else found

    return Checkpoint(folder, config, tokenizer, dtype, tied, parts)


def read_tokenizer(folder: Path, V: int) -> Tokenizer:
    """Read a tokenizer.model with as many tokens as params.json says."""
    file = require_file(folder, "tokenizer.model")
    tokenizer = Tokenizer.from_file(file)
    n = tokenizer.n_words
    require(n == V, f"{file} has {n} tokens, vocab_size in params.json is {V}")
    return tokenizer


def read_shards(folder: Path, config: ModelArgs, check: bool) -> list[dict]:
    """Return the tensors of each file, in order."""
    n = max(1, len(list(folder.glob("consolidated.[0-9][0-9].pth"))))
    names = [f"consolidated.{i:02d}.pth" for i in range(n)]
    shards: dict[str, dict[str, Tensor]] = {}
    for file in [require_file(folder, name) for name in names]:
        shard = open_shard(file, check)
        shard.pop("rope.freqs", None)  # in older files; the config has it
        check_tensors(shard, config, folder / SETTINGS, {"": file}, n)
        check_finite(shard, file)
        check_fits(shard, shards, file)
        shards[file.name] = shard
    return list(shards.values())


def open_shard(file: Path, check: bool = False) -> dict[str, Tensor]:
    """Map the tensors of one file; nothing that it holds is run."""
    reject_lookalikes(file)
    try:  # the type of an error depends on the damage
        check_archive(file, check or file.stat().st_size <= SMALL)
        shard = torch.load(file, "cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError:  # its own advice is to run the code
        raise ValueError(
            f"{file} holds more than tensors, and opening it would run its "
            "code: download it from the model's own page"
        ) from None
    except Exception as error:
        raise damaged(file, error) from None
    require(isinstance(shard, dict), f"{file} must hold tensors by name")
    shard = {key: plain(shard[key], f"{file}: {shown(key)}") for key in shard}
    check_sizes(shard, file)
    return shard


def check_sizes(shard: dict[str, Tensor], file: Path) -> None:
    """Raise ValueError unless the records are as long as their tensors.

    PyTorch would take the numbers that a record lacks from the next one.
    """
    parts = [tensor.untyped_storage() for tensor in shard.values()]
    needed = {part.data_ptr(): part.nbytes() for part in parts}  # each once
    with zipfile.ZipFile(file) as archive:
        records = archive.infolist()
    sizes = [r.file_size for r in records if "/data/" in r.filename]
    require(
        sorted(filter(None, sizes)) == sorted(filter(None, needed.values())),
        f"{file} is damaged: a record is not as long as its tensor: download "
        "it again",
    )


def check_archive(file: Path, numbers: bool) -> None:
    """Compare the checksums of a .pth, a zip archive; PyTorch does not.

    numbers: also those of the records with numbers: seconds for a large file.
    """
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        require(len({*names}) == len(names), "two records have one name")
        for record in archive.infolist():  # PyTorch would read zipped bytes
            is_stored = record.compress_type == zipfile.ZIP_STORED
            require(is_stored, f"{record.filename} is compressed")
            if numbers or "/data/" not in record.filename:
                with archive.open(record) as opened:
                    while opened.read(2**24):
                        pass


def plain(found, place: str) -> Tensor:
    """Return a tensor without what was pickled with it, or ValueError."""
    if isinstance(found, Tensor):
        tensor = Tensor.detach(found)  # not a Parameter, with attributes
        ordinary = type(tensor) is Tensor and tensor.device.type == "cpu"
        if ordinary and not tensor.is_nested and not tensor.is_neg():
            return tensor
    kind = type(found).__name__
    raise ValueError(f"{place} must be an ordinary tensor, got a {kind}")


def check_fits(shard: dict, others: dict[str, dict], file: Path) -> None:
    """Raise ValueError unless a shard is another one of the same model."""
    if not others:
        return
    embedding = shard["tok_embeddings.weight"]
    for name, other in others.items():
        require(
            not are_equal(embedding, other["tok_embeddings.weight"]),
            f"{file} holds the same part of the model as {name}: download it "
            "again",
        )
    first = others["consolidated.00.pth"]
    differ = sorted(shard.keys() ^ first.keys())  # output.weight
    for name in [name for name in shard if name in first]:
        a, b, is_norm = shard[name], first[name], shard_axis(name) is None
        if a.dtype != b.dtype or (is_norm and not torch.equal(a, b)):
            differ.append(name)
    for name in differ:
        raise ValueError(
            f"{file} is not of the same model as the first shard: {name} "
            "differs"
        )
