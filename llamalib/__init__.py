r"""What the notebooks of "Llama, notebook by notebook" share.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers.
"""

from .attention import (
    attention,
    attention_weights,
    causal_mask,
    repeat_kv,
    self_attention,
)
from .cache import KVCache
from .checkpoint import find_checkpoint, load, save
from .compiled import CompiledDecode
from .config import ModelArgs
from .experiment import break_it
from .feed_forward import feed_forward, ffn_hidden_dim
from .generate import decode_one, generate, generate_batch, prefill
from .model import Llama, attention_maps, tensor_shapes, transformer_block
from .normalization import rms_norm
from .roofline import bytes_per_step, memory_bandwidth
from .rope import apply_rotary_emb, precompute_freqs_cis, scale_frequencies
from .sampling import keep_top_k, keep_top_p, next_token_probs, pick
from .tokenizer import Tokenizer

__all__ = [
    "CompiledDecode",
    "KVCache",
    "Llama",
    "ModelArgs",
    "Tokenizer",
    "apply_rotary_emb",
    "attention",
    "attention_maps",
    "attention_weights",
    "break_it",
    "bytes_per_step",
    "causal_mask",
    "decode_one",
    "feed_forward",
    "ffn_hidden_dim",
    "find_checkpoint",
    "generate",
    "generate_batch",
    "keep_top_k",
    "keep_top_p",
    "load",
    "memory_bandwidth",
    "next_token_probs",
    "pick",
    "precompute_freqs_cis",
    "prefill",
    "repeat_kv",
    "rms_norm",
    "save",
    "scale_frequencies",
    "self_attention",
    "tensor_shapes",
    "transformer_block",
]
