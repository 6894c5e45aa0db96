r"""GGUF, the format of llama.cpp and Ollama: one file has everything.

ggml's package `gguf` reads it. Nothing that a file holds is ever run.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, GGUFValueType, dequantize
from torch import Tensor

from .checks import damaged, reject_lookalikes, require, shown
from .config import config_of, published
from .dialogues import usual_system
from .hugging_face import (
    BYTE_LEVEL,
    SPLIT,
    check_values,
    ffn_fields,
    to_bytes,
    tokenizer_of,
)
from .model import ModelArgs, scale_frequencies
from .tensors import Checkpoint, check_numbers, check_tensors
from .tokenizer import Tokenizer

# What no header exceeds, so that a small file takes little memory and time
ITEMS = 2**12  # tensors, or entries; Llama 3.1 405B has 1,137 tensors
TEXTS = 2**20  # in all lists; Llama 3 has 408,000
LONGEST = 2**16  # bytes of a text; outside of lists, or a 16th of the file
PIECE = 2**20  # numbers that are converted at a time


def read_checkpoint(file: Path, check: bool = False) -> Checkpoint:
    """Open a GGUF file, which has no checksums to check."""
    opened = open_file(file)
    facts, tensors = read_facts(opened, file), by_metas_names(opened, file)
    factors = tensors.pop(ROPE_FREQS, None)
    config = config_of_facts(facts, tensors, file)
    if factors is not None:
        config = scaled(config, factors, file)
    # as large as they say, without memory
    like = {name: empty_like(tensor) for name, tensor in tensors.items()}
    places = {name: f"{file}: {tensors[name].name}" for name in tensors}
    check_tensors(like, config, "its own header", {"": file} | places)
    tokenizer = read_tokenizer(facts, config.vocab_size, file)

    def parts(name: str, dtype: torch.dtype) -> list[Tensor]:
        return [dequantized(tensors[name], dtype, places[name])]

    tied = "output.weight" not in tensors
    return Checkpoint(file, config, tokenizer, torch.bfloat16, tied, parts)


# -- the file ----------------------------------------------------------------


class Reader(GGUFReader):
    """ggml's reader, which takes little memory and time for any file.

    Its own makes an array of each number and each text in a list. Here a list
    is one part: an array, or the bytes of all texts.
    """

    n_texts = 0  # in the lists so far

    def _get(self, offset, dtype, count=1, override_order=None):
        offset, count = int(offset), int(count)
        end = offset + count * np.dtype(dtype).itemsize
        require(end <= len(self.data), "it ends too early")
        return np.frombuffer(self.data, dtype, count, offset)

    def _get_str(self, offset):
        length, text = super()._get_str(offset)
        most = max(LONGEST, len(self.data) // 16)
        require(len(text) <= most, f"it has a text of {len(text)} bytes")
        return length, text

    def _get_field_parts(self, orig_offs, raw_type):
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind = GGUFValueType(self._get(orig_offs, np.uint32)[0])
        n = int(self._get(orig_offs + 4, np.uint64)[0])
        # Python needs 32 bytes for a number, 64 for a short text
        fits = n <= len(self.data) // 32
        require(fits, f"it has a list of {n} entries")
        require(kind != GGUFValueType.ARRAY, "it has a list of lists")
        at = orig_offs + 12
        if kind == GGUFValueType.STRING:
            self.n_texts += n
            require(self.n_texts <= TEXTS, f"it has {self.n_texts} texts")
            texts = places(memoryview(self.data)[at:], n)
            end = max((end for _, end in texts), default=0)
            found = self.data[at : at + end]
        else:
            found = self._get(at, self.gguf_scalar_to_np[kind], n)
        types = [GGUFValueType.ARRAY, kind]
        return 12 + found.nbytes, [np.array([n]), found], [1], types


def places(data, n: int) -> Iterator[tuple[int, int]]:
    """Yield where each of the n texts of a list begins and ends."""
    end = 0
    for _ in range(n):
        start = end + 8
        end = start + int.from_bytes(data[end:start], "little")
        fits = end <= min(len(data), start + LONGEST)
        require(fits, "a text in a list is too long")
        yield start, end


def open_file(file: Path) -> Reader:
    """Open a file, or raise ValueError for one that is damaged."""
    reject_lookalikes(file)
    with open(file, "rb") as opened:
        start = opened.read(24)
    require(start[:4] == b"GGUF", f"{file} is no GGUF file")
    version, *counts = struct.unpack("<IQQ", start[4:].ljust(20, b"\0"))
    require(
        version in (2, 3),
        f"{file} has the version {version} of GGUF for little-endian machines "
        "(the usual ones): take one of version 2 or 3",
    )
    try:  # the type of an error depends on the damage
        require(max(counts) <= ITEMS, f"it has {max(counts)} entries")
        with np.errstate(over="raise"):
            found = Reader(file)
        check_places(found)
        return found
    except (ValueError, LookupError, ArithmeticError) as e:
        raise damaged(file, e) from None


def check_places(opened: Reader) -> None:
    """Raise ValueError unless the tensors fill the file, in their order."""
    end, alignment = int(opened.data_offset), int(opened.alignment)
    for tensor in opened.tensors:
        is_next = tensor.data_offset == end
        require(is_next, f"out of its place: {tensor.name}")
        end += tensor.n_bytes + -tensor.n_bytes % alignment
    rest = len(opened.data) - end
    require(rest <= 0, f"{rest} bytes follow the last tensor")


def read_facts(opened: Reader, file: Path) -> dict:
    """Return the header's entries; None for those that nobody needs."""
    fields = opened.fields.items()
    try:
        return {
            key: value_of(field) if key in READ else None
            for key, field in fields
        }
    except ValueError as error:  # not UTF-8
        raise damaged(file, error) from None


def model_name(file: Path) -> str:
    """Return what a file's header calls the model; of a damaged file ""."""
    try:
        field = open_file(file).fields.get("general.name")
        return str(field.contents()) if field else ""
    except ValueError:  # `load` says why
        return ""


def value_of(field):
    """Return the number, the text or the list that an entry has."""
    if field.types != [GGUFValueType.ARRAY, GGUFValueType.STRING]:
        return field.contents()
    n, data = int(field.parts[-2][0]), field.parts[-1].tobytes()
    return [str(data[i:j], "utf-8") for i, j in places(data, n)]


# -- settings ----------------------------------------------------------------

# GGUF's names of our fields
FIELDS = {
    "dim": "llama.embedding_length",
    "n_layers": "llama.block_count",
    "n_heads": "llama.attention.head_count",
    "n_kv_heads": "llama.attention.head_count_kv",
    "vocab_size": "llama.vocab_size",
    "multiple_of": "llama.feed_forward_length",
    "norm_eps": "llama.attention.layer_norm_rms_epsilon",
    "rope_theta": "llama.rope.freq_base",
    "head_width": "llama.rope.dimension_count",
    "context_length": "llama.context_length",
}
# The values that leave a model a Llama; None: the key is missing
LLAMA_VALUES: dict[str, list] = {
    "general.architecture": ["llama"],
    "llama.rope.scaling.type": ["none", None],
    "llama.expert_count": [0, None],
    "llama.expert_used_count": [0, None],
}
WIDTHS = "llama.attention.key_length", "llama.attention.value_length"
KNOWN = {*FIELDS.values(), *LLAMA_VALUES, *WIDTHS}
TOKENIZER = (
    "model pre tokens token_type merges bos_token_id eos_token_id "
    "eot_token_id eom_token_id add_bos_token"
)
READ = KNOWN | {f"tokenizer.ggml.{name}" for name in TOKENIZER.split()}
READ |= {"tokenizer.chat_template"}


def config_of_facts(facts: dict, tensors: dict, file: Path) -> ModelArgs:
    """Return the settings in a header, or raise ValueError naming the key."""
    check_values(facts, LLAMA_VALUES, file)
    for key in facts:
        require(
            key in KNOWN or not key.startswith("llama."),
            f"{file}: unknown setting {shown(key)}: llamalib runs Llamas only",
        )
    fields = {ours: as_written(facts.get(key)) for ours, key in FIELDS.items()}
    defaults = {"n_kv_heads": fields["n_heads"], "rope_theta": 10000.0}
    if "tok_embeddings.weight" in tensors:
        shape = tensors["tok_embeddings.weight"].shape  # (D, V)
        defaults["vocab_size"] = int(shape[-1])
    for name, default in defaults.items():
        if fields[name] is None:
            fields[name] = default
    config = config_of(fields | {"ffn_dim_multiplier": None}, file, FIELDS)
    for key in WIDTHS:
        require(
            facts.get(key, config.head_dim) == config.head_dim,
            f"{file}: {key} must be {config.head_dim}, as wide as RoPE, got "
            f"{facts.get(key)!r:.80}",
        )
    return replace(config, **ffn_fields(config.dim, config.multiple_of))


def as_written(value):
    """Return a number in 32 bits as the decimal that was written: 1e-05."""
    with np.errstate(over="ignore"):  # infinity is refused elsewhere
        return float(str(np.float32(value))) if type(value) is float else value


def scaled(config: ModelArgs, tensor, file: Path) -> ModelArgs:
    """Return the config with the scaled RoPE whose factors (hd/2,) it has."""
    hd, shape = config.head_dim, tensor.shape.tolist()
    require(
        shape == [hd // 2],
        f"{file}: {ROPE_FREQS} must hold {hd // 2} factors, got the shape "
        f"{shape!s:.80}",
    )
    factors = dequantized(tensor, torch.float32, f"{file}: {ROPE_FREQS}")
    two_k = torch.arange(0, hd, 2).float()  # (hd/2,)
    freqs = 1.0 / config.rope_theta ** (two_k / hd)
    for factor in (8.0, 32.0):
        right = freqs / scale_frequencies(freqs, factor)
        if torch.allclose(factors, right):
            return published(
                replace(
                    config, use_scaled_rope=True, rope_scaling_factor=factor
                )
            )
    raise ValueError(
        f"{file}: {ROPE_FREQS} must hold the factors of Llama 3.1 (8) or 3.2 "
        f"(32), got {factors.flatten().tolist()!s:.80}"
    )


# -- tensors -----------------------------------------------------------------

# A file of this architecture has the rows of wq and wk in Meta's order:
# adjacent pairs rotate together.
TENSORS = {
    "token_embd": "tok_embeddings",
    "output_norm": "norm",
    "output": "output",
}
BLOCK_TENSORS = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.wq",
    "attn_k": "attention.wk",
    "attn_v": "attention.wv",
    "attn_output": "attention.wo",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "feed_forward.w1",
    "ffn_down": "feed_forward.w2",
    "ffn_up": "feed_forward.w3",
}
ROPE_FREQS = "rope_freqs.weight"  # what scaled RoPE divides frequencies by


def by_metas_names(opened: Reader, file: Path) -> dict:
    """Return ggml's tensors by Meta's names, and ROPE_FREQS by its own."""
    found = {}
    for tensor in opened.tensors:
        name = tensor.name
        parts = re.fullmatch(r"(?:blk\.(0|[1-9]\d*)\.)?(\w+)\.weight", name)
        layer, stem = parts.groups() if parts else (None, "")
        short = (BLOCK_TENSORS if layer else TENSORS).get(stem)
        is_known = short or name == ROPE_FREQS
        require(is_known, f"{file}: {shown(name)} is not a tensor of a Llama")
        prefix = f"layers.{layer}." if layer else ""
        found[f"{prefix}{short}.weight" if short else name] = tensor
    return found


def empty_like(tensor) -> Tensor:
    """Return a tensor of the same shape, (out, in), without memory."""
    shape = tensor.shape[::-1].tolist()
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def dequantized(tensor, dtype: torch.dtype, place) -> Tensor:
    """Return the numbers of ggml's tensor, (out, in), converted by parts."""
    whole = torch.empty(tensor.shape[::-1].tolist(), dtype=dtype)
    rows = whole if whole.dim() > 1 else whole[None]
    data = np.asarray(tensor.data).reshape(len(rows), -1)
    n = max(1, PIECE // rows.shape[-1])
    for start in range(0, len(rows), n):
        blocks = data[start : start + n].reshape(1, -1)  # faster as one row
        try:
            with np.errstate(all="ignore"):  # check_numbers says what is wrong
                numbers = dequantize(blocks, tensor.tensor_type)
        except NotImplementedError:
            kind = tensor.tensor_type.name
            raise ValueError(
                f"{place} is of type {kind}, which ggml's package cannot "
                "read: take another quantization of the model"
            ) from None
        piece = torch.from_numpy(np.require(numbers, requirements="W"))
        check_numbers(piece, dtype, place)
        rows[start : start + n] = piece.view(-1, rows.shape[-1])
    return whole


# -- the tokenizer -----------------------------------------------------------

# SmolLM2's: contractions, letters, one digit, other signs, space
SMOLLM = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?=\p{N})|\s+(?!\S)|\s+"
)
# How texts are split, by llama.cpp's name, in tokenizer.json's form
LETTERS = BYTE_LEVEL | dict(trim_offsets=True)
SPLITS: dict[str, dict] = {
    "llama-bpe": dict(type="Sequence", pretokenizers=[SPLIT, LETTERS]),
    "gpt-2": LETTERS | dict(use_regex=True),
}
DIGITS = dict(type="Digits", individual_digits=True)
SPLITS["smollm"] = dict(
    type="Sequence", pretokenizers=[DIGITS, SPLITS["gpt-2"]]
)
SPECIAL = 3, 4  # types of token: control, and the user's


def read_tokenizer(facts: dict, V: int, file: Path):
    """Return the tokenizer in a header."""
    fact = tokenizer_facts(facts)
    model, split = fact.get("model"), fact.get("pre")
    require(
        model == "gpt2" and split in list(SPLITS),  # a list has no hash
        f"{file}: llamalib does not know its tokenizer ({shown(model)}, "
        f"{shown(split)}); it knows gpt2's with llama-bpe, smollm or gpt-2",
    )
    try:
        check_tokens(fact, V)
        tokenizer = tokenizer_of_facts(fact, str(split), file)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(file, error) from None
    set_ends(tokenizer, fact)
    template = facts.get("tokenizer.chat_template")
    tokenizer.system = usual_system(str(template))
    tokenizer.vocab_size = V
    return tokenizer


def tokenizer_facts(facts: dict) -> dict:
    """Return the header's entries on the tokenizer by their last names."""
    prefix = "tokenizer.ggml."
    return {
        key.removeprefix(prefix): value
        for key, value in facts.items()
        if key.startswith(prefix)
    }


def tokenizer_of_facts(fact: dict, split: str, file: Path):
    """Return a tokenizer that splits texts as llama.cpp's name says."""
    if split == "smollm":
        return smollm_tokenizer(fact)
    return tokenizer_of(tokenizer_json(fact, SPLITS[split]), file)


def check_tokens(fact: dict, V: int) -> None:
    """Raise ValueError for lists of tokens that do not fit each other."""
    for key, kind in dict(tokens=str, token_type=int, merges=str).items():
        found = fact.get(key, []) if key == "merges" else fact[key]
        require(
            isinstance(found, list) and {type(x) for x in found} <= {kind},
            f"{key} must be a list of {kind.__name__}",
        )
    tokens, n = fact["tokens"], len(fact["token_type"])
    unique = len(set(tokens))
    require("" not in tokens, "a token has no letters")
    require(set(fact["token_type"]) <= set(range(7)), "a type of token is new")
    require(
        unique == len(tokens) == n <= V,
        f"{len(tokens)} tokens, {unique} unique, with {n} types, for {V} rows",
    )
    for key in ("bos", "eos", "eot", "eom"):
        i = fact.get(f"{key}_token_id", 0)
        require(type(i) is int and 0 <= i < V, f"{key}_token_id is {i!r:.80}")


def smollm_tokenizer(fact: dict) -> Tokenizer:
    """Return SmolLM2's tokenizer: a token's id is its rank."""
    tokens = list(zip(fact["tokens"], fact["token_type"], strict=True))
    ranks = {
        to_bytes(token): i
        for i, (token, kind) in enumerate(tokens)
        if kind not in SPECIAL
    }
    special = {
        token: i for i, (token, kind) in enumerate(tokens) if kind in SPECIAL
    }
    require(special, "no token is special")
    return Tokenizer(ranks, special, pattern=SMOLLM)


def tokenizer_json(fact: dict, split: dict) -> dict:
    """Return a header's tokenizer in the form of tokenizer.json."""
    tokens, kinds = fact["tokens"], fact["token_type"]
    usual = dict(single_word=False, lstrip=False, rstrip=False)
    added = [
        usual
        | dict(id=i, content=tokens[i], special=kind == 3, normalized=False)
        for i, kind in enumerate(kinds)
        if kind in SPECIAL
    ]
    n = len(tokens)
    while n and kinds[n - 1] in SPECIAL:  # those at the end are added alone
        n -= 1
    model = dict(
        type="BPE",
        vocab={token: i for i, token in enumerate(tokens[:n])},
        merges=fact["merges"],
        ignore_merges=split is SPLITS["llama-bpe"],
    )
    begin, whole = fact.get("bos_token_id"), dict(model=model)
    # llama.cpp begins a text with it, unless the header says no
    if begin is not None and fact.get("add_bos_token", model["ignore_merges"]):
        whole["post_processor"] = putting(tokens[begin], begin)
    return whole | dict(
        added_tokens=added, pre_tokenizer=split, decoder=LETTERS
    )


def tokenizer_files(file: Path, tokenizer) -> dict[str, dict]:
    r"""Return Hugging Face's files on a file's tokenizer, by name.

    tokenizer: the one that was read from the file.
    """
    facts = read_facts(open_file(file), file)
    fact = tokenizer_facts(facts)
    tokens, whole = fact["tokens"], tokenizer_json(fact, SPLITS[fact["pre"]])
    if before := tokenizer.encode("", bos=True, eos=False):
        whole["post_processor"] = putting(tokens[before[0]], before[0])
    bos, eos = fact.get("bos_token_id"), tokenizer.eos_id
    settings = dict(
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=None if bos is None else tokens[bos],
        eos_token=None if eos is None else tokens[eos],
        chat_template=facts.get("tokenizer.chat_template"),
    )
    others = sorted(tokenizer.stop_tokens - {eos})
    ends = others if eos is None else [eos, *others]
    return {
        "tokenizer.json": whole,
        "tokenizer_config.json": settings,
        "generation_config.json": dict(bos_token_id=bos, eos_token_id=ends),
    }


def putting(name: str, i: int) -> dict:
    """Return the part of tokenizer.json that puts a token before a text."""
    token = {"SpecialToken": dict(id=name, type_id=0)}
    a, b = ({"Sequence": dict(id=letter, type_id=0)} for letter in "AB")
    return dict(
        type="TemplateProcessing",
        single=[token, a],
        pair=[token, a, b],
        special_tokens={name: dict(id=name, ids=[i], tokens=[name])},
    )


def set_ends(tokenizer, fact: dict) -> None:
    """Give a tokenizer the ids that begin and end a text."""
    eos = fact.get("eos_token_id")
    ends = {eos, fact.get("eot_token_id"), fact.get("eom_token_id")}
    tokenizer.stop_tokens = frozenset(tokenizer.stop_tokens | ends - {None})
    if tokenizer.eos_id is None:
        tokenizer.eos_id = eos
