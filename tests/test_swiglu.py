from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from llamalib import (
    LLAMA_1B,
    FeedForward,
    TransformerBlock,
    causal_mask,
    precompute_freqs_cis,
)
from llamalib.load import ROOT
from llamalib.probe import record, replaced
from tests.helpers import code_cells, small_config
from tests.taught import taught


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
    (by_notebook,) = taught("06_feed_forward", "ffn_hidden_dim")
    assert by_notebook(dim, multiple_of, ffn_dim_multiplier) == hidden_dim


def test_the_notebooks_function_is_the_module():
    (feed_forward,) = taught("06_feed_forward", "feed_forward")
    ffn, g = network(), torch.Generator().manual_seed(1)
    w1, w2, w3 = ffn.w1.weight, ffn.w2.weight, ffn.w3.weight
    x = torch.randn(2, 5, 8, generator=g)
    assert torch.allclose(feed_forward(x, w1, w2, w3), ffn(x), atol=1e-4)


def run_stack(blocks, x, freqs_cis, add):
    """Run blocks with or without the residual sums; x: (T, D)."""
    mask = causal_mask(len(x)).type_as(x)
    for block in blocks:
        h = block.attention(block.attention_norm(x), freqs_cis, mask)
        x = x + h if add else h
        h = block.feed_forward(block.ffn_norm(x))
        x = x + h if add else h
    return x


@pytest.mark.parametrize("add", [True, False])
def test_a_random_stack_without_the_sum(add):
    """What notebook 06 says of 16 blocks: changes, gradient, tokens alike."""
    torch.manual_seed(0)
    config = replace(LLAMA_1B, dim=256, n_heads=8, n_kv_heads=2)
    freqs_cis = precompute_freqs_cis(config.head_dim, 64).double()
    blocks = [TransformerBlock(config).double() for _ in range(16)]
    for block in blocks:
        for weight in block.requires_grad_(False).parameters():
            if weight.dim() == 2:  # as in Llama(config)
                weight.normal_(std=0.02)
    x = torch.randn(64, 256).double().requires_grad_()  # RMS 1
    end = run_stack(blocks, x, freqs_cis, add)
    toward = torch.randn_like(end)
    (end * toward).sum().backward()
    gradient = x.grad.norm(dim=-1) / toward.norm(dim=-1)  # (T,)
    small = 3e-5  # far above the rounding of the norms' float32
    grown = []
    for change in torch.eye(2).double():  # of the first token, of a late one
        near = x.detach().clone()
        near[[0, 16]] *= 1 + small * change[:, None] * torch.randn(256)
        moved = run_stack(blocks, near, freqs_cis, add) - end.detach()
        grown.append(moved.norm() / end.norm() / small)
    alike = F.cosine_similarity(end[10:, None], end[None, 10:], dim=-1).mean()
    if add:
        assert max(grown) < 2 and alike < 0.6
        assert gradient[0] < 20 * gradient[16]
    else:
        assert 100 < grown[0] < 1000 and grown[1] < 1 and alike > 0.8
        assert gradient[16:].max() < 0.01 < gradient[0]


def unmasked(T, S=None, device=None):
    return torch.zeros(T, T)


def unrotated(xq, xk, freqs_cis):
    return xq, xk


@pytest.mark.parametrize(
    ("changes", "low", "high"),
    [
        ({}, 0.05, 0.15),
        ({"causal_mask": unmasked}, 0.3, 0.5),
        ({"apply_rotary_emb": unrotated}, 0.3, 0.5),
    ],
)
def test_the_position_after_a_random_first_token(pocket, changes, low, high):
    """The largest R² of a probe of all blocks, as notebook 06 says."""
    cells = code_cells(ROOT / "notebooks" / "06_feed_forward.ipynb")
    (source,) = (s for _, s in cells if s.startswith("def position_r2"))
    names = {"torch": torch, "F": F}
    exec(source, names)
    g = torch.Generator().manual_seed(0)
    rows = torch.randint(pocket.tokenizer.bos_id, (160, 96), generator=g)
    with replaced(**changes):
        seen = record(pocket, rows)
    found = [names["position_r2"](seen[f"layers.{i}.out"]) for i in range(6)]
    assert low < max(found) < high
