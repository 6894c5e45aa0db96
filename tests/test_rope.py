"""RoPE: rotations, distances, frequencies and their scaling."""

import math

import pytest
import torch

from llamalib import apply_rotary_emb, precompute_freqs_cis
from llamalib.model import scale_frequencies


def turn(x, position, head_dim, scaling=None):
    """One vector turned as at a position, by the library."""
    freqs_cis = precompute_freqs_cis(
        head_dim, position + 1, scaling_factor=scaling
    )[-1:]
    turned, _ = apply_rotary_emb(x[None, None], x[None, None], freqs_cis)
    return turned[0, 0]


def test_by_2x2_matrices():
    hd, position = 8, 5
    x = torch.randn(hd)
    expected = []
    for k in range(hd // 2):
        angle = position * 500000.0 ** (-2 * k / hd)
        c, s = math.cos(angle), math.sin(angle)
        expected.append(torch.tensor([[c, -s], [s, c]]) @ x[2 * k : 2 * k + 2])
    assert torch.allclose(
        turn(x, position, hd), torch.cat(expected), atol=1e-6
    )


def test_scores_depend_on_distance_alone():
    q, k = torch.randn(64), torch.randn(64)
    scores = [turn(q, 7 + i, 64) @ turn(k, 3 + i, 64) for i in (0, 5, 90)]
    assert torch.allclose(torch.stack(scores), scores[0], atol=1e-4)
    assert not torch.isclose(turn(q, 9, 64) @ turn(k, 3, 64), scores[0])


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_scaling_by_wavelength(factor):
    """Short waves as they were, long ones slowed, a blend between."""
    wavelengths = torch.tensor([6.0, 2047.0, 2049.0, 8191.0, 8193.0, 1e6])
    freqs = 2 * math.pi / wavelengths
    ratio = scale_frequencies(freqs, factor) / freqs
    assert torch.equal(ratio[:2], torch.ones(2))
    assert torch.allclose(ratio[4:], torch.full((2,), 1 / factor))
    assert 1 > ratio[2] > 0.99 and 1 / factor < ratio[3] < 1 / factor + 0.01
    # half way between by frequency: the mean of both
    middle = torch.tensor([2 * math.pi * (1 / 2048 + 1 / 8192) / 2])
    expected = (1 + 1 / factor) / 2
    assert torch.allclose(
        scale_frequencies(middle, factor) / middle, torch.tensor([expected])
    )


@pytest.mark.parametrize("factor", [None, 8.0, 32.0])
def test_frequencies_are_those_of_transformers(factor):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = {"rope_theta": 500000.0, "rope_type": "default"}
    if factor:
        rope |= {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    config = LlamaConfig(
        hidden_size=2048, num_attention_heads=32, rope_parameters=rope
    )
    theirs = LlamaRotaryEmbedding(config).inv_freq
    table = precompute_freqs_cis(64, 2, scaling_factor=factor)
    ours = torch.view_as_complex(table)[1].angle()
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_complex_numbers_give_the_same(dtype, batch):
    """The form of Meta's code."""
    table = precompute_freqs_cis(16, 5, scaling_factor=32.0)
    rotation = torch.view_as_complex(table)[:, None]  # (5, 1, 8)

    def by_complex(x):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * rotation).flatten(-2).type_as(x)

    q = torch.randn(*batch, 5, 6, 16, dtype=dtype)
    k = torch.randn(*batch, 5, 2, 16, dtype=dtype)
    found = apply_rotary_emb(q, k, table)
    for ours, given in zip(found, (q, k), strict=True):
        assert ours.shape == given.shape
        # another order of rounding may differ by one bfloat16
        limit = 1e-6 if dtype == torch.float32 else 2**-7
        expected = by_complex(given)
        assert torch.allclose(ours, expected, rtol=limit, atol=1e-6)
