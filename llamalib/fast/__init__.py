r"""Speed, asked for once: `prepare` chooses how a model multiplies.

Nothing is timed: the processor's instructions decide, so a machine always
chooses the same ways. The compiled decode step is in `step`.
"""

import torch
from torch import nn

from .. import model
from ..checks import expect
from ..model import Attention, FeedForward, Llama, RMSNorm, TransformerBlock
from ..probe import REPLACEABLE
from .weight import SIXTEEN_BITS, SIZES, WAYS, FastWeight

__all__ = [
    "KINDS",
    "FastWeight",
    "check_compile",
    "default_ways",
    "prepare",
    "quantized",
    "release",
    "weights",
]

KINDS = ("int8", "int4")

LARGE = 2**20  # numbers in a matrix; below, all ways are fast

ORDINARY = (
    Llama, TransformerBlock, Attention, FeedForward, RMSNorm,
    nn.ModuleList, nn.Linear, nn.Embedding,
)  # fmt: skip


def prepare(llama, *, quantize=None, repack=False, ways=None):
    r"""Choose how a model multiplies, once, and prepare its weights for it.

    `load` calls it without options: that takes no time and no memory.

    llama: its matrices are exchanged in place; returns it.
    quantize: "int8" keeps 8 bits per number; "int4" 4 bits in the blocks, 8
    in the embedding and the output; None keeps them as they are.
    repack: make a second copy of 16-bit weights on a CPU, in oneDNN's order,
    in seconds and for speed. Repeat it after writing to the weights.
    ways: `llama.ways` of this or another model, to choose the same: the
    "weights", and how to multiply "1 row", "few rows" (2 to 16) and "more
    rows".
    Raises ValueError for an unknown kind or way, or for weights that are
    quantized in another way already.
    """
    if getattr(llama, "processes", None):
        raise ValueError("prepare() does not support tensor-parallel models")
    if quantize is None and ways and ways.get("weights") in KINDS:
        quantize = ways["weights"]
    if quantize is not None:
        check_kind(quantize)
        expected = f"{quantized(llama)}, as the weights are; load them again"
        same = quantized(llama) in (None, quantize)
        expect(same, "quantize", quantize, expected)
    kind = quantize or quantized(llama)
    if ways is None:
        ways = default_ways(llama.device, llama.dtype, kind, repack)
    check_ways(ways, kind or f"{llama.dtype}"[6:])
    release(llama)
    made = {}  # by id: a tied output stays one with its embedding
    for name, w in weights(llama).items():
        if id(w) not in made:
            made[id(w)] = w, fast_weight(name, w, quantize, ways)
        holder = llama.get_submodule(name.removesuffix(".weight"))
        holder.weight = made[id(w)][1]
    llama.ways = dict(ways)
    return llama


def weights(llama) -> dict[str, nn.Parameter]:
    """Return the parameters by Meta's name; a tied one has two names."""
    return dict(llama.named_parameters(remove_duplicate=False))


def quantized(llama) -> str | None:
    """Return how the blocks' matrices are quantized: int8, int4 or None."""
    return getattr(llama.layers[0].attention.wq.weight, "kind", None)


def check_kind(kind) -> None:
    """Raise ValueError unless kind is one of KINDS."""
    expect(kind in KINDS, "quantize", kind, "'int8' or 'int4'")


def check_compile(llama) -> None:
    """Raise ValueError if `generate` cannot compile this model's step.

    Raise RuntimeError on a CPU without a C++ compiler.
    """
    problem = None
    if quantized(llama):
        problem = "quantized weights"
    elif getattr(llama, "processes", None):
        problem = "several processes"
    elif llama.device.type == "mps":
        problem = "a Mac's GPU"
    elif not all(map(is_ordinary, llama.modules())):
        problem = "hooks or exchanged modules"
    elif not all(map(is_original, REPLACEABLE)):
        problem = "replaced functions"
    if problem:
        raise ValueError(
            f"compile=True does not work with {problem} yet; use compile=False"
        )
    from .step import require_compiler

    require_compiler(llama.device)


def is_original(name: str) -> bool:
    """Return whether a function of the model is not replaced (`break_it`)."""
    found = model
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "__module__", "") == model.__name__


def is_ordinary(module: nn.Module) -> bool:
    """Return whether a module is one that the compiled step replaces."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return type(module) in ORDINARY and not hooks


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
    return {"weights": kind or f"{dtype}"[6:], **dict(zip(SIZES, ways))}


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
    for key in known | ways:
        found, among = ways.get(key), known.get(key, ["no such key"])
        expected = f"one of {among}, as in llama.ways"
        expect(found in among, f"ways[{key!r}]", found, expected)


def release(llama) -> None:
    """Free the compiled step with its cache, and repacked weights."""
    llama.compiled = None
    if "packed" in getattr(llama, "ways", {}).values():
        llama.ways = default_ways(llama.device, llama.dtype)
        for w in weights(llama).values():
            if isinstance(w, FastWeight):
                w.ways, w.copy = llama.ways, None
