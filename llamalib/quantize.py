r"""Weights rounded to 8 or 4 bits.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers; `...` any leading
dimensions. In code, `F` is torch.nn.functional. A matrix (out, in) maps x to
x @ w.T.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model import Llama

__all__ = [
    "quantize_rows",
    "quantize_groups",
    "pack_nibbles",
    "unpack_nibbles",
    "GROUP",
    "FEW",
    "PART",
    "QuantizedLinear",
    "QuantizedEmbedding",
    "quantize_model",
]


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    r"""Round each row of w (M, K) to 8 bits, scaled by its largest number.

    Returns q (M, K) int8, -127 … 127, and scale (M,) in the dtype of w; row
    m stands for q[m] · scale[m].
    """
    floats = w.float()  # (M, K)
    scale = (floats.abs().amax(dim=-1) / 127).to(w.dtype)  # (M,)
    scale = torch.where(scale == 0, 1, scale)  # a row of zeros
    q = (floats / scale.float()[:, None]).round()  # (M, K)
    return q.clamp(-127, 127).to(torch.int8), scale


def quantize_groups(w: Tensor, g: int = 32) -> tuple[Tensor, Tensor]:
    r"""Round w (M, K) to 4 bits; each g numbers of a row share a scale.

    Returns q (M, K) int8, -7 … 7, and scale (M, K/g) in the dtype of w.
    Raises ValueError if K is not a multiple of g.
    """
    if w.shape[-1] % g:
        raise ValueError(
            f"rows have {w.shape[-1]} numbers; expected a multiple of g = {g}"
        )
    groups = w.float().unflatten(-1, (-1, g))  # (M, K/g, g)
    scale = (groups.abs().amax(dim=-1) / 7).to(w.dtype)  # (M, K/g)
    scale = torch.where(scale == 0, 1, scale)  # a group of zeros
    q = (groups / scale.float()[..., None]).round()  # (M, K/g, g)
    return q.clamp(-7, 7).to(torch.int8).flatten(-2), scale


def pack_nibbles(q: Tensor) -> Tensor:
    """Pack q (M, K), -8 … 7, as (M, K/2) uint8, two numbers in each byte.

    The first of two is in the lower four bits. 8 is added to each.
    """
    low, high = (q + 8).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
    return low | (high << 4)  # (M, K/2)


def unpack_nibbles(packed: Tensor) -> Tensor:
    """Undo `pack_nibbles`: (M, K/2) uint8 to (M, K) int8."""
    pairs = torch.stack((packed & 15, packed >> 4), dim=-1)  # (M, K/2, 2)
    return pairs.flatten(-2).to(torch.int8) - 8


GROUP = 32  # numbers that share a scale, in 4 bits
FEW = {8: 20, 4: 112}  # rows of x, by bits: for more, weights are converted
PART = {8: 4096, 4: 1024}  # rows of weights that a CPU converts at a time


class QuantizedLinear(nn.Module):
    r"""A linear layer without bias whose weights have 8 or 4 bits.

    weight: (M, K) floats, rounded here.
    bits: 8, with a scale for each row; or 4, with a scale for each 32
    numbers. It is 8 if K is not a multiple of 32.
    `numbers` is (M, K) int8, or (M, K/2) uint8 (`pack_nibbles`); `scale` is
    (M,) or (M, K/32), in the dtype of `weight`. Neither can be trained.
    Whoever changes them in place must set `packed`, a copy, to None.
    """

    packed: Any  # for PyTorch's 4-bit kernel: a tensor, or None
    scales: Any

    def __init__(self, weight: Tensor, bits: int = 8):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bits = 8 if self.in_features % GROUP else bits
        quantize = quantize_rows if self.bits == 8 else quantize_groups
        # some rows at a time: they are float32 in between
        parts = [quantize(rows) for rows in weight.detach().split(4096)]
        numbers, scale = map(torch.cat, zip(*parts, strict=True))
        numbers = numbers if self.bits == 8 else pack_nibbles(numbers)
        self.numbers = nn.Parameter(numbers, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)
        for name in ("packed", "scales"):
            self.register_buffer(name, None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:  # (..., K) -> (..., M)
        rows = x.reshape(-1, self.in_features)  # (n, K)
        M = self.out_features
        if self.has_kernel(rows):
            out = self.kernel(rows)
        elif rows.device.type == "cpu" and not torch.compiler.is_compiling():
            # floats of a whole matrix would need new memory in each call
            n = PART[self.bits]
            parts = [slice(m, m + n) for m in range(0, M, n)]
            out = torch.cat([self.product(rows, part) for part in parts], -1)
        else:
            out = self.product(rows)
        return out.view(*x.shape[:-1], M)

    def product(self, rows: Tensor, part: slice = slice(None)) -> Tensor:
        """Convert the weights, or some of their rows, and multiply."""
        if self.bits == 8:  # the scales come last
            numbers = self.numbers[part].type_as(rows)
            return F.linear(rows, numbers) * self.scale[part]
        return F.linear(rows, self.dequantize(part))

    def dequantize(self, part: slice = slice(None)) -> Tensor:
        """Return the weights as floats, (M, K), or some of their rows."""
        numbers, scale = self.numbers[part], self.scale[part]
        if self.bits == 8:
            return numbers * scale[:, None]
        groups = unpack_nibbles(numbers).unflatten(-1, (-1, GROUP))
        return (groups * scale[..., None]).flatten(-2)

    def has_kernel(self, rows: Tensor) -> bool:
        """Return whether PyTorch has a fast kernel for this product."""
        fits = self.out_features % 16 == 0 and self.in_features % 32 == 0
        learns = rows.requires_grad and torch.is_grad_enabled()
        is_bfloat16 = rows.dtype == self.scale.dtype == torch.bfloat16
        few = rows.device.type == "cpu" and 0 < len(rows) <= FEW[self.bits]
        return few and is_bfloat16 and fits and not learns

    def kernel(self, rows: Tensor) -> Tensor:
        """Multiply by PyTorch's kernel: (n, K) to (n, M)."""
        if self.bits == 8:
            return torch._weight_int8pack_mm(rows, self.numbers, self.scale)
        if self.packed is None:
            self.pack()
        multiply = torch._weight_int4pack_mm_for_cpu
        return multiply(rows, self.packed, GROUP, self.scales)

    def pack(self) -> None:
        """Make a second copy, in the order of PyTorch's 4-bit kernel."""
        numbers = unpack_nibbles(self.numbers).int() + 8  # 0 … 15
        self.packed = torch._convert_weight_to_int4pack_for_cpu(numbers, 1)
        scale = self.scale.T  # (K/32, M)
        self.scales = torch.stack((scale, torch.zeros_like(scale)), dim=-1)

    def _load_from_state_dict(self, *args) -> None:
        super()._load_from_state_dict(*args)
        self.packed = None  # it has the old numbers

    def extra_repr(self) -> str:
        """Return what `print` shows."""
        sizes = f"in_features={self.in_features}, "
        return f"{sizes}out_features={self.out_features}, bits={self.bits}"


class QuantizedEmbedding(nn.Module):
    """An embedding whose rows are those of a `QuantizedLinear` of 8 bits."""

    def __init__(self, linear: QuantizedLinear):
        super().__init__()
        self.numbers, self.scale = linear.numbers, linear.scale

    def forward(self, tokens: Tensor) -> Tensor:  # (...) -> (..., K)
        return self.numbers[tokens] * self.scale[tokens][..., None]


def quantize_model(llama: Llama, kind: str) -> Llama:
    r"""Quantize the matrices of a model in place, one by one; return it.

    kind: "int8", or "int4": 4 bits in the blocks, 8 bits in the embedding
    and the output.
    Raises ValueError for another kind, and for a model without an nn.Linear.
    """
    if kind not in ("int8", "int4"):
        raise ValueError(f"quantize must be 'int8' or 'int4', got {kind!r}")
    modules = llama.named_modules()
    names = [name for name, each in modules if type(each) is nn.Linear]
    if "output" not in names:
        raise ValueError("the model is quantized already; load it again")
    tied, embedding = llama.tied, llama.tok_embeddings.weight
    for name in names:
        bits = 4 if kind == "int4" and name != "output" else 8
        linear = QuantizedLinear(llama.get_parameter(f"{name}.weight"), bits)
        parent, _, own_name = name.rpartition(".")
        setattr(llama.get_submodule(parent), own_name, linear)
    # the last one was the output's
    rows = linear if tied else QuantizedLinear(embedding)
    llama.add_module("tok_embeddings", QuantizedEmbedding(rows))
    return llama
