r"""Attention of one query, in C, for the machine that it runs on.

Behind a long text a decode step reads as many bytes of keys and values as of
weights. PyTorch's own ways read them at a fraction of the memory's speed: its
fused kernel is made for many queries, its products for matrices with more
rows. `one_query.c` reads them once, as they lie, and does no more than that.

It is compiled when `compile=True` first asks for it, in about a second, by
the machine's own C compiler. Where there is none, all goes on without.

Shapes: `H` query heads, `KV` key/value heads, `hd` head dim, `S` positions;
a group is the `G` = H/KV query heads that share one KV head.
"""

import ctypes
import math
import os
import shlex
import subprocess
import tempfile
import threading
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("one_query.c")
# Sums may be added in any order: without that a compiler could not add
# several numbers at once. `-ffast-math` stands with what is compiled alone:
# where it is told to what links, numbers near 0 become 0 in the whole process.
COMPILE = ["-O3", "-march=native", "-ffast-math", "-fPIC", "-c"]
# A compiler may think 64 bytes at a time slower than 32; here they are not.
BY_CHOICE = [
    ["-fopenmp", "-mprefer-vector-width=512"],
    ["-fopenmp"],
    [],  # Apple's knows no OpenMP: one thread
]
RUN = 1024  # positions that are worth a thread's while
_one_at_a_time = threading.Lock()
_built = {}  # (G, hd): the function, or None where it cannot be had


def build(G: int, hd: int) -> bool:
    r"""Compile `one_query.c` for groups of G heads of hd, once a process.

    Returns:
        bool, whether it is there now.
    """
    with _one_at_a_time:
        if (G, hd) not in _built:
            _built[G, hd] = next(attempts(G, hd), None)
    return is_built(G, hd)


def is_built(G: int, hd: int) -> bool:
    """Whether `build` was called for this, and had a compiler."""
    return _built.get((G, hd)) is not None


def attempts(G: int, hd: int):
    """What comes of each way to compile, for those that work."""
    for options in BY_CHOICE:
        with tempfile.TemporaryDirectory() as folder:
            library = compiled_in(folder, options, G, hd)
            if library is not None:
                yield library.one_query


def compiled_in(folder: str, options: list[str], G: int, hd: int):
    """The library, loaded; None where that failed."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    sizes = [f"-DG={G}", f"-DHD={hd}"]
    steps = [
        [*COMPILE, *options, *sizes, str(SOURCE), "-o", "one_query.o"],
        ["-shared", *options[:1], "one_query.o", "-o", "one_query.so", "-lm"],
    ]
    try:
        for step in steps:
            subprocess.run(
                compiler + step,
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=60,
            )
        return ctypes.CDLL(str(Path(folder, "one_query.so")))
    except (OSError, subprocess.SubprocessError):
        return None


def by_group_in_c(q: Tensor, k: Tensor, v: Tensor, mask=None) -> Tensor:
    r"""`fused_by_group` of one query, by `one_query.c`.

    Args:
        q: (..., H, 1, hd) bfloat16.
        k, v: (..., KV, S, hd) bfloat16, of the same strides.
        mask: None. There is no other: a single query may look at everything.

    Returns:
        (..., H, 1, hd) bfloat16; sums and softmax were float32.

    Raises:
        ValueError: for what it is not made for.
    """
    *batch, KV, S, hd = k.shape
    G = q.shape[-3] // KV
    check(q, k, v, mask, G)
    # one view of all heads, if they lie at one distance from each other
    keys, values = k.reshape(-1, S, hd), v.reshape(-1, S, hd)
    heads, threads = len(keys), torch.get_num_threads()
    runs = max(1, min(S // RUN, 4 * threads // heads))
    q32 = q.reshape(heads, G, hd).float() / math.sqrt(hd)
    out = q32.new_empty(heads, runs, G, hd)
    total, high = q32.new_empty(2, heads, runs, G, 1).unbind()
    numbers = map(ctypes.c_long, (heads, S, keys.stride(0), runs))
    into = [pointer(t) for t in (out, total, high)]
    _built[G, hd](*map(pointer, (q32, keys, values)), *numbers, *into, threads)
    if runs > 1:  # what a run's weights were relative to, for all the same
        less = torch.exp(high - high.amax(1, keepdim=True))
        out, total = out * less, total * less
    return (out.sum(1) / total.sum(1)).type_as(q).view(q.shape)


def check(q: Tensor, k: Tensor, v: Tensor, mask, G: int) -> None:
    """ValueError for what `one_query.c` would read wrongly."""
    hd = k.shape[-1]
    if not is_built(G, hd):
        raise ValueError(
            f"nothing was compiled for groups of {G} heads of {hd} numbers; "
            f"call llamalib.native.build({G}, {hd}) first"
        )
    kinds = {t.dtype for t in (q, k, v)}
    in_rows = k.stride()[-2:] == (hd, 1) and k.stride() == v.stride()
    if kinds != {torch.bfloat16} or mask is not None or not in_rows:
        raise ValueError(
            "wanted bfloat16, no mask, and keys and values row behind row, "
            f"both alike; these are {kinds} with strides {k.stride()} and "
            f"{v.stride()}"
        )


def pointer(tensor: Tensor) -> ctypes.c_void_p:
    """Where its first number lies."""
    return ctypes.c_void_p(tensor.data_ptr())
