import pytest
import torch

from llamalib import KVCache
from tests.helpers import random_ids, random_llama, small_config


def test_bytes_are_as_predicted():
    cache = KVCache(small_config(), 100, batch_size=3, dtype=torch.bfloat16)
    # 2 tensors, L, KV, hd, S, B, bytes
    assert cache.nbytes == 2 * 2 * 2 * 8 * 100 * 3 * 2


def test_keeps_what_it_is_given():
    cache = KVCache(small_config(), 5)
    first, second = torch.randn(2, 1, 2, 2, 8), torch.randn(2, 1, 1, 2, 8)
    cache.update(1, *first)
    cache.advance(2)
    k, v = cache.update(1, *second)
    assert k.shape == v.shape == (1, 3, 2, 8)
    assert torch.equal(k, torch.cat([first[0], second[0]], dim=1))
    assert torch.equal(v, torch.cat([first[1], second[1]], dim=1))
    assert k.data_ptr() == cache.k[1].data_ptr()  # a view, no copy


@pytest.mark.parametrize("bad", [0, -1, 2.5])
def test_sizes_that_do_not_serve(bad):
    with pytest.raises(ValueError, match=f"max_seq_len is {bad}"):
        KVCache(small_config(), bad)
    with pytest.raises(ValueError, match=f"batch_size is {bad}"):
        KVCache(small_config(), 9, batch_size=bad)


def test_full():
    llama = random_llama()
    cache = llama.new_cache(5)
    llama(random_ids(1, 5), cache)
    with pytest.raises(ValueError, match="length is 6; expected at most 5"):
        llama(random_ids(1, 1), cache)
    cache.reset()
    again = llama(random_ids(1, 5), cache)
    assert torch.allclose(again, llama(random_ids(1, 5)), atol=1e-5)


@torch.no_grad()
def test_a_padded_row_keeps_the_keys_of_its_own_run():
    """Scores feel only differences of positions; the keys feel the rest."""
    llama, padding = random_llama(), torch.tensor([0, 3])
    tokens = random_ids(2, 7)
    cache = llama.new_cache(9, 2, padding)
    llama(tokens, cache)
    llama(random_ids(2, 1), cache)
    assert cache.positions(1).tolist() == [[8], [5]]
    alone = llama.new_cache(6)
    llama(tokens[1:, 3:], alone)
    assert (cache.k[:, 1, :, 3:7] - alone.k[:, 0, :, :4]).abs().max() < 1e-5
