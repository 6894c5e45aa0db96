"""Write a model in Meta's format.

`llamalib.save` is the function, not this module.
"""

import errno
import glob
import json
import os
import re
import shutil
from pathlib import Path

import torch

from .checks import require
from .config import params_of
from .model import Llama, ModelArgs
from .tensors import check_tensors, tensor_shapes
from .tokenizer import Tokenizer, write_ranks


def save(llama: Llama, folder) -> None:
    r"""Write a model in Meta's format, in one shard and in its own dtype.

    `load` opens it with Llama 3's special tokens and ends of a text.
    Raises ValueError for quantized weights, other special tokens, or a folder
    with several shards or Hugging Face's files; OSError for what cannot be
    written.
    """
    kind = type(llama).__name__
    require(hasattr(llama, "config"), f"llama must be a Llama, got a {kind}")
    require(
        isinstance(folder, (str, os.PathLike)) and folder != "",
        f"folder must be a path, got {folder!r:.80}",
    )
    folder, config = Path(folder), llama.config
    w = dict(llama.named_parameters(remove_duplicate=False))
    require(
        all(name in w for name in tensor_shapes(config)),
        "only a whole model of floats can be saved: load it without quantize, "
        "in one process",
    )
    check_tensors(w, config, "its config", {"": "the model"})
    for pattern in ("consolidated.0[1-9].pth", "config.json"):
        for file in folder.glob(pattern):
            raise ValueError(f"{file} is another model's: name a new folder")
    ranks, params = metas_ranks(llama.tokenizer, config), params_of(config)
    tensors = {name: w[name].detach().cpu() for name in w}
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    text = json.dumps(params, indent=2) + "\n"
    files = {
        "consolidated.00.pth": lambda part: torch.save(tensors, part),
        "tokenizer.model": lambda part: write_ranks(part, ranks),
        "params.json": lambda part: part.write_text(text),
    }
    write_files(folder, files)


def metas_ranks(tokenizer, config: ModelArgs) -> dict[bytes, int]:
    """Return the ranks of Llama 3's tokenizer, or raise ValueError."""
    ranks: dict[bytes, int] = getattr(tokenizer, "ranks", {})
    require(ranks, "Meta's format needs Llama 3's tokenizer: this is another")
    usual, V = Tokenizer(ranks), config.vocab_size
    n = usual.n_words
    require(
        n == tokenizer.n_words == V,
        f"the tokenizer has {n} tokens in Meta's format, but vocab_size is {V}",
    )
    special = tokenizer.special_tokens.items()
    names = {(name, i) for name, i in special if "reserved" not in name}
    require(
        names <= usual.special_tokens.items()
        and tokenizer.stop_tokens <= usual.stop_tokens
        and tokenizer.eos_id == usual.eos_id,
        "Meta's format has no place for the special tokens of this tokenizer, "
        "or the ids that end its texts",
    )
    return ranks


def write_files(folder: Path, files: dict) -> None:
    r"""Write each file under another name by its function, then rename all.

    The last is params.json. An older one is moved away first, so that no
    folder ever has new weights and old settings.
    """
    # an ending after the last dot: torch.save writes the name before it
    ending = f".part{os.getpid()}"
    parts = {folder / name: folder / (name + ending) for name in files}
    file, older = folder, folder / f"older{ending}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep_parts(folder)
        for file, part in parts.items():
            files[file.name](part)
        if file.is_file():  # the last: params.json
            file.replace(older)
        for file, part in parts.items():
            part.replace(file)
    except (OSError, RuntimeError) as error:  # RuntimeError: torch.save's
        if older.is_file() and all(part.is_file() for part in parts.values()):
            older.replace(folder / "params.json")  # nothing was renamed yet
        reason = getattr(error, "strerror", None) or str(error)[:160]
        raise OSError(
            getattr(error, "errno", None) or errno.EIO,
            f"{file} cannot be written ({reason}): make room, or name another "
            "folder; Windows keeps a file that a loaded model is mapped from",
        ) from None
    finally:
        for part in [*parts.values(), older]:
            part.unlink(missing_ok=True)


def sweep_parts(folder: Path) -> None:
    """Remove what killed calls of `save` left in a folder."""
    for (
        name
    ) in "consolidated.00.pth tokenizer.model params.json older".split():
        sweep(folder / name)


def sweep(file: Path) -> None:
    """Remove what killed processes left of a file or a folder: .part<PID>."""
    for left in file.parent.glob(f"{glob.escape(file.name)}.part*"):
        pid = left.name.removeprefix(f"{file.name}.part")
        if not re.fullmatch(r"\d{1,9}", pid, re.ASCII) or is_alive(int(pid)):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Return whether a process lives, and is not this one."""
    import psutil  # only if there are leftovers

    return pid != os.getpid() and psutil.pid_exists(pid)
