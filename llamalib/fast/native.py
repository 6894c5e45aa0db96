r"""Attention of one query, in C, for the machine that it runs on.

Behind a long text a decode step reads as many bytes of keys and values as of
weights. PyTorch's own ways read them at a fraction of the memory's speed: its
fused kernel is made for many queries, its products for matrices with more
rows. `one_query.c` reads them once, as they lie, and does no more than that.

It is compiled when `compile=True` first asks for it, in less than a second,
by the machine's own C compiler, and shares PyTorch's threads. Where there is
no compiler, or one of another kind, all goes on without.

Shapes: `H` query heads, `KV` key/value heads, `hd` head dim, `S` positions;
a group is the `G` = H/KV query heads that share one KV head.
"""

import ctypes
import logging
import math
import os
import shlex
import subprocess
import tempfile
import threading
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

SOURCE = Path(__file__).with_name("one_query.c")
# Sums may be added in any order: without that a compiler could not add
# several numbers at once.
COMPILE = ["-O3", "-ffast-math", "-fopenmp", "-fPIC", "-c"]
# Neither word stands here again. With the first, numbers near 0 would become
# 0 in the whole process. With the second, threads could be of another
# library than PyTorch's, and two of them wait for one another; without, they
# are those of the library that PyTorch has loaded, or nothing is.
LINK = ["-shared"]
# The first that is known. A compiler may hold 32 bytes at a time to be
# quicker than 64: where they come from memory, they are not.
FOR_THIS_PROCESSOR = [
    ["-march=native", "-mprefer-vector-width=512"],
    ["-march=native"],
    ["-mcpu=native"],
]
PATIENCE = 20  # seconds for a compiler
RUN = 1024  # positions that are worth a thread's while
_one_at_a_time = threading.Lock()
_built = {}  # (G, hd): the function, or None where it cannot be had
_say = logging.getLogger(__name__).info


def build(G: int, hd: int) -> bool:
    r"""Compile `one_query.c` for groups of G heads of hd, once a process.

    Why it could not be is told to `logging`, as information.

    Returns:
        bool, whether it is there now.
    """
    with _one_at_a_time:
        if (G, hd) not in _built:
            _built[G, hd] = compiled(G, hd)
    return is_built(G, hd)


def is_built(G: int, hd: int) -> bool:
    """Whether `build` was called for this, and had a compiler."""
    return _built.get((G, hd)) is not None


def compiled(G: int, hd: int):
    """The function, by the first options that work, or None."""
    for options in FOR_THIS_PROCESSOR:
        try:
            with tempfile.TemporaryDirectory(
                ignore_cleanup_errors=True
            ) as folder:
                sizes = [f"-DG={G}", f"-DHD={hd}"]
                return compiled_in(Path(folder), options + sizes)
        except subprocess.TimeoutExpired as error:
            _say("%s", error)
            return None
        except subprocess.CalledProcessError as error:
            _say("%s: %s", error, error.stderr)
        except (OSError, ValueError, AttributeError) as error:
            _say("one_query.c was not compiled: %s", error)
    return None


def compiled_in(folder: Path, options: list[str]):
    """The function; what fails is raised."""
    parts, library = str(folder / "one_query.o"), folder / "one_query.so"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    for words in (
        [*COMPILE, *options, str(SOURCE), "-o", parts],
        [*LINK, parts, "-o", str(library), "-lm"],
    ):
        subprocess.run(
            compiler + words,
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    function = ctypes.CDLL(str(library)).one_query
    tensor, count = [ctypes.c_void_p], [ctypes.c_int64]
    function.argtypes = tensor * 3 + count * 4 + tensor * 3 + [ctypes.c_int]
    function.restype = None
    return function


def takes(q: Tensor, k: Tensor, v: Tensor, mask=None) -> bool:
    r"""Whether `by_group_in_c` can be asked for these.

    It sees memory, not tensors: what is traced, learned from or elsewhere,
    and what does not lie row behind row, is for PyTorch.
    """
    *batch, KV, S, hd = k.shape
    H = q.shape[-3]
    return (
        mask is None
        and k.shape == v.shape
        and k.stride() == v.stride()
        and k.stride()[-2:] == (hd, 1)
        and k.numel() > 0
        and q.shape == (*batch, H, 1, hd)
        and H % KV == 0
        and is_built(H // KV, hd)
        and all(map(is_memory, (q, k, v)))
        and not is_in_torch_dispatch_mode()
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def is_memory(x: Tensor) -> bool:
    """Whether it is bfloat16 numbers in memory, and no more than that."""
    return (
        x.dtype == torch.bfloat16
        and x.device.type == "cpu"
        and not x.is_neg()
        and not (x.requires_grad and torch.is_grad_enabled())
    )


def by_group_in_c(q: Tensor, k: Tensor, v: Tensor, mask=None) -> Tensor:
    r"""`fused_by_group` of one query, by `one_query.c`.

    Sums and softmax are float32. Positions are shared out to threads, and so
    the last bit may differ with their number.

    Args:
        q: (..., H, 1, hd) bfloat16.
        k, v: (..., KV, S, hd) bfloat16, of the same strides.
        mask: None: a single query may look at everything.

    Returns:
        (..., H, 1, hd) bfloat16.

    Raises:
        ValueError: for what it does not take.
    """
    if not takes(q, k, v, mask):
        raise ValueError(
            "wanted one bfloat16 query a head on the CPU, without a mask or "
            "gradients; keys and values that lie alike, row behind row; and "
            f"llamalib.native.build(H // KV, hd) before. These are "
            f"{q.dtype} {tuple(q.shape)}, {k.dtype} {tuple(k.shape)} and "
            f"{v.dtype} {tuple(v.shape)}"
        )
    KV, S, hd = k.shape[-3:]
    G, threads = q.shape[-3] // KV, torch.get_num_threads()
    # all heads at one distance from each other: a view, but for odd batches
    keys, values = k.reshape(-1, S, hd), v.reshape(-1, S, hd)
    heads = len(keys)
    runs = max(1, min(S // RUN, -(-4 * threads // heads)))
    q32 = q.reshape(heads, G, hd).float() / math.sqrt(hd)
    out = q32.new_empty(heads, runs, G, hd)
    total, high = q32.new_empty(2, heads, runs, G, 1).unbind()
    places = [t.data_ptr() for t in (q32, keys, values, out, total, high)]
    numbers = heads, S, keys.stride(0), runs
    _built[G, hd](*places[:3], *numbers, *places[3:], threads)
    if runs > 1:  # what a run's weights were relative to, for all the same
        less = torch.exp(high - high.amax(1, keepdim=True))
        out, total = out * less, total * less
    return (out.sum(1) / total.sum(1)).type_as(q).view(q.shape)
