r"""Open a checkpoint folder as a model."""

import torch

from .model import Llama


def load(
    path=None, *, device=None, dtype=None, quantize=None, check=False,
    mesh=None, keep=None,
) -> Llama:
    r"""Open a checkpoint folder as a model that is ready to run.

    The folder holds Meta's original files, in one shard or several, or
    Hugging Face's. No code that a file brings is run.
    path: a folder; None: see `find_checkpoint`.
    device: "cuda", "mps", "cpu"…; None: $LLAMA_DEVICE, or the first.
    dtype: torch.bfloat16, float16 or float32; None: the file's, but float16
    for a bfloat16 file on a GPU without it. See `placing.choose_dtype`.
    quantize: "int8", "int4" or None, see `fast.prepare`.
    check: whether to compare checksums and require finite numbers now.
    mesh, keep: for several processes that share it, see `llamalib.parallel`.

    Returns a Llama in eval mode, without gradients; see its `note` and `ways`.
    On a CPU, in the file's dtype, its weights are mapped, not copied.
    Raises FileNotFoundError or PermissionError for a folder or file,
    ValueError for an argument or a file that does not fit, MemoryError.
    """
    from . import fast
    from .formats import checks, find, huggingface, meta, placing

    if mesh is not None:
        from . import parallel

        how = dict(dtype=dtype, quantize=quantize, check=check)
        return parallel.load_part(mesh, path, device=device, **how)
    if quantize is not None:
        fast.check_kind(quantize)
    device = placing.choose_device(device)
    folder = find.find_checkpoint(path)
    form = meta if (folder / "params.json").is_file() else huggingface
    # tensors: name to its parts, one per shard; `place` makes each one tensor
    config, tokenizer, tensors, tied = form.read_folder(folder, keep)
    if check:
        checks.check_content(folder, tensors)
    stored = tensors["tok_embeddings.weight"][0].dtype  # norms may differ
    dtype, note = placing.choose_dtype(device, stored, dtype)
    placing.place(tensors, folder, device, dtype, quantize)
    if tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    with torch.device("meta"):  # shapes only, no memory
        llama = Llama(config, tied=tied, tokenizer=tokenizer)
    for name, tensor in tensors.items():
        holder = llama.get_submodule(name.removesuffix(".weight"))
        holder.weight = fast.fast_weight(name, tensor)
    if tied:  # one parameter with two names
        llama.output.weight = llama.tok_embeddings.weight
    whole, llama.note = folder.resolve(), note
    llama.name = (whole.parent if whole.name == "original" else whole).name
    return fast.prepare(llama.requires_grad_(False).eval())
