r"""One tensor class for 16-bit, int8 and int4 weights.

`F.linear` multiplies by a `FastWeight` in a way that was chosen beforehand,
`F.embedding` looks rows up, and every other function sees the floats. So the
functions of the notebooks say `F.linear` and nothing else.

Shapes: `n` rows of x, `K` numbers per row, `M` rows of w.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from .quantize import (
    check_kind,
    pack_nibbles,
    quantize_groups,
    quantize_rows,
    unpack_nibbles,
)

GROUP = 32  # numbers that share a scale, in int4
BLOCK = 256  # rows of w converted at once: they stay in the CPU's caches
FEW = 16  # the most rows of x that PyTorch's int8 and int4 kernels are for
SIXTEEN_BITS = (torch.bfloat16, torch.float16)
plain = torch._C.DisableTorchFunctionSubclass


class FastWeight(Tensor):
    r"""A weight matrix that `F.linear` multiplies by in a chosen way.

    Shape, dtype and device are those of the matrix of floats; `nbytes` is
    what one decode step reads. A quantized matrix can only be written as a
    whole. A write to a 16-bit one makes its second copy stale; products then
    do without that copy.

    Attributes:
        numbers: (M, K) floats or int8, or (M, K/2) uint8, see
            `pack_nibbles`.
        scale: None, or (M,) per row, or (M, K/GROUP).
        ways: how to multiply 1 row, few rows and more, see `WAYS`.
        copy: a second copy in a kernel's own order, or None.
    """

    @staticmethod
    def __new__(cls, numbers: Tensor, scale: Tensor | None = None, ways=None):
        floats = numbers if scale is None else scale
        M, columns = numbers.shape
        return Tensor._make_wrapper_subclass(
            cls,
            (M, 2 * columns if numbers.dtype == torch.uint8 else columns),
            dtype=floats.dtype,
            device=floats.device,
        )

    def __init__(self, numbers, scale=None, ways=None):
        self.numbers, self.scale = numbers, scale
        self.ways, self.copy, self._version_of_copy = ways or {}, None, None

    @classmethod
    def of(cls, w: Tensor, kind: str | None = None, ways=None):
        r"""Wrap a matrix, or quantize it.

        Args:
            w: (M, K).
            kind: "int8" or "int4"; None keeps the floats. int8 is taken if
                K is not a multiple of GROUP.
            ways: see `WAYS`; None: the floats, multiplied by `F.linear`.

        Raises:
            ValueError: if w is not a matrix of floats, or kind is unknown.
        """
        if w.dim() != 2 or not w.is_floating_point():
            raise ValueError(
                f"w is {w.dtype} of shape {tuple(w.shape)}; expected a matrix "
                "of floats"
            )
        if kind is None:
            return cls(w.detach(), None, ways)
        check_kind(kind)
        in_groups = kind == "int4" and w.shape[-1] % GROUP == 0
        parts = []
        for block in w.detach().split(BLOCK):  # float32 in between
            q, scale = (quantize_groups if in_groups else quantize_rows)(block)
            parts.append((pack_nibbles(q) if in_groups else q, scale))
        numbers, scales = zip(*parts)
        return cls(torch.cat(numbers), torch.cat(scales), ways)

    @property
    def kind(self) -> str | None:
        """Return "int8" or "int4", or None if floats are stored."""
        if self.scale is None:
            return None
        return "int4" if self.numbers.dtype == torch.uint8 else "int8"

    @property
    def nbytes(self) -> int:
        """Return the bytes of the numbers and of their scales."""
        return self.numbers.nbytes + (self.kind and self.scale.nbytes or 0)

    def rows(self, which=slice(None)) -> Tensor:
        r"""Return some rows, by default all, as floats."""
        # small integers are exact in any dtype, and the product of two
        # numbers is rounded once: the floats are the same in every way
        numbers = self.numbers[which]
        if self.kind is None:
            return numbers
        scale = self.scale[which]
        if self.kind == "int8":
            return numbers.to(self.dtype) * scale[:, None]
        groups = unpack_nibbles(numbers).unflatten(-1, (scale.shape[-1], -1))
        return (groups.to(self.dtype) * scale[..., None]).flatten(-2)

    def make_copy(self) -> None:
        """Make the second copy that its way for one row needs, if any."""
        make = COPIES.get(self.ways.get("1 row"))
        self.copy = make and make(self)
        self._version_of_copy = None if self.is_inference() else self._version

    def fresh_copy(self):
        """Return the second copy, or None if the weights changed since."""
        if self.copy is not None and not self.is_inference():
            if self._version_of_copy != self._version:
                self.copy = None
        return self.copy

    def __repr__(self) -> str:
        kind = self.kind or str(self.dtype).removeprefix("torch.")
        return f"FastWeight({tuple(self.shape)}, {kind})"

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = rebuild(*self.state(torch.clone))
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return rebuild, self.state()

    def state(self, function=lambda t: t) -> tuple:
        """Return what `rebuild` makes an equal one of."""
        parts = self.numbers, self.scale
        parts = [None if t is None else function(t) for t in parts]
        learns = self.requires_grad
        is_parameter = isinstance(self, nn.Parameter)
        return *parts, self.ways, self.copy is not None, is_parameter, learns

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear and len(args) == 2 and not kwargs:
            x, w = args
            learns = x.requires_grad or w.requires_grad
            if isinstance(w, cls) and not isinstance(x, cls):
                if not (learns and torch.is_grad_enabled()):
                    return multiply(x, w)
        if func is Tensor.__setitem__ and isinstance(args[0], cls):
            if args[0].kind:
                refuse(func.__name__)
        if func in ON_NUMBERS and args[0].kind is None:
            return func(args[0].numbers, *args[1:], **(kwargs or {}))
        with plain():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Copies are of this class; all else is done with the floats."""
        aten, kwargs, w = torch.ops.aten, kwargs or {}, args and args[0]
        if func in (aten.detach.default, aten.clone.default):
            made = w.map(lambda t: func(t, **kwargs))
            if func is aten.detach.default:  # the same memory
                made.copy = w.copy
                made._version_of_copy = w._version_of_copy
            return made
        if func is aten.embedding.default:  # some rows, not all
            w, ids = args[:2]
            return w.rows(ids.flatten()).unflatten(0, ids.shape)
        dtype = kwargs.get("dtype")
        if func is aten._to_copy.default and (
            dtype is None or dtype.is_floating_point
        ):
            device = kwargs.get("device")
            return w.map(lambda t: t.to(device, copy=True), dtype)
        if func._schema.is_mutable and isinstance(w, cls):
            if w.kind:
                is_copy = func is aten.copy_.default
                return write(*args) if is_copy else refuse(func)
            func(*as_floats(args), **as_floats(kwargs))
            return w
        return func(*as_floats(args), **as_floats(kwargs))

    def map(self, function, dtype=None):
        """Return one of the results of a function of numbers and scale."""
        numbers, scale = self.numbers, self.scale
        if scale is None:
            numbers = function(numbers).to(dtype or self.dtype)
            return type(self)(numbers, None, self.ways)
        scale = function(scale).to(dtype or self.dtype)
        return type(self)(function(numbers), scale, self.ways)

    # with these two, PyTorch knows that it is made of other tensors

    def __tensor_flatten__(self):
        return ["numbers"] + ["scale"] * (self.scale is not None), self.ways

    @classmethod
    def __tensor_unflatten__(cls, parts, ways, size, stride):
        return cls(parts["numbers"], parts.get("scale"), ways)


# of a 16-bit weight these are asked of the memory itself
ON_NUMBERS = (Tensor.data_ptr, Tensor.numpy, Tensor.untyped_storage)


def rebuild(numbers, scale, ways, has_copy, is_parameter, learns):
    """Make the weight that was copied or pickled."""
    made = FastWeight(numbers, scale, ways)
    if has_copy:
        made.make_copy()
    return nn.Parameter(made, requires_grad=learns) if is_parameter else made


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
    raise RuntimeError(
        f"{function} would write to a quantized weight, which can only be "
        "made as a whole: by FastWeight.of, or load(quantize=…)"
    )


def multiply(x: Tensor, w: FastWeight) -> Tensor:
    r"""Compute x @ w.T in the way chosen for this number of rows.

    Args:
        x: (..., K), of w's dtype.
        w: (M, K).

    Returns:
        (..., M) in the dtype of x.
    """
    rows = x.reshape(-1, x.shape[-1])  # (n, K)
    n, way = len(rows), "linear"
    if x.device.type == "cpu" and n:
        size = "1 row" if n == 1 else "few rows" if n <= FEW else "more rows"
        way = w.ways.get(size, "linear")
        if w.kind and (way != "kernel" or not fits_kernel(w)):
            way = "row blocks"
        elif way == "packed" and w.fresh_copy() is None:
            way = "linear"
    return WAYS[way](rows, w).reshape(*x.shape[:-1], len(w))


def linear(x: Tensor, w: FastWeight) -> Tensor:
    """Multiply by all of w as floats, with `F.linear`."""
    return F.linear(x, w.rows())


def columns(x: Tensor, w: FastWeight) -> Tensor:
    """Multiply w by x as a column, which oneDNN does faster for one row."""
    return torch.mm(w.rows(), x.mT).mT


def row_blocks(x: Tensor, w: FastWeight) -> Tensor:
    r"""Convert a block of w's rows at a time and multiply by that.

    A block stays in the cache, so that w is read from memory as stored.
    16-bit blocks become float32: a processor without instructions for
    16-bit numbers multiplies those several times as fast.
    """
    out = x.new_empty(len(x), len(w))  # (n, M)
    dtype = x.dtype if w.kind else torch.float32
    x = x.to(dtype)
    for start in range(0, len(w), BLOCK):
        block = slice(start, start + BLOCK)
        out[:, block] = F.linear(x, w.rows(block).to(dtype))
    return out


def packed(x: Tensor, w: FastWeight) -> Tensor:
    """Multiply by the copy in oneDNN's own order."""
    multiply_packed = torch.ops.mkldnn._linear_pointwise
    return multiply_packed(x, w.copy, None, "none", [], "")


def kernel(x: Tensor, w: FastWeight) -> Tensor:
    """Multiply by PyTorch's int8 or int4 kernel, making no floats."""
    if w.kind == "int8":
        return torch._weight_int8pack_mm(x, w.numbers, w.scale)
    return torch._weight_int4pack_mm_for_cpu(x, w.copy[0], GROUP, w.copy[1])


def fits_kernel(w: FastWeight) -> bool:
    """Return whether PyTorch's kernels take this weight.

    With other shapes they read beyond the end, or end the process.
    """
    M, K = w.shape
    fits = w.dtype in SIXTEEN_BITS and M % 16 == 0 and K % 32 == 0
    return fits and (w.kind == "int8" or w.copy is not None)


def pack(w: FastWeight) -> Tensor:
    """Return w in oneDNN's order."""
    return torch.ops.mkldnn._reorder_linear_weight(w.numbers, 1)


def int4_order(w: FastWeight) -> tuple[Tensor, Tensor] | None:
    r"""Return w as `_weight_int4pack_mm_for_cpu` reads it, None if it cannot.

    Returns:
        numbers, 0 … 15, in the kernel's order; and (K/g, M, 2), the scales
        and what is added, 0.
    """
    if w.kind != "int4" or len(w) % 16 or w.dtype not in SIXTEEN_BITS:
        return None
    convert = torch._convert_weight_to_int4pack_for_cpu
    blocks = w.numbers.split(BLOCK)
    ordered = [convert(unpack_nibbles(b).int() + 8, 1) for b in blocks]
    scale = w.scale.T  # (K/g, M)
    zeros = torch.zeros_like(scale)
    return torch.cat(ordered), torch.stack([scale, zeros], dim=-1)


WAYS = {
    "linear": linear,
    "columns": columns,
    "row blocks": row_blocks,
    "packed": packed,
    "kernel": kernel,
}
COPIES = {"packed": pack, "kernel": int4_order}  # the ways that need one
