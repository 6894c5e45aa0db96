r"""The limit of a decode step: the bytes that it reads, the memory's speed."""

import statistics
import time

import torch

from llamalib.model import Llama


def bytes_per_step(llama: Llama, length: int, batch_size: int = 1) -> int:
    r"""Return the bytes that one decode step must read.

    It reads every weight, as it is stored, once for the whole batch (of an
    untied embedding one row per text), and each text's keys and values.
    length: positions in the cache.  batch_size: texts that decode together.
    """
    c = llama.config
    weights = sum(w.nbytes for w in llama.parameters())
    if not llama.tied:
        embedding = llama.tok_embeddings.parameters()
        a_row = sum(w.nbytes for w in embedding) // c.vocab_size
        weights -= (c.vocab_size - batch_size) * a_row
    position = 2 * c.n_layers * c.n_kv_heads * c.head_dim  # numbers
    cache = length * position * llama.dtype.itemsize
    return weights + batch_size * cache


def memory_bandwidth(device=None, *, size: int = 2**30, times: int = 7):
    r"""Measure how fast this machine reads memory, in bytes per second.

    It sums an array much larger than the processor's caches: a sum does so
    little arithmetic that reading dominates. The result is a median.
    device: "cpu", "cuda" or a torch.device; None: the CPU.
    size: bytes of the array.  times: number of measurements.
    """
    device = torch.device(device or "cpu")
    array = torch.ones(size // 4, device=device)  # float32
    reads = 1 if device.type == "cpu" else 20  # kernel launches are slow
    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        for _ in range(reads):
            total = array.sum()
        total.item()  # waits for a GPU
        seconds.append(time.perf_counter() - start)
    # without the first, a warm-up
    return reads * array.nbytes / statistics.median(seconds[1:])
