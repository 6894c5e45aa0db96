"""The bytes of a decode step, and the bandwidth that bounds it."""

import pytest
import torch

from lessons.bandwidth import bytes_per_step, memory_bandwidth
from llamalib import KVCache
from tests.helpers import random_llama


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_bytes_of_a_step(tied, dtype):
    llama = random_llama(tied=tied).to(dtype)
    read = sum(
        w.nbytes
        for name, w in llama.named_parameters()
        if tied or name != "tok_embeddings.weight"
    )
    if not tied:
        read += (
            3 * 64 * dtype.itemsize
        )  # of the embedding, a row for each of three
    cache = KVCache(llama.config, 100, batch_size=3, dtype=dtype)
    found = bytes_per_step(llama, 100, batch_size=3)
    assert found == read + cache.nbytes


def test_bandwidth_is_bytes_by_seconds(monkeypatch):
    now = [0.0]
    total = torch.Tensor.sum

    def slow_sum(array):  # 4 ms for every MiB
        now[0] += 0.004 * array.nbytes / 2**20
        return total(array)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(torch.Tensor, "sum", slow_sum)
    found = memory_bandwidth("cpu", size=2**21)
    assert found == pytest.approx(2**20 / 0.004)


def test_this_machine_has_one():
    assert 1e8 < memory_bandwidth(size=2**24, times=3) < 1e13
