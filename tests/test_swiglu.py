"""The feed-forward network and its hidden size."""

from dataclasses import replace

import pytest
import torch

from llamalib import (
    LLAMA_1B,
    FeedForward,
)
from tests.helpers import small_config


def network(D=8, hidden=24):
    """Return a network with weights of order 1, of 8 to 24 to 8 numbers."""
    config = small_config(dim=D, multiple_of=hidden, ffn_dim_multiplier=None)
    assert config.hidden_dim == hidden
    ffn, g = FeedForward(config), torch.Generator().manual_seed(0)
    for weight in ffn.parameters():
        weight.data.normal_(generator=g)
    return ffn.requires_grad_(False)


def test_neuron_by_neuron():
    ffn = network()
    w1, w2, w3 = ffn.w1.weight, ffn.w2.weight, ffn.w3.weight
    x = torch.randn(8, generator=torch.Generator().manual_seed(1))
    expected = torch.zeros(8)
    for n in range(24):
        z = w1[n] @ x
        expected += z * torch.sigmoid(z) * (w3[n] @ x) * w2[:, n]
    assert torch.allclose(ffn(x), expected, atol=1e-4)


@pytest.mark.parametrize(
    "dim, multiple_of, ffn_dim_multiplier, hidden_dim",
    [
        (2048, 256, 1.5, 8192),
        (3072, 256, 1.0, 8192),
        (4096, 1024, 1.3, 14336),
        (8192, 4096, 1.3, 28672),
        (16384, 4096, 1.2, 53248),
        (4096, 256, None, 11008),  # Llama 1 and 2, 7B
    ],
)
def test_hidden_sizes(dim, multiple_of, ffn_dim_multiplier, hidden_dim):
    config = replace(LLAMA_1B, dim=dim, multiple_of=multiple_of)
    config = replace(config, ffn_dim_multiplier=ffn_dim_multiplier)
    assert config.hidden_dim == hidden_dim
