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

from ..config import ModelArgs
from ..files import reject_lookalikes, require_file
from ..model import Llama, tensor_shapes
from ..tokenizer import Tokenizer, write_ranks
from .checks import check_archive, other_model, unreadable

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def shard_axis(name: str) -> int | None:
    r"""Return the axis along which Meta's shards divide a tensor.

    0, rows, if the matrix reads the residual stream; 1, columns, if it writes
    to the stream; None for a norm, of which each shard has all.
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
    if tokenizer.n_words != config.vocab_size:
        raise other_model(
            f"{file} has {tokenizer.n_words} tokens with the special ones, "
            f"and params.json says vocab_size {config.vocab_size}"
        )
    return config, tokenizer, *read_tensors(folder, config)


def read_tensors(
    folder: Path, config: ModelArgs
) -> tuple[dict[str, list[Tensor]], bool]:
    """Return each tensor's parts, checked, and whether the output is tied."""
    n = len(list(folder.glob("consolidated.[0-9][0-9].pth")))
    names = [f"consolidated.{i:02d}.pth" for i in range(max(1, n))]
    files = [require_file(folder, name) for name in names]
    shards = [open_shard(file) for file in files]
    params = folder / "params.json"
    for file, shard in zip(files, shards):
        shard.pop("rope.freqs", None)  # in older files; the config has it
        check_tensors(shard, config, params, {"": str(file)}, len(files))
        if set(shard) != set(shards[0]):
            raise other_model(
                f"{file} and {files[0].name} do not both hold output.weight"
            )
    tied = all(is_tied(shard) for shard in shards)
    tensors = {name: [shard[name] for shard in shards] for name in shards[0]}
    if tied:
        tensors.pop("output.weight", None)
    for name, parts in tensors.items():
        for file, part in zip(files, parts):
            check_part(name, part, parts[0], file)
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
            f"{file} holds more than tensors{name}: opening it would run code "
            "that came with it. Take the file from the model's own page"
        ) from None
    except Exception as error:  # its type depends on the damage
        raise unreadable(file, error, "a PyTorch checkpoint") from None
    content = shard if isinstance(shard, dict) else {"its content": [shard]}
    for name, tensor in content.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"{file}: {name} is a {type(tensor).__name__}; expected a "
                "tensor. Take the file that came with the weights"
            )
    return shard


def check_tensors(
    tensors: dict[str, Tensor],
    config: ModelArgs,
    config_file: Path,
    places: dict[str, str],
    n_shards: int = 1,
) -> None:
    r"""Raise ValueError unless names, shapes and dtypes fit the config.

    Args:
        tensors: one shard's, by Meta's name. output.weight may be missing.
        config_file: named in errors.
        places: by Meta's name the file and the name there; by "" the file.
        n_shards: number of shards of the model.
    """
    if config.n_layers > len(tensors):  # perhaps too many to list
        raise other_model(
            f"{config_file} says {config.n_layers} layers, and {places['']} "
            f"holds {len(tensors)} tensors in all"
        )
    shapes = tensor_shapes(config)
    missing = [n for n in shapes if n not in tensors and n != "output.weight"]
    unknown = [n for n in tensors if n not in shapes]
    for verb, names in (("has no", missing), ("has an unknown", unknown)):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise other_model(
                f"{places['']} {verb} tensor {names[0]}{more}; "
                f"{config_file.name} asks for {len(shapes)} tensors"
            )
    for name, tensor in tensors.items():
        place = places.get(name, f"{places['']}: {name}")
        axis = shard_axis(name) if n_shards > 1 else None
        asked = f"{config_file.name} asks for {shapes[name]}"
        check_tensor(place, tensor, shapes[name], axis, n_shards, asked)


def check_tensor(place, tensor, shape, axis, n_shards, asked) -> None:
    """Raise ValueError unless a tensor has a shape, and plain floats in it."""
    expected = list(shape)
    if axis is not None:
        expected[axis] /= n_shards
        asked += f", in {n_shards} shards along axis {axis}"
    if list(tensor.shape) != expected:
        raise ValueError(
            f"{place} has shape {tuple(tensor.shape)}; {asked}: it is not of "
            "the same model, or shards are missing"
        )
    if tensor.dtype not in DTYPES or tensor.layout != torch.strided:
        raise ValueError(
            f"{place} is {tensor.dtype}, {tensor.layout}; expected plain "
            "bfloat16, float16 or float32"
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"{place} has strides {tensor.stride()}, so it is a view of "
            "other numbers; expected a tensor with all its numbers in order"
        )


def check_part(name: str, part: Tensor, first: Tensor, file: Path) -> None:
    """Raise ValueError if a shard's tensor does not fit the first shard's."""
    if part.dtype != first.dtype:
        raise other_model(
            f"{file}: {name} is {part.dtype}, and {first.dtype} in the first "
            "shard"
        )
    if shard_axis(name) is None and not torch.equal(part, first):
        raise other_model(f"{file}: {name} is not as in the first shard")


def is_tied(tensors: dict[str, Tensor]) -> bool:
    """Whether the output matrix is the embedding: absent, shared or equal."""
    output = tensors.get("output.weight")
    embedding = tensors["tok_embeddings.weight"]
    if output is None or output.data_ptr() == embedding.data_ptr():
        return True
    # the first row first: comparing both whole matrices takes a while
    first_row = torch.equal(output[0], embedding[0])
    return first_row and torch.equal(output, embedding)


def save(llama: Llama, folder, tokenizer_file=None) -> None:
    r"""Write a model in Meta's format, in one shard.

    Args:
        llama: its weights keep their dtype; a tied output is stored once,
            under both names.
        folder: created if missing.
        tokenizer_file: copied to tokenizer.model; None: the model's own
            tokenizer is written.

    Raises:
        ValueError: for quantized weights, another tokenizer than Llama 3's,
            or a folder with several shards.
    """
    folder = Path(folder)
    check_can_save(llama, folder, tokenizer_file)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: w.detach().cpu() for n, w in llama.weights().items()}
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
    shards = sorted(folder.glob("consolidated.0[1-9].pth"))
    n, problem = getattr(tokenizer, "n_words", 0), None
    if llama.quantized:
        problem = f"its weights are {llama.quantized}: load it as floats"
    elif shards:
        problem = f"{folder} holds {shards[0].name}: name a new folder"
    elif tokenizer_file is None and not hasattr(tokenizer, "ranks"):
        kind = type(tokenizer).__name__
        problem = f"its tokenizer is a {kind}: give a tokenizer_file"
    elif tokenizer_file is None and n != V:
        problem = f"its tokenizer has {n} tokens, and vocab_size is {V}"
    if problem:
        raise ValueError(f"the model cannot be saved as Meta's: {problem}")
