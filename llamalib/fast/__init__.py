r"""Speed, asked for once: `prepare` chooses how a model multiplies.

It exchanges the matrices for one tensor class, `FastWeight`, says what it
chose (`llama.ways`), and accepts the same choice again. Nothing is timed:
the processor's instructions decide, so the same machine chooses the same
ways in every process. `step` holds the compiled decode step.
"""

import torch
from torch import nn

from ..gqa import sdpa_attention
from .one_query import attend_in_pieces
from .quantize import KINDS, check_kind
from .weight import SIXTEEN_BITS, WAYS, FastWeight

__all__ = ["KINDS", "FastWeight", "prepare", "release"]

LARGE = 2**20  # numbers in a matrix; below, all ways are fast
SIZES = "1 row", "few rows", "more rows"
ATTENTION = {"sdpa": sdpa_attention, "pieces": attend_in_pieces}


def prepare(llama, *, quantize=None, repack=False, ways=None):
    r"""Choose how a model multiplies, once, and prepare its weights for it.

    `load` calls it without options: that takes no time and no memory.

    Args:
        llama: a Llama; its matrices are exchanged in place.
        quantize: "int8" keeps 8 bits per number; "int4" 4 bits in the
            blocks, 8 in the embedding and the output. None: as they are.
        repack: on a CPU with 16-bit instructions, make a second copy of
            16-bit weights in oneDNN's order, in seconds. Decoding, prompts
            and batches are then faster. Call it again after writing to them.
        ways: `llama.ways` of this or another model, to choose the same.

    Returns:
        llama. `llama.ways` names its "weights", how it multiplies "1 row",
        "few rows" (2 to 16) and "more rows", and its "attention".

    Raises:
        ValueError: for an unknown kind or way, or for weights that are
            quantized in another way already.
    """
    if quantize is None and ways and ways.get("weights") in KINDS:
        quantize = ways["weights"]
    if quantize is not None:
        check_kind(quantize)
        if llama.quantized not in (None, quantize):
            raise ValueError(
                f"the weights are {llama.quantized}, and quantize is "
                f"{quantize!r}; load the model again with that"
            )
    kind = quantize or llama.quantized
    if ways is None:
        ways = default_ways(llama.device, llama.dtype, kind, repack)
    check_ways(ways, kind or dtype_name(llama.dtype))
    release(llama)
    exchange(llama, quantize, ways)
    llama.ways, llama.attend = dict(ways), ATTENTION[ways["attention"]]
    return llama


def exchange(llama, quantize, ways) -> None:
    """Put a FastWeight in place of each matrix that gains from it."""
    made = {}  # by id: a tied output stays one with its embedding
    for name, holder in llama._holders.items():
        w = holder.weight
        if id(w) not in made:
            made[id(w)] = w, fast_weight(name, w, quantize, ways)
        holder.weight = made[id(w)][1]


def fast_weight(name: str, w, quantize=None, ways=None) -> nn.Parameter:
    """Return the parameter for a tensor: a FastWeight, if it gains from it.

    Outside of the blocks, by Meta's name, no matrix has 4 bits.
    """
    gains = w.dtype in SIXTEEN_BITS and w.device.type == "cpu"
    gains = gains and w.dim() == 2 and w.numel() >= LARGE
    kind = None if isinstance(w, FastWeight) and w.kind else quantize
    if kind and not name.startswith("layers."):
        kind = "int8"
    if isinstance(w, FastWeight) and not kind:
        made = FastWeight(w.numbers, w.scale, ways)
    elif w.dim() == 2 and (gains or kind):
        made = FastWeight.of(w, kind, ways)
    else:
        made = w
    made = nn.Parameter(made, w.requires_grad and not kind)
    if isinstance(made, FastWeight):
        made.make_copy()
    return made


def default_ways(device, dtype, kind=None, repack=False) -> dict[str, str]:
    """Return the ways that suit this processor and weights."""
    on_cpu = torch.device(device).type == "cpu"
    sixteen_bits = on_cpu and dtype in SIXTEEN_BITS
    few = ["linear"] * 3
    if kind and on_cpu:
        few = ["row blocks"] * 3
        if sixteen_bits and has_kernel(kind, dtype):
            few[:2] = ["kernel"] * 2
    elif sixteen_bits and not multiplies(dtype):
        few = ["linear", "row blocks", "row blocks"]
    elif sixteen_bits:
        few = ["packed"] * 3 if repack else ["columns", "linear", "linear"]
    ways = {"weights": kind or dtype_name(dtype), **dict(zip(SIZES, few))}
    return ways | {"attention": "pieces" if sixteen_bits else "sdpa"}


def dtype_name(dtype) -> str:
    """Return "bfloat16", …"""
    return str(dtype).removeprefix("torch.")


def multiplies(dtype) -> bool:
    """Return whether the processor has instructions for 16-bit numbers."""
    ask = torch.ops.mkldnn
    if dtype == torch.float16:
        return ask._is_mkldnn_fp16_supported()
    # oneDNN takes bfloat16 on every x86 processor with AVX-512, but without
    # further instructions it is slow there
    is_x86 = "AVX" in torch.backends.cpu.get_cpu_capability()
    fast = not is_x86 or torch.cpu._is_avx512_bf16_supported()
    return fast and ask._is_mkldnn_bf16_supported()


def has_kernel(kind: str, dtype) -> bool:
    """Return whether PyTorch has a kernel for quantized weights here."""
    w = FastWeight.of(torch.eye(32, 64, dtype=dtype), kind, {"1 row": "kernel"})
    try:
        w.make_copy()
        return bool(WAYS["kernel"](w.rows()[:1], w)[0, 0] > 0.9)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def check_ways(ways, weights: str) -> None:
    """Raise ValueError unless these are ways for such weights."""
    known = {"weights": (weights,)} | {size: tuple(WAYS) for size in SIZES}
    known["attention"] = tuple(ATTENTION)
    for key in {**known, **ways}:
        found, expected = ways.get(key), known.get(key, "no such key")
        if found not in expected:
            raise ValueError(
                f"ways[{key!r}] is {found!r}; expected {expected}, as in "
                "llama.ways"
            )


def release(llama) -> None:
    """Free the compiled step with its cache, and repacked weights."""
    llama.compiled = None
    if "packed" in llama.ways.values():
        llama.ways = default_ways(llama.device, llama.dtype)
        for w in llama.weights().values():
            if isinstance(w, FastWeight):
                w.ways, w.copy = llama.ways, None
