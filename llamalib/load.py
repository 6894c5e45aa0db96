r"""Open a model: find its folder, read it in its format, fill a Llama.

A format has a module, a door: `meta`, `hugging_face`, `gguf`. It has
`read_config(folder)`, which returns a `ModelArgs`; and
`read_checkpoint(folder, check)`, which returns a `tensors.Checkpoint`: config,
tokenizer, and each tensor by Meta's name. A folder of the first two has
`SETTINGS`, the file with the settings; for `gguf` the folder is a file.

`llamalib.load` is the function, not this module: write `from llamalib.load
import …` for the other names.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from . import hugging_face, meta, ollama
from .checks import listing, read_start, require, require_file, shown
from .model import Llama, ModelArgs
from .tensors import DTYPES, Checkpoint, check_numbers, shard_axis

ROOT = Path(__file__).resolve().parents[1]  # the project's folder
POCKET = Path("data", "pocket-llama")  # the checkpoint that ships
REAL = Path("data", "Llama-3.2-1B", "original")
SMOL = Path("data", "SmolLM2-135M-Instruct")
USUAL = [REAL, SMOL, POCKET]  # `load()` opens the first that is there
DOORS = (meta, hugging_face)
# Functions that may open a model in another way. Each gets `load`'s arguments
# and returns a model, or None if this is not its case.
OTHER_WAYS: list[Callable[..., Llama | None]] = []


def load(
    path=None, *, device=None, dtype=None, quantize=None, check=False
) -> Llama:
    r"""Open a checkpoint as a model that is ready to run.

    path: a folder, a GGUF file, or the name of a model that Ollama brought,
    "ollama:llama3.2:1b"; None: see `find_checkpoint`.
    device: "cuda", "mps", "cpu"…; None: $LLAMA_DEVICE, or the first there is.
    dtype: torch.bfloat16, float16 or float32; None keeps the file's dtype,
    or float16 if the GPU lacks bfloat16. See `choose_dtype`.
    quantize: "int8", "int4" or None, see `quantize.quantize_model`.
    check: whether to compare all checksums and require finite numbers.

    Returns a Llama in eval mode, without gradients. On a CPU, in the file's
    dtype, its weights are mapped from the file, not copied. In a process that
    torchrun started with others, it is this process's part.
    Raises FileNotFoundError or PermissionError for a folder or file,
    ValueError for an argument or a file that does not fit, MemoryError.
    """
    require(
        quantize in (None, "int8", "int4"),
        f"quantize must be 'int8', 'int4' or None, got {quantize!r:.80}",
    )
    for open_model in OTHER_WAYS:
        llama = open_model(
            path, device=device, dtype=dtype, quantize=quantize, check=check
        )
        if llama is not None:
            return llama
    device = choose_device(device)
    checkpoint = open_checkpoint(path, check)
    return build(checkpoint, device, dtype, quantize)


def open_checkpoint(path=None, check: bool = False) -> Checkpoint:
    """Find a checkpoint and open it; Ollama's keeps Ollama's name."""
    file = find_checkpoint(path)
    if check:
        ollama.check_digest(file)
    checkpoint = read_checkpoint(file, check)
    name = ollama.name_in(path or os.environ.get("LLAMA_DIR") or "")
    return replace(checkpoint, name=name) if name else checkpoint


def build(checkpoint: Checkpoint, device, dtype, quantize) -> Llama:
    """Return a model with a checkpoint's weights; see `load`."""
    dtype, note = choose_dtype(device, checkpoint.dtype, dtype)
    llama = empty_llama(checkpoint.config, checkpoint.tied)
    place = torch.device("cpu") if quantize else device  # quantized first
    for name in with_bar(checkpoint):  # one by one: never two copies of all
        weight = join(checkpoint, name, place, dtype)
        holder = llama.get_submodule(name.removesuffix(".weight"))
        holder.weight = nn.Parameter(weight, requires_grad=False)
    if checkpoint.tied:  # one parameter with two names
        llama.output.weight = llama.tok_embeddings.weight
    if quantize:
        from .quantize import quantize_model

        llama = quantize_model(llama, quantize).to(device)
    llama.name = checkpoint.name or name_of(checkpoint.folder)
    llama.tokenizer, llama.note = checkpoint.tokenizer, note
    return llama.requires_grad_(False).eval()


def with_bar(checkpoint: Checkpoint) -> Iterable[str]:
    """Return the names of the tensors; a bar shows which have been read.

    It appears after two seconds, in a terminal. For a large model it appears
    in a notebook, too.
    """
    names = checkpoint.names()
    try:
        from tqdm import tqdm
    except ImportError:  # on a bare machine with a GPU
        return names
    if sys.stderr is None:  # closed, or a program without a console
        return names
    is_large = checkpoint.config.dim >= 2048
    return tqdm(
        names,
        "reading the weights",
        delay=2,
        leave=False,
        disable=False if is_large else None,  # None: not in a terminal
    )


def name_of(folder: Path) -> str:
    """Return the name of a checkpoint's folder, or its file without .gguf."""
    whole = Path(os.path.realpath(folder))
    if whole.name == "original":
        return whole.parent.name
    return whole.name.removesuffix(".gguf")


def describe(llama: Llama) -> str:
    """Return a line with a model's name, sizes, dtype and device."""
    c, dtype = llama.config, str(llama.dtype)
    processes: Any = getattr(llama, "processes", None)
    n = processes.n if processes else 1
    wq = llama.get_submodule("layers.0.attention.wq")
    if bits := getattr(wq, "bits", None):
        dtype = f"int{bits} for {dtype}"
    if llama.note and llama.dtype.itemsize == 2:  # not after .float()
        dtype = f"{dtype} ({llama.note})"
    return (
        f"{shown(llama.name or 'random weights')}: L={c.n_layers}, D={c.dim}, "
        f"H={n * c.n_heads}, KV={n * c.n_kv_heads}, F={c.hidden_dim}, "
        f"V={c.vocab_size}, {dtype}, {llama.device}"
    )


# -- the folder --------------------------------------------------------------


def find_checkpoint(path=None, *, metas: bool = False) -> Path:
    r"""Return a checkpoint's folder, or its GGUF file.

    A folder has `params.json` or `config.json`, or else one file of GGUF.
    "ollama:NAME" is the file that `ollama pull NAME` brought.

    This is `path`, else `$LLAMA_DIR`, else the first of `USUAL` that is
    there: the real 1B in `data/Llama-3.2-1B/original`, SmolLM2 in
    `data/SmolLM2-135M-Instruct`, the pocket Llama in `data/pocket-llama`;
    `data` is next to this package, or in the current folder or a parent. The
    checkpoint may be in a subfolder of the one that is named, such as
    `original/`.
    metas: whether only Meta's format will do.
    Raises FileNotFoundError or PermissionError for a folder or checkpoint,
    ValueError for several checkpoints, or one in the wrong format.
    """
    is_path = isinstance(path, (str, os.PathLike)) and path != ""
    require(
        path is None or is_path,
        f"path must be a folder, a file or None, got {path!r:.80}",
    )
    # cmd keeps the quotes of a path that was copied with them
    variable = os.environ.get("LLAMA_DIR", "").strip('"')
    of = " (from LLAMA_DIR, or make's FOLDER)" if variable and not path else ""
    folder = Path(os.path.expanduser(path or variable or usual_folder()))
    if (name := ollama.name_in(folder)) is not None:
        folder = ollama.find(name)
    if is_gguf(folder):
        return metas_only(folder) if metas else folder
    try:
        names = sorted(os.listdir(folder))
        os.lstat(os.path.join(folder, "."))  # fails if files cannot be opened
    except PermissionError:
        raise PermissionError(
            f"Permission denied: {folder}. Try chmod u+rx {folder}"
        ) from None
    except (OSError, ValueError):  # not there, or no name of a file
        problem = "does not exist"
        if os.path.isfile(folder):
            problem = "is neither a folder nor a GGUF file"
        elif ":" in str(folder):
            problem += "; a model of Ollama's has a name like ollama:llama3.2"
        raise FileNotFoundError(f"{folder!s:.200} {problem}{of}") from None
    found = checkpoints_in(folder)
    if not found:
        for door in DOORS:
            if door.SETTINGS in names:
                require_file(folder, door.SETTINGS)  # says what it is instead
        for place in [folder / name for name in names]:
            if os.access(place, os.R_OK | os.X_OK):
                found += checkpoints_in(place)[:1]
    if not found:
        raise FileNotFoundError(
            f"{folder} has neither Meta's params.json nor Hugging Face's "
            f"config.json nor a GGUF file (found: {listing(folder)}){of}"
        )
    several = " or ".join(str(p) for p in found[:3])
    require(not found[1:], f"{folder} has several checkpoints: name {several}")
    return metas_only(found[0]) if metas else found[0]


def is_gguf(file: Path) -> bool:
    """Return whether a file is called .gguf, or begins like one."""
    if not os.path.isfile(file):
        return False
    return file.suffix == ".gguf" or read_start(file, 4) == b"GGUF"


def metas_only(folder: Path) -> Path:
    """Return a checkpoint's folder, or raise ValueError if not Meta's."""
    form = "a GGUF file" if folder.is_file() else "in Hugging Face's format"
    require(
        is_in(folder, meta),
        f"{folder} is {form}, Meta's is needed: run `python -m llamalib "
        f"convert {folder} data/{name_of(folder)}-original` and name that "
        "folder (this needs Llama 3's tokenizer)",
    )
    return folder


def usual_folder() -> Path:
    """Return the first folder of `USUAL` that has a checkpoint."""
    for root in (ROOT, Path.cwd(), *Path.cwd().parents):
        for folder in USUAL:
            if checkpoints_in(root / folder):
                return root / folder
    raise FileNotFoundError(
        f"{ROOT / POCKET} has no checkpoint: make it with `make pocket`, or "
        "set LLAMA_DIR to a folder that has one"
    )


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder and in its `original/`."""
    metas = [p for p in (folder, folder / "original") if is_in(p, meta)]
    if not is_in(folder, hugging_face):
        return metas or sorted(filter(Path.is_file, folder.glob("*.gguf")))
    require(
        folder not in metas,
        f"{folder} has both Meta's params.json and Hugging Face's "
        "config.json: keep the files of one format in a folder",
    )
    # a download of a whole page has both: Meta's, if it is complete
    return [p for p in metas if any(p.glob("consolidated.*.pth"))] or [folder]


# -- the doors ---------------------------------------------------------------


def is_in(folder: Path, door) -> bool:
    """Return whether a folder has the settings of a door's format."""
    return (folder / door.SETTINGS).is_file()


def door_of(folder: Path):
    """Return the module that reads the format of a checkpoint's folder."""
    if folder.is_file():  # imported only now: ggml's package takes a while
        from . import gguf

        return gguf
    return meta if is_in(folder, meta) else hugging_face


def read_config(folder: Path) -> ModelArgs:
    """Return the settings of a folder in any format."""
    return door_of(folder).read_config(folder)


def read_checkpoint(folder: Path, check: bool = False) -> Checkpoint:
    """Open a folder in any format; see `load` for check."""
    checkpoint = door_of(folder).read_checkpoint(folder, check)
    for name in checkpoint.names() if check else []:
        parts = checkpoint.parts(name, checkpoint.dtype)
        bad = sum(int((~part.isfinite()).sum()) for part in parts)
        require(not bad, f"{folder}: {name} has {bad} NaN or infinite numbers")
    return checkpoint


# -- tensors -----------------------------------------------------------------


def join(checkpoint: Checkpoint, name: str, device, dtype) -> Tensor:
    """Return one tensor from the parts that the shards hold of it."""
    try:
        parts = checkpoint.parts(name, dtype)
        if dtype == torch.float16 != parts[0].dtype:
            for part in parts:
                check_numbers(part, dtype, name)
        if len(parts) == 1:
            return parts[0].to(device, dtype).contiguous()
        axis, shape = shard_axis(name) or 0, list(parts[0].shape)
        sizes = [part.shape[axis] for part in parts]
        shape[axis] = sum(sizes)
        # torch.cat would make one more copy, in the file's dtype
        whole = torch.empty(shape, device=device, dtype=dtype)
        for target, part in zip(whole.split(sizes, axis), parts, strict=True):
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
