r"""Speed, asked for once: `prepare` chooses how a model multiplies.

Nothing is timed: the processor's instructions decide, so a machine always
chooses the same ways. The compiled decode step is in `step`.
"""

import torch
from torch import nn

from ..checks import expect
from ..gqa import sdpa_attention
from .one_query import attend_in_pieces
from .quantize import KINDS, check_kind
from .weight import SIXTEEN_BITS, SIZES, WAYS, FastWeight

__all__ = ["KINDS", "FastWeight", "default_ways", "prepare", "release"]

LARGE = 2**20  # numbers in a matrix; below, all ways are fast
ATTENTION = {"sdpa": sdpa_attention, "pieces": attend_in_pieces}


def prepare(llama, *, quantize=None, repack=False, ways=None):
    r"""Choose how a model multiplies, once, and prepare its weights for it.

    `load` calls it without options: that takes no time and no memory.

    llama: its matrices are exchanged in place; returns it.
    quantize: "int8" keeps 8 bits per number; "int4" 4 bits in the blocks, 8
    in the embedding and the output; None keeps them as they are.
    repack: make a second copy of 16-bit weights on a CPU, in oneDNN's order,
    in seconds and for speed. Repeat it after writing to the weights.
    ways: `llama.ways` of this or another model, to choose the same: the
    "weights", how to multiply "1 row", "few rows" (2 to 16) and "more rows",
    and the "attention".
    Raises ValueError for an unknown kind or way, or for weights that are
    quantized in another way already.
    """
    ok = llama.processes is None
    expect(ok, "llama", "a part of a model", "a whole one: `load` prepares it")
    if quantize is None and ways and ways.get("weights") in KINDS:
        quantize = ways["weights"]
    if quantize is not None:
        check_kind(quantize)
        expected = f"{llama.quantized}, as the weights are; load them again"
        same = llama.quantized in (None, quantize)
        expect(same, "quantize", quantize, expected)
    kind = quantize or llama.quantized
    if ways is None:
        ways = default_ways(llama.device, llama.dtype, kind, repack)
    check_ways(ways, kind or f"{llama.dtype}"[6:])
    release(llama)
    made = {}  # by id: a tied output stays one with its embedding
    for name, w in llama.weights().items():
        if id(w) not in made:
            made[id(w)] = w, fast_weight(name, w, quantize, ways)
        holder = llama.get_submodule(name.removesuffix(".weight"))
        holder.weight = made[id(w)][1]
    llama.ways, llama.attend = dict(ways), ATTENTION[ways["attention"]]
    return llama


def fast_weight(name: str, w, quantize=None, ways=None) -> nn.Parameter:
    """Return a tensor's parameter: a FastWeight, if it gains from that.

    Outside of the blocks, by Meta's name, no matrix has 4 bits.
    """
    gains = ways is not None and {ways[n] for n in SIZES} != {"linear"}
    gains = gains and w.dtype in SIXTEEN_BITS and w.device.type == "cpu"
    gains = gains and w.dim() == 2 and w.numel() >= LARGE
    kind = None if getattr(w, "kind", None) else quantize
    if kind and not name.startswith("layers."):
        kind = "int8"
    if isinstance(w, FastWeight) and not kind:
        made = FastWeight(w.numbers, w.scale, ways)
    elif w.dim() == 2 and (gains or kind):
        made = FastWeight.of(w, kind, ways)
    else:
        return nn.Parameter(w, w.requires_grad)
    # what nn.Parameter(made) does, without importing torch.distributed
    made.requires_grad_(w.requires_grad and not kind)._is_param = True
    made.make_copy()
    return made


def default_ways(device, dtype, kind=None, repack=False) -> dict[str, str]:
    """Return the ways that suit this processor and weights."""
    on_cpu = torch.device(device).type == "cpu"
    sixteen_bits = on_cpu and dtype in SIXTEEN_BITS
    ways = ["linear"] * 3
    if kind and on_cpu:
        few = sixteen_bits and has_kernel(kind, dtype)
        ways = ["kernel" if few else "row blocks"] * 2 + ["row blocks"]
    elif sixteen_bits and not has_instructions(dtype):
        ways = ["linear", "row blocks", "row blocks"]
    elif sixteen_bits:
        ways = ["packed"] * 3 if repack else ways
    ways = {"weights": kind or f"{dtype}"[6:], **dict(zip(SIZES, ways))}
    return ways | {"attention": "pieces" if sixteen_bits else "sdpa"}


def has_instructions(dtype) -> bool:
    """Return whether the processor has instructions for 16-bit numbers."""
    if not torch.backends.mkldnn.is_available():  # PyTorch on Apple's chips
        return False
    onednn = torch.ops.mkldnn
    if dtype == torch.float16:
        return onednn._is_mkldnn_fp16_supported()
    # oneDNN takes bfloat16 on every x86 processor with AVX-512; without
    # further instructions that is slow
    is_x86 = "AVX" in torch.backends.cpu.get_cpu_capability()
    fast = not is_x86 or torch.cpu._is_avx512_bf16_supported()
    return fast and onednn._is_mkldnn_bf16_supported()


def has_kernel(kind: str, dtype) -> bool:
    """Return whether PyTorch has a kernel for quantized weights here."""
    eye, ways = torch.eye(32, 64, dtype=dtype), {SIZES[0]: "kernel"}
    w = FastWeight.of(eye, kind, ways)
    try:
        w.make_copy()
        return bool(WAYS["kernel"](w.rows()[:1], w)[0, 0] > 0.9)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def check_ways(ways, weights: str) -> None:
    """Raise ValueError unless these are ways for such weights."""
    known = {"weights": [weights], **dict.fromkeys(SIZES, list(WAYS))}
    known["attention"] = list(ATTENTION)
    for key in known | ways:
        found, among = ways.get(key), known.get(key, ["no such key"])
        expected = f"one of {among}, as in llama.ways"
        expect(found in among, f"ways[{key!r}]", found, expected)


def release(llama) -> None:
    """Free the compiled step with its cache, and repacked weights."""
    llama.compiled = None
    if "packed" in llama.ways.values():
        llama.ways = default_ways(llama.device, llama.dtype)
        for w in llama.weights().values():
            if isinstance(w, FastWeight):
                w.ways, w.copy = llama.ways, None
