r"""Open a checkpoint folder as a model."""

import torch

from .checks import expect
from .model import Llama


def load(
    path=None, *, device=None, dtype=None, quantize=None, check=False
) -> Llama:
    r"""Open a checkpoint folder as a model that is ready to run.

    The folder holds Meta's original files, in one shard or several, or
    Hugging Face's. No code that a file brings is run.
    path: a folder; None: see `find_checkpoint`.
    device: "cuda", "mps", "cpu" or a torch.device; None: the first of these
    that this machine has.
    dtype: torch.bfloat16, float16 or float32; None: the embedding's.
    quantize: "int8": 8 bits per weight; "int4": 4 bits in the blocks, 8 in
    the embedding and the output; None: neither.
    check: whether to read every byte now, compare the checksums and require
    finite numbers.

    Returns a Llama in eval mode, without gradients. On the CPU, in the file's
    own dtype, its weights are mapped from the file, not copied.
    `fast.prepare` chose how it multiplies, see `llama.ways`.
    Raises FileNotFoundError or PermissionError for a folder or file,
    ValueError for an argument or a file that does not fit, MemoryError.
    """
    from . import fast
    from .formats import checks, find, huggingface, meta, placing

    if quantize is not None:
        fast.check_kind(quantize)
    device = choose_device(device)
    folder = find.find_checkpoint(path)
    is_metas = (folder / "params.json").is_file()
    form = meta if is_metas else huggingface
    # tensors: name to its parts, one per shard; `place` makes each one tensor
    config, tokenizer, tensors, tied = form.read_folder(folder)
    if check:
        checks.check_content(folder, tensors)
    # all in one dtype: a file may hold its norms in float32
    dtype = dtype or tensors["tok_embeddings.weight"][0].dtype
    placing.place(tensors, folder, device, dtype, quantize)
    if tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    with torch.device("meta"):  # shapes only, no memory
        llama = Llama(config, tied=tied, tokenizer=tokenizer)
    llama.load_state_dict(tensors, assign=True)
    if tied:  # one parameter with two names
        llama.output.weight = llama.tok_embeddings.weight
    whole = folder.resolve()
    llama.name = (whole.parent if whole.name == "original" else whole).name
    return fast.prepare(llama.requires_grad_(False).eval())


def choose_device(device=None) -> torch.device:
    """Return a device of this machine, or raise ValueError."""
    counts = {
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
        "cpu": 1,
    }
    here = [kind for kind, count in counts.items() if count]
    try:
        found = torch.device(here[0] if device is None else device)
        is_here = (found.index or 0) < counts.get(found.type, 0)
    except (RuntimeError, TypeError):
        is_here = False
    expected = f"a device of this machine: {', '.join(here)}"
    expect(is_here, "device", device, expected)
    return found
