import math
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F

from llamalib import attention, attention_weights, causal_mask, repeat_kv
from llamalib.gqa import (
    by_group_in_pieces,
    fused_attention,
    fused_by_group,
    grouped_attention,
)
from llamalib.fast.products import own_kernels

attention_module = import_module("llamalib.gqa")


def qkv(T=5, S=5, H=8, KV=2, hd=16):
    g = torch.Generator().manual_seed(0)
    shapes = [(3, T, H, hd), (3, S, KV, hd), (3, S, KV, hd)]
    return [torch.randn(shape, generator=g) for shape in shapes]


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("function", [attention, fused_attention])
def test_is_pytorchs(KV, function):
    xq, xk, xv = qkv(KV=KV)
    q, k, v = (x.transpose(1, 2) for x in (xq, xk, xv))
    wanted = F.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    found = function(xq, xk, xv, causal_mask(5))
    assert torch.allclose(found, wanted.transpose(1, 2).flatten(2), atol=1e-5)


def test_one_head_by_hand():
    xq, xk, xv = qkv()
    h, t = 5, 3  # head 5 of 8 is in the second of two groups
    scores = [xq[0, t, h] @ xk[0, s, 1] / math.sqrt(16) for s in range(t + 1)]
    weights = torch.stack(scores).softmax(0)
    wanted = sum(w * xv[0, s, 1] for s, w in enumerate(weights))
    found = attention(xq, xk, xv, causal_mask(5))[0, t]
    assert torch.allclose(found.view(8, 16)[h], wanted, atol=1e-5)


def test_no_mask_sees_everything():
    xq, xk, xv = qkv(T=1, S=9)
    weights = attention_weights(xq, xk)
    assert weights.shape == (3, 8, 1, 9) and (weights > 0).all()
    found = attention(xq, xk, xv)
    assert torch.allclose(found, fused_attention(xq, xk, xv), atol=1e-5)


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
    wanted = attention_weights(xq.float(), xk.float(), causal_mask(5))
    assert (weights - wanted).abs().max() < 0.02


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("function", [fused_attention, grouped_attention])
def test_one_query(function, masked, KV):
    xq, xk, xv = qkv(T=1, S=7, KV=KV)
    mask = None
    if masked:  # each row of the batch sees other positions
        mask = torch.zeros(3, 1, 1, 7)
        mask[1, ..., :2] = mask[2, ..., :6] = float("-inf")
    wanted = attention(xq, xk, xv, mask)
    found = function(xq, xk, xv, mask)
    assert found.shape == (3, 1, 8 * 16)
    assert torch.allclose(found, wanted, atol=1e-5)
    alone = function(xq[0], xk[0], xv[0], torch.zeros(1, 7))  # no batch
    assert torch.allclose(alone, wanted[0], atol=1e-5)


@pytest.mark.parametrize("KV", [1, 2, 8])
def test_by_group_is_not_by_group(KV):
    """As CUDA runs a prompt."""
    xq, xk, xv = qkv(KV=KV)
    q, k, v = (x.transpose(-3, -2) for x in (xq, xk, xv))
    rows = causal_mask(5).repeat(3, 1, 1, 1)
    rows[1, ..., 1:, 0] = float("-inf")  # another mask for one of the batch
    for mask in (None, causal_mask(5), rows):
        found = fused_by_group(q, k, v, mask).transpose(-3, -2).flatten(-2)
        wanted = attention(xq, xk, xv, mask)
        assert torch.allclose(found, wanted, atol=1e-5)


@pytest.fixture
def no_way_known():
    """What other tests timed is forgotten, and what this one did after it."""
    attention_module.quickest_by_group.cache_clear()
    yield
    attention_module.quickest_by_group.cache_clear()


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("S", [1, 4, 7, 8])  # within a piece, and beyond
def test_in_pieces_is_at_once(monkeypatch, KV, S):
    monkeypatch.setattr(attention_module, "PIECE", 4)
    q, k, v = (x.transpose(-3, -2) for x in qkv(T=1, S=S, KV=KV))
    rows = torch.zeros(3, 1, 1, S)
    rows[1, ..., : S // 2] = rows[2, ..., : S - 1] = float("-inf")
    for mask in (None, torch.zeros(1, S), rows):
        found = by_group_in_pieces(q, k, v, mask)
        wanted = fused_by_group(q, k, v, mask)
        assert found.shape == wanted.shape
        assert torch.allclose(found, wanted, atol=1e-5)
    alone = by_group_in_pieces(q[2], k[2], v[2], rows[2, 0])
    assert torch.allclose(alone, fused_by_group(q, k, v, rows)[2], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("hd", [16, 24])
def test_in_pieces_in_16_bits(monkeypatch, hd, dtype):
    """Near what float32 makes of the same numbers; large ones, too."""
    monkeypatch.setattr(attention_module, "PIECE", 64)
    q, k, v = (x.transpose(-3, -2) for x in qkv(T=1, S=200, hd=hd))
    mask = torch.zeros(3, 1, 1, 200)
    mask[1, ..., :150] = float("-inf")
    like = [x.to(dtype) for x in (q, k, v)]
    wanted = fused_by_group(*(x.float() for x in like), mask)
    found = by_group_in_pieces(*like, mask.to(dtype))
    assert found.dtype == dtype
    assert (found - wanted).abs().max() < 0.03
    # scores of 80,000 before they are divided: more than float16 holds
    q, k = torch.full((1, 8, 1, 16), 100.0), torch.full((1, 2, 9, 16), 50.0)
    found = by_group_in_pieces(
        q.to(dtype), k.to(dtype), v[:1, :, :9].to(dtype), None
    )
    assert found.isfinite().all()


def test_one_query_takes_the_quicker_way(monkeypatch, no_way_known):
    """Behind a long text alone, in 16 bits, once timed."""
    seen, timed = [], []

    def quicker(*qkv_mask):
        seen.append(qkv_mask[1].shape)
        return by_group_in_pieces(*qkv_mask)

    def quickest(ways, calls):
        timed.append(ways)
        assert all(len(call) == 4 for call in calls)
        ways[0](*calls[0])
        return ways[1]

    monkeypatch.setattr(attention_module, "LONG", 9)
    monkeypatch.setattr(attention_module, "SCRATCH", 2**12)
    monkeypatch.setattr(attention_module, "PIECE", 8)
    monkeypatch.setattr(attention_module, "by_group_in_pieces", quicker)
    monkeypatch.setattr(attention_module, "quickest", quickest)
    monkeypatch.setattr(attention_module, "takes", lambda *qkv_mask: False)
    for T, S, dtype in (
        (1, 8, torch.bfloat16),
        (1, 9, torch.float32),
        (2, 9, torch.bfloat16),
        (1, 9, torch.bfloat16),
        (1, 12, torch.bfloat16),
    ):
        q, k, v = (x.to(dtype) for x in qkv(T=T, S=S, KV=2))
        found = fused_attention(q, k, v, None)
        assert torch.allclose(found, attention(q, k, v), atol=0.03)
    assert [shape[-2] for shape in seen] == [9, 12]
    # a compiler has ways of its own
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    fused_attention(q, k, v, None)
    assert len(seen) == 2
    assert timed == [[fused_by_group, quicker]]


def test_in_pieces_leaves_onednn_as_it_was(monkeypatch):
    """Its products are oneDNN's, also in a step that does without it."""
    monkeypatch.setattr(attention_module, "PIECE", 4)
    q, k, v = (x.transpose(-3, -2) for x in qkv(T=1, S=5, KV=2))
    onednn, used, matmul = torch.backends.mkldnn, [], torch.Tensor.__matmul__

    def watched(a, b):
        used.append(onednn.enabled)
        return matmul(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    was = onednn.enabled
    with own_kernels():
        by_group_in_pieces(q, k, v, None)
        assert not onednn.enabled
    assert onednn.enabled == was and used == [True] * 4
