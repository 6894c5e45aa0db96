r"""What a decode step must read, and how fast this machine reads.

Shapes: `L` layers, `KV` key/value heads, `hd` head dim, `D` model dim.
"""

import statistics
import time

import torch


def bytes_per_step(llama, length: int, batch_size: int = 1) -> int:
    r"""Bytes that one decode step reads, whatever the program.

    Every weight once, for however many rows (of an embedding that is not
    also the output, a row each), and of every row of the batch the keys and
    values of the positions before it.

    Args:
        llama: its weights' dtype counts, for the cache too; of quantized
            ones, the bytes that are kept.
        length: positions that the cache holds.
        batch_size: rows that decode together.
    """
    c = llama.config
    weights = sum(w.nbytes for w in llama.parameters())
    embedding = llama.tok_embeddings.weight
    size = embedding.itemsize
    if not llama.tied:
        a_row = embedding.nbytes // c.vocab_size
        weights -= (c.vocab_size - batch_size) * a_row
    row = 2 * c.n_layers * length * c.n_kv_heads * c.head_dim * size
    return weights + batch_size * row


def memory_bandwidth(device=None, *, size: int = 2**30, times: int = 7):
    r"""How fast this machine reads memory, in bytes a second.

    The time to add up an array much larger than its caches: as little
    arithmetic as reading can have. The median of several.

    Args:
        device: "cpu", "cuda" or a torch.device; None: the CPU.
        size: bytes of the array.
        times: how often it is read.

    Returns:
        float, bytes per second.
    """
    device = torch.device(device or "cpu")
    array = torch.ones(size // 4, device=device)  # float32
    reads = 1 if device.type == "cpu" else 20  # to start one takes a while
    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        for _ in range(reads):
            total = array.sum()
        total.item()  # waits for a GPU
        seconds.append(time.perf_counter() - start)
    # the first time sets things up
    return reads * array.nbytes / statistics.median(seconds[1:])
