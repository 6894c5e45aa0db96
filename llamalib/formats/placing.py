r"""Move a checkpoint's tensors to a device, within bounds of memory."""

import ctypes
import mmap
from pathlib import Path

import torch
from torch import Tensor

from ..checks import expect
from ..fast import fast_weight
from .meta import DTYPES, shard_axis

MADV_DONTNEED = getattr(mmap, "MADV_DONTNEED", 4)
MAPS = Path("/proc/self/maps")  # on Linux


def place(tensors, folder: Path, device, dtype, quantize=None) -> None:
    r"""Replace each tensor's parts by the whole tensor on a device.

    One tensor at a time, in place: there are never two copies of the weights.
    See `meta.read_folder` and `load`.
    """
    expect(dtype in DTYPES, "dtype", dtype, f"one of {DTYPES}")
    check_gpu_memory(device, tensors, dtype, quantize)
    for name, parts in tensors.items():
        try:
            tensors[name] = join(name, parts, device, dtype)
            if quantize and tensors[name].dim() == 2:
                tensors[name] = fast_weight(name, tensors[name], quantize)
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            reason = str(error).strip().split("\n")[0][:160]
            raise MemoryError(
                f"no room for {name} ({reason}): end other programs, or leave "
                "out dtype, so that the weights are mapped"
            ) from None
        for part in parts:
            if part is not tensors[name]:
                release_pages(part, folder)


def join(name: str, parts: list[Tensor], device, dtype) -> Tensor:
    """Return one tensor from the parts that the shards hold of it."""
    axis = shard_axis(name)
    if len(parts) == 1 or axis is None:  # every shard has all of it
        return parts[0].to(device, dtype)
    shape = list(parts[0].shape)
    shape[axis] *= len(parts)
    # torch.cat would make one more copy, in the file's dtype
    whole = torch.empty(shape, device=device, dtype=dtype)
    for target, part in zip(whole.chunk(len(parts), axis), parts):
        target.copy_(part)
    return whole


def release_pages(tensor: Tensor, folder: Path) -> None:
    r"""Release the memory of a tensor that is mapped from a folder's files.

    Otherwise a tensor that has been copied counts twice for a while. The next
    access reads the file again, so nobody may have written to the tensor.
    """
    if not MAPS.is_file():
        return
    files = {str(p.resolve()) for p in folder.iterdir()}
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    for line in MAPS.read_text(errors="replace").splitlines():
        span, *_, file = line.split(maxsplit=5)
        first, last = (int(x, 16) for x in span.split("-"))
        if file in files and first <= start and end <= last:
            start += -start % mmap.PAGESIZE  # other tensors share the rest
            size = (end - start) // mmap.PAGESIZE * mmap.PAGESIZE
            at, size = ctypes.c_void_p(start), ctypes.c_size_t(max(0, size))
            ctypes.CDLL(None).madvise(at, size, MADV_DONTNEED)
            return


def check_gpu_memory(device, tensors, dtype, quantize=None) -> None:
    """Raise MemoryError if the weights need more than a GPU has free."""
    if device.type != "cuda":
        return
    sizes = [sum(part.numel() for part in parts) for parts in tensors.values()]
    needed = sum(sizes) * dtype.itemsize
    if quantize:  # at most a byte per weight, and one matrix in floats
        needed = sum(sizes) + 2 * max(sizes) * dtype.itemsize
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise MemoryError(
            f"the weights take {needed:,} bytes in {dtype}, and {device} has "
            f"{free:,} free: choose torch.bfloat16, quantize='int8' or 'cpu'"
        )
