"""One block, the whole model as a function, the module with its weights."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cache import KVCache
from .checks import check_ids, expect
from .config import ModelArgs
from .gqa import attention, attention_weights, causal_mask
from .gqa import sdpa_attention, self_attention
from .rmsnorm import rms_norm
from .rope import precompute_freqs_cis
from .swiglu import feed_forward

# The tensors of one block: layers.{layer}.{name}.weight
BLOCK_WEIGHTS = (
    "attention_norm",  # (D,): scale of the norm before attention
    "attention.wq",  # (H·hd, D): makes the queries
    "attention.wk",  # (KV·hd, D): makes the keys
    "attention.wv",  # (KV·hd, D): makes the values
    "attention.wo",  # (D, H·hd): output projection
    "ffn_norm",  # (D,): scale of the norm before feed-forward
    "feed_forward.w1",  # (F, D): gate projection
    "feed_forward.w2",  # (D, F): down projection
    "feed_forward.w3",  # (F, D): up projection
)


def transformer_block(
    x: Tensor,
    w: Mapping[str, Tensor],
    layer: int,
    freqs_cis: Tensor,
    mask: Tensor | None,
    config: ModelArgs,
    *, update_cache=None, attend=attention, sub_layers=None,
) -> Tensor:
    r"""Run one of the L blocks: attention, then feed-forward, each added to x.

    x: (..., T, D), the residual stream; returns the same shape.
    w: every tensor of the model by Meta's name.  layer: 0 … L-1.
    freqs_cis, mask, update_cache, attend: see `self_attention`.
    sub_layers: functions to call instead of `self_attention` and
    `feed_forward`, such as modules with hooks.
    """
    norm1, wq, wk, wv, wo, norm2, w1, w2, w3 = (
        w[f"layers.{layer}.{name}.weight"] for name in BLOCK_WEIGHTS
    )
    mix_tokens, mix_features = sub_layers or (self_attention, feed_forward)
    x_norm = rms_norm(x, norm1, config.norm_eps)  # (..., T, D)
    x = x + mix_tokens(
        x_norm, wq, wk, wv, wo, freqs_cis, mask, head_dim=config.head_dim,
        update_cache=update_cache, attend=attend,
    )  # (..., T, D)
    x_norm = rms_norm(x, norm2, config.norm_eps)  # (..., T, D)
    return x + mix_features(x_norm, w1, w2, w3)  # (..., T, D)


def forward(
    tokens: Tensor,
    w: Mapping[str, Tensor],
    config: ModelArgs,
    freqs_cis: Tensor,
    mask: Tensor | None = None,
    *, update_cache=None, attend=attention, last_only: bool = False,
    block=None,
) -> Tensor:
    r"""Run the whole model: embed, L blocks, final norm, LM head.

    tokens: (..., T) int64 ids.  w: every tensor of the model by Meta's name.
    freqs_cis, mask, attend: see `self_attention`.
    update_cache: called as (layer, xk, xv), see `KVCache.update`.
    last_only: whether to compute logits for the last position alone.
    block: a function to call instead of `transformer_block`.
    Returns (..., T, V) float32 logits of the next token; T is 1 if last_only.
    """
    run = block or transformer_block
    x = F.embedding(tokens, w["tok_embeddings.weight"])  # (..., T, D)
    for layer in range(config.n_layers):
        update = update_cache and partial(update_cache, layer)
        options = dict(update_cache=update, attend=attend)
        x = run(x, w, layer, freqs_cis, mask, config, **options)
    if last_only:
        x = x[..., -1:, :]  # (..., 1, D)
    x = rms_norm(x, w["norm.weight"], config.norm_eps)  # (..., T, D)
    return F.linear(x, w["output.weight"]).float()  # (..., T, V)


def tensor_shapes(config: ModelArgs) -> dict[str, tuple[int, ...]]:
    """Return every tensor's name and shape, in the order data flows."""
    D, hidden = config.dim, config.hidden_dim
    q_dim = config.n_heads * config.head_dim  # D in Meta's models
    kv_dim = config.n_kv_heads * config.head_dim
    attention_shapes = (D,), (q_dim, D), (kv_dim, D), (kv_dim, D), (D, q_dim)
    ffn_shapes = (D,), (hidden, D), (D, hidden), (hidden, D)
    shapes = {"tok_embeddings.weight": (config.vocab_size, D)}
    for layer in range(config.n_layers):
        for name, shape in zip(BLOCK_WEIGHTS, attention_shapes + ffn_shapes):
            shapes[f"layers.{layer}.{name}.weight"] = shape
    shapes["norm.weight"] = (D,)
    shapes["output.weight"] = (config.vocab_size, D)
    return shapes


class Weight(nn.Module):
    """One tensor, as `weight`. It is never called, so it cannot be hooked."""

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.weight = weight

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, {self.weight.dtype}"

    def register_forward_hook(self, *args, **kwargs):
        raise RuntimeError("hook a layer, its attention or its feed_forward")


class SubLayer(nn.Module):
    """The matrices of a sub-layer; a call runs the function of that name."""

    def __init__(self, function: str):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        # by name: an exercise may have replaced the function (`break_it`)
        return globals()[self.function](*args, **kwargs)


class Layer(nn.Module):
    """The weights of one block; a call runs `transformer_block`."""

    def __init__(self):
        super().__init__()
        self.add_module("attention_norm", None)  # in the order of use
        self.add_module("attention", SubLayer("self_attention"))
        self.add_module("ffn_norm", None)
        self.add_module("feed_forward", SubLayer("feed_forward"))

    def forward(self, *args, **options):
        sub_layers = self.attention, self.feed_forward
        return transformer_block(*args, sub_layers=sub_layers, **options)


class Llama(nn.Module):
    r"""A Llama whose parameter names are Meta's tensor names.

    `llamalib.load` makes one from a folder. `Llama(config)` makes one with
    fresh weights: matrices normal with standard deviation 0.02, norms 1. A
    layer, its `attention` and its `feed_forward` can be hooked.

    tied: whether `output.weight` is `tok_embeddings.weight`.
    name: the checkpoint's folder, for headings; "" for fresh weights.
    note: why `load` chose the dtype, or that it is not native; or "".
    attend: the attention it runs on, see `self_attention`.
    ways: what `fast.prepare` chose, by name; empty if nothing.
    compiled: the last compiled step; `fast` keeps it for the next generation.
    processes: those that share the model, or None: see `parallel`.
    """

    def __init__(self, config: ModelArgs, *, tied=True, tokenizer=None):
        super().__init__()
        self.config, self.tokenizer = config, tokenizer
        self.name, self.attend, self.ways = "", sdpa_attention, {}
        self._freqs_cis, self.compiled, self.note = None, None, ""
        self.processes, self.n_kv_heads = None, config.n_kv_heads  # held here
        self.add_module("tok_embeddings", None)  # first in state_dict
        self.layers = nn.ModuleList(Layer() for _ in range(config.n_layers))
        for name, shape in tensor_shapes(config).items():
            if name == "output.weight" and tied:
                weight = self.tok_embeddings.weight
            else:
                weight = nn.Parameter(torch.ones(shape))
                if len(shape) == 2 and not weight.is_meta:
                    nn.init.normal_(weight, std=0.02)
            path, _, leaf = name.removesuffix(".weight").rpartition(".")
            self.get_submodule(path).add_module(leaf, Weight(weight))

    def _apply(self, fn, recurse=True):
        # .to(…): a compiled step would keep the old weights alive
        self.compiled, self.note = None, ""
        return super()._apply(fn, recurse)

    def __repr__(self) -> str:
        c, name = self.config, self.name or "fresh weights"
        kept = f"{self.quantized} for " if self.quantized else ""
        dtype = f"{self.dtype} ({self.note})" if self.note else self.dtype
        return (
            f"Llama({name}: L={c.n_layers}, D={c.dim}, H={c.n_heads}, "
            f"KV={c.n_kv_heads}, F={c.hidden_dim}, V={c.vocab_size}, "
            f"{kept}{dtype}, {self.device})"
        )

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.tok_embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights; if quantized, after dequantizing."""
        return self.tok_embeddings.weight.dtype

    @property
    def quantized(self) -> str | None:
        """How the blocks' matrices are quantized: "int8", "int4" or None."""
        return getattr(self.layers[0].attention.wq.weight, "kind", None)

    @property
    def tied(self) -> bool:
        """Whether the output matrix and the embedding are one parameter."""
        return self.output.weight is self.tok_embeddings.weight

    def weights(self) -> dict[str, Tensor]:
        """Return the weights by Meta's name; ValueError if one is missing."""
        found, n, L = {}, len(self.layers), self.config.n_layers
        same = f"{L}, as llama.config.n_layers; change one of the two"
        expect(n == L, "len(llama.layers)", n, same)
        try:
            for name in tensor_shapes(self.config):
                module = self
                for part in name.split(".")[:-1]:  # getattr takes longer
                    module = module._modules.get(part) or getattr(module, part)
                found[name] = module.weight
        except AttributeError as error:
            raise ValueError(f"llama has no {name}: {error}") from None
        return found

    def new_cache(self, max_seq_len, batch_size=1, padding=None) -> KVCache:
        """Return an empty KV cache of this model's shape, device and dtype."""
        like = dict(device=self.device, dtype=self.dtype)
        config = replace(self.config, n_kv_heads=self.n_kv_heads)
        return KVCache(config, max_seq_len, batch_size, padding, **like)

    def freqs_cis_for(self, start: int, end: int) -> Tensor:
        r"""Return RoPE's rotations of positions start … end-1.

        (T, hd/2) complex64; on MPS cosines and sines, (T, hd/2, 2) float32.
        """
        made_by, have = self._freqs_cis or (None, ())
        stale = made_by is not precompute_freqs_cis  # replaced by `break_it`
        if stale or len(have) < end or have.device != self.device:
            c, size = self.config, max(256, 2 ** (end - 1).bit_length())
            with torch.inference_mode(False):  # training may use it too
                have = precompute_freqs_cis(
                    c.head_dim, size, c.rope_theta, c.rope_scaling_factor
                )
                if self.device.type == "mps":  # see PyTorch's issue 160845
                    have = torch.view_as_real(have)
                have = have.to(self.device)
            self._freqs_cis = precompute_freqs_cis, have
        return have[start:end]

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache | None = None,
        *,
        last_only: bool = False,
        attend=None,
    ) -> Tensor:
        r"""Compute the logits of the token that follows each token.

        tokens: (B, T) or (T,) int64 ids.
        cache: holds what came before and takes what tokens add.
        last_only: whether to compute logits for the last position alone.
        attend: see `self_attention`; None: `llama.attend`.
        Returns (B, T, V) or (T, V) float32; T is 1 if last_only.
        Raises ValueError for ids outside the vocabulary (on a GPU with a cache
        they are not read), and for a cache that is full or of another kind.
        """
        batch = self._checked(tokens, cache)  # (B, T)
        T = batch.shape[1]
        if cache is None:
            freqs_cis = self.freqs_cis_for(0, T)
            mask = causal_mask(T, device=self.device)  # (T, T)
        else:
            end = max(cache.max_seq_len, cache.length + T)  # copied once
            freqs_cis = self.freqs_cis_for(0, end)[cache.positions(T)]
            mask = cache.mask(T)

        def run_layer(x, w, layer, *args, **options):  # runs its hooks too
            return self.layers[layer](x, w, layer, *args, **options)

        options = dict(attend=attend or self.attend, last_only=last_only)
        options |= dict(update_cache=cache and cache.update, block=run_layer)
        w = self.weights()  # below: the function forward, not this method
        logits = forward(batch, w, self.config, freqs_cis, mask, **options)
        if cache is not None:
            cache.advance(T)
        return logits if tokens.dim() == 2 else logits[0]  # ([B], T, V)

    def _checked(self, tokens, cache) -> Tensor:
        """Return tokens as (B, T) on the device, or raise ValueError."""
        found = tuple(getattr(tokens, "shape", ())) or type(tokens).__name__
        if not isinstance(tokens, Tensor) or len(found) > 2 or 0 in found:
            raise ValueError(
                f"tokens are {found}; expected a tensor (T,) or (B, T) of "
                "ids, as from torch.tensor(llama.tokenizer.encode(…))"
            )
        # reading ids waits for a GPU: while decoding, `generate` checks them
        if cache is None or self.device.type == "cpu":
            check_ids("tokens", tokens, self.config.vocab_size)
        batch = tokens.to(self.device).reshape(-1, tokens.shape[-1])
        if cache is not None:
            is_cache = hasattr(cache, "max_seq_len")
            expect(is_cache, "the cache", cache, "a KVCache")
            c, B, S = self.config, len(batch), cache.max_seq_len
            shape = c.n_layers, B, self.n_kv_heads, S, c.head_dim
            expected = shape, self.device, self.dtype
            found = tuple(cache.k.shape), cache.k.device, cache.k.dtype
            made = f"{expected}, as from llama.new_cache({S}, batch_size={B})"
            expect(found == expected, "the cache", found, made)
        return batch


def record(llama: Llama, tokens: Tensor) -> dict[str, Tensor]:
    r"""Return what enters and leaves each layer and each of its sub-layers.

    Returns (B, T, D) or (T, D) tensors by name: `layers.0.in` and `.out`, the
    residual stream; `layers.0.attention.in`, normalized, and `.out`, added to
    the stream; the same of `layers.0.feed_forward`.
    """
    seen, hooks = {}, []
    for name, module in llama.layers.named_modules(prefix="layers"):
        if isinstance(module, (Layer, SubLayer)):

            def keep(module, args, out, name=name):  # this module's name
                seen[f"{name}.in"], seen[f"{name}.out"] = args[0], out

            hooks.append(module.register_forward_hook(keep))
    try:
        with torch.no_grad():
            llama(tokens, last_only=True)
    finally:
        for hook in hooks:
            hook.remove()
    if tokens.dim() == 2:
        return seen
    return {name: x[0] for name, x in seen.items()}  # no batch dimension


def attention_maps(llama: Llama, tokens: Tensor) -> Tensor:
    r"""Return the attention weights of every head for tokens (T,).

    Returns (L, H, T, T) float32 on the CPU; [l, h, t, s] is how much token t
    looks at token s.
    """
    maps = []

    def attend(xq, xk, xv, mask):
        maps.append(attention_weights(xq, xk, mask)[0].float().cpu())
        return attention(xq, xk, xv, mask)

    with torch.no_grad():
        llama(tokens, attend=attend, last_only=True)
    return torch.stack(maps)  # (L, H, T, T)
