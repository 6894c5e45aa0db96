r"""Open a checkpoint folder as a model."""

import torch

from .model import Llama


def best_device() -> torch.device:
    """cuda where there is one, else mps, else cpu."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def load(
    path=None, *, device=None, dtype=None, check=False, quantize=None
) -> Llama:
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
        quantize: "int8": of every matrix 8 bits a number are kept; "int4":
            4 bits in the blocks, 8 in the embedding and the output. Fewer
            bytes, and on a CPU in bfloat16 quicker to decode; a prompt of
            many tokens takes longer. (int4 then keeps its numbers in two
            orders, 9 bits each.) See `quantization`.

    Returns:
        a Llama in eval mode, its weights without gradient. On the CPU, in
        the file's own dtype, they are mapped from the file, not copied.

    Raises:
        FileNotFoundError: for a folder or file that is not there.
        PermissionError: for a file that may not be read.
        ValueError: for a file that does not fit, naming it, what was found
            and what was wanted.
        MemoryError: where there is no room for the weights.
    """
    from . import fast
    from .formats import find
    from .formats.checks import Pages, check_all_records
    from .formats.meta import DTYPES, check_numbers, joined

    if dtype is not None and dtype not in DTYPES:
        raise ValueError(
            f"dtype is {dtype}; wanted torch.bfloat16, float16 or float32"
        )
    if quantize is not None:
        fast.check_kind(quantize)
    device = best_device() if device is None else find.check_device(device)
    folder = find.find_checkpoint(path)
    is_metas = (folder / "params.json").is_file()
    opened = (
        find.open_metas(folder) if is_metas else find.open_hugging_face(folder)
    )
    config, tokenizer, tensors, tied = opened
    if check:
        for file in sorted(folder.glob("consolidated.*.pth")):
            check_all_records(file)
        check_numbers(folder, tensors)
    if dtype is None:  # of all: a file may hold its norms in float32
        dtype = tensors["tok_embeddings.weight"][0].dtype
    find.check_room(device, tensors, dtype, quantize)
    pages = Pages(folder)
    for name, parts in tensors.items():  # one at a time: never two copies
        with find.room_for(name):
            tensors[name] = joined(name, parts, device, dtype)
            if quantize and tensors[name].dim() == 2:
                tensors[name] = fast.fast_weight(name, tensors[name], quantize)
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
    return fast.prepare(llama.requires_grad_(False).eval())
