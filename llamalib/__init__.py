r"""What the notebooks of "Llama, notebook by notebook" share.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers. A weight (out, in)
is used by `F.linear(x, w)`, which is x @ w.T.
"""

from importlib import import_module

from .cache import KVCache
from .config import LLAMA_1B, ModelArgs
from .decoding import decode_one, generate, generate_batch, pad_left, prefill
from .gqa import attention, attention_weights, causal_mask
from .gqa import repeat_kv, sdpa_attention, self_attention
from .loading import load
from .model import Llama, attention_maps, forward
from .model import record, tensor_shapes, transformer_block
from .rmsnorm import rms_norm
from .roofline import bytes_per_step, memory_bandwidth
from .rope import apply_rotary_emb, precompute_freqs_cis, scale_frequencies
from .sampling import keep_top_k, keep_top_p, next_token_probs, pick
from .swiglu import feed_forward, ffn_hidden_dim
from .tokenizer import Tokenizer

__version__ = "0.2.0"
# imported from a room (a subpackage) when first used
_ROOMS = {
    "break_it": ".course.experiment",
    "find_checkpoint": ".formats.find",
    "save": ".formats.meta",
}
_HOMES = [(n, getattr(v, "__module__", "")) for n, v in globals().items()]
__all__ = [n for n, home in _HOMES if str(home).startswith("llamalib.")]
__all__ += _ROOMS


def __getattr__(name):
    if name in _ROOMS:
        return getattr(import_module(_ROOMS[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
