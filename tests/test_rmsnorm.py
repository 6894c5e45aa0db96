"""RMSNorm, compared with its definition and PyTorch's."""

import torch
import torch.nn.functional as F

from llamalib import rms_norm


def test_is_pytorchs():
    x, weight = torch.randn(3, 5, 64), torch.randn(64)
    for eps in (1e-5, 1e-2, 1.0):
        expected = F.rms_norm(x, (64,), weight, eps)
        assert torch.allclose(rms_norm(x, weight, eps), expected, atol=1e-6)


def test_by_hand():
    x = torch.tensor([3.0, 4.0])  # mean square 12.5
    found = rms_norm(x, torch.tensor([1.0, 2.0]), eps=12.5)
    assert torch.allclose(found, torch.tensor([0.6, 1.6]))


def test_computes_in_float32():
    """In float16 these squares overflow."""
    x = torch.full((8,), 1000.0, dtype=torch.float16)
    found = rms_norm(x, torch.ones(8, dtype=torch.float16))
    assert found.dtype == torch.float16
    assert torch.equal(found, torch.ones(8, dtype=torch.float16))
