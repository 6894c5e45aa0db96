"""The KV cache: the same numbers as without it, positions, errors."""

import pytest
import torch

from llamalib import KVCache, prefill
from llamalib.batch import PaddedCache
from tests.helpers import random_ids, random_llama, small_config


def new_cache(llama, max_seq_len, batch_size=1, padding=None):
    if padding is not None:
        return PaddedCache(llama.config, max_seq_len, padding)
    return KVCache(llama.config, max_seq_len, batch_size)


def test_bytes_are_as_predicted():
    cache = KVCache(small_config(), 100, batch_size=3, dtype=torch.bfloat16)
    # 2 tensors, L, KV, hd, S, B, bytes
    assert cache.nbytes == 2 * 2 * 2 * 8 * 100 * 3 * 2
    assert len(cache.layers) == 2
    assert cache.layers[1].k.shape == cache.layers[1].v.shape == (3, 2, 100, 8)
    assert cache.layers[1].v.dtype == torch.bfloat16


def test_keeps_what_it_is_given():
    cache = KVCache(small_config(), 5)
    first, second = torch.randn(2, 1, 2, 2, 8), torch.randn(2, 1, 1, 2, 8)
    cache.layers[1].update(*first)
    cache.advance(2)
    k, v = cache.layers[1].update(*second)
    assert k.shape == v.shape == (1, 3, 2, 8)
    assert torch.equal(k, torch.cat([first[0], second[0]], dim=1))
    assert torch.equal(v, torch.cat([first[1], second[1]], dim=1))
    assert k.data_ptr() == cache.layers[1].k.data_ptr()  # a view, no copy
    assert not cache.layers[0].k.any()  # each layer has its own


def test_positions_and_mask():
    cache = KVCache(small_config(), 9)
    cache.advance(3)
    assert cache.positions(2).tolist() == [3, 4]
    hidden = cache.mask(2) == float("-inf")
    assert hidden.tolist() == [[False] * 4 + [True], [False] * 5]
    assert cache.mask(1) is None  # a single token sees everything
    padded = PaddedCache(small_config(), 9, torch.tensor([0, 4]))
    padded.advance(3)
    assert padded.positions(3).tolist() == [[3, 4, 5], [0, 0, 1]]
    hidden = padded.mask(3)[1, 0] == float("-inf")  # (3, 6)
    padding = [True] * 3 + [False, True, True]  # sees itself
    first, second = [True] * 4 + [False, True], [True] * 4 + [False] * 2
    assert hidden.tolist() == [padding, first, second]
    assert padded.mask(1).shape == (2, 1, 1, 4)  # padding stays hidden


@torch.no_grad()
def test_full_and_back():
    llama = random_llama()
    cache = new_cache(llama, 5)
    llama(random_ids(1, 5), cache)
    said = "KVCache is full: 6 tokens, capacity 5; create it with a larger"
    with pytest.raises(ValueError, match=said):
        llama(random_ids(1, 1), cache)
    with pytest.raises(ValueError, match="is full: 9 tokens, capacity 5"):
        prefill(llama, random_ids(1, 4), cache)
    cache.advance(-3)  # three tokens are taken back, others come
    assert cache.length == cache.layers[1].length == 2
    tokens = torch.cat([random_ids(1, 5)[:, :2], random_ids(1, 3, seed=1)], 1)
    again = llama(tokens[:, 2:], cache)
    assert torch.allclose(again, llama(tokens)[:, 2:], atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("T", [2, 5])
@pytest.mark.parametrize("padding", [None, [0, 2]])
def test_several_tokens_on_a_filled_cache(T, padding):
    llama, tokens = random_llama(), random_ids(2, 4 + T)
    if padding:
        padding = torch.tensor(padding)
    cache = new_cache(llama, 20, 2, padding)
    llama(tokens[:, :4], cache)
    found = llama(tokens[:, 4:], cache)
    for b, skipped in enumerate([0, 0] if padding is None else padding):
        alone = llama(tokens[b, skipped:])[-T:]
        assert (found[b] - alone).abs().max() < 1e-5
