r"""Read and write Meta's files: params.json, tokenizer.model and the shards.

`consolidated.00.pth`, `consolidated.01.pth`, … each hold a part of every
matrix, and all of every norm.
"""

import errno
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..checks import expect
from ..config import ModelArgs
from ..files import read_json, reject_lookalikes, require_file
from ..model import Llama, tensor_shapes
from ..tokenizer import SPECIAL_TOKENS, Tokenizer, read_ranks, write_ranks
from .checks import check_archive, other_model, shown, unreadable

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# Our own file, next to Meta's, only if the control tokens are not as in them
CONTROL = "control_tokens.json"


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
    tokenizer = read_tokenizer(file, config.vocab_size)
    return config, tokenizer, *read_tensors(folder, config)


def read_tokenizer(file: Path, vocab_size: int) -> Tokenizer:
    """Read a tokenizer.model, and the control tokens that are next to it."""
    tokenizer, n = Tokenizer(read_ranks(file)), vocab_size
    expected = f"{n}, the vocab_size in params.json"
    found = tokenizer.n_words
    expect(found == n, f"the number of tokens in {file}", found, expected)
    control = file.parent / CONTROL
    if not os.path.lexists(control):
        return tokenizer
    facts = read_json(require_file(file.parent, CONTROL))
    return with_control_tokens(tokenizer.ranks, facts, control)


def with_control_tokens(ranks, facts: dict, where) -> Tokenizer:
    """Return the tokenizer of such control tokens; see `control_tokens`."""
    names, n = facts.get("special_tokens"), len(SPECIAL_TOKENS)
    ok = isinstance(names, list) and len(names) == n
    ok = ok and all(isinstance(x, str) and x.isprintable() for x in names)
    ok = ok and all(names) and len(set(names)) == n
    ok = ok and set(SPECIAL_TOKENS[:2]) <= set(names)
    expected = f"{n} names, {SPECIAL_TOKENS[0]} and {SPECIAL_TOKENS[1]} too"
    expect(ok, f"{where}: special_tokens", names, expected)
    first, eos = len(ranks), facts.get("eos_id")
    tokenizer = Tokenizer(ranks, {x: first + i for i, x in enumerate(names)})
    stops = facts.get("stop_tokens")
    ids = [eos, *stops] if isinstance(stops, list) else [None]
    ok = all(type(i) is int and 0 <= i < tokenizer.n_words for i in ids)
    expected = f"ids from 0 to {tokenizer.n_words - 1}"
    expect(ok, f"{where}: eos_id and stop_tokens", (eos, stops), expected)
    tokenizer.eos_id, tokenizer.stop_tokens = eos, frozenset(stops)
    return tokenizer


def control_tokens(tokenizer: Tokenizer) -> dict:
    """Return the control tokens' names in order of id, and what ends a text.

    Of all this Meta's files hold nothing: in them it is as in Llama 3.
    """
    special = tokenizer.special_tokens
    return dict(
        special_tokens=sorted(special, key=special.get),
        eos_id=tokenizer.eos_id,
        stop_tokens=sorted(tokenizer.stop_tokens),
    )


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
        name = f" ({found[1]:.80})" if found else ""
        raise ValueError(
            f"{file} holds more than tensors{name}: opening it would run its "
            "code. Take the file from the model's own page"
        ) from None
    except Exception as error:  # its type depends on the damage
        raise unreadable(file, error, "a PyTorch checkpoint") from None
    expect(isinstance(shard, dict), str(file), shard, "tensors by name")
    return {key: plain(shard[key], f"{file}: {shown(key)}") for key in shard}


def plain(found, place: str) -> Tensor:
    """Return a tensor without what was pickled with it, or ValueError."""
    expect(isinstance(found, Tensor), place, found, "a tensor")
    tensor = Tensor.detach(found)  # not a Parameter, with attributes
    on_cpu, what = tensor.device.type == "cpu", type(tensor).__name__
    ok = type(tensor) is Tensor and on_cpu and not tensor.is_nested
    if not ok or tensor.is_neg():
        what += f", device {tensor.device}, nested: {tensor.is_nested}"
        expect(False, place, what, "a plain tensor with its numbers")
    return tensor


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
                f"{places['']} {verb} tensor {shown(names[0])} "
                f"({len(names)} in all), and {config_file.name} asks for {len(shapes)}"
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
    Control tokens that are not Llama 3's go to CONTROL, which `load` reads.
    Raises ValueError for quantized weights, another tokenizer than Llama 3's,
    or a folder with several shards or Hugging Face's files; OSError for what
    cannot be written.
    """
    folder = Path(folder)
    tokenizer = check_can_save(llama, folder, tokenizer_file)
    w = llama.weights()
    # as plain tensors, also where `fast` multiplies in its own way
    tensors = {n: getattr(w[n], "numbers", w[n]).detach().cpu() for n in w}
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    control = control_tokens(tokenizer)
    is_metas = control == control_tokens(Tokenizer(tokenizer.ranks))

    def write_tokenizer(part):
        if tokenizer_file is None:
            write_ranks(part, tokenizer.ranks)
        else:
            shutil.copyfile(tokenizer_file, part)

    files = {
        "consolidated.00.pth": lambda part: torch.save(tensors, part),
        "tokenizer.model": write_tokenizer,
        CONTROL: None if is_metas else json_writer(control),
        "params.json": json_writer(llama.config.to_dict()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder, files)


def json_writer(data: dict) -> Callable[[Path], int]:
    """Return a function that writes a JSON object to a path."""
    text = json.dumps(data, indent=2) + "\n"
    return lambda part: part.write_text(text, encoding="utf-8")


def write_files(folder: Path, files: dict[str, Callable | None]) -> None:
    """Write all, then rename all: an error leaves the old files as they were.

    Each name has a function that writes to a path, or None: no such file.
    """
    parts = {folder / name: folder / f"{name}.part" for name in files}
    failed = "cannot be written ({}): make room, or name another folder"
    try:
        for file, write in zip(parts, files.values()):
            if write:
                write(parts[file])
        failed = (
            "cannot be replaced ({}): on Windows, a model that was loaded "
            "from it holds it: name another folder"
        )
        for file, write in zip(parts, files.values()):
            if write:
                parts[file].replace(file)
            else:
                file.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: torch.save's
        code = getattr(error, "errno", None) or errno.EIO
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        sentence = f"{file} {failed.format(reason[:160])}"
        raise OSError(code, sentence) from None
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def check_can_save(llama: Llama, folder: Path, tokenizer_file) -> Tokenizer:
    """Return the tokenizer to write, or raise ValueError; see `save`."""
    tokenizer, V = llama.tokenizer, llama.config.vocab_size
    no = "None: load the model without quantize"
    expect(not llama.quantized, "llama.quantized", llama.quantized, no)
    others = sorted(p.name for p in folder.glob("consolidated.0[1-9].pth"))
    others += [p.name for p in folder.glob("config.json")]  # Hugging Face's
    expect(not others, f"what is in {folder}", others, "none: name another")
    if tokenizer_file is not None:
        given = read_tokenizer(Path(tokenizer_file), V)
        same = getattr(tokenizer, "ranks", None) == given.ranks
        tokenizer = tokenizer if same else given
    kind, ok = type(tokenizer).__name__, hasattr(tokenizer, "ranks")
    expect(ok, "the tokenizer", kind, "Llama 3's: give a tokenizer_file")
    n = len(tokenizer.ranks) + len(SPECIAL_TOKENS)
    same = f"{n}, the tokens of Meta's tokenizer.model"
    expect(tokenizer.n_words == n == V, "vocab_size", V, same)
    ids, at = sorted(tokenizer.special_tokens.values()), len(tokenizer.ranks)
    expected = f"those from {at} on, where Meta's are"
    expect(ids == list(range(at, n)), "the control tokens' ids", ids, expected)
    facts, where = control_tokens(tokenizer), "the tokenizer"
    return with_control_tokens(tokenizer.ranks, facts, where)
