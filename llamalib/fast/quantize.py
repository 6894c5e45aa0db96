r"""Weights of 8 or 4 bits: fewer bytes to read, a little off.

Weight only, and symmetric: a number w is kept as a small whole number q and
counts as q times a scale, one scale for a row (int8) or for a group of
numbers in it (int4). What is computed with them stays in 16 or 32 bits.

Shapes: `M` rows of a matrix, `K` numbers a row, `g` numbers a group, `n`
rows that are multiplied.
"""

from bisect import bisect_right
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .products import ROWS, STRIP, plain, quickest

GROUP = 32  # numbers that share a scale, in int4
AT_ONCE = 256  # rows of a matrix: what is made in between stays in caches
KINDS = ("int8", "int4")


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    r"""8 bits a number: every row by its largest number, symmetric.

    Args:
        w: (M, K), of floats.

    Returns:
        q: (M, K) int8, -127 … 127.
        scale: (M,) in the dtype of w; row m counts as q[m] · scale[m]. (In
            float16 a row under 1e-4 loses more: its scale has few bits.)
    """
    floats = w.float()  # (M, K)
    scale = (floats.abs().amax(dim=-1) / 127).to(w.dtype)  # (M,)
    scale = torch.where(scale == 0, 1, scale)  # a row of zeros
    q = (floats / scale.float()[:, None]).round()  # (M, K)
    return q.clamp(-127, 127).to(torch.int8), scale


def dequantize_rows(q: Tensor, scale: Tensor) -> Tensor:
    r"""What `quantize_rows` has kept: (M, K) float32."""
    return q.float() * scale.float()[:, None]


def quantize_groups(w: Tensor, g: int = 32) -> tuple[Tensor, Tensor]:
    r"""4 bits a number: every g of a row by the largest of them, symmetric.

    Args:
        w: (M, K), of floats; K is a multiple of g.
        g: numbers that share a scale.

    Returns:
        q: (M, K) int8, -7 … 7.
        scale: (M, K/g) in the dtype of w.

    Raises:
        ValueError: if K is no multiple of g.
    """
    if w.shape[-1] % g:
        raise ValueError(
            f"rows have {w.shape[-1]} numbers; wanted a multiple of g = {g}"
        )
    groups = w.float().unflatten(-1, (-1, g))  # (M, K/g, g)
    scale = (groups.abs().amax(dim=-1) / 7).to(w.dtype)  # (M, K/g)
    scale = torch.where(scale == 0, 1, scale)  # a group of zeros
    q = (groups / scale.float()[..., None]).round()  # (M, K/g, g)
    return q.clamp(-7, 7).to(torch.int8).flatten(-2), scale


def dequantize_groups(q: Tensor, scale: Tensor) -> Tensor:
    r"""What `quantize_groups` has kept: (M, K) float32."""
    groups = q.unflatten(-1, (scale.shape[-1], -1))  # (M, K/g, g)
    return (groups.float() * scale.float()[..., None]).flatten(-2)


def pack_nibbles(q: Tensor) -> Tensor:
    r"""Two numbers of 4 bits to a byte.

    Args:
        q: (M, K) int8, -8 … 7; K is even.

    Returns:
        (M, K/2) uint8; the first of two in the lower four bits, 8 more than
        it is, so that nothing is negative.
    """
    low, high = (q + 8).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
    return low | (high << 4)  # (M, K/2)


def unpack_nibbles(packed: Tensor) -> Tensor:
    r"""What `pack_nibbles` was given: (M, K/2) uint8 to (M, K) int8."""
    pairs = torch.stack((packed & 15, packed >> 4), dim=-1)  # (M, K/2, 2)
    return pairs.flatten(-2).to(torch.int8) - 8


class QuantizedWeight(Tensor):
    r"""A matrix of floats of which 8 or 4 bits a number are kept.

    `F.linear` multiplies by it, `F.embedding` looks rows up. Every other
    function is given the floats that it stands for. Shape, dtype and device
    are those of the matrix; `nbytes` is what a product of few rows reads.

    Of int4 on a CPU in bfloat16 there is a second copy of the numbers, for
    few rows, as `kernels_order` has them.

    Attributes:
        multiplies_itself: for `products`, which has ways for other weights.
        numbers: (M, K) int8, or (M, K/2) uint8, see `pack_nibbles`.
        scale: (M,) of a row each, or (M, K/g).
    """

    multiplies_itself = True

    @staticmethod
    def __new__(cls, numbers: Tensor, scale: Tensor):
        M, columns = numbers.shape
        fours = numbers.dtype == torch.uint8
        return Tensor._make_wrapper_subclass(
            cls,
            (M, 2 * columns if fours else columns),
            dtype=scale.dtype,
            device=scale.device,
        )

    def __init__(self, numbers: Tensor, scale: Tensor):
        self.numbers, self.scale = numbers, scale
        self._in_kernels_order = None

    @classmethod
    def of(cls, w: Tensor, kind: str):
        r"""Quantize a matrix.

        Args:
            w: (M, K).
            kind: "int8" or "int4"; int8 is taken where K is no multiple of
                `GROUP`.

        Raises:
            ValueError: for what is no matrix of floats, and no kind.
        """
        check_kind(kind)
        if w.dim() != 2 or not w.is_floating_point():
            raise ValueError(
                f"w is {w.dtype} of shape {tuple(w.shape)}; wanted a matrix "
                "of floats"
            )
        fours = kind == "int4" and w.shape[-1] % GROUP == 0
        parts = []
        for part in w.split(AT_ONCE):  # in between it is float32
            q, scale = (
                quantize_groups(part, GROUP) if fours else quantize_rows(part)
            )
            parts.append((pack_nibbles(q) if fours else q, scale))
        numbers, scales = zip(*parts)
        return cls(torch.cat(numbers), torch.cat(scales))

    @property
    def kind(self) -> str:
        """int8 or int4."""
        return "int4" if self.numbers.dtype == torch.uint8 else "int8"

    @property
    def nbytes(self) -> int:
        """Bytes of the small numbers and of their scales."""
        return self.numbers.nbytes + self.scale.nbytes

    def prepare(self) -> None:
        """Do now what the first product would wait for."""
        on_cpu = self.device.type == "cpu"
        if self.kind == "int4" and on_cpu and fits_kernel(self):
            if quickest_way(1, self.dtype, "int4") is by_kernel:
                self._in_kernels_order = kernels_order(self)

    def rows(self, which=slice(None)) -> Tensor:
        r"""Some of its rows, all without `which`, as floats of its dtype."""
        # small whole numbers are exact in any dtype, and a product of two
        # is rounded once: this is what `dequantize_rows` gives, rounded
        numbers, scale = self.numbers[which], self.scale[which]
        if self.kind == "int8":
            return numbers.to(self.dtype) * scale[:, None]
        groups = unpack_nibbles(numbers).unflatten(-1, (scale.shape[-1], -1))
        return (groups.to(self.dtype) * scale[..., None]).flatten(-2)

    def __repr__(self) -> str:
        return f"QuantizedWeight({tuple(self.shape)}, {self.kind})"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        product = func is F.linear and len(args) == 2 and not kwargs
        if product and isinstance(args[1], cls) and not learns(args[0]):
            return multiply(*args)
        if func is Tensor.__setitem__ and isinstance(args[0], cls):
            refuse(func.__name__)
        with plain():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Copies are quantized too; the rest is done with the floats."""
        aten, kwargs = torch.ops.aten, kwargs or {}
        if func in (aten.detach.default, aten.clone.default):
            w = args[0]
            made = cls(func(w.numbers, **kwargs), func(w.scale, **kwargs))
            if func is aten.detach.default:  # the same memory
                made._in_kernels_order = w._in_kernels_order
            return made
        if func is aten.embedding.default:  # some rows, not all
            w, ids = args[:2]
            return w.rows(ids.flatten()).unflatten(0, ids.shape)
        dtype = kwargs.get("dtype")
        if func is aten._to_copy.default and (
            dtype is None or dtype.is_floating_point
        ):
            w, device = args[0], kwargs.get("device")
            scale = w.scale.to(device, dtype, copy=True)
            return cls(w.numbers.to(device, copy=True), scale)
        if func._schema.is_mutable and isinstance(args[0], cls):
            return write(*args) if func is aten.copy_.default else refuse(func)
        return func(*as_floats(args), **as_floats(kwargs))

    # with these two, PyTorch knows that it is made of other tensors

    def __tensor_flatten__(self):
        return ["numbers", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, meta, size, stride):
        return cls(parts["numbers"], parts["scale"])


def as_floats(arguments):
    """The same arguments, however nested, without a QuantizedWeight."""
    return tree_map_only(QuantizedWeight, QuantizedWeight.rows, arguments)


def write(to: QuantizedWeight, source: QuantizedWeight, *_):
    """`copy_` of a quantized weight of the same kind."""
    same = isinstance(source, QuantizedWeight) and source.kind == to.kind
    if not same or source.shape != to.shape:
        refuse("copy_")
    to.numbers.copy_(source.numbers)
    to.scale.copy_(source.scale)
    to._in_kernels_order = None
    return to


def refuse(function):
    """RuntimeError: what is rounded on the way in is not what was written."""
    raise RuntimeError(
        f"{function} would write to a quantized weight, which can only be "
        "made as a whole: by QuantizedWeight.of, or load(quantize=…)"
    )


def check_kind(kind) -> None:
    """ValueError unless it is one of KINDS."""
    if kind not in KINDS:
        raise ValueError(f"quantize is {kind!r}; wanted 'int8' or 'int4'")


def learns(x: Tensor) -> bool:
    """Whether a gradient is wanted: PyTorch's own product has one."""
    return x.requires_grad and torch.is_grad_enabled()


def multiply(x: Tensor, w: QuantizedWeight) -> Tensor:
    r"""x @ w.T, by the way that was quickest for as many rows.

    Args:
        x: (..., K), of w's dtype.
        w: (M, K).

    Returns:
        (..., M) in the dtype of x.
    """
    rows = x.reshape(-1, x.shape[-1])  # (n, K)
    way = by_floats
    if x.device.type == "cpu" and len(rows):
        way = quickest_way(
            ROWS[bisect_right(ROWS, len(rows)) - 1], x.dtype, w.kind
        )
    if way is by_kernel and not fits_kernel(w):
        way = in_strips
    return way(rows, w).reshape(*x.shape[:-1], len(w))


def fits_kernel(w: QuantizedWeight) -> bool:
    """Whether PyTorch's kernels take the shape; of others they read beyond
    the end, or end the process."""
    M, K = w.shape
    return M % 16 == 0 and K % 32 == 0


def by_floats(x: Tensor, w: QuantizedWeight) -> Tensor:
    """All of w as floats, then a product like any other."""
    return F.linear(x, w.rows())


def in_strips(x: Tensor, w: QuantizedWeight) -> Tensor:
    r"""The same by a strip of w at a time, which stays in the cache."""
    out = x.new_empty(len(x), len(w))  # (n, M)
    for start in range(0, len(w), STRIP):
        strip = slice(start, start + STRIP)
        out[:, strip] = F.linear(x, w.rows(strip))
    return out


def by_kernel(x: Tensor, w: QuantizedWeight) -> Tensor:
    r"""By PyTorch's own product with small numbers, which makes no floats."""
    if w.kind == "int8":
        return torch._weight_int8pack_mm(x, w.numbers, w.scale)
    if w._in_kernels_order is None:  # kept: the other is for many rows
        w._in_kernels_order = kernels_order(w)
    numbers, scale = w._in_kernels_order
    g = w.shape[1] // w.scale.shape[1]
    return torch._weight_int4pack_mm_for_cpu(x, numbers, g, scale)


def kernels_order(w: QuantizedWeight) -> tuple[Tensor, Tensor]:
    r"""int4 as `_weight_int4pack_mm_for_cpu` wants it.

    Returns:
        the numbers, 0 … 15, as the processor's kernel reads them; and
        (K/g, M, 2), scales and what is added, 0.
    """
    convert = torch._convert_weight_to_int4pack_for_cpu
    packed = torch.cat(
        [
            convert(unpack_nibbles(part).int() + 8, 1)
            for part in w.numbers.split(AT_ONCE)  # it has blocks of fewer rows
        ]
    )
    scale = w.scale.T  # (K/g, M)
    return packed, torch.stack([scale, torch.zeros_like(scale)], dim=-1)


@cache
def quickest_way(n: int, dtype: torch.dtype, kind: str):
    r"""The quickest way to multiply n rows, timed on this machine.

    Args:
        n: one of products.ROWS.
        dtype: of x, and of what w stands for.
        kind: of w, "int8" or "int4".

    Returns:
        a function of x and w.
    """
    if dtype == torch.float32 or n > 16:  # no kernel, or none that is quick
        return in_strips
    w = torch.randn(2048, 2048, generator=torch.Generator().manual_seed(0))
    first = QuantizedWeight.of(w.to(dtype), kind)
    x = torch.ones(n, 2048, dtype=dtype)
    if not kernel_is_right(x, first):
        return in_strips
    # together more than a processor's own caches hold
    calls = [(x, first.clone()) for _ in range(12)]
    return quickest([in_strips, by_kernel], calls)


def kernel_is_right(x: Tensor, w: QuantizedWeight) -> bool:
    """Whether this PyTorch has a kernel here that gives the product."""
    try:
        found = by_kernel(x, w)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    wanted = in_strips(x, w)
    return bool((found - wanted).abs().max() < 0.05 * wanted.abs().max())
