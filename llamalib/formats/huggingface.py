r"""Read Hugging Face's files: other names, the same model.

A folder has `config.json`, `tokenizer.json` and the tensors, which are in
`model.safetensors` or in the files that `model.safetensors.index.json` lists.
Another architecture is refused by the key or tensor that tells it apart.
"""

import dataclasses
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..config import ModelArgs
from ..files import read_json, read_start, reject_lookalikes, require_file
from ..rope import HIGH_FREQ_FACTOR, LOW_FREQ_FACTOR, ORIGINAL_CONTEXT
from ..swiglu import ffn_hidden_dim
from ..tokenizer import Tokenizer, is_sentencepiece
from .checks import other_model, unreadable
from .meta import check_tensors
from .placing import release_pages
from .tokenizer_json import read_tokenizer_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

# Hugging Face's names of tensors and settings, and Meta's
TENSORS = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
}
BLOCK_TENSORS = {
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}
FIELDS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "vocab_size": "vocab_size",
    "intermediate_size": "multiple_of",
    "rms_norm_eps": "norm_eps",
    "head_dim": "head_width",
    "max_position_embeddings": "context_length",
}
DEFAULTS = {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048}
# The values that a Llama's config has, None if it lacks the key. Another
# value of one of these keys makes it another architecture.
LLAMA_VALUES = {
    "model_type": ["llama"],
    "architectures": [["LlamaForCausalLM"], [], None],
    "hidden_act": ["silu", "swish", None],
    "tie_word_embeddings": [False, True, None],
    "partial_rotary_factor": [1, None],
    "no_rope_layers": [None, []],
    "num_experts": [None, 0, 1],
    "num_local_experts": [None, 0, 1],
    "n_routed_experts": [None, 0],
}
UNSET = (
    "attention_bias attention_chunk_size attn_logit_softcapping auto_map "
    "final_logit_softcapping is_encoder_decoder mlp_bias quantization_config "
    "rope_interleaved sliding_window text_config use_qk_norm "
    "use_sliding_window vision_config"
)
LLAMA_VALUES |= {key: [None, False] for key in UNSET.split()}
LLAMA3_SCALING = {
    "rope_type": ["llama3"],
    "low_freq_factor": [LOW_FREQ_FACTOR],
    "high_freq_factor": [HIGH_FREQ_FACTOR],
    "original_max_position_embeddings": [ORIGINAL_CONTEXT],
}
# multiple_of and ffn_dim_multiplier of the published models
PUBLISHED_FFN = {256: (1.5, 1.0), 4096: (1.3, 1.2), 1024: (1.3,)}


def read_folder(folder: Path):
    """Read a folder in Hugging Face's format; see `meta.read_folder`."""
    path = folder / "config.json"
    settings = read_json(path)
    try:
        config = model_args(settings)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    tokenizer = read_tokenizer(folder, config.vocab_size)
    if tokenizer.n_words > config.vocab_size:
        raise other_model(
            f"{folder} has a tokenizer of {tokenizer.n_words} tokens, and "
            f"config.json says vocab_size {config.vocab_size}"
        )
    tokenizer.vocab_size = config.vocab_size
    tied = bool(settings.get("tie_word_embeddings"))
    return config, tokenizer, *read_tensors(folder, config, tied)


def model_args(settings: dict) -> ModelArgs:
    """Return a config.json's settings, or raise ValueError naming the key."""
    expect(settings, LLAMA_VALUES)
    layers = settings.get("layer_types")
    n = len(layers) if isinstance(layers, list) else 0
    expect(settings, {"layer_types": [None, ["full_attention"] * n]})
    given = {
        key: value for key, value in settings.items() if value is not None
    }
    given = DEFAULTS | given
    given.setdefault("num_key_value_heads", given.get("num_attention_heads"))
    fields = {ours: given.get(key) for key, ours in FIELDS.items()}
    fields |= rope_fields(settings)
    try:  # intermediate_size is checked in the place of multiple_of
        args = ModelArgs(ffn_dim_multiplier=None, **fields)
    except ValueError as error:
        text = str(error)
        for theirs, ours in FIELDS.items():
            text = re.sub(rf"\b{ours}\b", theirs, text)
        raise ValueError(text) from None
    multiple_of, multiplier = ffn_fields(args.dim, args.multiple_of)
    return dataclasses.replace(
        args, multiple_of=multiple_of, ffn_dim_multiplier=multiplier
    )


def expect(settings: dict, values: dict[str, list]) -> None:
    """Raise ValueError for a key whose value is not among those expected."""
    for key, expected in values.items():
        if settings.get(key) not in expected:
            raise ValueError(
                f"{key} is {repr(settings.get(key))[:60]}, which no Llama "
                f"has; expected {repr(expected[0])[:60]}"
            )


def ffn_fields(dim: int, hidden: int) -> tuple[int, float | None]:
    r"""Return a multiple_of and ffn_dim_multiplier that give `hidden`.

    A published model's, if one fits; else `hidden` itself as multiple_of, of
    which the multiplied width is one multiple.
    """
    for multiple_of, multipliers in PUBLISHED_FFN.items():
        for multiplier in multipliers:
            if ffn_hidden_dim(dim, multiple_of, multiplier) == hidden:
                return multiple_of, multiplier
    return hidden, hidden / int(8 * dim / 3)


def rope_fields(settings: dict) -> dict:
    """Return rope_theta and its scaling, of an old config or a new one."""
    # transformers 5 writes rope_parameters; earlier ones rope_scaling or null
    old = settings.get("rope_scaling")
    scaling = settings.get("rope_parameters") or old or {}
    if not isinstance(scaling, dict) or old not in (None, {}, scaling):
        raise ValueError(
            f"rope_parameters is {str(scaling)[:60]} and rope_scaling "
            f"{str(old)[:60]}; expected one object, or the same twice"
        )
    theta = scaling.get("rope_theta", settings.get("rope_theta", 10000.0))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return dict(rope_theta=theta)
    expect(scaling | {"rope_type": kind}, LLAMA3_SCALING)
    return dict(
        rope_theta=theta,
        use_scaled_rope=True,
        rope_scaling_factor=scaling.get("factor") or 0,  # 0 is refused
    )


def read_tensors(
    folder: Path, config: ModelArgs, tied: bool
) -> tuple[dict[str, list[Tensor]], bool]:
    """Return what `meta.read_tensors` does, each tensor as a single part."""
    tensors, places = open_tensors(folder)
    if not tied and "output.weight" not in tensors:
        raise ValueError(
            f"{folder} has no tensor lm_head.weight, and config.json does not "
            "say tie_word_embeddings"
        )
    check_tensors(tensors, config, folder / "config.json", places)
    output = tensors.pop("output.weight", None) if tied else None
    embedding = tensors["tok_embeddings.weight"]
    if output is not None and not torch.equal(output, embedding):
        raise other_model(
            f"{places['output.weight']} differs from the embedding, and "
            "config.json says tie_word_embeddings"
        )
    for name, weight in tensors.items():
        if name.endswith((".wq.weight", ".wk.weight")):
            tensors[name] = to_meta_layout(weight, config.head_dim)
            release_pages(weight, folder)
    return {name: [tensor] for name, tensor in tensors.items()}, tied


def open_tensors(folder: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors and places of all files; see `meta.check_tensors`."""
    tensors, places = {}, {"": str(folder)}
    for file in weight_files(folder):
        for name, tensor in open_file(file).items():
            if name.endswith("rotary_emb.inv_freq"):
                continue  # in older files; the config has it
            ours = meta_name(name)
            if ours is None or ours in tensors:
                raise ValueError(
                    f"{file} has an unknown or duplicate tensor {name}, so it "
                    "is of another architecture"
                )
            tensors[ours], places[ours] = tensor, f"{file}: {name}"
    return tensors, places


def weight_files(folder: Path) -> list[Path]:
    """Return the files with tensors, or raise FileNotFoundError."""
    index = folder / INDEX
    if not index.is_file():
        return [require_file(folder, WEIGHTS)]
    if (folder / WEIGHTS).is_file():
        raise ValueError(
            f"{folder} has both {WEIGHTS} and {INDEX}: keep the one that "
            "belongs to the model"
        )
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{index} has no weight_map; expected file names")
    for name, file in weight_map.items():
        # only a name: an index must not point out of its folder
        if not isinstance(file, str) or Path(file).name != file:
            raise ValueError(
                f"{index}: the file of {name} is {file!r}; expected the name "
                "of a file in the same folder"
            )
    return [require_file(folder, n) for n in sorted(set(weight_map.values()))]


def open_file(file: Path) -> dict[str, Tensor]:
    """Map the tensors of one .safetensors, which can hold no code."""
    reject_lookalikes(file)
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise unreadable(file, error, "safetensors") from None


def meta_name(name: str) -> str | None:
    """Return Meta's name of a tensor; None for one that no Llama has."""
    layer = r"model\.layers\.(0|[1-9][0-9]*)\."
    found = re.fullmatch(rf"({layer})?(.+)\.weight", name)
    if not found:
        return None
    _, number, stem = found.groups()
    short = (TENSORS if number is None else BLOCK_TENSORS).get(stem)
    prefix = "" if number is None else f"layers.{number}."
    return short and f"{prefix}{short}.weight"


def to_meta_layout(weight: Tensor, head_dim: int) -> Tensor:
    r"""Return the rows of wq or wk in Meta's order.

    Hugging Face's RoPE rotates component k with component k + hd/2, Meta's
    rotates 2k with 2k + 1. Query and key are reordered alike, so the model
    is the same.

    Args:
        weight: (n·hd, D), for n heads.

    Returns:
        (n·hd, D), a copy.
    """
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))  # (n, 2, hd/2, D)
    return halves.transpose(1, 2).flatten(0, 2)


def read_tokenizer(folder: Path, vocab_size: int):
    """Read tokenizer.json, or else a tokenizer.model of Llama 3's kind."""
    model, path = folder / "tokenizer.model", folder / "tokenizer.json"
    if path.is_file() or not model.is_file():
        tokenizer = read_tokenizer_json(require_file(folder, path.name))
    elif is_sentencepiece(read_start(model)):
        raise ValueError(
            f"{model} is a SentencePiece model, and there is no "
            "tokenizer.json. The transformers library can write one: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    else:
        tokenizer = Tokenizer.from_file(model)
    ends = end_ids(folder, vocab_size)
    if ends:  # further training may have changed them
        tokenizer.eos_id, tokenizer.stop_tokens = ends[0], frozenset(ends)
    return tokenizer


def end_ids(folder: Path, vocab_size: int) -> list[int]:
    """Return the ids that end a text, or none if no file says them."""
    ends = []
    # the second replaces the first: it adds the ids that end a turn
    for name in ("config.json", "generation_config.json"):
        file = folder / name
        found = read_json(file).get("eos_token_id") if file.is_file() else None
        if found is None:
            continue
        ends = found if isinstance(found, list) else [found]
        if not all(type(i) is int and 0 <= i < vocab_size for i in ends):
            raise ValueError(
                f"{file}: eos_token_id is {found!r}; expected ids from 0 to "
                f"{vocab_size - 1}"
            )
    return ends
