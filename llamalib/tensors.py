r"""The tensors of a checkpoint: their names, shapes and shards."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .checks import require, shown
from .model import ModelArgs

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SMALL = 100_000_000  # bytes of a file that is always read whole


@dataclass(frozen=True)
class Checkpoint:
    r"""What `read_checkpoint` of a format's module finds in a folder.

    folder: the folder, or the file.
    dtype: that of the matrices.
    tied: whether the output matrix is the embedding.
    parts: called with Meta's name of a tensor, and the dtype that it is for,
    it returns what each shard holds of it, in Meta's layout. Parts are mapped
    from a file, in the file's dtype, or made anew in each call, so that a
    model is never in memory twice.
    name: the model's; None: that of the folder.
    """

    folder: Path
    config: ModelArgs
    tokenizer: object
    dtype: torch.dtype
    tied: bool
    parts: Callable[[str, torch.dtype], list[Tensor]]
    name: str | None = None

    def names(self) -> list[str]:
        """Return the tensors to read: a tied output is the embedding."""
        names = list(tensor_shapes(self.config))
        return names[:-1] if self.tied else names


def tensor_shapes(config: ModelArgs) -> dict[str, tuple[int, ...]]:
    """Return every tensor's name and shape, in the order of state_dict."""
    D, hidden = config.dim, config.hidden_dim
    q_dim = config.n_heads * config.head_dim  # D in Meta's models
    kv_dim = config.n_kv_heads * config.head_dim
    block: dict[str, tuple[int, ...]] = {
        "attention_norm": (D,),
        "attention.wq": (q_dim, D),
        "attention.wk": (kv_dim, D),
        "attention.wv": (kv_dim, D),
        "attention.wo": (D, q_dim),
        "ffn_norm": (D,),
        "feed_forward.w1": (hidden, D),
        "feed_forward.w2": (D, hidden),
        "feed_forward.w3": (hidden, D),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    shapes["tok_embeddings.weight"] = (config.vocab_size, D)
    for i in range(config.n_layers):
        for name, shape in block.items():
            shapes[f"layers.{i}.{name}.weight"] = shape
    shapes["norm.weight"] = (D,)
    shapes["output.weight"] = (config.vocab_size, D)
    return shapes


def shard_axis(name: str) -> int | None:
    r"""Return the axis along which Meta's shards divide a tensor.

    1, columns, if it writes to the residual stream; 0, rows, for the other
    matrices; None for a norm, which is in every shard.
    """
    if "norm" in name:
        return None
    return int(name.endswith((".wo.weight", ".w2.weight")))


def check_tensors(
    tensors, config: ModelArgs, described, places: dict, n_shards=1
) -> None:
    r"""Raise ValueError unless a shard's tensors fit the config.

    described: the config's file.  places: by Meta's name the file of a tensor
    and its name there, and by "" what else to name. output.weight may be
    missing.
    """
    L, file = config.n_layers, places[""]
    require(  # before a billion names are made
        L < len(tensors),
        f"{described} asks for {L} layers, but {file} has {len(tensors)} "
        "tensors",
    )
    shapes = tensor_shapes(config)
    for name in [*shapes, *tensors]:
        verb = "has no" if name in shapes else "has an unknown"
        require(
            name in shapes and name in tensors or name == "output.weight",
            f"{file} {verb} tensor {shown(name)}: it is not of the model that "
            f"{described} describes",
        )
    in_each = ""
    if n_shards > 1:
        in_each = f" in each of {n_shards} shards: is one missing or extra?"
    for name, tensor in tensors.items():
        place = places.get(name, f"{file}: {name}")
        expected, axis = list(shapes[name]), shard_axis(name)
        if axis is not None:
            expected[axis] /= n_shards
        require(
            list(tensor.shape) == expected,
            f"{place} has the shape {tuple(tensor.shape)}, but {described} "
            f"asks for {tuple(map(int, expected))}{in_each}",
        )
        dense = tensor.layout == torch.strided and tensor.is_contiguous()
        require(
            dense and tensor.dtype in DTYPES,
            f"{place} must hold contiguous floats of 16 or 32 bits, got "
            f"{tensor.dtype}, {tensor.layout}",
        )
    # norms may have another dtype than matrices
    dtypes = {str(t.dtype) for t in tensors.values() if t.dim() == 2}
    found = " and ".join(sorted(dtypes))
    require(len(dtypes) == 1, f"{file} has matrices of {found}: expected one")


def check_finite(tensors: dict[str, Tensor], file: Path) -> None:
    """Raise ValueError for NaN or infinity in a small file.

    A large one is only mapped here: `load(check=True)` reads it.
    """
    small = file.stat().st_size <= SMALL
    for name, tensor in tensors.items() if small else ():
        if tensor.dtype not in DTYPES or not tensor.numel():
            continue  # refused elsewhere
        extremes = torch.stack(tensor.aminmax())  # NaN, if one is
        if not extremes.isfinite().all():
            n = int((~tensor.isfinite()).sum())
            raise ValueError(
                f"{file}: {shown(name)} has {n} NaN or infinite numbers: "
                "download it again"
            )


def is_tied(tensors: dict[str, Tensor]) -> bool:
    """Return whether the output matrix is the embedding, or equal to it."""
    embedding = tensors["tok_embeddings.weight"]
    output = tensors.get("output.weight", embedding)
    same_memory = output.data_ptr() == embedding.data_ptr()
    return same_memory or are_equal(output, embedding)


def are_equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two matrices are equal; the first row is read first."""
    return torch.equal(a[0], b[0]) and torch.equal(a, b)


def check_numbers(part: Tensor, dtype: torch.dtype, place) -> None:
    """Raise ValueError for NaN, infinity, or what a dtype cannot hold."""
    low, high = (x.item() for x in part.aminmax())  # NaN, if one is
    require(
        math.isfinite(high - low),
        f"{place} has NaN or infinite numbers: download it again",
    )
    require(
        dtype != torch.float16 or max(high, -low) <= 65_504,
        f"{place} has a number of {max(high, -low):.6g}, and float16 ends at "
        "65,504: choose another dtype",
    )
