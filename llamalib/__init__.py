r"""Functions shared by the notebooks of "Llama, notebook by notebook".

The notebooks show these modules' functions in cells: `python -m tools frame`
writes them there.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers. A matrix (out, in)
maps x to x @ w.T.
"""

from . import parallel  # noqa: F401 (load opens a process's part by it)
from .batch import generate_batch
from .cache import KVCache
from .generate import decode_one, generate, prefill
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
    paired_difference,
    record,
    replaced,
    text_loss,
)
from .sampling import next_token_probs, sample, top_k_logits, top_p_logits
from .save import save
from .tokenizer import Tokenizer

__version__ = "0.4.0"

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
    "causal_mask",
    "decode_one",
    "find_checkpoint",
    "generate",
    "generate_batch",
    "load",
    "next_token_probs",
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
