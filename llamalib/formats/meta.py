r"""Read and write Meta's files: params.json, tokenizer.model and the shards.

`consolidated.00.pth`, `consolidated.01.pth`, … each hold a part of every
matrix, and all of every norm.
"""

import errno
import json
import os
import pickle
import re
from pathlib import Path

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..checks import expect
from ..files import read_json, reject_lookalikes, require_file
from ..model import Llama, ModelArgs
from ..tokenizer import SPECIAL_TOKENS, Tokenizer, read_ranks, write_ranks
from .checks import check_archive, other_model, shown, unreadable
from .params import params_of, read_params

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


class NoInit(TorchFunctionMode):
    """Skip torch.nn.init, which on meta imports PyTorch's compiler."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def empty_llama(config: ModelArgs, tied: bool) -> Llama:
    """Return a model whose parameters have shapes, but no memory yet."""
    with torch.device("meta"), NoInit():
        return Llama(config, tied=tied)


def tensor_shapes(config: ModelArgs) -> dict[str, tuple[int, ...]]:
    """Return every tensor's name and shape, in the order of state_dict."""
    D, hidden = config.dim, config.hidden_dim
    q_dim = config.n_heads * config.head_dim  # D in Meta's models
    kv_dim = config.n_kv_heads * config.head_dim
    block = {
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
    shapes = {"tok_embeddings.weight": (config.vocab_size, D)}
    for i in range(config.n_layers):
        for name, shape in block.items():
            shapes[f"layers.{i}.{name}.weight"] = shape
    shapes["norm.weight"] = (D,)
    shapes["output.weight"] = (config.vocab_size, D)
    return shapes


def read_folder(folder: Path, keep=None):
    r"""Read a folder in Meta's format.

    keep: None, or takes part of what the files hold, as `plan.keep_part`.
    Returns the config; the tokenizer; by Meta's names the parts of each
    tensor, one per shard, mapped from the files; and whether the output
    matrix is tied, in which case it is not among the tensors.
    """
    config = read_params(folder / "params.json")
    file = require_file(folder, "tokenizer.model")
    tokenizer = read_tokenizer(file, config.vocab_size)
    return config, tokenizer, *read_tensors(folder, config, keep)


def read_tokenizer(file: Path, V: int) -> Tokenizer:
    """Read a tokenizer.model, and the control tokens that are next to it."""
    tokenizer, control = Tokenizer(read_ranks(file)), file.parent / CONTROL
    n, expected = tokenizer.n_words, f"{V}, the vocab_size in params.json"
    expect(n == V, f"the number of tokens in {file}", n, expected)
    if not os.path.lexists(control):
        return tokenizer
    facts = read_json(require_file(file.parent, CONTROL))
    return with_control_tokens(tokenizer.ranks, facts, control)


def with_control_tokens(ranks: dict, facts: dict, where) -> Tokenizer:
    """Return the tokenizer with such control tokens; see `control_tokens`."""
    n, V = len(ranks), len(ranks) + len(SPECIAL_TOKENS)
    try:
        names, stops = facts["special_tokens"], facts["stop_tokens"]
        special = dict(zip(names, range(n, V), strict=True))
        tokenizer = Tokenizer(ranks, special)
        tokenizer.eos_id = facts["eos_id"]
        tokenizer.stop_tokens = frozenset(stops)
        ids = [tokenizer.eos_id, *stops]
        ok = all(type(i) is int and 0 <= i < V for i in ids) and all(names)
        ok = ok and facts == control_tokens(tokenizer)
    except (KeyError, TypeError, ValueError):
        ok = False
    expected = f"eos_id and stop_tokens below {V}, and {V - n} special_tokens"
    expect(ok, f"the content of {where}", facts, expected)
    return tokenizer


def control_tokens(tokenizer: Tokenizer) -> dict:
    """Return what Meta's files do not hold: in them it is as in Llama 3."""
    special = tokenizer.special_tokens
    names = sorted(special, key=special.get)  # in the order of their ids
    eos, stops = tokenizer.eos_id, sorted(tokenizer.stop_tokens)
    return dict(special_tokens=names, eos_id=eos, stop_tokens=stops)


def read_tensors(folder: Path, config: ModelArgs, keep):
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
    if keep:
        tensors = {n: keep(config, n, held) for n, held in tensors.items()}
    if tied:
        tensors.pop("output.weight", None)
    return tensors, tied


def open_shard(file: Path) -> dict[str, Tensor]:
    """Map the tensors of one file; nothing that it holds is run."""
    reject_lookalikes(file)
    check_archive(file, numbers=False)
    try:
        shard = torch.load(file, "cpu", mmap=True, weights_only=True)
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
    ok = type(tensor) is Tensor and tensor.device.type == "cpu"
    ok = ok and not tensor.is_nested and not tensor.is_neg()
    what = f"{type(tensor).__name__}, {tensor.device}, {tensor.is_nested=}"
    expect(ok, place, what, "a plain tensor with its numbers")
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
            found = f"{verb} tensor {shown(names[0])} ({len(names)} in all)"
            asked = f"{config_file.name} asks for {len(shapes)}"
            raise other_model(f"{places['']} {found}, and {asked}")
    for name, tensor in tensors.items():
        place = places.get(name, f"{places['']}: {name}")
        expected, axis = list(shapes[name]), shard_axis(name)
        if axis is not None:
            expected[axis] /= n_shards
        fits, part = list(tensor.shape) == expected, tuple(map(int, expected))
        asked = f"{part} in each of {n_shards} shard(s): one missing or extra?"
        expect(fits, f"the shape of {place}", tuple(tensor.shape), asked)
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

    tokenizer_file: whose ranks are written; None: the model's own.
    Control tokens that are not Llama 3's go to CONTROL, which `load` reads.
    Raises ValueError for quantized weights, another tokenizer than Llama 3's,
    or a folder with several shards or Hugging Face's files; OSError for what
    cannot be written.
    """
    folder = Path(folder)
    tokenizer = check_can_save(llama, folder, tokenizer_file)
    # not state_dict, which copies what `fast` multiplies in its own way
    w = dict(llama.named_parameters(remove_duplicate=False))
    control = control_tokens(tokenizer)
    # as plain tensors, also where `fast` multiplies in its own way
    tensors = {n: getattr(w[n], "numbers", w[n]).detach().cpu() for n in w}
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    check_tensors(tensors, llama.config, Path("config"), {"": "the model"})
    files = {
        "consolidated.00.pth": lambda part: torch.save(tensors, part),
        "tokenizer.model": lambda part: write_ranks(part, tokenizer.ranks),
        CONTROL: lambda part: write_json(part, control),
        "params.json": lambda part: write_json(part, params_of(llama.config)),
    }
    is_metas = control == control_tokens(Tokenizer(tokenizer.ranks))
    if is_metas and not os.path.lexists(folder / CONTROL):
        del files[CONTROL]
    write_files(folder, files)


def write_json(path: Path, data: dict) -> None:
    """Write a JSON object."""
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def write_files(folder: Path, files: dict) -> None:
    """Call each name's writer, then rename all: an error changes no file."""
    parts, file = {}, folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = {folder / name: folder / f"{name}.part" for name in files}
        for file, write in zip(parts, files.values()):
            write(parts[file])
        for file, part in parts.items():
            part.replace(file)
    except (OSError, RuntimeError) as error:  # RuntimeError: torch.save's
        reason = getattr(error, "strerror", None) or str(error)[:160]
        raise OSError(
            getattr(error, "errno", None) or errno.EIO,
            f"{file} cannot be written ({reason}): make room, or name another "
            "folder; Windows keeps a file that a loaded model is mapped from",
        ) from None
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def check_can_save(llama: Llama, folder: Path, tokenizer_file) -> Tokenizer:
    """Return the tokenizer to write, or raise ValueError; see `save`."""
    tokenizer, V = llama.tokenizer, llama.config.vocab_size
    kind = getattr(llama.layers[0].attention.wq.weight, "kind", None)
    no = "None: load the model without quantize"
    expect(not kind, "the weights", kind, no)
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
    facts, special = control_tokens(tokenizer), tokenizer.special_tokens
    again = with_control_tokens(tokenizer.ranks, facts, "the tokenizer")
    ok, row = again.special_tokens == special, "ids in a row after the ranks"
    expect(ok, "the control tokens", special, row)
    return tokenizer
