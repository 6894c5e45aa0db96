r"""Read Hugging Face's files: other names, the same model.

`config.json`, `tokenizer.json`, and `model.safetensors` or the files that
`model.safetensors.index.json` lists. Any other architecture is refused.
"""

import dataclasses
import re
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..checks import expect
from ..files import read_json, read_start, reject_lookalikes, require_file
from ..model import HIGH_FREQ_FACTOR, LOW_FREQ_FACTOR, ORIGINAL_CONTEXT
from ..model import LLAMA_1B, ModelArgs
from ..tokenizer import Tokenizer, is_sentencepiece
from .checks import unreadable
from .meta import check_tensors, is_tied
from .params import config_of
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
PUBLISHED_FFN = {256: (1.5, 1.0), 4096: (1.3, 1.2), 1024: (1.3,)}


def read_folder(folder: Path, keep=None):
    """Read a folder in Hugging Face's format; see `meta.read_folder`."""
    settings = read_json(folder / "config.json")
    config = model_args(settings, folder / "config.json")
    tokenizer = read_tokenizer(folder, config.vocab_size)
    n, V = tokenizer.n_words, config.vocab_size
    most = f"at most {V}, the vocab_size in config.json"
    expect(n <= V, f"the number of tokens in {folder}", n, most)
    tokenizer.vocab_size = V
    tied = bool(settings.get("tie_word_embeddings"))
    return config, tokenizer, *read_tensors(folder, config, tied, keep)


def model_args(settings: dict, where) -> ModelArgs:
    """Return a config.json's settings, or raise ValueError naming the key."""
    layers = settings.get("layer_types")
    n = len(layers) if isinstance(layers, list) else 0
    given = DEFAULTS | {k: v for k, v in settings.items() if v is not None}
    given.setdefault("num_key_value_heads", given.get("num_attention_heads"))
    fields = {ours: given.get(key) for key, ours in FIELDS.items()}
    try:
        kinds = {"layer_types": [["full_attention"] * n, None]}
        expect_values(settings, LLAMA_VALUES | kinds)
        fields |= rope_fields(settings) | {"ffn_dim_multiplier": None}
        # intermediate_size is checked in the place of multiple_of
        args = config_of(fields, where)
        ffn = ffn_fields(args.dim, args.multiple_of)
        return dataclasses.replace(args, **ffn)
    except ValueError as error:
        text = str(error)
        for key, ours in (FIELDS | {"factor": "rope_scaling_factor"}).items():
            text = re.sub(rf"\b{ours}\b", key, text)
        text = text.removeprefix(f"{where}: ")
        raise ValueError(f"{where}: {text}") from None


def expect_values(settings: dict, values: dict[str, list]) -> None:
    """Raise ValueError for a key whose value is not among those expected."""
    for key, expected in values.items():
        found = settings.get(key)
        expect(found in expected, key, found, repr(expected[0])[:200])


def ffn_fields(dim: int, hidden: int) -> dict:
    """Return fields that give `hidden`: a published model's, if one fits."""
    for multiple_of, multipliers in PUBLISHED_FFN.items():
        for x in multipliers:
            ffn = dict(multiple_of=multiple_of, ffn_dim_multiplier=x)
            if (
                dataclasses.replace(LLAMA_1B, dim=dim, **ffn).hidden_dim
                == hidden
            ):
                return ffn
    multiplier = hidden / int(8 * dim / 3)
    return dict(multiple_of=hidden, ffn_dim_multiplier=multiplier)


def rope_fields(settings: dict) -> dict:
    """Return rope_theta and its scaling, of an old config or a new one."""
    # transformers 5 writes rope_parameters; earlier ones rope_scaling or null
    old = settings.get("rope_scaling") or None
    scaling = settings.get("rope_parameters") or old or {}
    expect(isinstance(scaling, dict), "rope_parameters", scaling, "an object")
    expect(old in (scaling, None), "rope_scaling", old, f"{scaling}")
    top = settings.get("rope_theta")
    base = scaling.get("rope_theta", 10000.0 if top is None else top)
    expect(top in (None, base), "rope_theta", top, f"rope_parameters' {base}")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    fields = dict(rope_theta=base)
    if kind != "default":
        expect_values(scaling | {"rope_type": kind}, LLAMA3_SCALING)
        factor = scaling.get("factor")
        factor = 0 if factor is None else factor  # 0 is refused
        fields |= dict(use_scaled_rope=True, rope_scaling_factor=factor)
    return fields


def read_tensors(folder: Path, config: ModelArgs, tied: bool, keep):
    """Return what `meta.read_tensors` does, each tensor as a single part."""
    tensors, places = open_tensors(folder)
    check_tensors(tensors, config, folder / "config.json", places)
    what = f"{folder / 'config.json'}: tie_word_embeddings"
    ok = tied or "output.weight" in tensors
    expect(ok, what, tied, "true: there is no lm_head.weight")
    ok = not tied or is_tied(tensors)
    expect(ok, what, tied, "false: lm_head.weight is another matrix")
    if tied:
        tensors.pop("output.weight", None)
    for name, whole in tensors.items():
        tensors[name] = own = keep(config, name, [whole]) if keep else [whole]
        if name.endswith((".wq.weight", ".wk.weight")):  # whole heads
            tensors[name] = [to_meta_layout(w, config.head_dim) for w in own]
            release_pages(whole, folder)
    return tensors, tied


def open_tensors(folder: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors and places of all files; see `meta.check_tensors`."""
    tensors, places = {}, {"": str(folder)}
    for file in weight_files(folder):
        reject_lookalikes(file)
        try:  # mapped; the format can hold no code
            with safe_open(file, framework="pt", device="cpu") as opened:
                held = {n: opened.get_tensor(n) for n in opened.keys()}
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            raise unreadable(file, error, "safetensors") from None
        for name, tensor in held.items():
            if name.endswith("rotary_emb.inv_freq"):
                continue  # in older files; the config has it
            ours = meta_name(name)
            ok = ours is not None and ours not in tensors
            expect(ok, f"a tensor in {file}", name, "those of a Llama, once")
            tensors[ours], places[ours] = tensor, f"{file}: {name}"
    return tensors, places


def weight_files(folder: Path) -> list[Path]:
    """Return the files with tensors, or raise FileNotFoundError."""
    index = folder / INDEX
    if not index.is_file():
        return [require_file(folder, WEIGHTS)]
    if (folder / WEIGHTS).is_file():
        both = f"{folder} has both {WEIGHTS} and {INDEX}"
        raise ValueError(f"{both}: keep the one that belongs to the model")
    weight_map = read_json(index).get("weight_map")
    names = weight_map.values() if isinstance(weight_map, dict) else []
    # only names: an index must not point out of its folder
    strings = all(isinstance(n, str) and n.isprintable() for n in names)
    ok = bool(names) and strings and all(n == Path(n).name[:99] for n in names)
    expect(ok, f"{index}: weight_map", weight_map, "names of files next to it")
    return [require_file(folder, name) for name in sorted(set(names))]


def meta_name(name: str) -> str | None:
    """Return Meta's name of a tensor; None for one that no Llama has."""
    block = r"model\.(layers\.(?:0|[1-9][0-9]*)\.)"
    found = re.fullmatch(rf"(?:{block})?(.+)\.weight", name)
    if not found:
        return None
    prefix, stem = found.groups()
    short = (BLOCK_TENSORS if prefix else TENSORS).get(stem)
    return short and f"{prefix or ''}{short}.weight"


def to_meta_layout(weight: Tensor, head_dim: int) -> Tensor:
    r"""Return a copy of wq or wk, (n·hd, D), with its rows in Meta's order.

    Hugging Face's RoPE rotates component k with component k + hd/2, Meta's
    rotates 2k with 2k + 1: the same model, with other rows.
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
        ok = all(type(i) is int and 0 <= i < vocab_size for i in ends)
        ids = f"ids from 0 to {vocab_size - 1}"
        expect(ok, f"{file}: eos_token_id", found, ids)
    return ends
