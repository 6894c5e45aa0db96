"""Grouped-query attention, compared with one key head per query head."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from llamalib import (
    Attention,
    apply_rotary_emb,
    attention,
    attention_weights,
    causal_mask,
    precompute_freqs_cis,
    repeat_kv,
)
from tests.helpers import small_config


def qkv(T=5, S=5, H=8, KV=2, hd=16):
    g = torch.Generator().manual_seed(0)
    shapes = [(3, T, H, hd), (3, S, KV, hd), (3, S, KV, hd)]
    return [torch.randn(shape, generator=g) for shape in shapes]


def by_hand(xq, xk, xv, mask=None):
    """Compute `attention` from the weights, as 05 teaches it."""
    weights = attention_weights(xq, xk, mask)  # (..., H, T, S)
    xv = repeat_kv(xv, xq.shape[-2] // xv.shape[-2])
    out = weights @ xv.transpose(-3, -2)  # (..., H, T, hd)
    return out.transpose(-3, -2).flatten(-2)


@pytest.mark.parametrize("KV", [1, 2, 8])
def test_is_pytorchs(KV):
    xq, xk, xv = qkv(KV=KV)
    q, k, v = (x.transpose(1, 2) for x in (xq, xk, xv))
    expected = F.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    found = attention(xq, xk, xv, causal_mask(5))
    assert torch.allclose(
        found, expected.transpose(1, 2).flatten(2), atol=1e-5
    )


def test_pytorchs_own_mask_begins_at_the_first_key():
    """Notebook 09's mistake: a query behind a cache sees one old key."""
    xq, xk, xv = qkv(T=1, S=7, KV=8)
    q, k, v = (x.transpose(1, 2) for x in (xq, xk, xv))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(found, v[:, :, :1], atol=1e-6)


@pytest.mark.parametrize("KV", [1, 2, 8])
@pytest.mark.parametrize("T, S", [(5, 5), (2, 7), (1, 7)])
def test_is_the_form_by_hand(T, S, KV):
    xq, xk, xv = qkv(T, S, KV=KV)
    rows = causal_mask(T, S).expand(3, 1, T, S).clone()
    rows[1, ..., :2] = float("-inf")  # hidden, as left padding is
    rows[1].diagonal(S - T, -2, -1).zero_()  # but a query sees itself
    for mask in (None, causal_mask(T, S), rows):
        found = attention(xq, xk, xv, mask)
        assert found.shape == (3, T, 8 * 16)
        expected = by_hand(xq, xk, xv, mask)
        assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("T", [5, 1])
def test_any_leading_dimensions(T):
    xq, xk, xv = qkv(T)
    mask = causal_mask(T, 5)
    expected = attention(xq, xk, xv, mask)
    alone = attention(xq[0], xk[0], xv[0], mask)  # no batch
    assert torch.allclose(alone, expected[0], atol=1e-5)
    several = (x.unflatten(0, (1, 3)) for x in (xq, xk, xv))
    found = attention(*several, mask)
    assert torch.allclose(found, expected[None], atol=1e-5)


def test_is_causal_counts_from_the_first_key():
    """05's common mistake: it is not the mask of the last T of S positions."""
    q, k, v = (x.transpose(1, 2) for x in qkv(2, 6, KV=8))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(found[..., 0, :], v[..., 0, :])  # one key alone
    first_two = (x[..., :2, :] for x in (k, v))
    expected = F.scaled_dot_product_attention(q[..., 1:, :], *first_two)
    assert torch.allclose(found[..., 1:, :], expected, atol=1e-5)


def test_one_head_by_hand():
    xq, xk, xv = qkv()
    h, t = 5, 3  # head 5 of 8 is in the second of two groups
    scores = [xq[0, t, h] @ xk[0, s, 1] / math.sqrt(16) for s in range(t + 1)]
    weights = torch.stack(scores).softmax(0)
    expected = sum(w * xv[0, s, 1] for s, w in enumerate(weights))
    for function in (attention, by_hand):
        found = function(xq, xk, xv, causal_mask(5))[0, t]
        assert torch.allclose(found.view(8, 16)[h], expected, atol=1e-5)


def test_causal_mask():
    inf = float("inf")
    assert causal_mask(3).tolist() == [[0, -inf, -inf], [0, 0, -inf], [0] * 3]
    assert causal_mask(2, 4).tolist() == [[0, 0, 0, -inf], [0] * 4]
    assert causal_mask(1, 4).tolist() == [[0] * 4]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("T", [5, 1])
def test_half_precision_is_near(T, dtype):
    some = [x.to(dtype) for x in qkv(T)]
    mask = causal_mask(T, 5)  # float32, as the model makes it
    found = attention(*some, mask)
    assert found.dtype == dtype
    expected = by_hand(*(x.float() for x in some), mask)
    assert (found - expected).abs().max() < 0.02


class Sizes(TorchDispatchMode):
    """Collects the number of elements of every tensor that is made."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        several = out if isinstance(out, (tuple, list)) else [out]
        self.found += [x.numel() for x in several if torch.is_tensor(x)]
        return out


@pytest.mark.parametrize("T", [64, 1])
def test_the_weights_are_not_stored(T):
    """On a CPU, with a batch dimension, as in the model."""
    some = *qkv(T, S=1024), causal_mask(T, 1024)
    largest = []
    for function in (attention, by_hand):
        with Sizes() as sizes:
            function(*some)
        largest.append(max(sizes.found))
    assert largest[1] >= 3 * 8 * T * 1024
    if T > 1:
        assert largest[0] < 3 * 8 * T * 1024 / 4
    else:  # nor are keys and values repeated for the heads of a group
        assert largest[0] <= some[1].numel()


# -- the module --


def module_and_input(**changes):
    config = small_config(**changes)
    g = torch.Generator().manual_seed(0)
    module = Attention(config).requires_grad_(False)
    for weight in module.parameters():
        weight.normal_(0, weight.shape[1] ** -0.5, generator=g)
    angles = config.head_dim, 7, config.rope_theta, config.scaling_factor
    x = torch.randn(3, 7, config.dim, generator=g)
    return config, module, x, precompute_freqs_cis(*angles)


@pytest.mark.parametrize(
    "changes", [{}, {"head_width": 24}, {"n_kv_heads": 8}]
)
def test_the_module_is_its_formula(changes):
    config, module, x, freqs_cis = module_and_input(**changes)
    w = module.state_dict()
    assert list(w) == [f"w{name}.weight" for name in "qkvo"]
    q, k, v = (
        (x @ w[f"w{name}.weight"].T).unflatten(-1, (-1, config.head_dim))
        for name in "qkv"
    )
    assert q.shape[2:] == (config.n_heads, config.head_dim)
    assert k.shape[2:] == (config.n_kv_heads, config.head_dim)
    q, k = apply_rotary_emb(q, k, freqs_cis)
    for mask in (None, causal_mask(7)):
        expected = by_hand(q, k, v, mask) @ w["wo.weight"].T
        found = module(x, freqs_cis, mask)
        assert torch.allclose(found, expected, atol=1e-5)
        alone = module(x[0], freqs_cis, mask)  # no batch
        assert torch.allclose(alone, expected[0], atol=1e-5)


def test_each_head_adds_its_contribution():
    config, module, x, freqs_cis = module_and_input()
    hd, wo = config.head_dim, module.wo.weight  # (D, H·hd)
    heads = []
    module.wo.register_forward_pre_hook(lambda _, args: heads.append(args[0]))
    expected = module(x, freqs_cis, causal_mask(7))
    pairs = zip(heads[0].split(hd, -1), wo.split(hd, -1), strict=True)
    parts = [out @ columns.T for out, columns in pairs]
    assert len(parts) == config.n_heads
    assert torch.allclose(sum(parts), expected, atol=1e-5)


def test_later_tokens_change_nothing():
    _, module, x, freqs_cis = module_and_input()
    later = x.clone()
    later[:, 5:] += 1
    for mask, same in ((causal_mask(7), True), (None, False)):
        found = module(later, freqs_cis, mask) == module(x, freqs_cis, mask)
        assert found[:, :5].all() == same


def test_its_multiplications():
    """T times the parameters, and 2 T² H hd, as 05 says."""
    config, module, x, freqs_cis = module_and_input()
    T, H, hd = 7, config.n_heads, config.head_dim
    parameters = sum(weight.numel() for weight in module.parameters())
    assert parameters == 2 * config.dim * hd * (H + config.n_kv_heads)
    w = module.state_dict()
    with FlopCounterMode(display=False) as counter:
        q, k, v = (
            (x[0] @ w[f"w{name}.weight"].T).unflatten(-1, (-1, hd))
            for name in "qkv"
        )
        by_hand(q, k, v, causal_mask(T)) @ w["wo.weight"].T
    expected = T * parameters + 2 * T * T * H * hd
    assert counter.get_total_flops() == 2 * expected
