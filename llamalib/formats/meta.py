r"""Meta's files of tensors: open, check and join the shards of a model.

`consolidated.00.pth`, `consolidated.01.pth`, …: each holds a part of every
matrix, and all of every norm.
"""

import pickle
import re
from pathlib import Path

import torch
from torch import Tensor

from ..config import ModelArgs
from ..files import reject_lookalikes, require_file
from .checks import check_small_records, not_tensors
from ..model import tensor_shapes

# The axis along which Meta's shards divide each matrix: rows of what reads
# the residual stream, columns of what writes to it. Norms are in every shard.
SHARD_AXIS = {
    "tok_embeddings.weight": 0,
    "output.weight": 0,
    "attention.wq.weight": 0,
    "attention.wk.weight": 0,
    "attention.wv.weight": 0,
    "attention.wo.weight": 1,
    "feed_forward.w1.weight": 0,
    "feed_forward.w3.weight": 0,
    "feed_forward.w2.weight": 1,
}
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def read_tensors(
    folder: Path, config: ModelArgs
) -> tuple[dict[str, list[Tensor]], bool]:
    r"""Every tensor's parts by Meta's name, a part a shard, all checked.

    And whether the output is tied: then it is not among them. The parts are
    mapped from the files, and take no memory until they are read.

    Raises:
        FileNotFoundError, ValueError: see `load`.
    """
    files = shard_files(folder)
    shards = [open_shard(file) for file in files]
    for file, shard in zip(files, shards):
        shard.pop("rope.freqs", None)  # older files; the config says it
        asked_by = folder / "params.json"
        check_tensors(shard, config, len(files), asked_by, {"": str(file)})
        if set(shard) != set(shards[0]):
            raise ValueError(
                f"{file} and {files[0].name} do not both hold output.weight: "
                "they are not of the same model"
            )
    tied = all(is_tied(shard) for shard in shards)
    if tied:
        for shard in shards:
            shard.pop("output.weight", None)
    tensors = {name: [shard[name] for shard in shards] for name in shards[0]}
    for name, parts in tensors.items():
        check_parts(name, parts, files)
    return tensors, tied


def shard_files(folder: Path) -> list[Path]:
    """consolidated.00.pth, .01.pth, … or FileNotFoundError."""
    files = sorted(folder.glob("consolidated.[0-9][0-9].pth"))
    wanted = [f"consolidated.{i:02d}.pth" for i in range(max(1, len(files)))]
    for name in wanted:
        require_file(folder, name)
    return files


def open_shard(file: Path) -> dict[str, Tensor]:
    """The tensors of one file, mapped; runs nothing that it holds."""
    reject_lookalikes(file)
    check_small_records(file)
    try:
        shard = torch.load(
            file, map_location="cpu", mmap=True, weights_only=True
        )
    except pickle.UnpicklingError as error:  # torch advises to run it
        found = re.search(r"(?:GLOBAL|global|class) ([\w.]+)", str(error))
        name = f" ({found[1]})" if found else ""
        raise ValueError(
            f"{file} holds more than tensors{name}: opening that would run "
            "code that came with the file, and so it is refused. Take the "
            "file from the model's own page"
        ) from None
    except Exception as error:  # of what kind, depends on what is broken
        raise not_tensors(file, error, "a PyTorch checkpoint") from None
    if not isinstance(shard, dict):
        raise ValueError(
            f"{file} holds a {type(shard).__name__}; wanted a dict of "
            "tensors by name"
        )
    for name, tensor in shard.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"{file}: {name} is a {type(tensor).__name__}; wanted a "
                "tensor. Take the file that came with the weights"
            )
    return shard


def shard_axis(name: str) -> int | None:
    """The axis along which shards divide a tensor; None: each has it all."""
    short = name.split(".", 2)[2] if name.startswith("layers.") else name
    return SHARD_AXIS.get(short)


def check_tensors(
    tensors: dict[str, Tensor],
    config: ModelArgs,
    n_shards: int,
    asked_by: Path,
    places: dict[str, str],
) -> None:
    r"""ValueError unless names, shapes and dtypes are those of the config.

    Args:
        tensors: by Meta's name, of one shard.
        n_shards: in how many the model is divided.
        asked_by: the config's file.
        places: Meta's name to the file and the name there; "" to the file.
    """
    if config.n_layers > len(tensors):  # a list of so many may be endless
        raise ValueError(
            f"{asked_by} says {config.n_layers} layers, and {places['']} "
            f"holds {len(tensors)} tensors in all: is it of the same model?"
        )
    whole = tensor_shapes(config)
    # output.weight may be left out: then it is tied
    missing = [n for n in whole if n not in tensors and n != "output.weight"]
    surplus = [n for n in tensors if n not in whole]
    for what, names in (("has no", missing), ("has an unknown", surplus)):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ValueError(
                f"{places['']} {what} tensor {names[0]}{more}; "
                f"{asked_by.name} asks for {len(whole)} tensors: is it of "
                "the same model?"
            )
    for name, tensor in tensors.items():
        wanted, axis = list(whole[name]), shard_axis(name)
        if axis is not None:
            wanted[axis] /= n_shards
        place = places.get(name, f"{places['']}: {name}")
        if list(tensor.shape) != wanted:
            part = f", in {n_shards} shards along axis {axis}"
            raise ValueError(
                f"{place} has shape {tuple(tensor.shape)}; "
                f"{asked_by.name} asks for {whole[name]}"
                f"{'' if axis is None or n_shards == 1 else part}: it is not "
                "of the same model, or shards are missing"
            )
        if tensor.dtype not in DTYPES or tensor.layout != torch.strided:
            raise ValueError(
                f"{place} is {tensor.dtype}, {tensor.layout}; wanted "
                "plain bfloat16, float16 or float32"
            )
        if not tensor.is_contiguous():
            raise ValueError(
                f"{place} has strides {tensor.stride()}: it is a view of "
                "fewer numbers, or of others; wanted all of its own in order"
            )


def check_parts(name: str, parts: list[Tensor], files: list[Path]) -> None:
    """ValueError if the shards hold parts of different models' tensors."""
    for part, file in zip(parts[1:], files[1:]):
        if part.dtype != parts[0].dtype:
            raise ValueError(
                f"{file}: {name} is {part.dtype}, and {parts[0].dtype} in "
                f"{files[0].name}: they are not of the same model"
            )
        if shard_axis(name) is None and not torch.equal(part, parts[0]):
            raise ValueError(
                f"{file}: {name} is not the same as in {files[0].name}: "
                "they are not of the same model"
            )


def joined(name: str, parts: list[Tensor], device, dtype) -> Tensor:
    """One tensor of the parts that the shards hold of it."""
    axis = shard_axis(name)
    if len(parts) == 1 or axis is None:  # each shard has it all
        return parts[0].to(device, dtype)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    # filled part by part: no third copy, and none in another dtype
    whole = torch.empty(shape, device=device, dtype=dtype)
    sizes = [part.shape[axis] for part in parts]
    for room, part in zip(whole.split(sizes, axis), parts):
        room.copy_(part)
    return whole


def is_tied(tensors: dict[str, Tensor]) -> bool:
    """Whether the output matrix is the embedding: absent, shared or equal."""
    output = tensors.get("output.weight")
    embedding = tensors["tok_embeddings.weight"]
    if output is None or output.data_ptr() == embedding.data_ptr():
        return True  # both whole, and of one shape: see check_tensors
    # the first row first: reading both matrices whole takes a while
    first_row = torch.equal(output[0], embedding[0])
    return first_row and torch.equal(output, embedding)


def check_numbers(folder: Path, tensors: dict[str, list[Tensor]]) -> None:
    """ValueError if a tensor holds NaN or an infinity."""
    for name, parts in tensors.items():
        bad = sum(int((~part.isfinite()).sum()) for part in parts)
        if bad:
            raise ValueError(
                f"{folder}: {name} holds {bad} of "
                f"{sum(part.numel() for part in parts)} numbers "
                "that are NaN or infinite; wanted finite ones: the file is "
                "damaged, or was saved from a training that had failed"
            )
