r"""Read and write a model's settings.

They are Meta's params.json or Hugging Face's config.json; both become a
`ModelArgs`. Each key and each value is checked.
"""

import dataclasses
from dataclasses import MISSING, replace

from .checks import require
from .model import (
    HIGH_FREQ_FACTOR,
    LLAMA_1B,
    LOW_FREQ_FACTOR,
    ORIGINAL_CONTEXT,
    ModelArgs,
)

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


# Hugging Face's names of our fields
FIELDS = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
    "multiple_of": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "head_width": "head_dim",
    "context_length": "max_position_embeddings",
}
DEFAULTS = {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048}
# The values that leave a config a Llama's; None: the key is missing
LLAMA_VALUES = {
    "model_type": ["llama"],
    "architectures": [["LlamaForCausalLM"], [], None],
    "hidden_act": ["silu", "swish", None],
    "tie_word_embeddings": [False, True, None],
    "partial_rotary_factor": [1, None],
}
UNSET = (
    "attention_bias attention_chunk_size attn_logit_softcapping auto_map "
    "final_logit_softcapping is_encoder_decoder mlp_bias n_routed_experts "
    "no_rope_layers num_experts num_local_experts quantization_config "
    "rope_interleaved sliding_window text_config use_qk_norm "
    "use_sliding_window vision_config"
)
LLAMA_VALUES |= {key: [None, False, []] for key in UNSET.split()}
LLAMA3_SCALING = {
    "rope_type": ["llama3"],
    "low_freq_factor": [LOW_FREQ_FACTOR],
    "high_freq_factor": [HIGH_FREQ_FACTOR],
    "original_max_position_embeddings": [ORIGINAL_CONTEXT],
}
# multiple_of and ffn_dim_multiplier of the published models
PUBLISHED_FFN = [(256, 1.5), (256, 1.0), (4096, 1.3), (4096, 1.2), (1024, 1.3)]


def config_of_hugging_face(settings: dict, where) -> ModelArgs:
    """Return a config.json's settings, or raise ValueError naming the key."""
    layers = settings.get("layer_types")
    n = len(layers) if isinstance(layers, list) else 0
    kinds = {"layer_types": [["full_attention"] * n, None]}
    check_values(settings, LLAMA_VALUES | kinds, where)
    given = DEFAULTS | {k: v for k, v in settings.items() if v is not None}
    given.setdefault("num_key_value_heads", given.get("num_attention_heads"))
    fields = {ours: given.get(key) for ours, key in FIELDS.items()}
    fields |= rope_fields(settings, where) | {"ffn_dim_multiplier": None}
    # intermediate_size is checked in the place of multiple_of
    config = config_of(
        fields, where, {"rope_scaling_factor": "factor"} | FIELDS
    )
    return replace(config, **ffn_fields(config.dim, config.multiple_of))


def check_values(settings: dict, values: dict[str, list], where) -> None:
    """Raise ValueError for a key whose value is not among those expected."""
    for key, expected in values.items():
        require(
            settings.get(key) in expected,
            f"{where}: {key} must be {expected[0]!s:.80}, got "
            f"{settings.get(key)!r:.80}: llamalib runs Llamas only",
        )


def ffn_fields(dim: int, hidden: int) -> dict:
    """Return fields that give `hidden`: a published model's, if one fits."""
    own = hidden, hidden / int(8 * dim / 3)
    for multiple_of, multiplier in [*PUBLISHED_FFN, own]:
        ffn = dict(multiple_of=multiple_of, ffn_dim_multiplier=multiplier)
        if replace(LLAMA_1B, dim=dim, **ffn).hidden_dim == hidden:
            break
    return ffn


def rope_fields(settings: dict, where) -> dict:
    """Return rope_theta and its scaling, of an old config or a new one."""
    # transformers 5 writes rope_parameters; earlier ones rope_scaling or null
    old = settings.get("rope_scaling") or None
    scaling = settings.get("rope_parameters") or old or {}
    kind = type(scaling).__name__
    require(
        isinstance(scaling, dict),
        f"{where}: rope_parameters must be an object, got {kind}",
    )
    require(
        old in (scaling, None),
        f"{where}: rope_scaling and rope_parameters differ",
    )
    top = settings.get("rope_theta")
    base = scaling.get("rope_theta", 10000.0 if top is None else top)
    require(
        top in (None, base),
        f"{where}: rope_theta is {top!r:.80}, but {base!r:.80} in "
        "rope_parameters",
    )
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return dict(rope_theta=base)
    check_values(scaling | {"rope_type": kind}, LLAMA3_SCALING, where)
    factor = scaling.get("factor") or 0  # 0 is refused
    return dict(
        rope_theta=base, use_scaled_rope=True, rope_scaling_factor=factor
    )
