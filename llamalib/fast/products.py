r"""x @ w.T on a CPU with 16-bit weights, the quickest way that it has.

A float32 product, and any product on a GPU, has one good way: `F.linear`.
For bfloat16 and float16 weights on a CPU there are several, and processors
differ in which is quickest, by a factor of two for the one row of a decode
step and of five for a long prompt. Which to take is measured here, once a
process, not looked up: a table of machines would be wrong for the next one.
A fourth way needs the weights in another order, a second copy of them: it is
taken where `Llama.pack` has made one.

Shapes: `n` rows of x, `K` numbers a row, `M` rows of w.
"""

import threading
import time
import weakref
from bisect import bisect_right
from contextlib import contextmanager
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

SMALL = 2**20  # elements of w; below, all ways are quick
STRIP = 256  # rows of w turned to float32 at once: 2 MB where K is 2048
ROWS = (1, 2, 4, 6, 8, 16, 32, 64)  # that the ways are timed for
WORTH = 0.9  # a way must take less than this of F.linear's time
_one_at_a_time = threading.RLock()


def row_by_row(x: Tensor, w: Tensor) -> Tensor:
    r"""Each row of x by PyTorch's own matrix-vector product.

    PyTorch hands 16-bit products to oneDNN where the processor has
    instructions for them. Those are for many rows; for one, PyTorch's own
    kernel reads the weights up to twice as fast.

    Args:
        x: (n, K).
        w: (M, K).

    Returns:
        (n, M) in the dtype of x.
    """
    with own_kernels():
        return torch.stack([torch.mv(w, row) for row in x])


def own_kernels():
    """Products by PyTorch itself, not by oneDNN, in the whole process."""
    return by_onednn(False)


@contextmanager
def by_onednn(wanted: bool = True):
    """Whether 16-bit products go to oneDNN, in the whole process."""
    onednn = torch.backends.mkldnn
    with _one_at_a_time:
        was_on, onednn.enabled = onednn.enabled, wanted
        try:
            yield
        finally:
            onednn.enabled = was_on


def in_strips(x: Tensor, w: Tensor) -> Tensor:
    r"""In float32, the weights turned to it a strip at a time.

    A processor without instructions for 16-bit numbers multiplies float32
    several times as fast. A strip stays in the cache, so that w is still
    read from memory in 16 bits.

    Args:
        x: (n, K).
        w: (M, K).

    Returns:
        (n, M) in the dtype of x.
    """
    x32 = x.float()
    out = x.new_empty(len(x), len(w))  # (n, M)
    room = x32.new_empty(min(STRIP, len(w)), w.shape[1])
    for start in range(0, len(w), STRIP):
        part = w[start : start + STRIP]
        strip = room[: len(part)].copy_(part)
        out[:, start : start + STRIP] = F.linear(x32, strip)
    return out


def in_blocks(x: Tensor, w: Tensor) -> Tensor:
    r"""By oneDNN, the weights in the order in which it reads them.

    Args:
        x: (n, K).
        w: (M, K), a QuickWeight with `packed`.

    Returns:
        (n, M) in the dtype of x.
    """
    multiply_packed = torch.ops.mkldnn._linear_pointwise
    return multiply_packed(x, w.packed, None, "none", [], "")


def pack(w: Tensor) -> Tensor | None:
    """w in oneDNN's order; None where this processor has none for it."""
    try:
        return torch.ops.mkldnn._reorder_linear_weight(w.detach(), 1)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


@cache
def quickest_way(n: int, dtype: torch.dtype, packed: bool = False):
    r"""The quickest way to multiply n rows, timed on this machine.

    Takes about a tenth of a second and 100 MB, for a moment.

    Args:
        n: one of ROWS.
        dtype: of x and w, torch.bfloat16 or float16.
        packed: whether the weights are there in blocks, too.

    Returns:
        a function of x and w; F.linear unless another is clearly quicker.
    """
    ways = [F.linear, in_strips]
    if n <= 8:  # it reads the weights n times
        ways.append(row_by_row)
    # together more than a processor's own caches hold: a decode step, too,
    # finds its weights in memory
    scratch = torch.full((12, 2048, 2048), 0.01, dtype=dtype, device="cpu")
    weights = list(scratch)
    if packed:
        ways.append(in_blocks)
        weights = [QuickWeight.of(w, pack(w)) for w in weights]
    x = torch.ones(n, 2048, dtype=dtype, device="cpu")
    return quickest(ways, [(x, w) for w in weights])


def quickest(ways: list, calls: list[tuple]):
    r"""The way that takes the least time; the first, if it is not much less.

    Args:
        ways: functions of the same arguments.
        calls: arguments to call them with, in turns.
    """
    seconds = {way: [] for way in ways}
    # one lock for timing and for switching oneDNN: with two, each of two
    # threads could hold one and wait for the other
    with _one_at_a_time, torch.inference_mode(), plain(), one_thread():
        for way in ways:
            way(*calls[-1])  # the first time sets things up
        for i in range(8 * len(ways)):  # in turn: a slow moment slows all
            way = ways[i % len(ways)]
            start = time.perf_counter()
            way(*calls[i % len(calls)])
            seconds[way].append(time.perf_counter() - start)
    # the least of several: what else the machine does only ever adds
    least = {way: min(times) for way, times in seconds.items()}
    best = min(least, key=least.get)
    return best if least[best] < WORTH * least[ways[0]] else ways[0]


@contextmanager
def one_thread():
    """Where other programs run too, two threads wait for one another by
    turns, and times say nothing; one thread's say which way is quicker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def packing_pays(dtype: torch.dtype) -> bool:
    """Whether blocks are the quickest for a few rows, where they gain most."""
    known = pack(torch.ones(64, 64, dtype=dtype)) is not None
    return known and quickest_way(8, dtype, True) is in_blocks


def multiply(x: Tensor, w: Tensor) -> Tensor:
    r"""x @ w.T by the way that was quickest for as many rows.

    Args:
        x: (..., K), of w's dtype.
        w: (M, K), a QuickWeight.

    Returns:
        (..., M).
    """
    rows = x.reshape(-1, x.shape[-1])  # (n, K)
    fitting = ROWS[bisect_right(ROWS, len(rows)) - 1] if len(rows) else 1
    way = quickest_way(fitting, w.dtype, w.packed is not None)
    return way(rows, w).reshape(*x.shape[:-1], len(w))


# within, a QuickWeight is a tensor as any other
plain = torch._C.DisableTorchFunctionSubclass


class QuickWeight(Tensor):
    r"""A matrix that `F.linear` multiplies by `multiply`.

    So that the functions of the notebooks say `F.linear` and nothing else.
    It shares the memory of the tensor that it is made of; in every other
    function it is that tensor.

    Attributes:
        packed: the same in oneDNN's order, or None.
    """

    packed = None

    @classmethod
    def of(cls, w: Tensor, packed: Tensor | None = None):
        """Of a plain tensor."""
        self = w.as_subclass(cls)
        self.packed = packed
        return self

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with plain():
            product = func is F.linear and len(args) == 2 and not kwargs
            if product and isinstance(args[1], cls):
                learns = any(a.requires_grad for a in args)
                if not (learns and torch.is_grad_enabled()):
                    return multiply(*args)
            return func(*args, **(kwargs or {}))


@contextmanager
def quick(weights: dict[str, Tensor], packed, rows: int):
    r"""For one pass through the model: the weights to multiply by.

    Args:
        weights: by name.
        packed: what `pack_all` made of them.
        rows: that every matrix is multiplied by.

    Yields:
        the same weights, those it is worth it for as `QuickWeight`s.
    """
    if torch.compiler.is_compiling():  # a compiler has ways of its own
        yield weights
        return
    kinds = {w.dtype for w in weights.values() if is_worth_it(w)}
    if rows == 1 and len(kinds) == 1 and not packed:
        if quickest_way(1, *kinds) is row_by_row:
            with own_kernels():  # once for all: F.linear is then as quick
                yield weights
            return
    if kinds:
        weights = as_quick(weights, packed)
    yield weights


def as_quick(weights: dict[str, Tensor], packed) -> dict[str, Tensor]:
    """Those it is worth it for as `QuickWeight`s, with blocks that fit."""
    same = {}
    for name, w in weights.items():
        if not is_worth_it(w):
            same[name] = w
            continue
        state, blocks = packed.get(name, (None, None))
        if blocks is not None and state != state_of(w):
            del packed[name]  # the weights have changed since
            blocks = None
        same[name] = QuickWeight.of(w, blocks)
    return same


class Packed(dict):
    """Blocks by the weights' names, each with the state of its weights."""

    def __reduce__(self):
        return Packed, ()  # a copy of the model makes its own


def pack_all(weights: dict[str, Tensor]) -> Packed:
    """The matrices it pays for in oneDNN's order: a second copy of them."""
    packed = Packed()
    for name, w in weights.items():
        # an embedding is looked up, not multiplied; a tied one has its
        # blocks as the output
        if name == "tok_embeddings.weight" or not is_worth_it(w):
            continue
        if w.is_inference():  # nobody counts how often it is written to
            continue
        if packing_pays(w.dtype):
            packed[name] = state_of(w), pack(w)
    return packed


def state_of(w: Tensor) -> tuple | None:
    """What changes with the weights: which, where, how often written to."""
    if w.is_inference():
        return None
    return weakref.ref(w), w.data_ptr(), w._version


def is_worth_it(w: Tensor) -> bool:
    """Whether there is a choice of ways, and enough to gain."""
    return (
        w.device.type == "cpu"
        and w.dtype in (torch.bfloat16, torch.float16)
        and w.dim() == 2
        and w.numel() >= SMALL
        and not getattr(w, "multiplies_itself", False)
    )
