r"""One block, and the whole model: names of weights, no arithmetic of its own.

Shapes: `B` batch, `T` new positions, `S` all positions, `D` model dim, `H`
query heads, `KV` key/value heads, `hd` head dim, `F` hidden dim, `V`
vocabulary, `L` layers.
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import (
    attention,
    attention_weights,
    causal_mask,
    fused_attention,
    self_attention,
)
from .cache import KVCache
from .config import ModelArgs
from .feed_forward import feed_forward
from .normalization import rms_norm
from .products import Packed, pack_all, quick
from .rope import precompute_freqs_cis

# The tensors of one block, in the order they are used: each is found under
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
) -> Tensor:
    r"""One of the L blocks: attention, then feed-forward, each added to x.

    Args:
        x: (..., T, D), the residual stream.
        w: every tensor of the model by Meta's name.
        layer: 0 … L-1.
        freqs_cis: (T, hd/2), of the positions of x.
        mask: (T, S), see `causal_mask`; None lets everything be seen.
        config: of the model.
        update_cache, attend: see `self_attention`.

    Returns:
        (..., T, D).
    """
    norm1, wq, wk, wv, wo, norm2, w1, w2, w3 = (
        w[f"layers.{layer}.{name}.weight"] for name in BLOCK_WEIGHTS
    )
    x_norm = rms_norm(x, norm1, config.norm_eps)  # (..., T, D)
    x = x + self_attention(
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
    return x + feed_forward(x_norm, w1, w2, w3)  # (..., T, D)


def tensor_shapes(config: ModelArgs) -> dict[str, tuple[int, ...]]:
    r"""Every tensor's name and shape, in the order data flows.

    `output.weight` comes last; in a tied model it is `tok_embeddings.weight`.
    """
    D, hidden = config.dim, config.hidden_dim
    q_dim = config.n_heads * config.head_dim  # D in Meta's models
    kv_dim = config.n_kv_heads * config.head_dim
    block = dict(
        zip(
            BLOCK_WEIGHTS,
            [(D,), (q_dim, D), (kv_dim, D), (kv_dim, D), (D, q_dim)]
            + [(D,), (hidden, D), (D, hidden), (hidden, D)],
        )
    )
    shapes = {"tok_embeddings.weight": (config.vocab_size, D)}
    for layer in range(config.n_layers):
        for name, shape in block.items():
            shapes[f"layers.{layer}.{name}.weight"] = shape
    shapes["norm.weight"] = (D,)
    shapes["output.weight"] = (config.vocab_size, D)
    return shapes


class Llama(nn.Module):
    r"""A Llama whose parameter names are Meta's tensor names.

    `load_state_dict` of a checkpoint is the whole mapping. `llamalib.load`
    makes one from a folder; `Llama(config)` makes one with fresh weights:
    matrices normal of standard deviation 0.02, norms 1.

    Args:
        config: the shapes.
        tied: whether `output.weight` is `tok_embeddings.weight`.
        tokenizer: kept as `llama.tokenizer`, or None.

    Attributes:
        config, tied, tokenizer: as given.
        name: the checkpoint's folder, for headings; "" for fresh weights.
    """

    def __init__(self, config: ModelArgs, *, tied=True, tokenizer=None):
        super().__init__()
        self.config, self.tied, self.tokenizer = config, tied, tokenizer
        self.name = ""
        self._freqs_cis = None
        self._idle_decode = None  # see CompiledDecode.borrow
        self._packed = Packed()  # see pack
        self._held = {}  # by name: the dict that holds it, and its key there
        for name, shape in tensor_shapes(config).items():
            if name == "output.weight" and tied:
                weight = self.tok_embeddings.weight
            else:
                weight = nn.Parameter(torch.ones(shape))
                # shapes alone have no numbers; to ask takes half a second
                if len(shape) == 2 and not weight.is_meta:
                    nn.init.normal_(weight, std=0.02)
            self._hold(name, weight)

    def _hold(self, name, weight):
        """Register a parameter under a dotted name."""
        *path, leaf = name.split(".")
        holder = self
        for part in path:
            if part not in dict(holder.named_children()):
                holder.add_module(part, nn.Module())
            holder = getattr(holder, part)
        holder.register_parameter(leaf, weight)
        self._held[name] = holder._parameters, leaf

    def _apply(self, fn, recurse=True):
        # .to(…): what was made of the old weights would keep them alive
        super()._apply(fn, recurse)
        self._idle_decode, self._packed = None, Packed()
        return self

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
        """Where the weights are."""
        return self.tok_embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights; of quantized ones, of what they stand for."""
        return self.tok_embeddings.weight.dtype

    @property
    def quantized(self) -> str | None:
        """int8 or int4, as the blocks' matrices are kept, or None."""
        weight = self.layers.get_submodule("0.attention.wq").weight
        return getattr(weight, "kind", None)

    def weights(self) -> dict[str, Tensor]:
        """Every parameter by Meta's name: the tensors themselves."""
        # named_parameters() gives the same, at twenty times the cost
        return {n: held[leaf] for n, (held, leaf) in self._held.items()}

    def pack(self) -> None:
        r"""Keep the matrices in the order of the processor's own products too.

        For 16-bit weights on a CPU with instructions for them: a second copy
        of the weights, made in seconds, with which prompts and batches run
        up to 1.4 times as fast. Elsewhere nothing is done. Weights that are
        written to later are used as they are; call it again then. (Only
        what is written through `.data` goes unnoticed.)
        """
        self._packed = pack_all(self.weights())

    def new_cache(
        self, max_seq_len: int, batch_size: int = 1, padding=None
    ) -> KVCache:
        """An empty KV cache of this model's shape, device and dtype."""
        return KVCache(
            self.config,
            max_seq_len,
            batch_size=batch_size,
            device=self.device,
            dtype=self.dtype,
            padding=padding,
        )

    def freqs_cis_for(self, start: int, end: int) -> Tensor:
        """RoPE's turns for positions start … end-1: (end-start, hd/2)."""
        have = self._freqs_cis
        if have is None or len(have) < end or have.device != self.device:
            size = max(256, 2 ** (end - 1).bit_length())
            with torch.inference_mode(False):
                self._freqs_cis = precompute_freqs_cis(
                    self.config.head_dim,
                    size,
                    self.config.rope_theta,
                    self.config.rope_scaling_factor,
                ).to(self.device)
        return self._freqs_cis[start:end]

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache | None = None,
        *,
        last_only: bool = False,
        attend=fused_attention,
    ) -> Tensor:
        r"""Logits of the token that follows each token.

        Args:
            tokens: (B, T) or (T,) int64 ids.
            cache: holds what came before `tokens`, and takes what they add;
                None: nothing came before.
            last_only: give logits for the last position alone.
            attend: called as `attention` is, once a layer, in order; one
                of your own can look at the heads, or change them.

        Returns:
            (B, T, V) or (T, V) float32; T is 1 where last_only.

        Raises:
            ValueError: for ids that are no whole numbers or not in the
                vocabulary, and for a cache that is full or not of this
                batch size, device and dtype.
        """
        cached = cache is not None
        # looking at ids on a GPU waits for it: there, not for every token;
        # `generate` has looked at its prompt
        look = not cached or self.device.type == "cpu"
        self._check_tokens(tokens, look)
        batch = tokens if tokens.dim() == 2 else tokens[None]  # (B, T)
        batch = batch.to(self.device)
        if cached:
            self._check_cache(cache, len(batch))
        start, T = (cache.length if cached else 0), batch.shape[1]
        freqs_cis = self.freqs_cis_for(start, start + T)  # (T, hd/2)
        # a single new token may look at everything: no mask
        mask = causal_mask(T, start + T, self.device) if T > 1 else None
        if cached and cache.padding is not None:
            positions = cache.positions(T)  # (B, T)
            freqs_cis = self.freqs_cis_for(0, start + T)[positions]
            mask = cache.mask(T)  # (B, 1, T, S)
        weights, rows = self.weights(), batch.numel()
        with quick(weights, self._packed, rows) as w:
            x = F.embedding(batch, w["tok_embeddings.weight"])  # (B, T, D)
            for layer in range(self.config.n_layers):
                x = transformer_block(
                    x,
                    w,
                    layer,
                    freqs_cis,
                    mask,
                    self.config,
                    update_cache=partial(cache.update, layer)
                    if cached
                    else None,
                    attend=attend,
                )  # (B, T, D)
            if cached:
                cache.advance(T)
            if last_only:
                x = x[:, -1:]  # (B, 1, D)
            x = rms_norm(x, w["norm.weight"], self.config.norm_eps)
            logits = F.linear(x, w["output.weight"]).float()  # (B, T, V)
        return logits if tokens.dim() == 2 else logits[0]

    def _check_tokens(self, tokens, look):
        """ValueError for what is no (B, T) or (T,) tensor of ids."""
        kind = getattr(tokens, "dtype", type(tokens).__name__)
        if kind not in (torch.int64, torch.int32):
            raise ValueError(
                f"tokens are {kind}; wanted a tensor of int64 ids, as from "
                "torch.tensor(llama.tokenizer.encode(…))"
            )
        if tokens.dim() not in (1, 2) or not tokens.numel():
            raise ValueError(
                f"tokens have shape {tuple(tokens.shape)}; wanted (T,) or "
                "(B, T) with at least one token"
            )
        low, high = tokens.aminmax() if look else (0, 0)
        V = self.config.vocab_size
        if low < 0 or high >= V:
            raise ValueError(
                f"token id {int(low if low < 0 else high)} is not in the "
                f"vocabulary; wanted 0 to {V - 1}. Was the text encoded by "
                "this checkpoint's own tokenizer?"
            )

    def _check_cache(self, cache, B):
        """ValueError for a cache that another batch or model would fill."""
        c = self.config
        L, KV, hd = c.n_layers, c.n_kv_heads, c.head_dim
        wanted = (L, B, KV, cache.max_seq_len, hd), self.device, self.dtype
        found = tuple(cache.k.shape), cache.k.device, cache.k.dtype
        if found != wanted:
            raise ValueError(
                f"the cache has shape, device and dtype {found}; wanted "
                f"{wanted}: make it with "
                f"llama.new_cache(max_seq_len, batch_size={B})"
            )


def attention_maps(llama: Llama, tokens: Tensor) -> Tensor:
    r"""Where every head looks.

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
