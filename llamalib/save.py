"""Write a model in Meta's format, or in Hugging Face's.

`llamalib.save` is the function, not this module.
"""

import errno
import glob
import json
import os
import re
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from .checks import require
from .config import params_of
from .hugging_face import (
    SETTINGS,
    WEIGHTS,
    from_meta_layout,
    settings_of,
    their_name,
)
from .model import Llama, ModelArgs
from .tensors import check_tensors, tensor_shapes
from .tokenizer import Tokenizer, write_ranks

# what a killed call may leave, under another name
WRITTEN: tuple[str, ...] = (
    "consolidated.00.pth",
    "tokenizer.model",
    "params.json",
    "older",
)
WRITTEN += (WEIGHTS, "tokenizer.json", "tokenizer_config.json")
WRITTEN += ("generation_config.json", SETTINGS)


def save(llama: Llama, folder) -> None:
    r"""Write a model in Meta's format, in one shard and in its own dtype.

    `load` opens it with Llama 3's special tokens and ends of a text.
    Raises ValueError for quantized weights, other special tokens, or a folder
    with several shards or Hugging Face's files; OSError for what cannot be
    written.
    """
    w, config = weights_of(llama, folder), llama.config
    folder = Path(folder)
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
        "params.json": lambda part: part.write_text(text, encoding="utf-8"),
    }
    write_files(folder, files)


def save_hugging_face(llama: Llama, folder, tokenizer: dict) -> None:
    r"""Write a model in Hugging Face's format, in one file, in its own dtype.

    `load` opens it, and so does the transformers library.
    folder: a new one.  tokenizer: what its files hold, by their names: see
    `gguf.tokenizer_files`.
    Raises ValueError for quantized weights or a folder with files, OSError
    for what cannot be written.
    """
    w, config = weights_of(llama, folder), llama.config
    require_new(Path(folder))
    if llama.tied:  # config.json says so
        del w["output.weight"]
    tensors = {}
    for name, weight in w.items():
        weight = weight.detach().cpu()
        if name.endswith((".wq.weight", ".wk.weight")):
            weight = from_meta_layout(weight, config.head_dim)
        tensors[their_name(name)] = weight
    settings = settings_of(config) | tokenizer["generation_config.json"]
    settings["tie_word_embeddings"] = llama.tied
    settings["dtype"] = str(llama.dtype).removeprefix("torch.")
    files = {WEIGHTS: partial(write_safetensors, tensors=tensors)}
    for name, data in (tokenizer | {SETTINGS: settings}).items():
        files[name] = partial(write_json, data=data)
    write_files(Path(folder), files)


def weights_of(llama, folder) -> dict[str, Tensor]:
    """Return a model's weights by name, or raise ValueError; see `save`."""
    kind = type(llama).__name__
    require(hasattr(llama, "config"), f"llama must be a Llama, got a {kind}")
    require(
        isinstance(folder, (str, os.PathLike)) and folder != "",
        f"folder must be a path, got {folder!r:.80}",
    )
    w = dict(llama.named_parameters(remove_duplicate=False))
    require(
        all(name in w for name in tensor_shapes(llama.config)),
        "only a whole model of floats can be saved: load it without quantize, "
        "in one process",
    )
    check_tensors(w, llama.config, "its config", {"": "the model"})
    for name, weight in w.items():
        extremes = torch.stack(weight.detach().aminmax())  # NaN, if one is
        require(
            extremes.isfinite().all(),
            f"{name} has NaN or infinite numbers: nothing was written",
        )
    return w


def require_new(folder: Path) -> None:
    """Raise ValueError for a folder that has files of its own."""
    is_folder = os.path.isdir(folder)
    require(
        is_folder or not os.path.lexists(folder),
        f"{folder} is no folder: name a new one",
    )
    sweep_parts(folder)
    require(
        not is_folder or not any(folder.iterdir()),
        f"{folder} is not empty: name a new folder, nothing is overwritten",
    )


def write_safetensors(part: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors, or raise RuntimeError if the disk refuses."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, part, {"format": "pt"})
    except SafetensorError as error:
        raise RuntimeError(str(error)) from None


def write_json(part: Path, data: dict) -> None:
    """Write an object of JSON."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    part.write_text(text + "\n", encoding="utf-8")


def has_metas_tokenizer(llama: Llama) -> bool:
    """Return whether Meta's format can hold a model's tokenizer."""
    try:
        return bool(metas_ranks(llama.tokenizer, llama.config))
    except ValueError:
        return False


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

    The last has the settings. An older one is moved away first, so that no
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
        if file.is_file():  # the last
            file.replace(older)
        for file, part in parts.items():
            part.replace(file)
    except BaseException as error:  # Ctrl-C, too
        if older.is_file() and all(part.is_file() for part in parts.values()):
            older.replace([*parts][-1])  # nothing was renamed yet
        if not isinstance(error, (OSError, RuntimeError)):  # torch.save's
            raise
        reason = getattr(error, "strerror", None) or str(error)[:160]
        raise OSError(
            getattr(error, "errno", None) or errno.EIO,
            f"{file} cannot be written ({reason}): make room, or name another "
            "folder; Windows keeps a file that a loaded model is mapped from",
        ) from None
    finally:
        if os.path.isdir(folder):
            finish(parts, older)


def finish(parts: dict[Path, Path], older: Path) -> None:
    """Remove the parts; rename them, if some are and the old model is gone."""
    with suppress(OSError):  # one that stays keeps the settings from coming
        for file, part in parts.items() if older.is_file() else ():
            if part.exists():
                part.replace(file)
    for part in [*parts.values(), older]:
        part.unlink(missing_ok=True)


def sweep_parts(folder: Path) -> None:
    """Remove what killed calls of `save` left in a folder."""
    for name in WRITTEN:
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
