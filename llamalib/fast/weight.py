r"""One tensor class for 16-bit, int8 and int4 weights.

`F.linear` multiplies by a `FastWeight` in a way that was chosen beforehand,
`F.embedding` looks rows up, and every other function sees the floats.
`n` rows of x, `K` numbers per row, `M` rows of w.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .. import quantize
from ..checks import expect
from ..quantize import unpack_nibbles

GROUP = 32  # numbers that share a scale, in int4
BLOCK = 256  # rows of w converted at once: they stay in the CPU's caches
FEW = 16  # the most rows of x that PyTorch's int8 and int4 kernels are for
SIZES = ("1 row", "few rows", "more rows")
SIXTEEN_BITS = (torch.bfloat16, torch.float16)
plain = torch._C.DisableTorchFunctionSubclass


class FastWeight(Tensor):
    r"""A weight matrix that `F.linear` multiplies by in a chosen way.

    Shape, dtype and device are those of the matrix of floats. A quantized
    one can only be written as a whole.
    numbers: (M, K) floats or int8, or (M, K/2) uint8 (`pack_nibbles`).
    scale: None, or (M,) per row, or (M, K/GROUP).
    ways: one of WAYS for each of SIZES.
    copy: a second copy in a kernel's own order, or None.
    """

    @staticmethod
    def __new__(cls, numbers: Tensor, scale: Tensor | None = None, ways=None):
        M, columns = numbers.shape
        K = 2 * columns if numbers.dtype == torch.uint8 else columns
        like = numbers if scale is None else scale
        return Tensor._make_wrapper_subclass(
            cls, (M, K), dtype=like.dtype, device=like.device
        )

    def __init__(self, numbers, scale=None, ways=None):
        self.numbers, self.scale, self.ways = numbers, scale, ways or {}
        self.copy = None

    @classmethod
    def of(cls, w: Tensor, kind: str | None = None, ways=None):
        """Wrap a matrix of floats, or quantize it to "int8" or "int4".

        It has 8 bits if K is not a multiple of GROUP. Raise ValueError for
        anything else.
        """
        is_floats = w.dim() == 2 and w.is_floating_point()
        expect(is_floats, "w", (w.dtype, *w.shape), "a matrix of floats")
        if kind is None:
            return cls(w.detach(), None, ways)
        expect(kind in ("int8", "int4"), "kind", kind, "'int8' or 'int4'")
        in_groups = kind == "int4" and w.shape[-1] % GROUP == 0
        rows, groups = quantize.quantize_rows, quantize.quantize_groups
        convert = groups if in_groups else rows
        blocks = w.detach().split(BLOCK)  # each is float32 in between
        numbers, scales = zip(*map(convert, blocks))
        if in_groups:
            numbers = map(quantize.pack_nibbles, numbers)
        return cls(torch.cat(list(numbers)), torch.cat(scales), ways)

    @property
    def kind(self) -> str | None:
        """Return "int8" or "int4", or None if floats are stored."""
        if self.scale is None:
            return None
        return "int4" if self.numbers.dtype == torch.uint8 else "int8"

    @property
    def nbytes(self) -> int:
        """Return the bytes of the numbers and of their scales."""
        return self.numbers.nbytes + (self.scale.nbytes if self.kind else 0)

    def rows(self, which=slice(None)) -> Tensor:
        """Return the rows of a slice or of ids (...), as floats (..., K)."""
        numbers = self.numbers[which]
        if self.kind is None:
            return numbers
        scale = self.scale[which]
        if self.kind == "int8":
            return numbers.to(self.dtype) * scale[..., None]
        groups = unpack_nibbles(numbers).unflatten(-1, (scale.shape[-1], -1))
        return (groups.to(self.dtype) * scale[..., None]).flatten(-2)

    def make_copy(self) -> None:
        """Make the second copy that its way for one row needs, if any."""
        make = COPIES.get(self.ways.get(SIZES[0]))
        tensors = make and make(self)
        if tensors is not None:
            self.copy = SecondCopy(tensors, self.writes())

    def writes(self) -> int:
        """Return how often it was written to; inference tensors forget."""
        return 0 if self.is_inference() else self._version

    def map(self, function, dtype=None):
        """Return one of the results of a function of numbers and scale."""
        numbers, scale, dtype = self.numbers, self.scale, dtype or self.dtype
        if scale is None:
            return FastWeight(function(numbers).to(dtype), None, self.ways)
        scale = function(scale).to(dtype)
        return FastWeight(function(numbers), scale, self.ways)

    def __repr__(self) -> str:
        kind = self.kind or str(self.dtype).removeprefix("torch.")
        return f"FastWeight({tuple(self.shape)}, {kind})"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        product = func is F.linear and args[2:] in ((), (None,)) and not kwargs
        if product or func is F.embedding and not kwargs["max_norm"]:
            x, w = args[:2]
            learns = x.requires_grad or w.requires_grad
            learns = learns and torch.is_grad_enabled()
            if not (learns or isinstance(x, cls)):
                return multiply(x, w) if product else w.rows(x)
        if func is Tensor.__setitem__ and getattr(args[0], "kind", None):
            refuse(func.__name__)
        if func in OF_MEMORY and args[0].kind is None:
            return func(args[0].numbers, *args[1:], **kwargs)
        with plain():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        aten, kwargs, w = torch.ops.aten, kwargs or {}, args and args[0]
        if func in (aten.detach.default, aten.clone.default):
            made = w.map(lambda t: func(t, **kwargs))
            if func is aten.detach.default:  # the same memory
                made.copy = w.copy
            return made
        dtype, device = kwargs.get("dtype"), kwargs.get("device")
        to_floats = dtype is None or dtype.is_floating_point
        if func is aten._to_copy.default and to_floats:
            return w.map(lambda t: t.to(device, copy=True), dtype)
        if func._schema.is_mutable and isinstance(w, cls):
            if w.kind is None:
                func(*as_floats(args), **as_floats(kwargs))
                return w
            return write(*args) if func is aten.copy_.default else refuse(func)
        return func(*as_floats(args), **as_floats(kwargs))

    def __tensor_flatten__(self):  # tells PyTorch what it is made of
        return ["numbers"] + ["scale"] * (self.scale is not None), self.ways

    @classmethod
    def __tensor_unflatten__(cls, parts, ways, size, stride):
        return cls(parts["numbers"], parts.get("scale"), ways)


class SecondCopy(NamedTuple):
    """A weight in a kernel's own order; a copied model does without."""

    tensors: Tensor | tuple[Tensor, Tensor]
    writes: int  # to the weight, when it was made

    def __reduce__(self):
        return type(None), ()


# asked of a 16-bit weight's memory
OF_MEMORY = (Tensor.data_ptr, Tensor.numpy, Tensor.untyped_storage)


def as_floats(arguments):
    """Return the arguments, however nested, without a FastWeight."""
    return tree_map_only(FastWeight, FastWeight.rows, arguments)


def write(to: FastWeight, source, *_):
    """Copy a quantized weight of the same kind and shape."""
    same = isinstance(source, FastWeight) and source.kind == to.kind
    if not same or source.shape != to.shape:
        refuse("copy_")
    to.numbers.copy_(source.numbers)
    to.scale.copy_(source.scale)
    if to.copy is not None:
        to.make_copy()
    return to


def refuse(function):
    """Raise RuntimeError: rounding would change what was written."""
    whole = "made as a whole, by FastWeight.of or load(quantize=…)"
    raise RuntimeError(f"{function}: a quantized weight can only be {whole}")


def multiply(x: Tensor, w: FastWeight) -> Tensor:
    """Compute x (..., K) @ w.T in the way chosen for this number of rows."""
    rows = x.reshape(-1, x.shape[-1])  # (n, K)
    n, way = len(rows), "linear"
    if x.device.type == "cpu" and n:
        way = w.ways.get(SIZES[(n > 1) + (n > FEW)], "linear")
        if w.kind and (way != "kernel" or not fits_kernel(w)):
            way = "row blocks"
        elif way == "packed" and (not w.copy or w.copy.writes != w.writes()):
            way = "linear"
    return WAYS[way](rows, w).reshape(*x.shape[:-1], len(w))


def row_blocks(x: Tensor, w: FastWeight) -> Tensor:
    """Convert a block of w's rows at a time: some CPUs prefer float32."""
    out = x.new_empty(len(x), len(w))  # (n, M)
    dtype = x.dtype if w.kind else torch.float32
    x = x.to(dtype)
    for start in range(0, len(w), BLOCK):
        block = slice(start, start + BLOCK)
        out[:, block] = F.linear(x, w.rows(block).to(dtype))
    return out


def kernel(x: Tensor, w: FastWeight) -> Tensor:
    """Multiply by PyTorch's int8 or int4 kernel, making no floats."""
    if w.kind == "int8":
        return torch._weight_int8pack_mm(x, w.numbers, w.scale)
    numbers, scales = w.copy.tensors
    return torch._weight_int4pack_mm_for_cpu(x, numbers, GROUP, scales)


def fits_kernel(w: FastWeight) -> bool:
    """Return whether PyTorch's kernels take w; others end the process."""
    fits = len(w) % 16 == 0 and w.shape[1] % 32 == 0
    has_order = w.kind == "int8" or w.copy is not None
    return fits and has_order and w.dtype in SIXTEEN_BITS


def int4_order(w: FastWeight) -> tuple[Tensor, Tensor] | None:
    """Return numbers and scales as the int4 kernel reads them, or None."""
    if w.kind != "int4" or len(w) % 16 or w.dtype not in SIXTEEN_BITS:
        return None
    convert = torch._convert_weight_to_int4pack_for_cpu
    blocks = w.numbers.split(BLOCK)  # its numbers are 0 … 15, as int32
    numbers = [convert(unpack_nibbles(b).int() + 8, 1) for b in blocks]
    scale = w.scale.T  # (K/g, M); what is added is 0
    scales = torch.stack([scale, torch.zeros_like(scale)], dim=-1)
    return torch.cat(numbers), scales


def packed(x: Tensor, w: FastWeight) -> Tensor:
    """Multiply by the copy in oneDNN's own order."""
    product = torch.ops.mkldnn._linear_pointwise
    return product(x, w.copy.tensors, None, "none", [], "")


WAYS = {
    "linear": lambda x, w: F.linear(x, w.rows()),
    "row blocks": row_blocks,
    "packed": packed,
    "kernel": kernel,
}
COPIES = {  # for the ways that need one
    "packed": lambda w: torch.ops.mkldnn._reorder_linear_weight(w.numbers, 1),
    "kernel": int4_order,
}
