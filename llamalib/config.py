r"""A model's settings: from Meta's params.json to `ModelArgs`, and back.

Each key and each value is checked.
"""

import dataclasses
from dataclasses import MISSING, replace

from .checks import require
from .model import LLAMA_1B, ModelArgs

OPTIONAL = {"ffn_dim_multiplier", "rope_scaling_factor"}  # may be null
OPTIONAL |= {"head_width", "context_length"}
MAX_COUNT = 2**31 - 1
# The fields that are not whole numbers. The published Llamas have an ε of
# 1e-5 or 1e-6 and a θ from 10,000; some for long contexts exceed 1e10.
BOUNDS = {
    "ffn_dim_multiplier": (0.001, 1000),
    "norm_eps": (1e-12, 0.01),
    "rope_theta": (1000, 1e15),
    "rope_scaling_factor": (1, 1000),
}


def config_of(params: dict, where="params", called=None) -> ModelArgs:
    """Return the config that params describe.

    Configs of the same model are equal, however they are written. Raises
    ValueError, beginning with `where`, for a key or a value that is wrong.
    called: names of fields in errors, if not their own.
    """
    kind = type(params).__name__
    require(isinstance(params, dict), f"{where} must be an object, got {kind}")
    fields = {f.name: f for f in dataclasses.fields(ModelArgs)}
    names = {name: name for name in fields} | (called or {})
    unknown = ", ".join(sorted(map(repr, set(params) - set(fields))))
    require(
        not unknown,
        f"{where}: unknown key {unknown:.200}; known: {', '.join(fields)}",
    )
    needed = {name for name in fields if fields[name].default is MISSING}
    missing = ", ".join(sorted(map(repr, needed - set(params))))
    require(not missing, f"{where}: missing key {missing}")
    for name, value in params.items():
        check_value(f"{where}: {names[name]}", value, fields[name])
    given = {n: v for n, v in params.items() if v is not None or n in needed}
    config = published(ModelArgs(**given))
    if params.get("context_length") is None:
        config = replace(config, context_length=published_context(config))
    check_heads(config, where, names)
    return config


def check_value(name: str, value, field) -> None:
    """Raise ValueError unless a field may have the value."""
    if field.type is bool:
        ok, what = type(value) is bool, "true or false"
    else:
        is_real = field.name in BOUNDS
        low, high = BOUNDS.get(field.name, (1, MAX_COUNT))
        kinds = (int, float) if is_real else (int,)
        ok = type(value) in kinds and low <= value <= high
        ok = ok or value is None and field.name in OPTIONAL
        what = "a number" if is_real else "a whole number"
        what = f"{what} from {low:.10g} to {high:.10g}"
    require(ok, f"{name} must be {what}, got {value!r:.80}")


def check_heads(config: ModelArgs, where, names: dict) -> None:
    """Raise ValueError unless the heads fit together."""
    H, KV, D = config.n_heads, config.n_kv_heads, config.dim
    dim, heads, kv_heads = (names[n] for n in ("dim", "n_heads", "n_kv_heads"))
    require(
        H % KV == 0,
        f"{where}: {heads} must be a multiple of {kv_heads} = {KV}, got {H}",
    )
    require(
        config.head_width or D % H == 0,
        f"{where}: {dim} must be a multiple of {heads} = {H}, got {D}",
    )
    source = names["head_width"] if config.head_width else f"{dim} / {heads}"
    require(
        config.head_dim % 2 == 0,
        f"{where}: the width of a head must be even, for RoPE's pairs, got "
        f"{config.head_dim} ({source})",
    )


def published(config: ModelArgs) -> ModelArgs:
    """Return the config with None wherever it has the published value."""
    factor, width = config.rope_scaling_factor, config.head_width
    usual = replace(config, rope_scaling_factor=None).scaling_factor
    if factor == usual or not config.use_scaled_rope:
        factor = None
    if width == config.dim / config.n_heads:
        width = None
    return replace(config, rope_scaling_factor=factor, head_width=width)


def published_context(config: ModelArgs) -> int:
    """Return the context of Meta's models: longer with scaled RoPE."""
    return LLAMA_1B.context_length if config.use_scaled_rope else 8192


def params_of(config: ModelArgs) -> dict:
    """Return the config as Meta's params.json, with sorted keys."""
    config = published(config)
    kept = {n: v for n, v in dataclasses.asdict(config).items() if v}
    if config.context_length == published_context(config):
        del kept["context_length"]
    kept["ffn_dim_multiplier"] = config.ffn_dim_multiplier
    return dict(sorted(kept.items()))
