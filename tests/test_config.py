import json

import pytest

from llamalib.formats.params import config_of, params_of, read_params
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


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations(name):
    dim, layers, heads, kv, multiple, mult, scaled, hidden, factor = PUBLISHED[
        name
    ]
    params = dict(
        dim=dim,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=kv,
        multiple_of=multiple,
        ffn_dim_multiplier=mult,
        vocab_size=128256,
        norm_eps=1e-5,
        rope_theta=500000.0,
    )
    if scaled:
        params["use_scaled_rope"] = True
    config = config_of(params)
    assert config.hidden_dim == hidden
    assert config.scaling_factor == factor
    assert config.head_dim * heads == dim
    assert config.context_length == (131072 if scaled else 8192)
    assert config_of(params_of(config)) == config
    assert params_of(config) == params


def test_an_explicit_factor_is_taken():
    scaled = dict(SMALL, use_scaled_rope=True)
    config = config_of(scaled | {"rope_scaling_factor": 8.0})
    assert config.scaling_factor == 8.0
    assert config_of(params_of(config)) == config
    assert config_of(scaled).scaling_factor == 32.0
    # the published factor, written out, is the same config
    published = config_of(scaled | {"rope_scaling_factor": 32.0})
    assert published == config_of(scaled)


def test_no_factor_without_scaling():
    config = config_of(SMALL | {"rope_scaling_factor": 8.0})
    assert config.scaling_factor is None and config == config_of(SMALL)


def test_another_width_and_context():
    config = config_of(SMALL | {"head_width": 32, "context_length": 2048})
    assert config.head_dim == 32 and config.context_length == 2048
    assert config_of(params_of(config)) == config
    same = config_of(SMALL | {"head_width": 8, "context_length": 8192})
    assert same == config_of(SMALL) and params_of(same) == SMALL


def test_unknown_and_missing_keys_are_named():
    params = dict(SMALL, rope_tehta=1.0, sliding_window=3)
    with pytest.raises(
        ValueError, match="unknown key 'rope_tehta', 'sliding_w"
    ) as e:
        config_of(params, where="my/params.json")
    assert "my/params.json" in str(e.value)
    for name in ("rope_tehta", "sliding_window", "rope_theta", "norm_eps"):
        params.pop(name)
    with pytest.raises(
        ValueError, match="missing key 'norm_eps', 'rope_theta'"
    ):
        config_of(params)


@pytest.mark.parametrize(
    "key, kind",
    [("vision_chunk_size", "vision"), ("lora_args", "quantized")],
)
def test_other_kinds_of_checkpoint_are_refused(key, kind):
    with pytest.raises(ValueError, match=f"'{key}' belongs to a {kind} model"):
        config_of(dict(SMALL, **{key: 448}))


@pytest.mark.parametrize(
    "change, said",
    [
        ({"dim": "64"}, "dim must be .* got '64'"),
        ({"dim": 64.0}, "dim must be .* got 64.0"),
        ({"n_layers": 0}, "n_layers must be .* got 0"),
        ({"n_layers": True}, "n_layers must be .* got True"),
        ({"vocab_size": -1}, "vocab_size must be .* got -1"),
        (
            {"n_kv_heads": 3},
            "n_heads must be a multiple of n_kv_heads = 3, got 8",
        ),
        ({"dim": 65}, "dim must be a multiple of n_heads = 8, got 65"),
        (
            {"dim": 72},
            "the width of a head must be even, for RoPE's pairs, got 9",
        ),
        ({"norm_eps": 0}, "norm_eps must be .* got 0"),
        ({"rope_theta": float("nan")}, "rope_theta must be .* got nan"),
        ({"rope_theta": None}, "rope_theta must be .* got None"),
        (
            {"use_scaled_rope": 1},
            "use_scaled_rope must be true or false, got 1",
        ),
        ({"ffn_dim_multiplier": -1}, "ffn_dim_multiplier must be .* got -1"),
    ],
)
def test_bad_values_are_named(change, said):
    with pytest.raises(ValueError, match=said):
        config_of(dict(SMALL, **change))


@pytest.mark.parametrize(
    "name, low, high",
    [
        ("norm_eps", 1e-37, 1),
        ("rope_theta", 1, 1e30),
        ("rope_scaling_factor", 1, 262144),
        ("ffn_dim_multiplier", 1e-10, 1e10),
    ],
)
def test_bounds(name, low, high):
    """Outside of them a norm or a rotation is no longer a finite number."""
    for value in (low, high, float(low)):
        config = config_of(SMALL | {"use_scaled_rope": True, name: value})
        assert getattr(config, name) == value
        if name != "ffn_dim_multiplier":  # those are of other widths
            assert random_llama(config)(random_ids(9)).isfinite().all()
    said = f"{name} must be a number from {low:.10g} to {high:.10g}, got"
    for value in (low / 2, 1e-320, high * 2, 10**400, -low, True, [1]):
        with pytest.raises(ValueError, match=said.replace("+", r"\+")):
            config_of(SMALL | {"use_scaled_rope": True, name: value})


def test_a_missing_multiplier_may_be_null():
    assert small_config(ffn_dim_multiplier=None).hidden_dim == 176


@pytest.mark.parametrize(
    "text, said",
    [("{", "not JSON"), ("[1]", "holds a list"), ("\xff", "not JSON")],
)
def test_what_is_no_config_file(tmp_path, text, said):
    path = tmp_path / "params.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=said) as error:
        read_params(path)
    assert str(path) in str(error.value)
    path.write_text(json.dumps(SMALL))
    assert read_params(path) == config_of(SMALL)
