r"""The whole Llama: its config, its functions, its modules.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers; `...` any leading
dimensions. In code, `F` is torch.nn.functional. A matrix (out, in) maps x to
x @ w.T.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "ModelArgs",
    "LLAMA_1B",
    "rms_norm",
    "RMSNorm",
    "precompute_freqs_cis",
    "apply_rotary_emb",
    "ORIGINAL_CONTEXT",
    "LOW_FREQ_FACTOR",
    "HIGH_FREQ_FACTOR",
    "scale_frequencies",
    "causal_mask",
    "repeat_kv",
    "attention_weights",
    "attention",
    "Attention",
    "FeedForward",
    "TransformerBlock",
    "Llama",
]


@dataclass(frozen=True, kw_only=True)
class ModelArgs:
    """The settings of a Llama, under the names of Meta's params.json.

    The last three are not in Meta's file.
    """

    dim: int  # D, the width of the residual stream
    n_layers: int  # L, the number of blocks
    n_heads: int  # H, query heads of each block
    n_kv_heads: int  # KV, key/value heads of each block; divides n_heads
    vocab_size: int  # V, the number of tokens
    multiple_of: int  # hidden_dim is rounded up to a multiple of this
    ffn_dim_multiplier: float | None  # scales hidden_dim; None: 1
    norm_eps: float  # added to the mean square in RMSNorm
    rope_theta: float  # the base of RoPE's frequencies
    use_scaled_rope: bool = False  # whether RoPE's low frequencies are divided
    rope_scaling_factor: float | None = None  # None: 32 if dim < 4096, else 8
    head_width: int | None = None  # hd; None: dim / n_heads
    context_length: int = 131072  # tokens of a text; 8192 in Llama 3.0

    @property
    def head_dim(self) -> int:
        """hd, the width of one head."""
        return self.head_width or self.dim // self.n_heads

    @property
    def hidden_dim(self) -> int:
        """F, the hidden width of each feed-forward network (notebook 06)."""
        hidden = int(2 * (4 * self.dim) / 3)
        if self.ffn_dim_multiplier is not None:
            hidden = int(self.ffn_dim_multiplier * hidden)
        return self.multiple_of * math.ceil(hidden / self.multiple_of)

    @property
    def scaling_factor(self) -> float | None:
        """The factor of scaled RoPE, or None for plain RoPE.

        params.json has only `use_scaled_rope`. The published factor is 32 for
        Llama 3.2 1B (dim 2048) and 3B (3072), and 8 for the larger models,
        from 8B (4096) to 405B (16384).
        """
        if not self.use_scaled_rope:
            return None
        return self.rope_scaling_factor or (32.0 if self.dim < 4096 else 8.0)


# The published params.json of Llama 3.2-1B: hd is 64, F is 8192
LLAMA_1B = ModelArgs(
    dim=2048,
    n_layers=16,
    n_heads=32,
    n_kv_heads=8,
    vocab_size=128256,
    multiple_of=256,
    ffn_dim_multiplier=1.5,
    norm_eps=1e-5,
    rope_theta=500000.0,
    use_scaled_rope=True,
)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    r"""Scale each vector to a root mean square of 1, then by `weight`.

    $$y_i = \gamma_i\, x_i \Big/ \sqrt{\tfrac1D\sum_j x_j^2 + \epsilon}$$

    x: (..., D), any floating dtype; computed in float32.
    weight: (D,), the learned $\gamma$.
    eps: added to the mean square, under the root, as in Meta's code.
    Returns (..., D) in the dtype of `x`, if `weight` has that dtype too.
    Source: Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    xf = x.float()  # bfloat16 keeps only 2 to 3 significant digits
    scale = torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + eps)  # (..., 1)
    return (xf * scale).type_as(x) * weight  # (..., D)


class RMSNorm(nn.Module):
    """Normalize by `rms_norm`, with its own weight (D,), ones at first."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x (..., D); see `rms_norm`."""
        return rms_norm(x, self.weight, self.eps)


def precompute_freqs_cis(
    head_dim: int,
    end: int,
    theta: float = 500000.0,
    scaling_factor: float | None = None,
) -> Tensor:
    r"""Return cosine and sine of every position's angle for every pair.

    Components 2k and 2k+1 of a head are pair k. It rotates by
    $\Theta_k = \theta^{-2k/hd}$ radians per position.

    head_dim: hd, an even number.  end: the number of positions, 0 … end-1.
    theta: the base, `rope_theta` of params.json.
    scaling_factor: None for plain RoPE, otherwise see `scale_frequencies`.
    Returns (end, hd/2, 2) float32; `torch.view_as_complex` of it is
    cos + i·sin, the form in Meta's code.
    Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2.
    """
    two_k = torch.arange(0, head_dim, 2).float()  # (hd/2,)
    freqs = 1.0 / theta ** (two_k / head_dim)  # (hd/2,)
    if scaling_factor is not None:
        freqs = scale_frequencies(freqs, scaling_factor)
    # float32, whatever the model's dtype: bfloat16 would round positions
    angles = torch.outer(torch.arange(end).float(), freqs)  # (end, hd/2)
    return torch.stack((angles.cos(), angles.sin()), dim=-1)


def apply_rotary_emb(
    xq: Tensor, xk: Tensor, freqs_cis: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Rotate each pair of each query and key by its position's angle.

    The pairs are Meta's: components 2k and 2k+1 rotate together.

    xq: (..., T, H, hd).  xk: (..., T, KV, hd).  Any floating dtype; the
    result has it too, computed in float32.
    freqs_cis: (T, hd/2, 2) or (B, T, hd/2, 2), cosine and sine.
    Source: Su et al. 2021, equation 34; pairs adjacent, as in Meta's code.
    """
    cos, sin = freqs_cis.unsqueeze(-3).unbind(-1)  # (..., T, 1, hd/2)

    def rotate(x):
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        pairs = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
        return pairs.flatten(-2).type_as(x)  # (..., T, H or KV, hd)

    return rotate(xq), rotate(xk)


ORIGINAL_CONTEXT = 8192  # positions in Llama 3's training before scaling
LOW_FREQ_FACTOR = 1.0  # wavelengths over 8192 / 1 are scaled fully
HIGH_FREQ_FACTOR = 4.0  # wavelengths under 8192 / 4 are not scaled


def scale_frequencies(freqs: Tensor, factor: float) -> Tensor:
    r"""Scale low frequencies as specified in the Llama 3.1 and 3.2 configs.

    Frequencies with a wavelength over 8192 positions are divided by
    `factor`. Those under 2048 are unchanged. Frequencies in between are
    interpolated.

    freqs: (hd/2,) float32, radians per position; returns the same.
    factor: 8 for Llama 3.1, 32 for Llama 3.2 1B and 3B and the pocket.

    Source: `apply_scaling` in Meta's code; the published configurations
    (`rope_scaling` of type "llama3").
    """
    wavelength = 2 * math.pi / freqs  # (hd/2,) positions per rotation
    smooth = (ORIGINAL_CONTEXT / wavelength - LOW_FREQ_FACTOR) / (
        HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR
    )
    smooth = smooth.clamp(0, 1)  # (hd/2,) 0: divided, 1: unchanged
    return (1 - smooth) * freqs / factor + smooth * freqs  # (hd/2,)


def causal_mask(T: int, S: int | None = None, device=None) -> Tensor:
    r"""Return the mask that hides later tokens when added to the scores.

    The T queries are the last T of the S positions; S defaults to T.
    Returns (T, S) float32: 0 where a query may attend, -inf where not.
    """
    S = T if S is None else S
    mask = torch.full((T, S), float("-inf"), device=device)
    return torch.triu(mask, diagonal=S - T + 1)  # (T, S)


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    r"""Repeat each KV head for the `n_rep` query heads of its group.

    x: (..., S, KV, hd).  n_rep: H/KV, the query heads in a group.
    Returns (..., S, KV·n_rep, hd); its head h is KV head h // n_rep.
    Source: Ainslie et al. 2023, arXiv:2305.13245.
    """
    return torch.repeat_interleave(x, n_rep, dim=-2)  # (..., S, H, hd)


def attention_weights(
    xq: Tensor, xk: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""Return the attention weights: softmax(QKᵀ/√hd + mask).

    For a look inside: the model calls `attention`, which does not return
    them.

    xq: (..., T, H, hd), rotated by RoPE.
    xk: (..., S, KV, hd), rotated; H is a multiple of KV.
    mask: (T, S) or (B, 1, T, S), added to the scores; None: no mask.
    Returns (..., H, T, S) in the dtype of `xq`; rows sum to 1, up to
    rounding.
    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
    """
    xk = repeat_kv(xk, xq.shape[-2] // xk.shape[-2])  # (..., S, H, hd)
    q, k = xq.transpose(-3, -2), xk.transpose(-3, -2)  # (..., H, T or S, hd)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask  # (..., H, T, S)
    return torch.softmax(scores.float(), dim=-1).type_as(xq)


def attention(
    xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""Return each query's weighted average of the values, heads side by side.

    PyTorch's scaled_dot_product_attention computes this. Where it has a fused
    kernel, the weights (H, T, S) are never stored.

    xq, xk: see `attention_weights`.  xv: (..., S, KV, hd), not rotated.
    mask: (T, S) or (B, 1, T, S), added to the scores; None: no mask.
    Returns (..., T, H·hd) in the dtype of `xq`.
    Source: Vaswani et al. 2017, section 3.2; grouped as in Ainslie et al.
    """
    # q: (..., H, T, hd), k and v: (..., KV, S, hd)
    q, k, v = (x.transpose(-3, -2) for x in (xq, xk, xv))
    KV, T, G = k.shape[-3], q.shape[-2], q.shape[-3] // k.shape[-3]
    # Treat the G heads of a group as G·T queries of their KV head: so no key
    # or value is repeated.
    q = q.unflatten(-3, (KV, G)).flatten(-3, -2)  # (..., KV, G·T, hd)
    if mask is not None:  # the same for each head of the group
        mask = torch.cat([mask.type_as(q)] * G, dim=-2)  # (..., G·T, S)
    out = F.scaled_dot_product_attention(q, k, v, mask)
    out = out.unflatten(-2, (G, T)).flatten(-4, -3)  # (..., H, T, hd)
    return out.transpose(-3, -2).flatten(-2)  # (..., T, H·hd)


class Attention(nn.Module):
    """Grouped-query attention with its four matrices."""

    def __init__(self, config: ModelArgs):
        super().__init__()
        D, hd = config.dim, config.head_dim
        self.head_dim = hd
        self.wq = nn.Linear(D, config.n_heads * hd, bias=False)
        self.wk = nn.Linear(D, config.n_kv_heads * hd, bias=False)
        self.wv = nn.Linear(D, config.n_kv_heads * hd, bias=False)
        self.wo = nn.Linear(config.n_heads * hd, D, bias=False)

    def forward(
        self, x: Tensor, freqs_cis: Tensor, mask: Tensor | None, cache=None
    ) -> Tensor:
        r"""Return what attention adds to the residual stream.

        x: (..., T, D), normalized; returns the same shape.
        freqs_cis: (T, hd/2, 2) or (B, T, hd/2, 2), of the positions of x.
        mask: (T, S) or (B, 1, T, S), see `causal_mask`; None: no mask.
        cache: this layer's keys and values of earlier tokens (notebook 09);
        None: there are none, S = T.
        """
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.unflatten(-1, (-1, self.head_dim))  # (..., T, H, hd)
        xk = xk.unflatten(-1, (-1, self.head_dim))  # (..., T, KV, hd)
        xv = xv.unflatten(-1, (-1, self.head_dim))  # (..., T, KV, hd)
        xq, xk = apply_rotary_emb(xq, xk, freqs_cis)
        if cache is not None:
            xk, xv = cache.update(xk, xv)  # (..., S, KV, hd)
        return self.wo(attention(xq, xk, xv, mask))  # (..., T, D)


class FeedForward(nn.Module):
    r"""SwiGLU with its three matrices: gate w1, up w3, down w2.

    $$\mathrm{FFN}(x) = \big(\mathrm{silu}(x W_1^\top) \odot
      x W_3^\top\big) W_2^\top$$

    Source: Shazeer 2020, arXiv:2002.05202, equation 6, with Swish at beta 1
    and no biases.
    """

    def __init__(self, config: ModelArgs):
        super().__init__()
        D, hidden = config.dim, config.hidden_dim
        self.w1 = nn.Linear(D, hidden, bias=False)
        self.w2 = nn.Linear(hidden, D, bias=False)
        self.w3 = nn.Linear(D, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the network adds to the residual stream.

        x: (..., D), normalized; returns the same shape.
        """
        gate = F.silu(self.w1(x))  # (..., F)
        return self.w2(gate * self.w3(x))  # (..., D)


class TransformerBlock(nn.Module):
    """Attention, then the feed-forward network, each after a norm.

    Each adds its result to the residual stream.
    """

    def __init__(self, config: ModelArgs):
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: Tensor, freqs_cis: Tensor, mask: Tensor | None, cache=None
    ) -> Tensor:
        """Run the block on the residual stream x (..., T, D).

        freqs_cis, mask, cache: see `Attention.forward`.
        """
        h = self.attention_norm(x)  # (..., T, D)
        x = x + self.attention(h, freqs_cis, mask, cache)  # (..., T, D)
        return x + self.feed_forward(self.ffn_norm(x))  # (..., T, D)


class Llama(nn.Module):
    r"""A Llama whose parameters have the names of Meta's tensors.

    `llamalib.load` makes one from a folder. `Llama(config)` makes one with
    random weights: matrices normal with standard deviation 0.02, norms 1.

    tied: whether `output.weight` is `tok_embeddings.weight`, as in the 1B and
    3B; larger Llamas need tied=False.
    """

    def __init__(self, config: ModelArgs, *, tied: bool = True):
        super().__init__()
        self.config = config
        self.tokenizer: Any = None  # `load` sets the next three
        self.name, self.note = "", ""
        D, V, L = config.dim, config.vocab_size, config.n_layers
        # fork_rng keeps PyTorch's own draws from advancing the random state
        with torch.random.fork_rng(devices=[]):
            self.tok_embeddings = nn.Embedding(V, D)
            self.layers = nn.ModuleList(
                TransformerBlock(config) for _ in range(L)
            )
            self.norm = RMSNorm(D, config.norm_eps)
            # if tied it gets the embedding, and no memory of its own
            device = "meta" if tied else None
            self.output = nn.Linear(D, V, bias=False, device=device)
        if tied:
            self.output.weight = self.tok_embeddings.weight
        for weight in self.parameters():
            if weight.dim() == 2 and not weight.is_meta:
                nn.init.normal_(weight, std=0.02)

    def forward(
        self, tokens: Tensor, cache=None, *, last_only: bool = False
    ) -> Tensor:
        r"""Compute the logits of the token that follows each token.

        tokens: (B, T) or (T,) integer ids.
        cache: a KVCache (notebook 09) with the keys and values of earlier
        tokens; this pass adds its own. None: there are no earlier tokens.
        last_only: whether to compute logits for the last position alone.
        Returns (B, T, V) or (T, V) float32; T is 1 if last_only.
        """
        c, T = self.config, tokens.shape[-1]
        batch = tokens if tokens.dim() == 2 else tokens[None]  # (B, T)
        x = self.tok_embeddings(batch)  # (B, T, D)
        if cache is None:
            freqs_cis = precompute_freqs_cis(
                c.head_dim, T, c.rope_theta, c.scaling_factor
            ).to(x.device)
            mask = causal_mask(T, device=x.device)  # (T, T)
        else:
            freqs_cis = cache.freqs_cis[cache.positions(T)]
            mask = cache.mask(T)
        for i, layer in enumerate(self.layers):
            layer_cache = None if cache is None else cache.layers[i]
            x = layer(x, freqs_cis, mask, layer_cache)  # (B, T, D)
        if cache is not None:
            cache.advance(T)
        if last_only:
            x = x[:, -1:]  # (B, 1, D)
        logits = self.output(self.norm(x)).float()  # (B, T, V)
        return logits if tokens.dim() == 2 else logits[0]

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the norms, and of all weights unless quantized."""
        return self.norm.weight.dtype

    @property
    def tied(self) -> bool:
        """Whether the output matrix and the embedding are one parameter."""
        first = next(self.output.parameters())
        return first is next(self.tok_embeddings.parameters())
