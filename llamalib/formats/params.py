r"""Check the keys and ranges of a params.json; write one."""

import dataclasses
from dataclasses import MISSING, replace
from pathlib import Path

from ..files import read_json, require_file
from ..model import LLAMA_1B, ModelArgs

# Keys of Meta checkpoints that this package does not support.
VISION = ("chunk_size", "max_num_chunks", "num_cross_attention_layers")
UNSUPPORTED = dict.fromkeys([f"vision_{key}" for key in VISION], "vision")
UNSUPPORTED |= {"quantization_args": "quantized", "lora_args": "quantized"}
MAX_COUNT = 2**31 - 1
BOUNDS = {  # of the fields that are not whole numbers
    "ffn_dim_multiplier": (1e-10, 1e10),  # for widths up to MAX_COUNT
    "norm_eps": (1e-37, 1.0),  # normal in float32
    "rope_theta": (1.0, 1e30),  # so that every frequency is at most 1
    "rope_scaling_factor": (1.0, 2.0**18),  # for contexts up to MAX_COUNT
}


def read_params(file) -> ModelArgs:
    """Return the config in a params.json; see `config_of`."""
    file = Path(file)
    params = read_json(require_file(file.parent, file.name))
    return config_of(params, where=file)


def config_of(params: dict, where="params") -> ModelArgs:
    """Return the config that params describe.

    Configs of the same model are equal, however they are written. Raises
    ValueError, beginning with `where`, for a key or a value that is wrong.
    """
    if not isinstance(params, dict):
        kind = type(params).__name__
        raise ValueError(f"{where}: must be an object of settings, got {kind}")
    fields = {f.name: f for f in dataclasses.fields(ModelArgs)}
    for key in params:
        if key in UNSUPPORTED:
            raise ValueError(
                f"{where}: {key!r} belongs to a {UNSUPPORTED[key]} model, "
                "which llamalib does not support"
            )
    unknown = sorted(set(params) - set(fields), key=str)
    if unknown:
        raise ValueError(
            f"{where}: unknown key {', '.join(map(repr, unknown)):.200}; "
            f"known: {', '.join(fields)}"
        )
    needed = [name for name in fields if fields[name].default is MISSING]
    missing = [name for name in needed if name not in params]
    if missing:
        raise ValueError(
            f"{where}: missing key {', '.join(map(repr, missing))}"
        )
    for name, value in params.items():
        check_value(f"{where}: {name}", value, fields[name])
    given = {
        name: value
        for name, value in params.items()
        if value is not None or fields[name].default is MISSING
    }
    config = published(ModelArgs(**given))
    if params.get("context_length") is None:
        config = replace(config, context_length=published_context(config))
    check_heads(config, where)
    return config


def check_value(name: str, value, field) -> None:
    """Raise ValueError unless a field may have the value."""
    if field.type is bool:
        if type(value) is not bool:
            raise ValueError(
                f"{name} must be true or false, got {value!r:.80}"
            )
        return
    optional = (int | None, float | None)
    if value is None and (
        field.type in optional or field.name == "context_length"
    ):
        return
    is_real = field.name in BOUNDS
    low, high = BOUNDS.get(field.name, (1, MAX_COUNT))
    kinds = (int, float) if is_real else (int,)
    if type(value) not in kinds or not low <= value <= high:
        what = "a number" if is_real else "a whole number"
        raise ValueError(
            f"{name} must be {what} from {low:.10g} to {high:.10g}, got "
            f"{value!r:.80}"
        )


def check_heads(config: ModelArgs, where) -> None:
    """Raise ValueError unless the heads fit together."""
    H, KV, D = config.n_heads, config.n_kv_heads, config.dim
    if H % KV:
        raise ValueError(
            f"{where}: n_heads must be a multiple of n_kv_heads = {KV}, got {H}"
        )
    if config.head_width is None and D % H:
        raise ValueError(
            f"{where}: dim must be a multiple of n_heads = {H}, got {D}"
        )
    if config.head_dim % 2:
        source = "head_width" if config.head_width else "dim / n_heads"
        raise ValueError(
            f"{where}: the width of a head must be even, for RoPE's pairs, "
            f"got {config.head_dim} ({source})"
        )


def published(config: ModelArgs) -> ModelArgs:
    """Return the config with None wherever it has the published value."""
    factor, width = config.rope_scaling_factor, config.head_width
    plain = replace(config, rope_scaling_factor=None)
    if (
        factor is None
        or factor == plain.scaling_factor
        or not config.use_scaled_rope
    ):
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
