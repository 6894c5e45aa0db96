r"""Open a model: Meta's files, in one shard or several, or Hugging Face's.

Nothing that a file holds is ever run.

`llamalib.load` is the function, not this module: write `from llamalib.load
import …` for the other names.
"""

import os
import pickle
import re
import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .checks import (
    damaged,
    read_json,
    read_start,
    reject_lookalikes,
    require,
    shown,
)
from .config import config_of, config_of_hugging_face
from .model import Llama, ModelArgs
from .tokenizer import (
    Tokenizer,
    is_sentencepiece,
    read_tokenizer_json,
)

ROOT = Path(__file__).resolve().parents[1]  # the project's folder
POCKET = Path("data", "pocket-llama")  # the checkpoint that ships
REAL = Path("data", "Llama-3.2-1B", "original")
AGAIN = "download it again"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SMALL = 100_000_000  # bytes of a file whose checksums are always compared


def load(
    path=None,
    *,
    device=None,
    dtype=None,
    quantize=None,
    check=False,
    keep=None,
) -> Llama:
    r"""Open a checkpoint folder as a model that is ready to run.

    path: a folder; None: see `find_checkpoint`.
    device: "cuda", "mps", "cpu"…; None: $LLAMA_DEVICE, or the first there is.
    dtype: torch.bfloat16, float16 or float32; None keeps the file's dtype,
    or float16 if the GPU lacks bfloat16. See `choose_dtype`.
    quantize: "int8", "int4" or None, see `quantize.quantize_model`.
    check: whether to compare all checksums and require finite numbers.
    keep: for several processes: called with each tensor's name and whole
    shape, it returns (axis, start, stop), the slice to read, or None for all.
    Slices of wq and wk hold whole heads. A tied output is the embedding's.

    Returns a Llama in eval mode, without gradients. On a CPU, in the file's
    dtype, its weights are mapped from the file, not copied.
    Raises FileNotFoundError or PermissionError for a folder or file,
    ValueError for an argument or a file that does not fit, MemoryError.
    """
    require(
        quantize in (None, "int8", "int4"),
        f"quantize must be 'int8', 'int4' or None, got {quantize!r:.80}",
    )
    if keep is None and os.environ.get("WORLD_SIZE", "1") != "1":
        from . import parallel

        if parallel.is_one_of_several():
            how = dict(dtype=dtype, quantize=quantize, check=check)
            return parallel.load_part(path, device=device, **how)
    device, folder = choose_device(device), find_checkpoint(path)
    config, tokenizer, tensors, tied = read_folder(folder, check, keep)
    stored = tensors["tok_embeddings.weight"][0].dtype
    dtype, note = choose_dtype(device, stored, dtype)
    llama = empty_llama(config, tied)
    place = torch.device("cpu") if quantize else device  # quantized first
    for name in list(tensors):  # one by one: never two copies of all
        weight = join(name, tensors.pop(name), place, dtype)
        holder = llama.get_submodule(name.removesuffix(".weight"))
        holder.weight = nn.Parameter(weight, requires_grad=False)
    if tied:  # one parameter with two names
        llama.output.weight = llama.tok_embeddings.weight
    set_sizes(llama)
    if quantize:
        from .quantize import quantize_model

        llama = quantize_model(llama, quantize).to(device)
    whole = Path(os.path.realpath(folder))
    llama.name = (whole.parent if whole.name == "original" else whole).name
    llama.tokenizer, llama.note = tokenizer, note
    return llama.requires_grad_(False).eval()


def describe(llama: Llama) -> str:
    """Return a line with a model's name, sizes, dtype and device."""
    c, dtype = llama.config, str(llama.dtype)
    n = llama.processes.n if hasattr(llama, "processes") else 1
    if bits := getattr(llama.layers[0].attention.wq, "bits", None):
        dtype = f"int{bits} for {dtype}"
    if llama.note and llama.dtype.itemsize == 2:  # not after .float()
        dtype = f"{dtype} ({llama.note})"
    return (
        f"{llama.name or 'random weights'}: L={c.n_layers}, D={c.dim}, "
        f"H={n * c.n_heads}, KV={n * c.n_kv_heads}, F={c.hidden_dim}, "
        f"V={c.vocab_size}, {dtype}, {llama.device}"
    )


# -- the folder --------------------------------------------------------------


def find_checkpoint(path=None, *, metas: bool = False) -> Path:
    r"""Return a checkpoint's folder, with `params.json` or `config.json`.

    This is `path`, else `$LLAMA_DIR`, else the real 1B in
    `data/Llama-3.2-1B/original`, else the pocket Llama in
    `data/pocket-llama`; `data` is next to this package, or in the current
    folder or a parent. The checkpoint may be in a subfolder of the one that
    is named, such as `original/`.
    metas: whether only Meta's format will do.
    Raises FileNotFoundError or PermissionError for a folder or checkpoint,
    ValueError for several checkpoints, or one in the wrong format.
    """
    is_path = isinstance(path, (str, os.PathLike)) and path != ""
    require(
        path is None or is_path,
        f"path must be a folder or None, got {path!r:.80}",
    )
    named = path or os.environ.get("LLAMA_DIR")
    try:
        found = search(named) if named else default_checkpoint()
        os.listdir(found)  # its shards are counted
    except FileNotFoundError as error:
        of = "" if path or not named else " (LLAMA_DIR names this folder)"
        raise FileNotFoundError(f"{error}{of}") from None
    except PermissionError as error:
        raise PermissionError(
            f"Permission denied: {error.filename}. Try chmod u+rx on its "
            "folder"
        ) from None
    require(
        not metas or (found / "params.json").is_file(),
        f"{found} is in Hugging Face's format, Meta's is needed: run `python "
        f"-m llamalib convert {found} data/{found.name}-original` and name "
        "that folder",
    )
    return found


def default_checkpoint() -> Path:
    """Return the real 1B's folder, else the pocket Llama's."""
    for root in (ROOT, Path.cwd(), *Path.cwd().parents):
        for folder in (root / REAL, root / POCKET):
            if (folder / "params.json").is_file():
                return folder
    raise FileNotFoundError(
        f"{ROOT / POCKET} has no checkpoint: make it with `make pocket`, or "
        "set LLAMA_DIR to a folder that has one"
    )


def search(named) -> Path:
    """Return the one checkpoint that is in a folder or in its subfolders."""
    try:
        folder = Path(named).expanduser()
        is_folder = folder.is_dir()
    except PermissionError:
        raise
    except (OSError, RuntimeError, ValueError):  # ~nobody, or too long
        is_folder = False
    if not is_folder:
        problem = "a file" if os.path.isfile(named) else "no folder"
        raise FileNotFoundError(f"{str(named)[:200]} is {problem}")
    found = checkpoints_in(folder)
    for name in () if found else ("params.json", "config.json"):
        if os.path.lexists(folder / name):
            require_file(folder, name)  # which says what it is instead
    for place in [] if found else sorted(folder.iterdir()):
        if place.is_dir() and os.access(place, os.R_OK | os.X_OK):
            found += checkpoints_in(place)[:1]
    if not found:
        raise FileNotFoundError(
            f"{folder} has neither Meta's params.json nor Hugging Face's "
            f"config.json (found: {listing(folder)})"
        )
    names = " or ".join(str(p) for p in found[:3])
    require(len(found) == 1, f"{folder} has several checkpoints: name {names}")
    return found[0]


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder and in its `original/`."""
    places = [folder, folder / "original"]
    metas = [p for p in places if (p / "params.json").is_file()]
    if not (folder / "config.json").is_file():
        return metas
    require(
        folder not in metas,
        f"{folder} has both Meta's params.json and Hugging Face's "
        "config.json: keep the files of one format in a folder",
    )
    # a download of a whole page has both: Meta's, if it is complete
    return [p for p in metas if any(p.glob("consolidated.*.pth"))] or [folder]


def listing(folder: Path, most: int = 6) -> str:
    """Return the names in a folder, for an error message."""
    names = sorted(shown(p.name) for p in folder.iterdir())
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "nothing"


def require_file(folder: Path, name: str) -> Path:
    """Return folder/name, or raise FileNotFoundError."""
    path = folder / name
    if path.is_file():
        return path
    problem = f"{folder} has no {name} (found: {listing(folder)})"
    if os.path.lexists(path):
        problem = f"{path} is a folder, a pipe or a broken link"
    raise FileNotFoundError(f"{problem}: {AGAIN}")


def read_config(folder: Path) -> ModelArgs:
    """Return the settings of a folder in either format."""
    file = folder / "params.json"
    if os.path.lexists(file):
        return config_of(read_json(require_file(folder, file.name)), file)
    file = folder / "config.json"
    return config_of_hugging_face(read_json(file), file)


def read_folder(folder: Path, check: bool = False, keep=None):
    r"""Read a folder in either format; see `load` for check and keep.

    Returns the config; the tokenizer; by Meta's names the parts of each
    tensor, one per shard and in Meta's layout, mapped from the files; and
    whether the output matrix is tied, then it is not among the tensors.
    """
    config, is_metas = read_config(folder), (folder / "params.json").is_file()
    read_tokenizer = read_metas_tokenizer if is_metas else read_their_tokenizer
    tokenizer = read_tokenizer(folder, config.vocab_size)
    read_tensors = read_shards if is_metas else read_safetensors
    tensors, tied = read_tensors(folder, config, check)
    if tied:
        tensors.pop("output.weight", None)
    shapes, hd = tensor_shapes(config), config.head_dim
    for name, parts in tensors.items():
        bad = check and sum(int((~part.isfinite()).sum()) for part in parts)
        require(not bad, f"{folder}: {name} has {bad} NaN or infinite numbers")
        kept = keep(name, shapes[name]) if keep else None
        tensors[name] = parts = slices(name, parts, kept)
        if not is_metas and name.endswith((".wq.weight", ".wk.weight")):
            tensors[name] = [to_meta_layout(part, hd) for part in parts]
    return config, tokenizer, tensors, tied


# -- tensors -----------------------------------------------------------------


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
    missing = [n for n in shapes if n not in tensors and n != "output.weight"]
    unknown = [n for n in tensors if n not in shapes]
    for verb, names in (("has no", missing), ("has an unknown", unknown)):
        require(
            not names,
            f"{file} {verb} tensor {shown(*names[:1] or [''])}: it is not of "
            f"the model that {described} describes",
        )
    for name, tensor in tensors.items():
        place = places.get(name, f"{file}: {name}")
        expected, axis = list(shapes[name]), shard_axis(name)
        if axis is not None:
            expected[axis] /= n_shards
        parts = f" in each of {n_shards} shards: is one missing or extra?"
        require(
            list(tensor.shape) == expected,
            f"{place} has the shape {tuple(tensor.shape)}, but {described} "
            f"asks for {tuple(map(int, expected))}{parts * (n_shards > 1)}",
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


def is_tied(tensors: dict[str, Tensor]) -> bool:
    """Return whether the output matrix is the embedding, or equal to it."""
    embedding = tensors["tok_embeddings.weight"]
    output = tensors.get("output.weight", embedding)
    same_memory = output.data_ptr() == embedding.data_ptr()
    return same_memory or are_equal(output, embedding)


def are_equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two matrices are equal; the first row is read first."""
    return torch.equal(a[0], b[0]) and torch.equal(a, b)


def slices(name: str, parts: list[Tensor], kept) -> list[Tensor]:
    """Return views of a tensor's parts, one per shard, that hold a slice."""
    divided = shard_axis(name)
    if divided is None:  # every shard has all of it
        parts = parts[:1]
    if kept is None:
        return parts
    axis, start, stop = kept
    if axis != divided:
        return [part.narrow(axis, start, stop - start) for part in parts]
    views, first = [], 0
    for part in parts:  # it has the rows, or columns, from `first` on
        size = part.shape[axis]
        low, high = max(start - first, 0), min(stop - first, size)
        if low < high:
            views.append(part.narrow(axis, low, high - low))
        first += size
    return views


def join(name: str, parts: list[Tensor], device, dtype) -> Tensor:
    """Return one tensor from the parts that the shards hold of it."""
    if dtype == torch.float16 != parts[0].dtype:
        largest = max(abs(x.item()) for part in parts for x in part.aminmax())
        require(
            not largest > 65_504,
            f"{name} has a number of {largest:.6g}, and float16 ends at "
            "65,504: choose another dtype",
        )
    try:
        if len(parts) == 1:
            return parts[0].to(device, dtype).contiguous()
        axis, shape = shard_axis(name), list(parts[0].shape)
        sizes = [part.shape[axis] for part in parts]
        shape[axis] = sum(sizes)
        # torch.cat would make one more copy, in the file's dtype
        whole = torch.empty(shape, device=device, dtype=dtype)
        for target, part in zip(whole.split(sizes, axis), parts):
            target.copy_(part)
        return whole
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        why = str(error).strip().split("\n")[0][:160]
        raise MemoryError(
            f"no room for {name} ({why}): choose a smaller dtype, "
            "quantize='int8' or device='cpu'"
        ) from None


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


def set_sizes(llama: Llama) -> None:
    """Give each module the sizes of its weight, which may be a slice."""
    for module in llama.modules():
        if isinstance(module, nn.Linear):
            module.out_features, module.in_features = module.weight.shape
        if isinstance(module, nn.Embedding):
            module.num_embeddings, module.embedding_dim = module.weight.shape


# -- Meta's files ------------------------------------------------------------


def read_shards(folder: Path, config: ModelArgs, check: bool):
    """Return the parts of each tensor, and whether the output is tied."""
    n = max(1, len(list(folder.glob("consolidated.[0-9][0-9].pth"))))
    names, shards = [f"consolidated.{i:02d}.pth" for i in range(n)], []
    for file in [require_file(folder, name) for name in names]:
        shard = open_shard(file, check)
        shard.pop("rope.freqs", None)  # in older files; the config has it
        params = folder / "params.json"
        check_tensors(shard, config, params, {"": file}, n)
        check_fits(shard, shards, file)
        shards.append(shard)
    tensors = {name: [shard[name] for shard in shards] for name in shards[0]}
    return tensors, all(map(is_tied, shards))


def open_shard(file: Path, check: bool = False) -> dict[str, Tensor]:
    """Map the tensors of one file; nothing that it holds is run."""
    reject_lookalikes(file)
    try:  # the type of an error depends on the damage
        check_archive(file, check or file.stat().st_size <= SMALL)
        shard = torch.load(file, "cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError:  # whose advice is to run it
        raise ValueError(
            f"{file} holds more than tensors, and opening it would run its "
            "code: download it from the model's own page"
        ) from None
    except Exception as error:
        raise damaged(file, error) from None
    require(isinstance(shard, dict), f"{file} must hold tensors by name")
    return {key: plain(shard[key], f"{file}: {shown(key)}") for key in shard}


def check_archive(file: Path, all_records: bool) -> None:
    """Raise an error if a record of a .pth, a zip archive, is damaged.

    all_records: whether to compare every checksum, which takes seconds for a
    large file, or only those of the records that hold no numbers.
    """
    with zipfile.ZipFile(file) as archive:
        for record in archive.infolist():  # PyTorch would read zipped bytes
            is_stored = record.compress_type == zipfile.ZIP_STORED
            require(is_stored, f"{record.filename} is compressed")
            if all_records or "/data/" not in record.filename:
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


def check_fits(shard: dict, others: list[dict], file: Path) -> None:
    """Raise ValueError unless a shard is another one of the same model."""
    embedding = shard["tok_embeddings.weight"]
    for i, other in enumerate(others):
        require(
            not are_equal(embedding, other["tok_embeddings.weight"]),
            f"{file} holds the same part of the model as "
            f"consolidated.{i:02d}.pth: {AGAIN}",
        )
    first = others[0] if others else shard
    differ = sorted(set(shard) ^ set(first))  # output.weight
    for name in set(shard) & set(first):
        if shard[name].dtype != first[name].dtype or (
            shard_axis(name) is None
            and not torch.equal(shard[name], first[name])
        ):
            differ.append(name)
    require(
        not differ,
        f"{file} is not of the same model as the first shard: "
        f"{', '.join(differ[:1])} differs",
    )


def read_metas_tokenizer(folder: Path, V: int) -> Tokenizer:
    """Read a tokenizer.model with as many tokens as params.json says."""
    file = require_file(folder, "tokenizer.model")
    tokenizer = Tokenizer.from_file(file)
    n = tokenizer.n_words
    require(n == V, f"{file} has {n} tokens, vocab_size in params.json is {V}")
    return tokenizer


# -- Hugging Face's files ----------------------------------------------------

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TENSORS = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
}
BLOCK_TENSORS = {
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}


def read_safetensors(folder: Path, config: ModelArgs, check: bool):
    """Return each tensor as one part, and whether the output is tied.

    wq and wk are still in Hugging Face's layout, see `to_meta_layout`. The
    format has no checksums to check.
    """
    from safetensors import safe_open

    tensors, places = {}, {"": folder}
    for file in weight_files(folder):
        reject_lookalikes(file)
        try:  # mapped; the format can hold no code
            with safe_open(file, framework="pt", device="cpu") as opened:
                held = {n: opened.get_tensor(n) for n in opened.keys()}
        except Exception as error:  # its type depends on the damage
            raise damaged(file, error) from None
        for name, tensor in held.items():
            if name.endswith("rotary_emb.inv_freq"):
                continue  # in older files; the config has it
            ours, place = meta_name(name), f"{file}: {shown(name)}"
            require(ours, f"{place} is not a tensor of a Llama")
            require(ours not in tensors, f"{place} is there twice")
            tensors[ours], places[ours] = tensor, place
    file = folder / "config.json"
    check_tensors(tensors, config, file, places)
    tied = bool(read_json(file).get("tie_word_embeddings"))
    require(
        tied or "output.weight" in tensors,
        f"{file}: tie_word_embeddings is false, but there is no "
        "lm_head.weight",
    )
    require(
        not tied or is_tied(tensors),
        f"{file}: tie_word_embeddings is true, but lm_head.weight is not the "
        "embedding",
    )
    return {name: [tensor] for name, tensor in tensors.items()}, tied


def weight_files(folder: Path) -> list[Path]:
    """Return the files with tensors, or raise FileNotFoundError."""
    index = folder / INDEX
    if not os.path.lexists(index):
        return [require_file(folder, WEIGHTS)]
    require(
        not (folder / WEIGHTS).is_file(),
        f"{folder} has both {WEIGHTS} and {INDEX}: keep the one that belongs "
        "to the model",
    )
    weight_map = read_json(require_file(folder, INDEX)).get("weight_map")
    names = weight_map.values() if isinstance(weight_map, dict) else []
    strings = all(isinstance(n, str) and n.isprintable() for n in names)
    # only names: an index must not point out of its folder
    require(
        names and strings and all(n == Path(n).name[:99] for n in names),
        f"{index}: weight_map must name files next to it",
    )
    return [require_file(folder, name) for name in sorted(set(names))]


def meta_name(name: str) -> str | None:
    """Return Meta's name of a tensor; None for one that no Llama has."""
    block = r"model\.(layers\.(?:0|[1-9][0-9]*)\.)"
    found = re.fullmatch(rf"(?:{block})?(.+)\.weight", name)
    if not found:
        return None
    prefix, stem = found.groups()
    short = (BLOCK_TENSORS if prefix else TENSORS).get(stem)
    return short and f"{prefix or ''}{short}.weight"


def to_meta_layout(weight: Tensor, head_dim: int) -> Tensor:
    r"""Return a copy of wq or wk, (n·hd, D), with its rows in Meta's order.

    Hugging Face's RoPE rotates component k with component k + hd/2, Meta's
    rotates 2k with 2k + 1: the same model, with other rows.
    """
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))  # (n, 2, hd/2, D)
    return halves.transpose(1, 2).flatten(0, 2)


def read_their_tokenizer(folder: Path, V: int):
    """Read tokenizer.json, or else a tokenizer.model of Llama 3's kind."""
    path, model = folder / "tokenizer.json", folder / "tokenizer.model"
    if os.path.lexists(path) or not model.is_file():
        tokenizer = read_tokenizer_json(require_file(folder, path.name))
    else:
        require(
            not is_sentencepiece(read_start(model)),
            f"{model} is a SentencePiece model, and there is no "
            "tokenizer.json. The transformers library can write one: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)",
        )
        tokenizer = Tokenizer.from_file(model)
    require(
        tokenizer.n_words <= V,
        f"the tokenizer in {folder} has {tokenizer.n_words} tokens, but "
        f"vocab_size in config.json is {V}",
    )
    tokenizer.vocab_size = V
    if tokenizer.bos_id is None:
        tokenizer.bos_id = next(
            iter(token_ids(folder, "bos_token_id", V)), None
        )
    if ends := token_ids(folder, "eos_token_id", V):
        # further training may have changed them
        tokenizer.eos_id, tokenizer.stop_tokens = ends[0], frozenset(ends)
    return tokenizer


def token_ids(folder: Path, key: str, V: int) -> list[int]:
    """Return the ids that the configs give a key, or none."""
    ids = []
    # the second replaces the first: it adds the ids that end a turn
    for name in ("config.json", "generation_config.json"):
        if os.path.lexists(folder / name):
            found = read_json(require_file(folder, name)).get(key)
            if found is not None:
                ids = found if isinstance(found, list) else [found]
            require(
                all(type(i) is int and 0 <= i < V for i in ids),
                f"{folder / name}: {key} must be ids from 0 to {V - 1}, got "
                f"{found!r:.80}",
            )
    return ids


# -- device and dtype --------------------------------------------------------


def choose_device(device=None) -> torch.device:
    """Return a device of this machine; None: $LLAMA_DEVICE, or the first."""
    mps = int(torch.backends.mps.is_available())
    counts = dict(cuda=torch.cuda.device_count(), mps=mps, cpu=1)
    here = [kind for kind, count in counts.items() if count]
    if device is None:
        device = os.environ.get("LLAMA_DEVICE") or here[0]
    try:
        found = torch.device(device)
        is_here = (found.index or 0) < counts.get(found.type, 0)
    except (RuntimeError, TypeError):
        is_here = False
    require(
        is_here,
        f"unknown device {str(device)!r:.80}; available: {', '.join(here)}",
    )
    return found


def choose_dtype(device, stored, dtype=None) -> tuple[torch.dtype, str]:
    r"""Return the dtype to load a checkpoint in, and a note for the reader.

    dtype: one that the caller asks for; None: as the file is `stored`, but
    float16 for a file in bfloat16 on a GPU without it: CUDA before compute
    capability 8.0 (T4, V100), Apple before M3 or macOS 14.

    A file in float16 or float32 keeps its dtype: to round what its author
    kept in 32 bits, ask for it. float16 rounds less than bfloat16, but ends at
    65,504: the residual stream and the gated product must stay below.
    """
    require(
        dtype in (None, *DTYPES),
        "dtype must be torch.bfloat16, torch.float16, torch.float32 or None, "
        f"got {dtype!r:.80}",
    )
    if dtype or stored != torch.bfloat16 or has_bfloat16(device):
        return dtype or stored, ""
    return torch.float16, "this GPU has no bfloat16"


def has_bfloat16(device) -> bool:
    """Return whether a GPU multiplies bfloat16; True of every CPU."""
    # torch.cuda.is_bf16_supported() is True of a T4, which emulates it
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        return True
    mps = torch.backends.mps
    chip = re.match(r"Apple M(\d+)", mps.get_name())  # M1 and M2 emulate it
    return bool(chip and int(chip[1]) > 2 and mps.is_macos_or_newer(14, 0))
