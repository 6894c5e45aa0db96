r"""Find, open and check a checkpoint; write one in Meta's original format.

That is a folder with three kinds of file: `params.json`, `tokenizer.model`,
and the tensors by name in `consolidated.00.pth`, `consolidated.01.pth`, …
(`huggingface.py` reads the other format.)
"""

import json
import os
import pickle
import re
import shutil
from pathlib import Path

import torch
from torch import Tensor

from . import huggingface
from .config import QUANTIZATION_KEYS, VISION_KEYS, ModelArgs
from .files import (
    Pages,
    check_all_records,
    check_small_records,
    existing,
    listing,
    not_tensors,
    refuse_stand_ins,
)
from .model import Llama, tensor_shapes
from .tokenizer import Tokenizer, write_ranks

POCKET = Path("data", "pocket-llama")
REAL = Path("data", "Llama-3.2-1B", "original")
ROOT = Path(__file__).resolve().parents[1]

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
WANTED = (
    "Meta's original files: params.json, tokenizer.model and "
    "consolidated.00.pth; or Hugging Face's: config.json, model.safetensors "
    "and tokenizer.json"
)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def find_checkpoint(path=None, *, metas: bool = False) -> Path:
    r"""The checkpoint's folder.

    `path` where given; else `$LLAMA_DIR` where set; else the real 1B in
    `data/Llama-3.2-1B/original` where there is one; else the pocket Llama in
    `data/pocket-llama`. `data` is looked for beside this package, then in
    the current folder and those above it. A folder that holds the files in
    `original/`, as a download of the model's page does, may be named itself,
    and so may one with a single checkpoint in it.

    Args:
        path: a folder, or None.
        metas: whether only Meta's format will do, for who reads its files.

    Returns:
        a folder with Meta's `params.json`, or Hugging Face's `config.json`.

    Raises:
        FileNotFoundError: if the folder that is named is not there or holds
            no checkpoint; if none is named, and neither of the two is there.
        ValueError: if it holds several, or one that is not in the format.
    """
    named = path if path is not None else os.environ.get("LLAMA_DIR") or None
    if named == "":
        raise ValueError('path is ""; wanted a folder, or None')
    if named is None:
        # the folder of this package, else where Python was started
        for root in (ROOT, Path.cwd(), *Path.cwd().parents):
            for folder in (root / REAL, root / POCKET):
                if (folder / "params.json").is_file():
                    return folder
        raise FileNotFoundError(
            f"no checkpoint in {ROOT / POCKET}; make it with `make pocket`, "
            f"or set LLAMA_DIR to a folder with {WANTED}"
        )
    folder = Path(named).expanduser()
    said = "LLAMA_DIR" if path is None else "path"
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "not there"
        raise FileNotFoundError(
            f"{folder} ({said}) is {what}; wanted a folder with {WANTED}"
        )
    found = checkpoints_in(folder)
    if not found:  # one of the folders in it?
        below = [p for p in sorted(folder.iterdir()) if p.is_dir()]
        found = [place for p in below for place in checkpoints_in(p)[:1]]
    if not found:
        raise FileNotFoundError(
            f"{folder} ({said}) has no params.json, it holds: "
            f"{listing(folder)}. Wanted {WANTED}"
        )
    if len(found) > 1:
        names = " and ".join(str(p) for p in found[:3])
        raise ValueError(
            f"{folder} ({said}) holds more than one checkpoint: {names}. "
            "Name the one that you want"
        )
    if metas and not (found[0] / "params.json").is_file():
        raise ValueError(
            f"{found[0]} ({said}) is in Hugging Face's format, and what is "
            "read here are Meta's files; write them by `python -m llamalib "
            f"convert {found[0]} data/{found[0].name}-original`, and name "
            "that folder"
        )
    return found[0]


def checkpoints_in(folder: Path) -> list[Path]:
    r"""The checkpoints of a folder: itself, or its `original/`.

    A download of a model's page holds the same model twice, in Meta's format
    and in Hugging Face's: then Meta's, if it is all there.

    Raises:
        ValueError: if both formats lie in one folder.
    """
    places = [folder, folder / "original"]
    metas = [p for p in places if (p / "params.json").is_file()]
    if not (folder / "config.json").is_file():
        return metas
    if folder in metas:
        raise ValueError(
            f"{folder} has both params.json, Meta's, and config.json, "
            "Hugging Face's: keep the files of one format in a folder"
        )
    whole = [p for p in metas if any(p.glob("consolidated.*.pth"))]
    return whole or [folder]


def best_device() -> torch.device:
    """cuda where there is one, else mps, else cpu."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def load(path=None, *, device=None, dtype=None, check=False) -> Llama:
    r"""Open a checkpoint folder as a model that is ready to run.

    Meta's original files, in one shard or several, or Hugging Face's:
    `config.json`, safetensors and `tokenizer.json`. No code that they hold
    is run.

    Args:
        path: see `find_checkpoint`.
        device: "cuda", "mps", "cpu" or a torch.device; None: the best.
        dtype: torch.bfloat16, float16 or float32; None: as the embedding
            has it in the file.
        check: read every byte now, and see that it is what was written,
            where the file says so, and that every number is finite.

    Returns:
        a Llama in eval mode, its weights without gradient. On the CPU, in
        the file's own dtype, they are mapped from the file, not copied.

    Raises:
        FileNotFoundError: for a folder or file that is not there.
        PermissionError: for a file that may not be read.
        ValueError: for a file that does not fit, naming it, what was found
            and what was wanted.
        MemoryError: for a GPU without room.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(
            f"dtype is {dtype}; wanted torch.bfloat16, float16 or float32"
        )
    device = best_device() if device is None else check_device(device)
    folder = find_checkpoint(path)
    is_metas = (folder / "params.json").is_file()
    opened = open_metas(folder) if is_metas else open_hugging_face(folder)
    config, tokenizer, tensors, tied = opened
    if check:
        for file in sorted(folder.glob("consolidated.*.pth")):
            check_all_records(file)
        check_numbers(folder, tensors)
    if dtype is None:  # of all: a file may hold its norms in float32
        dtype = tensors["tok_embeddings.weight"][0].dtype
    check_room(device, tensors, dtype)
    pages = Pages(folder)
    for name, parts in tensors.items():  # one at a time: never two copies
        tensors[name] = joined(name, parts, device, dtype)
        for part in parts:
            if part is not tensors[name]:
                pages.give_back(part)
    if tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    with torch.device("meta"):  # shapes only, no memory
        llama = Llama(config, tied=tied, tokenizer=tokenizer)
    llama.load_state_dict(tensors, assign=True)
    if tied:
        llama.output.weight = llama.tok_embeddings.weight
    whole = folder.resolve()
    llama.name = (whole.parent if whole.name == "original" else whole).name
    return llama.requires_grad_(False).eval()


def open_metas(folder: Path):
    """Config, tokenizer, each tensor's parts, whether the output is tied."""
    config = ModelArgs.from_file(folder / "params.json")
    refuse_other_kinds(config, folder)
    tokenizer = Tokenizer.from_file(existing(folder, "tokenizer.model"))
    if tokenizer.n_words != config.vocab_size:
        raise ValueError(
            f"{folder / 'tokenizer.model'} has {tokenizer.n_words} tokens "
            f"with the special ones, and params.json says vocab_size "
            f"{config.vocab_size}: they are not of the same model"
        )
    tensors, tied = read_tensors(folder, config)
    return config, tokenizer, tensors, tied


def open_hugging_face(folder: Path):
    """The same of Hugging Face's files."""
    config, tied = huggingface.read_config(folder)
    tokenizer = huggingface.read_tokenizer(folder)
    if tokenizer.n_words > config.vocab_size:
        raise ValueError(
            f"{folder} has a tokenizer of {tokenizer.n_words} tokens, and "
            f"config.json says vocab_size {config.vocab_size}: they are not "
            "of the same model"
        )
    tensors, places = huggingface.read_tensors(folder, tied)
    check_tensors(tensors, config, 1, folder / "config.json", places)
    pages = Pages(folder)
    for name, read in tensors.items():
        if name.endswith((".wq.weight", ".wk.weight")):
            tensors[name] = huggingface.in_pairs(read, config.head_dim)
            pages.give_back(read)
    parts = {name: [tensor] for name, tensor in tensors.items()}
    return config, tokenizer, parts, tied


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


def check_room(device: torch.device, tensors, dtype: torch.dtype) -> None:
    """MemoryError if a GPU has less free memory than the weights take."""
    if device.type != "cuda":
        return
    numbers = sum(part.numel() for parts in tensors.values() for part in parts)
    needed = numbers * dtype.itemsize
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise MemoryError(
            f"the weights take {needed:,} bytes in {dtype}, and {device} has "
            f"{free:,} free: end what else runs there, ask for "
            "dtype=torch.bfloat16, or take device='cpu'"
        )


def check_device(device) -> torch.device:
    """A torch.device that this machine has, or ValueError."""
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device is {device!r}; wanted 'cuda', 'mps' or 'cpu'"
        ) from None
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available()
        and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not present.get(device.type, False):
        here = [kind for kind, is_here in present.items() if is_here]
        raise ValueError(
            f"device is {str(device)!r}, which this machine does not have; "
            f"here: {', '.join(here)}. Leave device out for the best of them"
        )
    return device


def refuse_other_kinds(config: ModelArgs, folder: Path) -> None:
    """ValueError for Meta's vision and quantized checkpoints."""
    kinds = ((VISION_KEYS, "vision"), (QUANTIZATION_KEYS, "quantized"))
    for keys, what in kinds:
        for key in keys:
            if getattr(config, key) is not None:
                raise ValueError(
                    f"{folder / 'params.json'} has {key}: a {what} "
                    "checkpoint, which llamalib does not run; take the "
                    "text model's, in bfloat16"
                )


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
        existing(folder, name)
    return files


def open_shard(file: Path) -> dict[str, Tensor]:
    """The tensors of one file, mapped; runs nothing that it holds."""
    refuse_stand_ins(file)
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
        return True
    # the first row first: reading both matrices whole takes a while
    first_row = torch.equal(output[0], embedding[0])
    return first_row and torch.equal(output, embedding)


def save(llama: Llama, folder, tokenizer_file=None) -> None:
    r"""Write a model as Meta writes them, in one shard.

    Args:
        llama: its weights are written in their own dtype; a tied output
            stands under both names and takes its room once.
        folder: made where it is not there.
        tokenizer_file: copied to tokenizer.model; None: the ranks of the
            model's own tokenizer are written there.

    Raises:
        ValueError: for a tokenizer that is not of Llama 3's kind: Meta's
            format has no place for it.
    """
    folder, ranks = Path(folder), getattr(llama.tokenizer, "ranks", None)
    if tokenizer_file is None and ranks is None:
        kind = type(llama.tokenizer).__name__
        raise ValueError(
            f"the model's tokenizer is a {kind}, and Meta's format holds "
            "Llama 3's kind alone: give a tokenizer_file of that kind"
        )
    folder.mkdir(parents=True, exist_ok=True)
    params = json.dumps(llama.config.to_dict(), indent=2)
    (folder / "params.json").write_text(params + "\n", encoding="utf-8")
    tokenizer = folder / "tokenizer.model"
    if tokenizer_file is None:
        write_ranks(tokenizer, ranks)
    elif Path(tokenizer_file).resolve() != tokenizer.resolve():
        shutil.copyfile(tokenizer_file, tokenizer)
    tensors = {n: w.detach().cpu() for n, w in llama.weights().items()}
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    # written beside and renamed, so that no half of a file has the name
    beside = folder / "consolidated.00.pth.part"
    torch.save(tensors, beside)
    beside.replace(folder / "consolidated.00.pth")
