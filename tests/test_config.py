"""The settings of Meta's params.json: published values, ranges.

Other wrong values and keys are in tests/test_damages.py.
"""

import pytest

from llamalib.config import config_of, params_of
from tests.helpers import SMALL, random_ids, random_llama, small_config

# The published configurations: dim, layers, heads, KV heads, multiple_of,
# ffn_dim_multiplier, scaled RoPE; then hidden dim and scaling factor.
PUBLISHED = {
    "Llama-3-8B": (4096, 32, 32, 8, 1024, 1.3, False, 14336, None),
    "Llama-3-70B": (8192, 80, 64, 8, 4096, 1.3, False, 28672, None),
    "Llama-3.1-8B": (4096, 32, 32, 8, 1024, 1.3, True, 14336, 8.0),
    "Llama-3.1-70B": (8192, 80, 64, 8, 4096, 1.3, True, 28672, 8.0),
    "Llama-3.1-405B": (16384, 126, 128, 8, 4096, 1.2, True, 53248, 8.0),
    "Llama-3.2-1B": (2048, 16, 32, 8, 256, 1.5, True, 8192, 32.0),
    "Llama-3.2-3B": (3072, 28, 24, 8, 256, 1.0, True, 8192, 32.0),
}
NAMES = "dim n_layers n_heads n_kv_heads multiple_of ffn_dim_multiplier"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations(name):
    *values, scaled, hidden, factor = PUBLISHED[name]
    params = dict(zip(NAMES.split(), values, strict=True))
    params |= dict(vocab_size=128256, norm_eps=1e-5, rope_theta=500000.0)
    if scaled:
        params["use_scaled_rope"] = True
    config = config_of(params)
    assert config.hidden_dim == hidden
    assert config.scaling_factor == factor
    assert config.head_dim * config.n_heads == config.dim
    assert config.context_length == (131072 if scaled else 8192)
    assert config_of(params_of(config)) == config
    assert params_of(config) == params


@pytest.mark.parametrize(
    "changes, same",
    [
        # written out, the published values give the same config
        (dict(use_scaled_rope=True, rope_scaling_factor=32.0), False),
        (dict(rope_scaling_factor=8.0), True),  # without scaling
        (dict(head_width=8, context_length=8192), True),
        (dict(head_width=None, context_length=None), True),
        (dict(head_width=32, context_length=2048), False),
        (dict(use_scaled_rope=True, rope_scaling_factor=8.0), False),
    ],
)
def test_a_config_is_written_and_read(changes, same):
    config = config_of(SMALL | changes)
    assert config_of(params_of(config)) == config
    assert (config == config_of(SMALL)) is same
    if config.use_scaled_rope:
        assert config.scaling_factor == changes["rope_scaling_factor"]
    usual = config_of(dict(SMALL, use_scaled_rope=True))
    assert (config == usual) == (config.scaling_factor == 32)
    assert small_config(ffn_dim_multiplier=None).hidden_dim == 176


@pytest.mark.parametrize(
    "name, low, high",
    [
        ("norm_eps", 1e-12, 0.01),
        ("rope_theta", 1000, 1e15),
        ("rope_scaling_factor", 1, 1000),
        ("ffn_dim_multiplier", 0.001, 1000),
    ],
)
def test_bounds(name, low, high):
    """No known Llama is outside of them; inside, all logits are finite."""
    scaled = SMALL | {"use_scaled_rope": True}
    for value in (low, high, float(low)):
        config = config_of(scaled | {name: value})
        assert getattr(config, name) == value
        if name != "ffn_dim_multiplier":  # those are of other widths
            assert random_llama(config)(random_ids(9)).isfinite().all()
    for value in (low / 2, high * 2, 10**400, -low, float("nan"), True, [1]):
        with pytest.raises(ValueError, match=f"{name} must be a number from"):
            config_of(scaled | {name: value})
