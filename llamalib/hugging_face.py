r"""Hugging Face's format: config.json, tokenizer.json and *.safetensors.

Nothing that a file holds is ever run.
"""

import json
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from .checks import (
    check_ids,
    damaged,
    read_json,
    read_start,
    reject_lookalikes,
    require,
    require_file,
    shown,
)
from .config import config_of
from .dialogues import dialogue_ids, usual_system
from .model import (
    HIGH_FREQ_FACTOR,
    LLAMA_1B,
    LOW_FREQ_FACTOR,
    ORIGINAL_CONTEXT,
    ModelArgs,
)
from .tensors import Checkpoint, check_finite, check_tensors, is_tied
from .tokenizer import (
    SPLIT_PATTERN,
    Tokenizer,
    check_special,
    check_text,
    is_sentencepiece,
)

SETTINGS = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_checkpoint(folder: Path, check: bool = False) -> Checkpoint:
    """Open a folder in this format, which has no checksums to check."""
    config = read_config(folder)
    tokenizer = read_tokenizer(folder, config.vocab_size)
    tensors, tied = read_tensors(folder, config)

    def parts(name: str, dtype) -> list[Tensor]:
        if name.endswith((".wq.weight", ".wk.weight")):
            return [to_meta_layout(tensors[name], config.head_dim)]
        return [tensors[name]]

    dtype = tensors["tok_embeddings.weight"].dtype
    return Checkpoint(folder, config, tokenizer, dtype, tied, parts)


# -- config.json ------------------------------------------------------------

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
LLAMA_VALUES: dict[str, list] = {
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
LLAMA3_SCALING: dict[str, list] = {
    "rope_type": ["llama3"],
    "low_freq_factor": [LOW_FREQ_FACTOR],
    "high_freq_factor": [HIGH_FREQ_FACTOR],
    "original_max_position_embeddings": [ORIGINAL_CONTEXT],
}
ROPE_KEYS = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}
LLAMA3_KEYS = {"factor"} | LLAMA3_SCALING.keys()
# multiple_of and ffn_dim_multiplier of the published models
PUBLISHED_FFN = [(256, 1.5), (256, 1.0), (4096, 1.3), (4096, 1.2), (1024, 1.3)]


def read_config(folder: Path) -> ModelArgs:
    """Return config.json's settings, or raise ValueError naming the key."""
    where = require_file(folder, SETTINGS)
    settings = read_json(where)
    layers = settings.get("layer_types")
    n = len(layers) if isinstance(layers, list) else 0
    expected = dict(LLAMA_VALUES)
    expected["layer_types"] = [["full_attention"] * n, None]
    check_values(settings, expected, where)
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


def ffn_fields(dim: int, hidden: int) -> dict[str, Any]:
    """Return fields that give `hidden`: a published model's, if one fits."""
    own = hidden, hidden / int(8 * dim / 3)
    for multiple_of, multiplier in [*PUBLISHED_FFN, own]:
        ffn: dict[str, Any] = {
            "multiple_of": multiple_of,
            "ffn_dim_multiplier": multiplier,
        }
        if replace(LLAMA_1B, dim=dim, **ffn).hidden_dim == hidden:
            break
    return ffn


def rope_fields(settings: dict, where) -> dict:
    """Return rope_theta and its scaling, of an old config or a new one."""
    # transformers 5 writes rope_parameters; earlier ones rope_scaling or null
    for name in ("rope_parameters", "rope_scaling"):
        found = settings.get(name)
        kind = type(found).__name__
        require(
            found is None or isinstance(found, dict),
            f"{where}: {name} must be an object, got {kind}",
        )
    old = settings.get("rope_scaling") or None
    scaling = settings.get("rope_parameters") or old or {}
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
        check_rope(scaling, kind, ROPE_KEYS, where)
        return dict(rope_theta=base)
    check_values(scaling | {"rope_type": kind}, LLAMA3_SCALING, where)
    check_rope(scaling, kind, ROPE_KEYS | LLAMA3_KEYS, where)
    factor = scaling.get("factor") or 0  # 0 is refused
    return dict(
        rope_theta=base, use_scaled_rope=True, rope_scaling_factor=factor
    )


def check_rope(scaling: dict, kind, keys: set[str], where) -> None:
    """Raise ValueError for a key that would change what llamalib computes."""
    same = {"type": [kind, None], "partial_rotary_factor": [1, None]}
    check_values(scaling, same, where)
    for key, value in scaling.items():
        require(
            key in keys or value is None,
            f"{where}: {shown(key)} is {value!r:.80}, which RoPE of the type "
            f"{kind!r:.80} has not: llamalib runs Llamas only",
        )


def settings_of(config: ModelArgs) -> dict:
    """Return the config as a config.json, from which `read_config` makes it."""
    ours = asdict(config)
    ours |= dict(multiple_of=config.hidden_dim, head_width=config.head_dim)
    scaling = None
    if config.scaling_factor is not None:
        scaling = {key: values[0] for key, values in LLAMA3_SCALING.items()}
        scaling["factor"] = config.scaling_factor
    return dict(
        model_type="llama",
        architectures=["LlamaForCausalLM"],
        hidden_act="silu",
        rope_theta=config.rope_theta,
        rope_scaling=scaling,
        **{theirs: ours[name] for name, theirs in FIELDS.items()},
    )


# -- tensors -----------------------------------------------------------------

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


def read_tensors(folder: Path, config: ModelArgs):
    """Return tensors by Meta's names, and whether the output is tied.

    wq and wk are still in Hugging Face's layout, see `to_meta_layout`.
    """
    from safetensors import safe_open

    tensors: dict[str, Tensor] = {}
    places: dict[str, object] = {"": folder}  # a file, or a tensor's place
    for file in weight_files(folder):
        reject_lookalikes(file)
        try:  # mapped; the format can hold no code
            with safe_open(file, framework="pt", device="cpu") as opened:
                held = {n: opened.get_tensor(n) for n in opened.keys()}
        except Exception as error:  # its type depends on the damage
            raise damaged(file, error) from None
        check_finite(held, file)
        for name, tensor in held.items():
            if name.endswith("rotary_emb.inv_freq"):
                continue  # in older files; the config has it
            ours, place = meta_name(name) or "", f"{file}: {shown(name)}"
            require(ours, f"{place} is not a tensor of a Llama")
            require(ours not in tensors, f"{place} is there twice")
            tensors[ours], places[ours] = tensor, place
    file = folder / SETTINGS
    check_tensors(tensors, config, file, places)
    tied = bool(read_json(file).get("tie_word_embeddings"))
    require(
        tied or "output.weight" in tensors,
        f"{file}: tie_word_embeddings is false, but there is no "
        "lm_head.weight",
    )
    require(
        not tied or is_tied(tensors),
        f"{file}: tie_word_embeddings is true, but lm_head.weight is not the "
        "embedding",
    )
    return tensors, tied


def weight_files(folder: Path) -> list[Path]:
    """Return the files with tensors, or raise FileNotFoundError."""
    index = folder / INDEX
    if not os.path.lexists(index):
        return [require_file(folder, WEIGHTS)]
    require(
        not (folder / WEIGHTS).is_file(),
        f"{folder} has both {WEIGHTS} and {INDEX}: keep the one that belongs "
        "to the model",
    )
    weight_map = read_json(require_file(folder, INDEX)).get("weight_map")
    names = weight_map.values() if isinstance(weight_map, dict) else []
    strings = all(isinstance(n, str) and n.isprintable() for n in names)
    # only names: an index must not point out of its folder
    require(
        names and strings and all(n == Path(n).name[:99] for n in names),
        f"{index}: weight_map must name files next to it",
    )
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


def their_name(name: str) -> str:
    """Return Hugging Face's name of one of Meta's tensors."""
    stems = {ours: theirs for theirs, ours in BLOCK_TENSORS.items()}
    stems |= {ours: theirs for theirs, ours in TENSORS.items()}
    layer = re.match(r"layers\.\d+\.", name)
    prefix = layer[0] if layer else ""
    stem = stems[name.removeprefix(prefix).removesuffix(".weight")]
    return f"{prefix and 'model.'}{prefix}{stem}.weight"


def from_meta_layout(weight: Tensor, head_dim: int) -> Tensor:
    """Return a copy of wq or wk in Hugging Face's order of rows."""
    pairs = weight.unflatten(0, (-1, head_dim // 2, 2))  # (n, hd/2, 2, D)
    return pairs.transpose(1, 2).flatten(0, 2)


# -- the tokenizer -----------------------------------------------------------

# The character that stands for each byte in a tokenizer.json: Latin-1's, if it
# is printable; spaces and controls are moved up to 256 and beyond, in order.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_CONTROLS = sorted(set(range(256)) - set(_PRINTABLE))
BYTES = {chr(b): b for b in _PRINTABLE}
BYTES |= {chr(256 + i): b for i, b in enumerate(_CONTROLS)}
# How Llama 3's tokenizer.json splits a text, and writes bytes
SPLIT = {
    "type": "Split",
    "pattern": {"Regex": SPLIT_PATTERN},
    "behavior": "Isolated",
    "invert": False,
}
BYTE_LEVEL = dict(type="ByteLevel", use_regex=False, add_prefix_space=False)
# its special tokens have these settings; it has these for texts and dialogues,
# and no token has more characters
TOKEN = dict(special=True, lstrip=False, rstrip=False, single_word=False)
TOKEN |= dict(normalized=False)
NAMES = "begin_of_text end_of_text start_header_id end_header_id eot_id"
NEEDED = {f"<|{name}|>" for name in NAMES.split()}
LONGEST = 1000  # published: 128
MOST_GROWTH = 1e4  # so that a small file takes little memory; Llama 2: 4


def read_tokenizer(folder: Path, V: int):
    """Read tokenizer.json, or else a tokenizer.model of Llama 3's kind."""
    path, model = folder / "tokenizer.json", folder / "tokenizer.model"
    if os.path.lexists(path) or not model.is_file():
        tokenizer = read_tokenizer_json(require_file(folder, path.name))
    else:
        require(
            not is_sentencepiece(read_start(model)),
            f"{model} is a SentencePiece model, and there is no "
            "tokenizer.json. The transformers library can write one: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)",
        )
        tokenizer = Tokenizer.from_file(model)
    require(
        tokenizer.n_words <= V,
        f"the tokenizer in {folder} has {tokenizer.n_words} tokens, but "
        f"vocab_size in config.json is {V}",
    )
    tokenizer.vocab_size = V
    tokenizer.system = usual_system(read_template(folder))
    if tokenizer.bos_id is None:
        tokenizer.bos_id = next(
            iter(token_ids(folder, "bos_token_id", V)), None
        )
    if ends := token_ids(folder, "eos_token_id", V):
        # further training may have changed them
        tokenizer.eos_id, tokenizer.stop_tokens = ends[0], frozenset(ends)
    return tokenizer


def read_template(folder: Path) -> str:
    """Return the template of dialogues, in either of its places, or ""."""
    file, settings = folder / "chat_template.jinja", "tokenizer_config.json"
    if file.is_file():
        return file.read_text(encoding="utf-8", errors="replace")
    if not (folder / settings).is_file():
        return ""
    found = read_json(folder / settings).get("chat_template")
    return found if isinstance(found, str) else ""


def token_ids(folder: Path, key: str, V: int) -> list[int]:
    """Return the ids that the configs give a key, or none."""
    ids = []
    # the second replaces the first: it adds the ids that end a turn
    for name in ("config.json", "generation_config.json"):
        if os.path.lexists(folder / name):
            found = read_json(require_file(folder, name)).get(key)
            if found is not None:
                ids = found if isinstance(found, list) else [found]
            require(
                all(type(i) is int and 0 <= i < V for i in ids),
                f"{folder / name}: {key} must be ids from 0 to {V - 1}, got "
                f"{found!r:.80}",
            )
    return ids


class HuggingFaceTokenizer:
    r"""A tokenizer of another model than Llama 3, run by `tokenizers`.

    library: a tokenizers.Tokenizer.  data: the tokenizer.json it was read
    from.
    bos_id: the id that the library puts before a text for a model, or None.
    `load` then takes the config's, but `encode` still puts none there.
    eos_id, stop_tokens: None and empty; `load` takes them from the configs.
    vocab_size: rows of the embedding; ids without a token decode to nothing.
    system: the system message of ChatML's dialogues without one.
    It has no ranks.
    """

    system = ""
    eos_id = eom_id = None
    stop_tokens: frozenset[int] = frozenset()

    def __init__(self, library, data: dict):
        self._library = library
        # special tokens in a text are text, unless `encode` is told otherwise
        library.encode_special_tokens = True
        library.no_truncation()  # a training may have left both on
        library.no_padding()
        vocabulary = library.get_vocab(with_added_tokens=True)
        self.n_words = self.vocab_size = max(vocabulary.values()) + 1
        self._pieces = {i: piece for piece, i in vocabulary.items()}
        added = data.get("added_tokens") or []
        special = [token for token in added if token.get("special")]
        self.special_tokens = {t["content"]: t["id"] for t in special}
        ends = map(self.special_tokens.get, ("<|eot_id|>", "<|im_end|>"))
        self.eot_id = next((i for i in ends if i is not None), None)
        self._missing = missing_bytes(data)
        plain = library.encode("a", add_special_tokens=False).ids
        whole = library.encode("a", add_special_tokens=True).ids
        starts = whole != plain and plain == whole[1 : len(plain) + 1]
        require(
            not starts or whole[0] in self._pieces,
            "the token that begins a text is not in its vocabulary",
        )
        self._before = whole[:1] if starts else []
        self.bos_id = whole[0] if starts else None

    def encode(
        self,
        s: str,
        *,
        bos: bool,
        eos: bool,
        allowed_special: Collection[str] = (),
    ) -> list[int]:
        """Return the token ids of a text; see `Tokenizer.encode`."""
        check_text(s, self._missing)
        allowed = check_special(allowed_special, self.special_tokens)
        longest_first = sorted(allowed, key=len, reverse=True)
        names = "|".join(map(re.escape, longest_first)) or "(?!)"
        ids = list(self._before) if bos else []
        for part in filter(None, re.split(f"({names})", s)):
            if part in allowed:
                ids.append(self.special_tokens[part])
            else:
                ids += self._library.encode(part, add_special_tokens=False).ids
        return ids + [self.eos_id] if eos and self.eos_id is not None else ids

    def encode_chat(self, messages) -> list[int]:
        """Return the ids of a dialogue; see `Tokenizer.encode_chat`."""
        return dialogue_ids(self, messages)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the tokens; half an emoji becomes U+FFFD."""
        ids = self._tokens(ids)
        return self._library.decode(ids, skip_special_tokens=False)

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield a piece of text per token; a character when it is complete."""
        # decoded after the piece before, since a token may lose its space at
        # the start of a text
        before: list[int] = []
        waiting: list[int] = []
        for i in ids:
            waiting += self._tokens([i])
            piece = self._piece(before, waiting)
            if piece.endswith("\ufffd"):  # half a character waits for more
                piece = ""
            elif waiting:
                before, waiting = waiting, []
            yield piece
        if rest := self._piece(before, waiting):
            yield rest

    def _piece(self, before: list[int], ids: list[int]) -> str:
        """Return what ids add to the text of those before them."""
        return self.decode(before + ids)[len(self.decode(before)) :]

    def _tokens(self, ids) -> list[int]:
        """Return the ids that have a token; ValueError outside vocab_size."""
        ids = check_ids("ids", ids, self.vocab_size, "token ids")
        return [i for i in ids if i in self._pieces]


def read_tokenizer_json(path) -> Tokenizer | HuggingFaceTokenizer:
    """Return the tokenizer in a file; see `tokenizer_of`."""
    return tokenizer_of(read_json(Path(path)), path)


def tokenizer_of(data: dict, file) -> Tokenizer | HuggingFaceTokenizer:
    """Return Llama 3's tokenizer, with its ranks, or any other model's.

    data: in the form of tokenizer.json.  file: what to name in errors.
    """
    try:
        found = llama3_ranks(data)
    except (KeyError, TypeError, AttributeError, ValueError):
        found = None  # another form, which the library may know
    try:
        if found is not None:
            return Tokenizer(*found)
        import tokenizers  # only if needed: the import takes a while

        for key in ("normalizer", "decoder"):
            n = growth(data.get(key))
            require(
                n <= MOST_GROWTH, f"its {key} makes texts {n:.0e} times longer"
            )
        library = tokenizers.Tokenizer.from_str(json.dumps(data))
        if not library.get_vocab(with_added_tokens=True):
            raise ValueError("it has no tokens")
        tokenizer = HuggingFaceTokenizer(library, data)
        check_vocabulary(library, data)
        return tokenizer
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # PanicException is not an Exception
        raise damaged(file, error) from None


def growth(part) -> float:
    """Return how many times longer a part of the file may make a text.

    Each step that writes a text may do so once per character.
    """
    if isinstance(part, list):
        return math.prod(map(growth, part))
    if not isinstance(part, dict):
        return 1.0
    written = [part.get("content"), part.get("prepend")]
    n = sum(len(text) for text in written if isinstance(text, str))
    n += part.get("type") == "ByteLevel"  # a character for each byte
    return (1 + n) * growth([*part.values()])


def check_vocabulary(library, data: dict) -> None:
    """Raise ValueError for ids that are not unique, or lost letters."""
    vocab = data["model"]["vocab"]
    owner: dict[int, str] = {}
    added = [(t["content"], t["id"]) for t in data.get("added_tokens") or []]
    pairs = list(vocab.items()) if isinstance(vocab, dict) else []
    for token, i in pairs + added:
        if owner.setdefault(i, token) != token:
            raise ValueError(f"the id {i} has two tokens")
    for token, i in added:  # a gap in the vocabulary would move them
        if library.token_to_id(token) != i:
            raise ValueError(f"the id of {token} is not {i}")
    # published vocabularies may lack bytes that are rare in texts, see
    # `missing_bytes`, but no printable letter
    text = " ".join(map(chr, range(33, 127))) + " The foxes"
    ids = library.encode(text, add_special_tokens=False).ids
    if not data.get("normalizer") and library.decode(ids).strip() != text:
        raise ValueError("it does not give back the letters of a text")


def missing_bytes(data: dict) -> frozenset[int]:
    """Return the bytes that a tokenizer.json silently leaves out of a text."""
    vocab = data["model"]["vocab"]
    byte_level = '"ByteLevel"' in json.dumps(data.get("pre_tokenizer"))
    reports = data["model"].get("unk_token") is not None  # as that token
    if reports or not byte_level or not isinstance(vocab, dict):
        return frozenset()
    return frozenset(b for letter, b in BYTES.items() if letter not in vocab)


def llama3_ranks(data: dict) -> tuple[dict, dict] | None:
    r"""Return ranks and special tokens, or None for another tokenizer.

    tiktoken gives the same ids if the text is split alike, and if just the
    pairs that make a token are merged, the lowest first.
    """
    model, added = data["model"], data["added_tokens"]
    split, letters = data["pre_tokenizer"]["pretokenizers"]
    ids = model["vocab"]
    special = {t["content"]: t["id"] for t in added}
    n, all_ids = len(ids), [*ids.values(), *special.values()]
    "".join([*ids, *special]).encode()  # a number or half a character: raises
    ranks = {to_bytes(token): ids[token] for token in sorted(ids, key=ids.get)}
    is_llama3 = (
        model["type"] == "BPE"
        and model.get("ignore_merges") is True
        and not data.get("normalizer")
        and SPLIT.items() <= split.items()
        and BYTE_LEVEL.items() <= letters.items()
        and all(TOKEN.items() <= token.items() for token in added)
        and NEEDED <= special.keys()
        and all(special)
        and max(map(len, [*ids, *special])) <= LONGEST
        and {type(i) for i in all_ids} == {int}
        and max(ids.values()) == n - 1
        and sorted(all_ids) == list(range(n + len(special)))
        and all(bytes([b]) in ranks for b in range(256))
        and merges_all(model["merges"], ids)
    )
    return (ranks, special) if is_llama3 else None


def merges_all(merges: list, ids: dict[str, int]) -> bool:
    """Return whether just the pairs that make a token are merged, in order."""
    pairs = [m.split(" ") if isinstance(m, str) else m for m in merges]
    made = [ids[left + right] for left, right in pairs]
    n_splits = sum(
        token[:cut] in ids and token[cut:] in ids
        for token in ids
        for cut in range(1, len(token))
    )
    n_pairs = len({tuple(pair) for pair in pairs})
    return made == sorted(made) and n_splits == len(made) == n_pairs


def to_bytes(token: str) -> bytes:
    """Return the bytes of a token of a byte-level vocabulary, or KeyError."""
    return bytes(BYTES[character] for character in token)
