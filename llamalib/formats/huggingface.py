r"""Open a Llama in Hugging Face's format: other names, the same model.

A folder with `config.json`, the tensors in `model.safetensors` or in several
files that `model.safetensors.index.json` lists, and `tokenizer.json`. What is
not Llama's architecture is refused, by the name of the config's key or of the
tensor that says so: nothing is loaded as what it is not.
"""

import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..config import MAX_COUNT, ModelArgs
from ..swiglu import ffn_hidden_dim
from ..files import read_json, read_start, reject_lookalikes, require_file
from .checks import not_tensors
from ..rope import HIGH_FREQ_FACTOR, LOW_FREQ_FACTOR, ORIGINAL_CONTEXT
from ..tokenizer import Tokenizer, is_sentencepiece
from .tokenizer_json import read_tokenizer_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

# Hugging Face's names of what Meta's tensors are, without ".weight"
NAMES = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
}
BLOCK_NAMES = {
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

# What else a config may hold that would make it another model: the key, and
# the values that leave it a Llama. Any other value is refused.
NEUTRAL = {
    "hidden_act": ("silu", "swish", None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "sliding_window": (None,),
    "use_sliding_window": (False, None),
    "attention_chunk_size": (None,),
    "partial_rotary_factor": (1, None),
    "rope_interleaved": (False, None),
    "num_experts": (None, 0, 1),
    "num_local_experts": (None, 0, 1),
    "n_routed_experts": (None, 0),
    "quantization_config": (None,),
    "vision_config": (None,),
    "text_config": (None,),
    "auto_map": (None,),
    "use_qk_norm": (False, None),
    "no_rope_layers": (None, []),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "is_encoder_decoder": (False, None),
}
# keys of RoPE's scaling of type "llama3", and the values of Meta's models
LLAMA3_SCALING = {
    "low_freq_factor": LOW_FREQ_FACTOR,
    "high_freq_factor": HIGH_FREQ_FACTOR,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
}
# multiple_of and ffn_dim_multiplier of the published models
PUBLISHED_FFN = (
    (256, 1.5),
    (256, 1.0),
    (4096, 1.3),
    (4096, 1.2),
    (1024, 1.3),
    (256, None),
)


def read_config(folder: Path) -> tuple[ModelArgs, bool]:
    r"""config.json as ModelArgs, and whether the output is tied.

    Raises:
        ValueError: naming the file, the key, what was found and what is
            wanted.
    """
    path = Path(folder) / "config.json"
    config = read_json(path)
    try:
        refuse_others(config)
        return model_args(config), flag(config, "tie_word_embeddings")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def refuse_others(config: dict) -> None:
    """ValueError for what is no Llama, naming the key."""
    found = config.get("model_type")
    if found != "llama":
        raise ValueError(
            f"model_type is {found!r}; wanted 'llama': llamalib runs that "
            "architecture and no other"
        )
    classes = config.get("architectures") or ["LlamaForCausalLM"]
    if classes != ["LlamaForCausalLM"]:
        raise ValueError(
            f"architectures is {classes!r}; wanted ['LlamaForCausalLM']"
        )
    for key, neutral in NEUTRAL.items():
        if config.get(key) not in neutral:
            raise ValueError(
                f"{key} is {str(config[key])[:60]}: that is not Llama's "
                f"architecture; wanted {neutral[0]!r} or no such key"
            )
    layers = config.get("layer_types") or []
    if not isinstance(layers, list) or any(
        kind != "full_attention" for kind in layers
    ):
        raise ValueError(
            f"layer_types is {layers!r}; wanted 'full_attention' throughout"
        )


def model_args(config: dict) -> ModelArgs:
    """The fields that both formats have, in Meta's words."""
    dim = number(config, "hidden_size")
    heads = number(config, "num_attention_heads")
    hidden = number(config, "intermediate_size")
    multiple_of, multiplier = ffn_fields(dim, hidden)
    return ModelArgs(
        dim=dim,
        n_layers=number(config, "num_hidden_layers"),
        n_heads=heads,
        n_kv_heads=number(config, "num_key_value_heads", heads),
        vocab_size=number(config, "vocab_size"),
        multiple_of=multiple_of,
        ffn_dim_multiplier=multiplier,
        norm_eps=config.get("rms_norm_eps", 1e-6),
        head_width=config.get("head_dim"),
        context_length=number(config, "max_position_embeddings", 2048),
        **rope_fields(config),
    )


def number(config: dict, key: str, default=None) -> int:
    """A whole number from 1, or ValueError."""
    found = config.get(key)
    if found is None and default is not None:
        return default
    if type(found) is not int or not 1 <= found < MAX_COUNT:
        said = f"is {repr(found)[:40]}" if key in config else "is not there"
        raise ValueError(
            f"{key} {said}; wanted a whole number from 1 to {MAX_COUNT - 1}"
        )
    return found


def flag(config: dict, key: str) -> bool:
    """True or false, false if it is not there, or ValueError."""
    found = config.get(key, False)
    if type(found) is not bool:
        raise ValueError(f"{key} is {found!r}; wanted true or false")
    return found


def ffn_fields(dim: int, hidden: int) -> tuple[int, float | None]:
    r"""multiple_of and ffn_dim_multiplier that make `hidden` neurons.

    Those of a published model where they do; else hidden itself, of which
    the multiplied width is one multiple.
    """
    for multiple_of, multiplier in PUBLISHED_FFN:
        if ffn_hidden_dim(dim, multiple_of, multiplier) == hidden:
            return multiple_of, multiplier
    return hidden, hidden / int(8 * dim / 3)


def rope_fields(config: dict) -> dict:
    """rope_theta and its scaling, of older configs and of newer ones."""
    # transformers 5 writes rope_parameters; before, rope_scaling, or null
    newer, older = config.get("rope_parameters"), config.get("rope_scaling")
    scaling = newer or older or {}
    if not isinstance(scaling, dict):
        raise ValueError(f"rope_scaling is {scaling!r}; wanted an object")
    if newer and older and newer != older:
        raise ValueError(
            "rope_parameters and rope_scaling say different things; keep the "
            "one that the model was trained with"
        )
    theta = scaling.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return dict(rope_theta=theta)
    if kind != "llama3":
        raise ValueError(
            f"rope_scaling is of type {kind!r}; wanted 'llama3' or none"
        )
    for key, metas in LLAMA3_SCALING.items():
        if scaling.get(key) != metas:
            raise ValueError(
                f"rope_scaling's {key} is {scaling.get(key)!r}; wanted "
                f"{metas}, as in all of Meta's models"
            )
    factor = scaling.get("factor")
    if factor is None:
        raise ValueError("rope_scaling has no factor")
    return dict(
        rope_theta=theta, use_scaled_rope=True, rope_scaling_factor=factor
    )


def weight_files(folder: Path) -> dict[Path, list[str] | None]:
    r"""The files with tensors, each with the names that the index says.

    None instead of names where there is no index: all that it holds.

    Raises:
        FileNotFoundError: for a file that is not there.
        ValueError: for an index that is none.
    """
    single, index = folder / WEIGHTS, folder / INDEX
    if not index.is_file():
        return {require_file(folder, WEIGHTS): None}
    if single.is_file():
        raise ValueError(
            f"{folder} has both {WEIGHTS} and {INDEX}: keep the one that "
            "belongs to the model"
        )
    listed = read_json(index).get("weight_map")
    names_of = {}
    if not isinstance(listed, dict) or not listed:
        raise ValueError(
            f"{index} has no weight_map; wanted a file's name for every tensor"
        )
    for name, file in listed.items():
        # a name only: an index must not point out of its folder
        if not isinstance(file, str) or Path(file).name != file:
            raise ValueError(
                f"{index}: {name} is said to be in {file!r}; wanted the name "
                "of a file beside it"
            )
        names_of.setdefault(folder / file, []).append(name)
    for file in names_of:
        require_file(folder, file.name)
    return names_of


def metas_name(name: str) -> str | None:
    """Meta's name of a tensor; None for one that no Llama has."""
    stem = name.removesuffix(".weight")
    if stem == name:
        return None
    if stem in NAMES:
        return f"{NAMES[stem]}.weight"
    parts = stem.split(".", 3)
    if parts[:2] != ["model", "layers"] or len(parts) < 4:
        return None
    short = BLOCK_NAMES.get(parts[3])
    if short is None or not re.fullmatch("0|[1-9][0-9]*", parts[2]):
        return None
    return f"layers.{parts[2]}.{short}.weight"


def in_pairs(weight: Tensor, head_dim: int) -> Tensor:
    r"""Rows of q or k in Meta's order.

    Hugging Face's RoPE turns component k with component k + hd/2, Meta's 2k
    with 2k + 1: rows that make a pair stand hd/2 apart there, and side by side
    here. The model is the same, since q and k are reordered alike.

    Args:
        weight: (n·hd, D), n heads.

    Returns:
        (n·hd, D), a copy.
    """
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))  # (n, 2, hd/2, D)
    return halves.transpose(1, 2).flatten(0, 2)


def open_file(file: Path) -> dict[str, Tensor]:
    """The tensors of one .safetensors, mapped; it holds nothing that runs."""
    reject_lookalikes(file)
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise not_tensors(file, error, "safetensors") from None


def read_tensors(folder: Path, tied: bool):
    r"""Every tensor by Meta's name, mapped; q and k not yet in Meta's order.

    Args:
        tied: whether config.json says that the output is the embedding.

    Returns:
        the tensors; and by the same names in what file, and by what name,
        each was, "" for all.

    Raises:
        FileNotFoundError, ValueError: naming the file and the tensor.
    """
    tensors, places = {}, {"": str(folder)}
    for file, names in weight_files(folder).items():
        held = open_file(file)
        for name in names if names is not None else held:
            if name not in held:
                raise ValueError(
                    f"{file} has no tensor {name}, which {INDEX} says it has"
                )
            if name.endswith("rotary_emb.inv_freq"):
                continue  # of older files; the config says it
            metas = metas_name(name)
            if metas is None or metas in tensors:
                raise ValueError(
                    f"{file} has a tensor {name}, which no Llama has, or not "
                    "twice: it is of another architecture"
                )
            tensors[metas], places[metas] = held[name], f"{file}: {name}"
    if tied:
        check_tied(tensors, places)
    elif "output.weight" not in tensors:
        raise ValueError(
            f"{folder} has no tensor lm_head.weight, and config.json does "
            "not say tie_word_embeddings"
        )
    return tensors, places


def check_tied(tensors: dict[str, Tensor], places: dict[str, str]) -> None:
    """ValueError where config.json ties two matrices that differ."""
    output = tensors.pop("output.weight", None)
    embedding = tensors.get("tok_embeddings.weight")
    if output is None or embedding is None:
        return
    if not torch.equal(output, embedding):
        raise ValueError(
            f"{places['output.weight']} differs from "
            "model.embed_tokens.weight, and config.json says "
            "tie_word_embeddings: one of them is of another model"
        )


def read_tokenizer(folder: Path, vocab_size: int):
    r"""The tokenizer of a folder.

    Of `tokenizer.json`: Llama 3's rebuilt as such, any other by the tokenizers
    library. Where there is none, of a `tokenizer.model` of Llama 3's kind.

    Raises:
        FileNotFoundError, ValueError: naming the file and what is wrong.
    """
    model, path = folder / "tokenizer.model", folder / "tokenizer.json"
    if path.is_file() or not model.is_file():
        path = require_file(folder, "tokenizer.json")
        tokenizer = read_tokenizer_json(path)
    elif is_sentencepiece(read_start(model)):
        raise ValueError(
            f"{model} is a SentencePiece model, and there is no "
            "tokenizer.json: let the transformers library write one, by "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    else:
        tokenizer = Tokenizer.from_file(model)
    ends = ends_of(folder, vocab_size)
    if ends:  # a model that was trained further may end otherwise
        tokenizer.eos_id, tokenizer.stop_tokens = ends[0], frozenset(ends)
    return tokenizer


def ends_of(folder: Path, vocab_size: int) -> list[int]:
    r"""The ids that end a text: eos_token_id, one or several; or none.

    Of generation_config.json where it says so, for what ends a turn stands
    there; else of config.json.
    """
    ends = []
    for name in ("config.json", "generation_config.json"):
        file = folder / name
        found = read_json(file).get("eos_token_id") if file.is_file() else None
        if found is None:
            continue
        ends = found if isinstance(found, list) else [found]
        if not all(type(i) is int and 0 <= i < vocab_size for i in ends):
            raise ValueError(
                f"{file}: eos_token_id is {found!r}; wanted ids from 0 to "
                f"{vocab_size - 1}"
            )
    return ends
