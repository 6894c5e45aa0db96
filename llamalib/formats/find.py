r"""Find, open and check a checkpoint; write one in Meta's original format.

That is a folder with three kinds of file: `params.json`, `tokenizer.model`,
and the tensors by name in `consolidated.00.pth`, `consolidated.01.pth`, …
(`huggingface.py` reads the other format.)
"""

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import torch

from . import huggingface
from ..config import ModelArgs
from ..files import ROOT, listing, require_file
from .checks import Pages
from ..model import Llama
from .meta import check_tensors, read_tensors
from ..tokenizer import Tokenizer, write_ranks

POCKET = Path("data", "pocket-llama")
REAL = Path("data", "Llama-3.2-1B", "original")

WANTED = (
    "Meta's original files: params.json, tokenizer.model and "
    "consolidated.00.pth; or Hugging Face's: config.json, model.safetensors "
    "and tokenizer.json"
)


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
    said = "LLAMA_DIR" if path is None else "path"
    folder = existing_folder(named, said)
    found = checkpoints_in(folder)
    if not found:  # one of the folders in it?
        below = [p for p in sorted(folder.iterdir()) if may_be_read(p)]
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


def existing_folder(named, said: str) -> Path:
    """A folder that was named, or FileNotFoundError."""
    what = "not there"
    try:
        folder = Path(named).expanduser()
        if folder.is_dir():
            return folder
        if folder.exists():
            what = "a file, not a folder"
    except (OSError, RuntimeError, ValueError) as error:
        folder, what = named, f"no folder's name ({error})"
    raise FileNotFoundError(
        f"{str(folder)[:200]} ({said}) is {what}; wanted a folder with "
        f"{WANTED}"
    )


def may_be_read(place: Path) -> bool:
    """Whether it is a folder that can be looked into."""
    return place.is_dir() and os.access(place, os.R_OK | os.X_OK)


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


@contextmanager
def room_for(name: str):
    """MemoryError, with what to do, where there is no room for a tensor."""
    try:
        yield
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        reason = str(error).strip().split("\n")[0][:160]
        raise MemoryError(
            f"no room for {name} ({reason}): end what else runs, or leave "
            "dtype out: then the weights are mapped from their file"
        ) from None


def open_metas(folder: Path):
    """Config, tokenizer, each tensor's parts, whether the output is tied."""
    config = ModelArgs.from_file(folder / "params.json")
    tokenizer = Tokenizer.from_file(require_file(folder, "tokenizer.model"))
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
    tokenizer = huggingface.read_tokenizer(folder, config.vocab_size)
    if tokenizer.n_words > config.vocab_size:
        raise ValueError(
            f"{folder} has a tokenizer of {tokenizer.n_words} tokens, and "
            f"config.json says vocab_size {config.vocab_size}: they are not "
            "of the same model"
        )
    tokenizer.vocab_size = config.vocab_size
    tensors, places = huggingface.read_tensors(folder, tied)
    check_tensors(tensors, config, 1, folder / "config.json", places)
    pages = Pages(folder)
    for name, read in tensors.items():
        if name.endswith((".wq.weight", ".wk.weight")):
            tensors[name] = huggingface.in_pairs(read, config.head_dim)
            pages.give_back(read)
    parts = {name: [tensor] for name, tensor in tensors.items()}
    return config, tokenizer, parts, tied


def check_room(device, tensors, dtype, quantize=None) -> None:
    """MemoryError if a GPU has less free memory than the weights take."""
    if device.type != "cuda":
        return
    sizes = [sum(part.numel() for part in parts) for parts in tensors.values()]
    needed = sum(sizes) * dtype.itemsize
    if quantize:  # a byte each at the most, and one matrix as it was
        needed = sum(sizes) + 2 * max(sizes) * dtype.itemsize
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise MemoryError(
            f"the weights take {needed:,} bytes in {dtype}, and {device} has "
            f"{free:,} free: end what else runs there, ask for "
            "dtype=torch.bfloat16 or quantize='int8', or take device='cpu'"
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


def save(llama: Llama, folder, tokenizer_file=None) -> None:
    r"""Write a model as Meta writes them, in one shard.

    Args:
        llama: its weights are written in their own dtype; a tied output
            stands under both names and takes its room once.
        folder: made where it is not there.
        tokenizer_file: copied to tokenizer.model; None: the ranks of the
            model's own tokenizer are written there.

    Raises:
        ValueError: for a tokenizer that is not of Llama 3's kind, and for
            quantized weights: Meta's format has no place for them.
    """
    if llama.quantized:
        raise ValueError(
            f"the weights are {llama.quantized}, and Meta's format holds "
            "floats: save the model that load gives without quantize"
        )
    folder, ranks = Path(folder), getattr(llama.tokenizer, "ranks", None)
    if tokenizer_file is None and ranks is None:
        kind = type(llama.tokenizer).__name__
        raise ValueError(
            f"the model's tokenizer is a {kind}, and Meta's format holds "
            "Llama 3's kind alone: give a tokenizer_file of that kind"
        )
    V = llama.config.vocab_size
    if tokenizer_file is None and llama.tokenizer.n_words != V:
        raise ValueError(
            f"the tokenizer has {llama.tokenizer.n_words} tokens, and "
            f"vocab_size is {V}: Meta's format holds as many of both"
        )
    further = sorted(folder.glob("consolidated.0[1-9].pth"))
    if further:
        raise ValueError(
            f"{folder} holds {further[0].name}, of a model in several "
            "shards; this one is written in one: name another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    params = json.dumps(llama.config.to_dict(), indent=2) + "\n"
    tensors = {
        n: getattr(w, "numbers", w).detach().cpu()
        for n, w in llama.weights().items()
    }
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    # all written beside, then renamed: no half of a file has a name, and no
    # file of this model stands beside another one's
    beside = {
        name: folder / f"{name}.part"
        for name in ("consolidated.00.pth", "tokenizer.model", "params.json")
    }
    torch.save(tensors, beside["consolidated.00.pth"])
    if tokenizer_file is None:
        write_ranks(beside["tokenizer.model"], ranks)
    else:
        shutil.copyfile(tokenizer_file, beside["tokenizer.model"])
    beside["params.json"].write_text(params, encoding="utf-8")
    for name, part in beside.items():
        part.replace(folder / name)
