r"""Find, open, check and write a checkpoint in Meta's original format.

A folder with three kinds of file: `params.json`, `tokenizer.model`, and the
tensors by name in `consolidated.00.pth`, `consolidated.01.pth`, …
"""

import json
import os
import pickle
import shutil
from pathlib import Path

import torch
from torch import Tensor

from .config import QUANTIZATION_KEYS, VISION_KEYS, ModelArgs
from .model import Llama, tensor_shapes
from .tokenizer import Tokenizer

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
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def find_checkpoint(path=None) -> Path:
    r"""The checkpoint's folder.

    `path` where given; else `$LLAMA_DIR` where set; else the real 1B in
    `data/Llama-3.2-1B/original` where there is one; else the pocket Llama in
    `data/pocket-llama`. `data` is looked for beside this package, then in
    the current folder and those above it. A folder that holds the files in
    `original/`, as a download of the model's page does, may be named itself.

    Raises:
        FileNotFoundError: if the folder that is named is not there or holds
            no params.json; if none is named, and neither of the two is there.
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
            "or set LLAMA_DIR to a folder with params.json, tokenizer.model "
            "and consolidated.00.pth"
        )
    folder = Path(named).expanduser()
    said = "LLAMA_DIR" if path is None else "path"
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} ({said}) is not a folder; wanted one with "
            "params.json, tokenizer.model and consolidated.00.pth"
        )
    for place in (folder, folder / "original"):
        if (place / "params.json").is_file():
            return place
    found = ", ".join(sorted(p.name for p in folder.iterdir())[:6])
    raise FileNotFoundError(
        f"{folder} ({said}) has no params.json, it holds: "
        f"{found or 'nothing'}. Wanted Meta's original files: "
        "params.json, tokenizer.model and consolidated.00.pth"
    )


def best_device() -> torch.device:
    """cuda where there is one, else mps, else cpu."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def load(path=None, *, device=None, dtype=None) -> Llama:
    r"""Open a checkpoint folder as a model that is ready to run.

    Args:
        path: see `find_checkpoint`.
        device: "cuda", "mps", "cpu" or a torch.device; None: the best.
        dtype: torch.bfloat16, float16 or float32; None: as the embedding
            has it in the file.

    Returns:
        a Llama in eval mode, its weights without gradient. On the CPU, in
        the file's own dtype, they are mapped from the file, not copied.

    Raises:
        FileNotFoundError: for a folder or file that is not there.
        ValueError: for a file that does not fit, naming it, what was found
            and what was wanted.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(
            f"dtype is {dtype}; wanted torch.bfloat16, float16 or float32"
        )
    device = best_device() if device is None else check_device(device)
    folder = find_checkpoint(path)
    config = ModelArgs.from_file(folder / "params.json")
    refuse_other_kinds(config, folder)
    tokenizer = Tokenizer.from_file(existing(folder, "tokenizer.model"))
    if tokenizer.n_words != config.vocab_size:
        raise ValueError(
            f"{folder / 'tokenizer.model'} has {tokenizer.n_words} tokens "
            f"with the special ones, and params.json says vocab_size "
            f"{config.vocab_size}: they are not of the same model"
        )
    tensors = read_tensors(folder, config)
    tied = is_tied(tensors)
    if tied:
        tensors.pop("output.weight", None)
    if dtype is None:  # of all: a file may hold its norms in float32
        dtype = tensors["tok_embeddings.weight"].dtype
    for name in list(tensors):  # one at a time: never two whole copies
        tensors[name] = tensors[name].to(device, dtype)
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


def existing(folder: Path, name: str) -> Path:
    """folder/name, or FileNotFoundError."""
    if not (folder / name).is_file():
        found = ", ".join(sorted(p.name for p in folder.iterdir())[:6])
        raise FileNotFoundError(
            f"{folder} has no {name}, it holds: {found}. Download the folder "
            "again"
        )
    return folder / name


def read_tensors(folder: Path, config: ModelArgs) -> dict[str, Tensor]:
    r"""Every tensor by Meta's name, all checked, shards joined.

    One shard: the tensors are mapped from the file and take no memory until
    they are read. Several: each tensor is joined in memory.

    Raises:
        FileNotFoundError, ValueError: see `load`.
    """
    files = shard_files(folder)
    shards = [open_shard(file) for file in files]
    for file, shard in zip(files, shards):
        shard.pop("rope.freqs", None)  # older files; the config says it
        check_shard(file, shard, config, len(files))
        if set(shard) != set(shards[0]):
            raise ValueError(
                f"{file} and {files[0].name} do not both hold output.weight: "
                "they are not of the same model"
            )
    return {
        name: join(name, [shard.pop(name) for shard in shards], files)
        for name in list(shards[0])
    }


def shard_files(folder: Path) -> list[Path]:
    """consolidated.00.pth, .01.pth, … or FileNotFoundError."""
    files = sorted(folder.glob("consolidated.[0-9][0-9].pth"))
    wanted = [f"consolidated.{i:02d}.pth" for i in range(max(1, len(files)))]
    for name in wanted:
        existing(folder, name)
    return files


def open_shard(file: Path) -> dict[str, Tensor]:
    """The tensors of one file, mapped; runs nothing that it holds."""
    try:
        shard = torch.load(
            file, map_location="cpu", mmap=True, weights_only=True
        )
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError) as e:
        reason = str(e).strip().split("\n")[0][:200]
        raise ValueError(
            f"{file} cannot be opened as a PyTorch checkpoint ({reason}); it "
            f"has {file.stat().st_size:,} bytes. Download it again, or save "
            "it again with a torch that writes zip files, 1.6 or newer"
        ) from None
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


def check_shard(file: Path, shard, config: ModelArgs, n_shards: int) -> None:
    """ValueError unless names, shapes and dtypes are those of the config."""
    whole = tensor_shapes(config)
    # output.weight may be left out: then it is tied
    missing = [n for n in whole if n not in shard and n != "output.weight"]
    surplus = [n for n in shard if n not in whole]
    for what, names in (("has no", missing), ("has an unknown", surplus)):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ValueError(
                f"{file} {what} tensor {names[0]}{more}; params.json asks "
                f"for {len(whole)} tensors: is it of the same model?"
            )
    for name, tensor in shard.items():
        wanted, axis = list(whole[name]), shard_axis(name)
        if axis is not None:
            wanted[axis] /= n_shards
        if list(tensor.shape) != wanted:
            part = f", in {n_shards} shards along axis {axis}"
            raise ValueError(
                f"{file}: {name} has shape {tuple(tensor.shape)}; "
                f"params.json asks for {whole[name]}"
                f"{'' if axis is None or n_shards == 1 else part}: it is not "
                "of the same model, or shards are missing"
            )
        if tensor.dtype not in DTYPES or tensor.layout != torch.strided:
            raise ValueError(
                f"{file}: {name} is {tensor.dtype}, {tensor.layout}; wanted "
                "plain bfloat16, float16 or float32"
            )


def join(name: str, parts: list[Tensor], files: list[Path]) -> Tensor:
    """One tensor of the parts that the shards hold of it."""
    for part, file in zip(parts, files):
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
    if len(parts) == 1 or shard_axis(name) is None:
        return parts[0]
    return torch.cat(parts, dim=shard_axis(name))


def is_tied(tensors: dict[str, Tensor]) -> bool:
    """Whether the output matrix is the embedding: absent, shared or equal."""
    output = tensors.get("output.weight")
    embedding = tensors["tok_embeddings.weight"]
    if output is None or output.data_ptr() == embedding.data_ptr():
        return True
    # the first row first: reading both matrices whole takes a while
    first_row = torch.equal(output[0], embedding[0])
    return first_row and torch.equal(output, embedding)


def save(llama: Llama, folder, tokenizer_file) -> None:
    r"""Write a model as Meta writes them, in one shard.

    Args:
        llama: its weights are written in their own dtype; a tied output
            stands under both names and takes its room once.
        folder: made where it is not there.
        tokenizer_file: copied to tokenizer.model.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    params = json.dumps(llama.config.to_dict(), indent=2)
    (folder / "params.json").write_text(params + "\n", encoding="utf-8")
    tokenizer = folder / "tokenizer.model"
    if Path(tokenizer_file).resolve() != tokenizer.resolve():
        shutil.copyfile(tokenizer_file, tokenizer)
    tensors = {n: w.detach().cpu() for n, w in llama.weights().items()}
    if llama.tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    # written beside and renamed, so that no half of a file has the name
    beside = folder / "consolidated.00.pth.part"
    torch.save(tensors, beside)
    beside.replace(folder / "consolidated.00.pth")
