r"""Functions shared by the notebooks of "Llama, notebook by notebook".

`model`, `generate`, `quantize` and `probe` are written from the notebooks'
cells: `python -m lessons export`.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers. A matrix (out, in)
maps x to x @ w.T.
"""

from .generate import (
    KVCache,
    decode_one,
    generate,
    generate_batch,
    next_token_probs,
    pad_left,
    prefill,
    sample,
    top_k_logits,
    top_p_logits,
)
from .load import find_checkpoint, load
from .model import (
    LLAMA_1B,
    Attention,
    FeedForward,
    Llama,
    ModelArgs,
    RMSNorm,
    TransformerBlock,
    apply_rotary_emb,
    attention,
    attention_weights,
    causal_mask,
    precompute_freqs_cis,
    repeat_kv,
    rms_norm,
    scale_frequencies,
)
from .probe import (
    attention_maps,
    break_it,
    bytes_per_step,
    held_out_texts,
    memory_bandwidth,
    paired_difference,
    record,
    replaced,
    text_loss,
)
from .save import save
from .tokenizer import Tokenizer

__version__ = "0.3.0"

__all__ = [
    "LLAMA_1B",
    "Attention",
    "FeedForward",
    "KVCache",
    "Llama",
    "ModelArgs",
    "RMSNorm",
    "Tokenizer",
    "TransformerBlock",
    "apply_rotary_emb",
    "attention",
    "attention_maps",
    "attention_weights",
    "break_it",
    "bytes_per_step",
    "causal_mask",
    "decode_one",
    "find_checkpoint",
    "generate",
    "generate_batch",
    "held_out_texts",
    "load",
    "memory_bandwidth",
    "next_token_probs",
    "pad_left",
    "paired_difference",
    "precompute_freqs_cis",
    "prefill",
    "record",
    "repeat_kv",
    "replaced",
    "rms_norm",
    "sample",
    "save",
    "scale_frequencies",
    "text_loss",
    "top_k_logits",
    "top_p_logits",
]
