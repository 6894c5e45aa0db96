import math

import pytest
import torch
import torch.nn.functional as F

from llamalib import (
    attention,
    attention_weights,
    causal_mask,
    repeat_kv,
    sdpa_attention,
)


def qkv(T=5, S=5, H=8, KV=2, hd=16):
    g = torch.Generator().manual_seed(0)
    shapes = [(3, T, H, hd), (3, S, KV, hd), (3, S, KV, hd)]
    return [torch.randn(shape, generator=g) for shape in shapes]


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("function", [attention, sdpa_attention])
def test_is_pytorchs(KV, function):
    xq, xk, xv = qkv(KV=KV)
    q, k, v = (x.transpose(1, 2) for x in (xq, xk, xv))
    expected = F.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    found = function(xq, xk, xv, causal_mask(5))
    assert torch.allclose(found, expected.transpose(1, 2).flatten(2), atol=1e-5)


def test_one_head_by_hand():
    xq, xk, xv = qkv()
    h, t = 5, 3  # head 5 of 8 is in the second of two groups
    scores = [xq[0, t, h] @ xk[0, s, 1] / math.sqrt(16) for s in range(t + 1)]
    weights = torch.stack(scores).softmax(0)
    expected = sum(w * xv[0, s, 1] for s, w in enumerate(weights))
    found = attention(xq, xk, xv, causal_mask(5))[0, t]
    assert torch.allclose(found.view(8, 16)[h], expected, atol=1e-5)


def test_no_mask_sees_everything():
    xq, xk, xv = qkv(T=1, S=9)
    weights = attention_weights(xq, xk)
    assert weights.shape == (3, 8, 1, 9) and (weights > 0).all()
    found = attention(xq, xk, xv)
    assert torch.allclose(found, sdpa_attention(xq, xk, xv), atol=1e-5)


def test_repeat_kv():
    x = torch.arange(2.0)[None, :, None].expand(4, 2, 3)
    heads = repeat_kv(x, 3)
    assert heads.shape == (4, 6, 3)
    assert heads[0, :, 0].tolist() == [0, 0, 0, 1, 1, 1]


def test_causal_mask():
    inf = float("inf")
    assert causal_mask(3).tolist() == [[0, -inf, -inf], [0, 0, -inf], [0] * 3]
    assert causal_mask(2, 4).tolist() == [[0, 0, 0, -inf], [0] * 4]
    assert causal_mask(1, 4).tolist() == [[0] * 4]
    with pytest.raises(ValueError, match="5 queries.* 4 positions"):
        causal_mask(5, 4)


def test_bfloat16_is_near():
    xq, xk, _ = (x.to(torch.bfloat16) for x in qkv())
    weights = attention_weights(xq, xk, causal_mask(5))
    assert weights.dtype == torch.bfloat16
    expected = attention_weights(xq.float(), xk.float(), causal_mask(5))
    assert (weights - expected).abs().max() < 0.02


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("masked", [False, True])
def test_one_query(masked, KV):
    xq, xk, xv = qkv(T=1, S=7, KV=KV)
    mask = None
    if masked:  # each row of the batch sees other positions
        mask = torch.zeros(3, 1, 1, 7)
        mask[1, ..., :2] = mask[2, ..., :6] = float("-inf")
    expected = attention(xq, xk, xv, mask)
    found = sdpa_attention(xq, xk, xv, mask)
    assert found.shape == (3, 1, 8 * 16)
    assert torch.allclose(found, expected, atol=1e-5)
    alone = sdpa_attention(xq[0], xk[0], xv[0], torch.zeros(1, 7))  # no batch
    assert torch.allclose(alone, expected[0], atol=1e-5)
