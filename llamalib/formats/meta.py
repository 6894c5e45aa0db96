r"""Read and write Meta's files: params.json, tokenizer.model and the shards.

`consolidated.00.pth`, `consolidated.01.pth`, … each hold a part of every
matrix, and all of every norm.
"""

import json
import pickle
import re
import shutil
from pathlib import Path

import torch
from torch import Tensor

from ..checks import expect
from ..config import ModelArgs
from ..files import reject_lookalikes, require_file
from ..model import Llama, tensor_shapes
from ..tokenizer import Tokenizer, write_ranks
from .checks import check_archive, other_model, unreadable

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def shard_axis(name: str) -> int | None:
    r"""Return the axis along which Meta's shards divide a tensor.

    1, columns, if it writes to the residual stream; 0, rows, for the other
    matrices; None for a norm, which is in every shard.
    """
    if "norm" in name:
        return None
    return int(name.endswith((".wo.weight", ".w2.weight")))


def read_folder(folder: Path):
    r"""Read a folder in Meta's format.

    Returns:
        the config; the tokenizer; by Meta's names the parts of each tensor,
        one per shard, mapped from the files; and whether the output matrix
        is tied, in which case it is not among the tensors.
    """
    config = ModelArgs.from_file(folder / "params.json")
    file = require_file(folder, "tokenizer.model")
    tokenizer = Tokenizer.from_file(file)
    n, V = tokenizer.n_words, config.vocab_size
    expected = f"{V}, the vocab_size in params.json"
    expect(n == V, f"the number of tokens in {file}", n, expected)
    return config, tokenizer, *read_tensors(folder, config)


def read_tensors(folder: Path, config: ModelArgs):
    """Return the parts of each tensor, and whether the output is tied."""
    n = len(list(folder.glob("consolidated.[0-9][0-9].pth")))
    names = [f"consolidated.{i:02d}.pth" for i in range(max(1, n))]
    files = [require_file(folder, name) for name in names]
    shards = [open_shard(file) for file in files]
    params, first = folder / "params.json", shards[0]
    for file, shard in zip(files, shards):
        shard.pop("rope.freqs", None)  # in older files; the config has it
        check_tensors(shard, config, params, {"": str(file)}, len(files))
        check_fits(shard, first, file)
    tied = all(is_tied(shard) for shard in shards)
    tensors = {name: [shard[name] for shard in shards] for name in first}
    if tied:
        tensors.pop("output.weight", None)
    return tensors, tied


def open_shard(file: Path) -> dict[str, Tensor]:
    """Map the tensors of one file; nothing that it holds is run."""
    reject_lookalikes(file)
    check_archive(file, numbers=False)
    try:
        shard = torch.load(
            file, map_location="cpu", mmap=True, weights_only=True
        )
    except pickle.UnpicklingError as error:  # whose advice is to run it
        found = re.search(r"(?:GLOBAL|global|class) ([\w.]+)", str(error))
        name = f" ({found[1]})" if found else ""
        raise ValueError(
            f"{file} holds more than tensors{name}: opening it would run its "
            "code. Take the file from the model's own page"
        ) from None
    except Exception as error:  # its type depends on the damage
        raise unreadable(file, error, "a PyTorch checkpoint") from None
    expect(isinstance(shard, dict), str(file), shard, "tensors by name")
    for name, tensor in shard.items():
        is_tensor = isinstance(tensor, Tensor)
        expect(is_tensor, f"{file}: {name}", tensor, "a tensor")
    return shard


def check_tensors(tensors, config, config_file: Path, places, n_shards=1):
    r"""Raise ValueError unless a shard's tensors fit the config.

    `places` says by Meta's name which file has a tensor, and its name there,
    and by "" what else to name. output.weight may be missing.
    """
    L, most = config.n_layers, f"less: {places['']} has {len(tensors)} tensors"
    expect(L < len(tensors), f"{config_file}: the number of layers", L, most)
    shapes = tensor_shapes(config)
    missing = [n for n in shapes if n not in tensors and n != "output.weight"]
    unknown = [n for n in tensors if n not in shapes]
    for verb, names in (("has no", missing), ("has an unknown", unknown)):
        if names:
            raise other_model(
                f"{places['']} {verb} tensor {names[0]} ({len(names)} in "
                f"all), and {config_file.name} asks for {len(shapes)}"
            )
    for name, tensor in tensors.items():
        place = places.get(name, f"{places['']}: {name}")
        expected, axis = list(shapes[name]), shard_axis(name)
        if axis is not None:
            expected[axis] /= n_shards
        fits, shape = list(tensor.shape) == expected, tuple(tensor.shape)
        asked = f"{shapes[name]}, in {n_shards} shard(s): is one missing?"
        expect(fits, f"the shape of {place}", shape, asked)
        is_plain = tensor.layout == torch.strided and tensor.is_contiguous()
        found = f"{tensor.dtype}, {tensor.layout}, contiguous: {is_plain}"
        ok = is_plain and tensor.dtype in DTYPES
        expect(ok, place, found, "contiguous floats of 16 or 32 bits")


def check_fits(shard, first, file: Path) -> None:
    """Raise ValueError unless a shard is of the same model as the first."""
    if set(shard) != set(first):
        raise other_model(f"{file} and the first: one has no output.weight")
    for name, part in shard.items():
        if part.dtype != first[name].dtype:
            dtypes = f"{part.dtype}, and {first[name].dtype} in the first"
            raise other_model(f"{file}: {name} is {dtypes}")
        if shard_axis(name) is None and not torch.equal(part, first[name]):
            raise other_model(f"{file}: {name} is not as in the first shard")


def is_tied(tensors: dict[str, Tensor]) -> bool:
    """Whether the output matrix is the embedding: absent, shared or equal."""
    embedding = tensors["tok_embeddings.weight"]
    output = tensors.get("output.weight", embedding)
    if output.data_ptr() == embedding.data_ptr():
        return True
    # the first row first: comparing both whole matrices takes a while
    first_row = torch.equal(output[0], embedding[0])
    return first_row and torch.equal(output, embedding)


def save(llama: Llama, folder, tokenizer_file=None) -> None:
    r"""Write a model in Meta's format, in one shard and in its own dtype.

    tokenizer_file is copied; without one the model's own tokenizer is written.
    Raises ValueError for quantized weights, another tokenizer than Llama 3's,
    or a folder with several shards.
    """
    folder = Path(folder)
    check_can_save(llama, folder, tokenizer_file)
    folder.mkdir(parents=True, exist_ok=True)
    w = llama.weights()
    # as plain tensors, also where `fast` multiplies in its own way
    tensors = {n: getattr(w[n], "numbers", w[n]).detach().cpu() for n in w}
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    # write all, then rename all: an error leaves the old files as they were
    names = "consolidated.00.pth", "tokenizer.model", "params.json"
    weights, tokenizer, params = parts = [folder / f"{n}.part" for n in names]
    torch.save(tensors, weights)
    if tokenizer_file is None:
        write_ranks(tokenizer, llama.tokenizer.ranks)
    else:
        shutil.copyfile(tokenizer_file, tokenizer)
    text = json.dumps(llama.config.to_dict(), indent=2) + "\n"
    params.write_text(text, encoding="utf-8")
    for name, part in zip(names, parts):
        part.replace(folder / name)


def check_can_save(llama: Llama, folder: Path, tokenizer_file) -> None:
    """Raise ValueError for what Meta's format cannot hold; see `save`."""
    tokenizer, V = llama.tokenizer, llama.config.vocab_size
    no = "None: load the model without quantize"
    expect(not llama.quantized, "llama.quantized", llama.quantized, no)
    shards = sorted(p.name for p in folder.glob("consolidated.0[1-9].pth"))
    expect(not shards, f"what is in {folder}", shards, "none: name another")
    if tokenizer_file is None:
        kind, ok = type(tokenizer).__name__, hasattr(tokenizer, "ranks")
        expect(ok, "the tokenizer", kind, "Llama 3's: give a tokenizer_file")
        same = f"{tokenizer.n_words}, the number of tokens"
        expect(tokenizer.n_words == V, "vocab_size", V, same)
