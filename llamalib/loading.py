r"""Open a checkpoint folder as a model; describe a model in a line."""

from .model import Llama


def describe(llama: Llama) -> str:
    """Return a line with a model's name, sizes, dtype and device."""
    c, dtype = llama.config, str(llama.dtype)
    kind = getattr(llama.layers[0].attention.wq.weight, "kind", None)
    if kind:
        dtype = f"{kind} for {dtype}"
    if llama.note and llama.dtype.itemsize == 2:  # not after .float()
        dtype = f"{dtype} ({llama.note})"
    return (
        f"{llama.name or 'random weights'}: L={c.n_layers}, D={c.dim}, "
        f"H={c.n_heads}, KV={c.n_kv_heads}, F={c.hidden_dim}, "
        f"V={c.vocab_size}, {dtype}, {llama.device}"
    )


def load(
    path=None, *, device=None, dtype=None, quantize=None, check=False,
    mesh=None, keep=None,
) -> Llama:
    r"""Open a checkpoint folder as a model that is ready to run.

    The folder holds Meta's original files, in one shard or several, or
    Hugging Face's. Pickled code is never executed.
    path: a folder; None: see `find_checkpoint`.
    device: "cuda", "mps", "cpu"…; None: $LLAMA_DEVICE, or the first.
    dtype: torch.bfloat16, float16 or float32; None keeps the file's dtype,
    or float16 if the GPU lacks bfloat16. See `placing.choose_dtype`.
    quantize: "int8", "int4" or None, see `fast.prepare`.
    check: whether to compare checksums and require finite numbers now.
    mesh, keep: tensor parallelism, see `llamalib.parallel`.

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
    llama = meta.empty_llama(config, tied)
    for name, tensor in tensors.items():
        holder = llama.get_submodule(name.removesuffix(".weight"))
        holder.weight = fast.fast_weight(name, tensor)
    if tied:  # one parameter with two names
        llama.output.weight = llama.tok_embeddings.weight
    llama.tokenizer, llama.note, whole = tokenizer, note, folder.resolve()
    llama.name = (whole.parent if whole.name == "original" else whole).name
    return fast.prepare(llama.requires_grad_(False).eval())
