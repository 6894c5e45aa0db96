r"""Choose a device and a dtype, and move a checkpoint's tensors there."""

import ctypes
import mmap
import os
import re
from pathlib import Path

import torch
from torch import Tensor

from ..checks import expect
from ..fast import fast_weight, has_instructions
from .meta import DTYPES, shard_axis

MAPS = Path("/proc/self/maps")  # on Linux


def choose_device(device=None) -> torch.device:
    """Return a device of this machine; None: $LLAMA_DEVICE, or the first."""
    mps = int(torch.backends.mps.is_available())
    counts = dict(cuda=torch.cuda.device_count(), mps=mps, cpu=1)
    here = [kind for kind, count in counts.items() if count]
    if device is None:
        device = os.environ.get("LLAMA_DEVICE") or here[0]
    try:
        found = torch.device(device)
        is_here = (found.index or 0) < counts.get(found.type, 0)
    except (RuntimeError, TypeError):
        is_here = False
    if not is_here:
        raise ValueError(
            f"unknown device {str(device)!r:.80}; available: {', '.join(here)}"
        )
    return found


def choose_dtype(device, stored, dtype=None) -> tuple[torch.dtype, str]:
    r"""Return the dtype to load a checkpoint in, and a note for the reader.

    dtype: one that the caller asks for; None: as the file is `stored`, but
    float16 for a file in bfloat16 on a GPU without it:

        CUDA from compute capability 8.0 (A100, RTX 30)    bfloat16
        CUDA before (T4, V100)                             float16
        Apple M3 and later, from macOS 14                  bfloat16
        Apple M1, M2, any other GPU of a Mac               float16
        CPU                                  bfloat16, mapped, not copied

    A file in float16 or float32 keeps its dtype: to round what its author
    kept in 32 bits, ask for it. float16 rounds less than bfloat16, but ends at
    65,504: the residual stream and the gated product must stay below.
    """
    expect(dtype in (None, *DTYPES), "dtype", dtype, f"one of {DTYPES}")
    on_cpu, found = device.type == "cpu", dtype or stored
    if is_native(device, found):
        return found, ""
    if on_cpu or dtype:
        return found, f"not native to this {'processor' if on_cpu else 'GPU'}"
    return torch.float16, "this GPU has no bfloat16"


def is_native(device, dtype) -> bool:
    """Return whether a device has instructions for numbers of this dtype."""
    if device.type == "cpu" and dtype != torch.float32:
        return has_instructions(dtype)
    if dtype != torch.bfloat16:
        return True
    # torch.cuda.is_bf16_supported() is True of a T4, which emulates it
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    mps = torch.backends.mps
    chip = re.match(r"Apple M(\d+)", mps.get_name())  # M1 and M2 emulate it
    return bool(chip and int(chip[1]) > 2 and mps.is_macos_or_newer(14, 0))


def place(tensors, folder: Path, device, dtype, quantize=None) -> None:
    """Replace each tensor's parts by the whole; never two copies of all."""
    check_gpu_memory(device, tensors, dtype, quantize)
    for name, parts in tensors.items():
        try:
            tensors[name] = join(name, parts, device, dtype)
            if quantize and tensors[name].dim() == 2:
                tensors[name] = fast_weight(name, tensors[name], quantize)
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            why = str(error).strip().split("\n")[0][:160]
            less = need_less(device, dtype, quantize)
            raise MemoryError(f"no room for {name} ({why}): {less}") from None
        for part in parts:
            if part is not tensors[name]:
                release_pages(part, folder)


def join(name: str, parts: list[Tensor], device, dtype) -> Tensor:
    """Return one tensor from the parts that the shards hold of it."""
    axis = shard_axis(name)
    if dtype == torch.float16 != parts[0].dtype:
        largest = max(abs(x.item()) for part in parts for x in part.aminmax())
        most = "at most 65,504 in float16: choose another dtype"
        expect(not largest > 65_504, f"a number in {name}", largest, most)
    if len(parts) == 1 or axis is None:  # every shard has all of it
        return parts[0].to(device, dtype).contiguous()
    shape, sizes = list(parts[0].shape), [part.shape[axis] for part in parts]
    shape[axis] = sum(sizes)
    # torch.cat would make one more copy, in the file's dtype
    whole = torch.empty(shape, device=device, dtype=dtype)
    for target, part in zip(whole.split(sizes, axis), parts):
        target.copy_(part)
    return whole


def release_pages(tensor: Tensor, folder: Path) -> None:
    r"""Release the memory of a tensor that is mapped from a folder's files.

    The next access reads the file again: nobody may have written to it.
    """
    if not MAPS.is_file():
        return
    files = {str(p.resolve()) for p in folder.iterdir()}
    last = [(n - 1) * step for n, step in zip(tensor.shape, tensor.stride())]
    size = (sum(last) + 1) * tensor.itemsize  # from its first to its last
    start, end = tensor.data_ptr(), tensor.data_ptr() + size
    for line in MAPS.read_text(errors="replace").splitlines():
        span, *_, file = line.split(maxsplit=5)
        first, last = (int(x, 16) for x in span.split("-"))
        if file in files and first <= start and end <= last:
            start += -start % mmap.PAGESIZE  # other tensors share the rest
            size = (end - start) // mmap.PAGESIZE * mmap.PAGESIZE
            at, size = ctypes.c_void_p(start), ctypes.c_size_t(max(0, size))
            ctypes.CDLL(None).madvise(at, size, mmap.MADV_DONTNEED)
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
        less = need_less(device, dtype, quantize)
        problem = f"the weights take {needed:,} bytes in {dtype}, and {device}"
        raise MemoryError(f"{problem} has {free:,} free: {less}")


def need_less(device, dtype, quantize=None) -> str:
    """Say what to change so that the weights take less memory there."""
    if device.type == "cpu":
        return "end other programs, or leave out dtype to map the weights"
    half = dtype == torch.float32 and choose_dtype(device, torch.bfloat16)[0]
    kind = {None: "int8", "int8": "int4"}.get(quantize)
    ways = half and f"dtype={half}", kind and f"quantize='{kind}'"
    return "choose " + " or ".join([*filter(None, ways), "device='cpu'"])
