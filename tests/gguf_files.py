"""GGUF files of our models, as llama.cpp's own converter would write them."""

import json
import math

import numpy as np
import torch
from gguf import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    GGUFWriter,
    quantize,
)

from llamalib.gguf import BLOCK_TENSORS, TENSORS
from llamalib.hugging_face import BYTES
from llamalib.model import scale_frequencies
from tests.reference import weights

LETTERS = {b: letter for letter, b in BYTES.items()}
NORMAL, CONTROL = 1, 3  # types of a token
THEIRS = {ours: theirs for theirs, ours in (TENSORS | BLOCK_TENSORS).items()}


def ggml_name(name: str) -> str:
    """Return ggml's name of one of Meta's tensors."""
    stem = name.removesuffix(".weight")
    if stem in THEIRS:
        return f"{THEIRS[stem]}.weight"
    _, layer, short = stem.split(".", 2)
    return f"blk.{layer}.{THEIRS[short]}.weight"


def facts_of(config) -> dict:
    """Return the settings of a model by GGUF's names."""
    return {
        "general.name": "A Llama",
        "llama.embedding_length": config.dim,
        "llama.block_count": config.n_layers,
        "llama.attention.head_count": config.n_heads,
        "llama.attention.head_count_kv": config.n_kv_heads,
        "llama.vocab_size": config.vocab_size,
        "llama.feed_forward_length": config.hidden_dim,
        "llama.attention.layer_norm_rms_epsilon": config.norm_eps,
        "llama.rope.freq_base": config.rope_theta,
        "llama.rope.dimension_count": config.head_dim,
        "llama.context_length": config.context_length,
    }


def merges_of(ids: dict[str, int]) -> list[str]:
    """Return the pairs that make a token, the lowest token first."""
    return [
        f"{token[:cut]} {token[cut:]}"
        for token in sorted(ids, key=ids.get)
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]


def tokenizer_facts(tokenizer) -> dict:
    """Return a Llama 3 tokenizer by GGUF's names."""
    names = {
        i: "".join(LETTERS[b] for b in token)
        for token, i in tokenizer.ranks.items()
    }
    ids = {letters: i for i, letters in names.items()}
    special = {i: name for name, i in tokenizer.special_tokens.items()}
    every = names | special
    order = sorted(every)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": [every[i] for i in order],
        "tokenizer.ggml.token_type": [
            CONTROL if i in special else NORMAL for i in order
        ],
        "tokenizer.ggml.merges": merges_of(ids),
        "tokenizer.ggml.bos_token_id": tokenizer.bos_id,
        "tokenizer.ggml.eos_token_id": tokenizer.eos_id,
    }


def library_facts(library, pre: str) -> dict:
    """Return a tokenizer of the library `tokenizers` by GGUF's names."""
    data, vocab = json.loads(library.to_str()), library.get_vocab()
    special = {token["content"] for token in data["added_tokens"]}
    tokens = sorted(vocab, key=vocab.get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            CONTROL if token in special else NORMAL for token in tokens
        ],
        "tokenizer.ggml.merges": [
            " ".join(pair) for pair in data["model"]["merges"]
        ],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def add(writer: GGUFWriter, key: str, value) -> None:
    """Add an entry of the type that its value has."""
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)


def announce(writer: GGUFWriter, name: str, x, kind) -> None:
    """Add a tensor to the list at the head of a file."""
    if x.dtype == np.uint8:  # its blocks
        writer.add_tensor_info(name, x.shape, np.uint8, x.nbytes, kind)
        return
    block, size = GGML_QUANT_SIZES[kind]
    n = math.prod(x.shape) // block * size
    writer.add_tensor_info(name, x.shape, np.float32, n, kind)


def blocks_of(x, kind) -> np.ndarray:
    """Return the bytes of a tensor of numbers, or those that it holds."""
    if isinstance(x, torch.Tensor):
        x = x.float().numpy()
    return x if x.dtype == np.uint8 else quantize(x, kind)


def write_gguf(file, llama, kind="F32", change=None, more=None):
    r"""Write a model, a tensor at a time; return the file.

    kind: the type of the matrices; norms have F32.
    change: called with the entries, the tensors (a dict of arrays) and their
    types, which it may change.  more: entries, None leaves one out.
    """
    config, w = llama.config, weights(llama)
    facts = facts_of(config) | tokenizer_facts(llama.tokenizer) | (more or {})
    tensors = {
        ggml_name(name): x.detach()
        for name, x in w.items()
        if not (llama.tied and name == "output.weight")
    }
    if config.scaling_factor:
        two_k = torch.arange(0, config.head_dim, 2).float()
        freqs = 1.0 / config.rope_theta ** (two_k / config.head_dim)
        factors = freqs / scale_frequencies(freqs, config.scaling_factor)
        tensors["rope_freqs.weight"] = factors
    kinds = {
        name: kind if x.ndim == 2 else "F32" for name, x in tensors.items()
    }
    if change:
        tensors = {name: x.float().numpy() for name, x in tensors.items()}
        change(facts, tensors, kinds)
    writer = GGUFWriter(file, facts.pop("general.architecture", "llama"))
    for key, value in facts.items():
        if value is not None:
            add(writer, key, value)
    kinds = {name: GGMLQuantizationType[kinds[name]] for name in tensors}
    for name, x in tensors.items():
        announce(writer, name, x, kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, x in tensors.items():
        writer.write_tensor_data(blocks_of(x, kinds[name]))
    writer.close()
    return file
