r"""One block, the whole model as a function, and the module with its weights.

Shapes: `B` batch, `T` new positions, `S` all positions, `D` model dim, `H`
query heads, `KV` key/value heads, `hd` head dim, `F` hidden dim, `V`
vocabulary, `L` layers, `...` any leading dimensions.
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cache import KVCache
from .config import ModelArgs
from .gqa import (
    attention,
    attention_weights,
    causal_mask,
    sdpa_attention,
    self_attention,
)
from .rmsnorm import rms_norm
from .rope import precompute_freqs_cis
from .swiglu import feed_forward

# The tensors of one block, in the order they are used. Their full names are
# layers.{layer}.{name}.weight.
BLOCK_WEIGHTS = (
    "attention_norm",
    "attention.wq",
    "attention.wk",
    "attention.wv",
    "attention.wo",
    "ffn_norm",
    "feed_forward.w1",
    "feed_forward.w2",
    "feed_forward.w3",
)


def transformer_block(
    x: Tensor,
    w: Mapping[str, Tensor],
    layer: int,
    freqs_cis: Tensor,
    mask: Tensor | None,
    config: ModelArgs,
    *,
    update_cache=None,
    attend=attention,
    halves=None,
) -> Tensor:
    r"""Run one of the L blocks: attention, then feed-forward, each added to x.

    Args:
        x: (..., T, D), the residual stream.
        w: every tensor of the model by Meta's name.
        layer: 0 … L-1.
        freqs_cis: (T, hd/2), of the positions of x.
        mask: (T, S), see `causal_mask`; None hides nothing.
        config: of the model.
        update_cache, attend: see `self_attention`.
        halves: two functions to call instead of `self_attention` and
            `feed_forward`, such as modules with hooks.

    Returns:
        (..., T, D).
    """
    norm1, wq, wk, wv, wo, norm2, w1, w2, w3 = (
        w[f"layers.{layer}.{name}.weight"] for name in BLOCK_WEIGHTS
    )
    mix_tokens, mix_features = halves or (self_attention, feed_forward)
    x_norm = rms_norm(x, norm1, config.norm_eps)  # (..., T, D)
    x = x + mix_tokens(
        x_norm,
        wq,
        wk,
        wv,
        wo,
        freqs_cis,
        mask,
        head_dim=config.head_dim,
        update_cache=update_cache,
        attend=attend,
    )  # (..., T, D)
    x_norm = rms_norm(x, norm2, config.norm_eps)  # (..., T, D)
    return x + mix_features(x_norm, w1, w2, w3)  # (..., T, D)


def forward(
    tokens: Tensor,
    w: Mapping[str, Tensor],
    config: ModelArgs,
    freqs_cis: Tensor,
    mask: Tensor | None = None,
    *,
    update_cache=None,
    attend=attention,
    last_only: bool = False,
    block=None,
) -> Tensor:
    r"""Run the whole model: embed, L blocks, final norm, LM head.

    Args:
        tokens: (..., T) int64 ids.
        w: every tensor of the model by Meta's name.
        config: of the model.
        freqs_cis: (T, hd/2), of the positions of tokens.
        mask: (T, S), see `causal_mask`; None hides nothing.
        update_cache: called as (layer, xk, xv), see `KVCache.update`.
        attend: see `self_attention`.
        last_only: whether to compute logits for the last position alone.
        block: a function to call instead of `transformer_block`.

    Returns:
        (..., T, V) float32 logits of the next token; T is 1 if last_only.
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
    r"""Return every tensor's name and shape, in the order data flows.

    `output.weight` comes last; in a tied model it is `tok_embeddings.weight`.
    """
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
    """One tensor of a model, as `weight`. It is never called: no hooks."""

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.weight = weight

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, {self.weight.dtype}"

    def register_forward_hook(self, *args, **kwargs):
        raise RuntimeError(
            "a single tensor is never called, so a hook would never run; hook "
            "llama.layers[i], its .attention or its .feed_forward"
        )

    register_forward_pre_hook = register_forward_hook


class Half(nn.Module):
    """The matrices of a layer's half; a call runs a function of this file."""

    def __init__(self, function: str):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        # by name: `break_it` may have replaced the function
        return globals()[self.function](*args, **kwargs)


class Layer(nn.Module):
    """The weights of one block; a call runs `transformer_block`."""

    def __init__(self):
        super().__init__()
        self.add_module("attention_norm", None)  # in the order of use
        self.add_module("attention", Half("self_attention"))
        self.add_module("ffn_norm", None)
        self.add_module("feed_forward", Half("feed_forward"))

    def forward(self, *args, **options):
        halves = self.attention, self.feed_forward
        return transformer_block(*args, halves=halves, **options)


class Llama(nn.Module):
    r"""A Llama whose parameter names are Meta's tensor names.

    `llamalib.load` makes one from a folder. `Llama(config)` makes one with
    fresh weights: matrices normal with standard deviation 0.02, norms 1. A
    layer, its `attention` and its `feed_forward` can be hooked.

    Args:
        config: the shapes.
        tied: whether `output.weight` is `tok_embeddings.weight`.
        tokenizer: kept as `llama.tokenizer`, or None.

    Attributes:
        config, tied, tokenizer: as given.
        name: the checkpoint's folder, for headings; "" for fresh weights.
        attend: the attention it runs on, see `self_attention`.
        ways: what `fast.prepare` chose, by name; empty if nothing.
        compiled: the last compiled step, kept for the next generation.
    """

    def __init__(self, config: ModelArgs, *, tied=True, tokenizer=None):
        super().__init__()
        self.config, self.tied, self.tokenizer = config, tied, tokenizer
        self.name, self.attend, self.ways = "", sdpa_attention, {}
        self._freqs_cis = self.compiled = None
        self.add_module("tok_embeddings", None)  # first in state_dict
        self.layers = nn.ModuleList(Layer() for _ in range(config.n_layers))
        self._holders = {}  # by Meta's name
        for name, shape in tensor_shapes(config).items():
            if name == "output.weight" and tied:
                weight = self.tok_embeddings.weight
            else:
                weight = nn.Parameter(torch.ones(shape))
                # initializing shapes on the meta device takes half a second
                if len(shape) == 2 and not weight.is_meta:
                    nn.init.normal_(weight, std=0.02)
            path, _, leaf = name.removesuffix(".weight").rpartition(".")
            holder = Weight(weight)
            self.get_submodule(path).add_module(leaf, holder)
            self._holders[name] = holder

    def _apply(self, fn, recurse=True):
        # .to(…): a compiled step would keep the old weights alive
        self.compiled = None
        return super()._apply(fn, recurse)

    def __repr__(self) -> str:
        c = self.config
        kept = f"{self.quantized} for " if self.quantized else ""
        return (
            f"Llama({self.name or 'fresh weights'}: L={c.n_layers}, "
            f"D={c.dim}, H={c.n_heads}, KV={c.n_kv_heads}, "
            f"F={c.hidden_dim}, V={c.vocab_size}, {kept}{self.dtype}, "
            f"{self.device})"
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
        """"int8" or "int4" if the blocks' matrices are quantized, or None."""
        weight = self.layers[0].attention.wq.weight
        return getattr(weight, "kind", None)

    def weights(self) -> dict[str, Tensor]:
        """Return every parameter by Meta's name: the tensors themselves."""
        # named_parameters() gives the same, at twenty times the cost
        return {name: h.weight for name, h in self._holders.items()}

    def new_cache(
        self, max_seq_len: int, batch_size: int = 1, padding=None
    ) -> KVCache:
        """Return an empty KV cache of this model's shape, device and dtype."""
        return KVCache(
            self.config,
            max_seq_len,
            batch_size=batch_size,
            device=self.device,
            dtype=self.dtype,
            padding=padding,
        )

    def freqs_cis_for(self, start: int, end: int) -> Tensor:
        """Return RoPE's rotations of positions start … end-1, (T, hd/2)."""
        made_by, have = self._freqs_cis or (None, ())
        stale = made_by is not precompute_freqs_cis  # `break_it` replaces it
        if stale or len(have) < end or have.device != self.device:
            c, size = self.config, max(256, 2 ** (end - 1).bit_length())
            with torch.inference_mode(False):
                have = precompute_freqs_cis(
                    c.head_dim, size, c.rope_theta, c.rope_scaling_factor
                ).to(self.device)
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

        Args:
            tokens: (B, T) or (T,) int64 ids.
            cache: holds what came before `tokens` and takes what they add;
                None: nothing came before.
            last_only: whether to compute logits for the last position alone.
            attend: see `self_attention`; None: `llama.attend`.

        Returns:
            (B, T, V) or (T, V) float32; T is 1 if last_only.

        Raises:
            ValueError: if ids are not integers of the vocabulary, or if the
                cache is full or has another batch size, device or dtype.
        """
        self._check_tokens(tokens, cache)
        batch = tokens.to(self.device)
        batch = batch if tokens.dim() == 2 else batch[None]  # (B, T)
        start, T = 0, batch.shape[1]
        if cache is not None:
            self._check_cache(cache, len(batch))
            start = cache.length
        freqs_cis = self.freqs_cis_for(start, start + T)  # (T, hd/2)
        # a single new token may look at everything: no mask
        mask = causal_mask(T, start + T, self.device) if T > 1 else None
        if cache is not None and cache.padding is not None:
            positions = cache.positions(T)  # (B, T)
            freqs_cis = self.freqs_cis_for(0, start + T)[positions]
            mask = cache.mask(T)  # (B, 1, T, S)
        logits = forward(
            batch,
            self.weights(),
            self.config,
            freqs_cis,
            mask,
            update_cache=cache and cache.update,
            attend=attend or self.attend,
            last_only=last_only,
            block=self._run_layer,
        )  # (B, T, V)
        if cache is not None:
            cache.advance(T)
        return logits if tokens.dim() == 2 else logits[0]

    def _run_layer(self, x, w, layer, *args, **options):
        """Run a block by its module, so that its hooks run too."""
        return self.layers[layer](x, w, layer, *args, **options)

    def _check_tokens(self, tokens, cache):
        """Raise ValueError unless tokens is a (B, T) or (T,) id tensor."""
        kind = getattr(tokens, "dtype", type(tokens).__name__)
        if kind not in (torch.int64, torch.int32):
            raise ValueError(
                f"tokens are {kind}; expected a tensor of int64 ids, as from "
                "torch.tensor(llama.tokenizer.encode(…))"
            )
        if tokens.dim() not in (1, 2) or not tokens.numel():
            raise ValueError(
                f"tokens have shape {tuple(tokens.shape)}; expected (T,) or "
                "(B, T) with at least one token"
            )
        if cache is not None and self.device.type != "cpu":
            return  # reading ids waits for a GPU; `generate` checked its own
        low, high = tokens.aminmax()
        V = self.config.vocab_size
        if low < 0 or high >= V:
            raise ValueError(
                f"token id {int(low if low < 0 else high)} is not in the "
                f"vocabulary; expected 0 to {V - 1}. Was the text encoded by "
                "this checkpoint's own tokenizer?"
            )

    def _check_cache(self, cache, B):
        """Raise ValueError unless the cache fits this model and batch."""
        c = self.config
        shape = c.n_layers, B, c.n_kv_heads, cache.max_seq_len, c.head_dim
        expected = shape, self.device, self.dtype
        found = tuple(cache.k.shape), cache.k.device, cache.k.dtype
        if found != expected:
            raise ValueError(
                f"the cache has shape, device and dtype {found}; expected "
                f"{expected}: make it with "
                f"llama.new_cache(max_seq_len, batch_size={B})"
            )


def record(llama: Llama, tokens: Tensor) -> dict[str, Tensor]:
    r"""Return what enters and leaves each layer and each of its halves.

    Args:
        tokens: (B, T) or (T,) int64.

    Returns:
        (B, T, D) or (T, D) tensors by name: `layers.0.in` and `layers.0.out`
        are the residual stream; `layers.0.attention.in` is normalized,
        `layers.0.attention.out` is added to the stream; likewise
        `layers.0.feed_forward.in` and `.out`.
    """
    seen, hooks = {}, []
    for name, module in llama.layers.named_modules(prefix="layers"):
        if isinstance(module, (Layer, Half)):

            def keep(module, args, out, name=name):
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
    r"""Return the attention weights of every head.

    Args:
        tokens: (T,) int64.

    Returns:
        (L, H, T, T) float32 on the CPU; [l, h, t, s] is how much token t
        looks at token s; each row sums to 1, up to rounding.
    """
    maps = []

    def attend(xq, xk, xv, mask):
        maps.append(attention_weights(xq, xk, mask)[0].float().cpu())
        return attention(xq, xk, xv, mask)

    with torch.no_grad():
        llama(tokens, attend=attend)
    return torch.stack(maps)  # (L, H, T, T)
