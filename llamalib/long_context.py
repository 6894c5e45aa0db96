r"""Texts longer than those that a model was trained on.

Shapes: `B` batch, `T` positions, `S` key positions, `D` model dim, `H` query
heads, `KV` key/value heads, `hd` head dim, `F` hidden dim, `V` vocabulary,
`L` layers. Pair k of a head turns by `freqs[k]` radians a position.
"""

import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from .gqa import causal_mask, sdpa_attention
from .config import ModelArgs
from .model import Llama, transformer_block
from .rmsnorm import rms_norm
from .rope import apply_rotary_emb, scale_frequencies

# -- a text, and the loss at each of its positions -------------------------


def long_rows(
    documents: Iterable[str], tokenizer, n: int, length: int
) -> Tensor:
    r"""Documents one after another, in rows of one length.

    Each document stands between its begin and end tokens; a row starts with
    a document's first token, and what of its last one does not fit is
    dropped. So the pocket Llama's training rows were made, 256 long.

    Args:
        documents: texts; no more than needed are taken.
        n: rows.
        length: T; a row has one id more, the last position's target.

    Returns:
        (n, T + 1) int64.

    Raises:
        ValueError: where the documents do not fill n rows.
    """
    rows, row = [], []
    for text in documents:
        row += tokenizer.encode(text, bos=True, eos=True)
        if len(row) > length:
            rows.append(row[: length + 1])
            row = []
            if len(rows) == n:
                return torch.tensor(rows)  # (n, T + 1)
    raise ValueError(f"the documents fill {len(rows)} of {n} rows")


def frequencies(config: ModelArgs) -> Tensor:
    r"""The angle by which each pair turns at one position.

    Args:
        config: head_dim, rope_theta and rope_scaling_factor count.

    Returns:
        (hd/2,) float32, radians; those of `precompute_freqs_cis`.
    """
    pair = torch.arange(0, config.head_dim, 2).float()  # (hd/2,) = 2k
    freqs = 1.0 / config.rope_theta ** (pair / config.head_dim)
    if config.rope_scaling_factor is None:
        return freqs
    return scale_frequencies(freqs, config.rope_scaling_factor)  # (hd/2,)


def turns_at(freqs: Tensor, positions: Tensor) -> Tensor:
    r"""RoPE's turns for any frequencies at any positions.

    Args:
        freqs: (hd/2,) float32, radians a position.
        positions: (T,) numbers, which need not begin at 0, be whole, or be
            in order.

    Returns:
        (T, hd/2) complex64 of modulus 1.
    """
    angles = torch.outer(positions.float(), freqs)  # (T, hd/2)
    return torch.polar(torch.ones_like(angles), angles)


def final_states(
    llama: Llama,
    tokens: Tensor,
    turns: Tensor,
    mask: Tensor | None = None,
    attend=sdpa_attention,
) -> Tensor:
    r"""The model up to the LM head, with the turns and the mask one likes.

    Args:
        tokens: (B, T) int64.
        turns: (T, hd/2) complex64, see `turns_at`.
        mask: (T, T), added to the scores; None: the causal mask.
        attend: see `self_attention`.

    Returns:
        (B, T, D), normalized.
    """
    config, w = llama.config, llama.weights()
    mask = causal_mask(tokens.shape[-1]) if mask is None else mask  # (T, T)
    x = F.embedding(tokens, w["tok_embeddings.weight"])  # (B, T, D)
    for layer in range(config.n_layers):
        x = transformer_block(x, w, layer, turns, mask, config, attend=attend)
    return rms_norm(x, w["norm.weight"], config.norm_eps)  # (B, T, D)


def position_losses(
    llama: Llama,
    rows: Tensor,
    turns: Tensor,
    mask: Tensor | None = None,
    attend=sdpa_attention,
) -> Tensor:
    r"""-ln p of each next token, in nats.

    Args:
        rows: (B, T + 1) int64, see `long_rows`.
        turns, mask, attend: see `final_states`.

    Returns:
        (B, T) float32; column t speaks of token t + 1.
    """
    x = final_states(llama, rows[:, :-1], turns, mask, attend)  # (B, T, D)
    head, losses = llama.weights()["output.weight"], []
    # in pieces: all logits at once would be T · V numbers a row
    for part, target in zip(x.split(256, 1), rows[:, 1:].split(256, 1)):
        logits = F.linear(part, head).float().flatten(0, 1)  # (B · 256, V)
        nats = F.cross_entropy(logits, target.flatten(), reduction="none")
        losses.append(nats.unflatten(0, target.shape))  # (B, 256)
    return torch.cat(losses, dim=1)  # (B, T)


# -- what is visible, and at which distance --------------------------------


def window_mask(T: int, window: int) -> Tensor:
    r"""A causal mask that lets each position see the last `window` alone.

    Args:
        T: positions.
        window: how many a position sees, itself included.

    Returns:
        (T, T) float32: 0 where a query may look, -inf where it may not.
    """
    gone = torch.full((T, T), float("-inf")).tril(-window)  # (T, T)
    return causal_mask(T) + gone


def capped_attention(
    freqs: Tensor,
    cap: int,
    note: Callable[[Tensor], None] | None = None,
) -> Callable:
    r"""Attention in which no key seems further away than `cap`.

    Every key is seen. One at a distance over `cap` is met at the angle of
    the distance `cap`. This is ReRoPE (Su 2023, a blog post,
    kexue.fm/archives/9708). Han et al. 2023, arXiv:2308.16137, put the same
    ceiling on the first few tokens, and hide those in the middle.

    Args:
        freqs: (hd/2,), those of the turns that queries and keys come with,
            at the positions 0 … T-1.
        cap: the largest distance that is told from others.
        note: called with each head's weights (..., T, T), head by head.

    Returns:
        a function to hand to the model as `attend`.
    """

    def attend(xq, xk, xv, mask):
        T, n_rep = xq.shape[-3], xq.shape[-2] // xk.shape[-2]
        at = torch.arange(T)
        # as they were before RoPE; then the queries turned by cap alone
        q, k = apply_rotary_emb(xq, xk, turns_at(freqs, -at))
        q, _ = apply_rotary_emb(q, k, turns_at(freqs, torch.full((T,), cap)))
        far, heads = at[:, None] - at > cap, []  # (T, T)
        for h in range(xq.shape[-2]):
            group = h // n_rep
            near_by = xq[..., h, :] @ xk[..., group, :].mT  # (..., T, T)
            far_off = q[..., h, :] @ k[..., group, :].mT  # (..., T, T)
            scores = torch.where(far, far_off, near_by)
            scores = scores / math.sqrt(xq.shape[-1]) + mask
            weights = scores.softmax(-1)  # (..., T, T)
            if note is not None:
                note(weights)
            heads.append(weights @ xv[..., group, :])  # (..., T, hd)
        return torch.cat(heads, dim=-1)  # (..., T, H·hd)

    return attend


# -- other frequencies -----------------------------------------------------


def slow_by_wavelength(
    freqs: Tensor,
    factor: float,
    original: int,
    low: float = 1.0,
    high: float = 4.0,
) -> Tensor:
    r"""Slow the pairs that have not shown all their angles in training.

    A pair that makes `high` turns or more within `original` positions is
    kept, one that makes fewer than `low` turns `factor` times slower;
    between the two the share that is kept grows in a line with the turns.
    With original 8192 this is Llama 3.1's rule, `scale_frequencies`.

    Args:
        freqs: (hd/2,) float32, radians a position.
        factor: at least 1; 1 changes nothing.
        original: the length that the frequencies were trained at.
        low, high: turns within that length.

    Returns:
        (hd/2,) float32.

    Source: the published configurations of Llama 3.1; "NTK-by-parts" of
    Peng et al. 2023, arXiv:2309.00071, with other bounds.
    """
    turns = original * freqs / (2 * math.pi)  # (hd/2,)
    kept = ((turns - low) / (high - low)).clamp(0, 1)  # (hd/2,)
    return freqs * (kept + (1 - kept) / factor)


def raise_base(freqs: Tensor, factor: float) -> Tensor:
    r"""Slow each pair a little more than the one before it.

    Pair 0 is kept and the last one slowed by `factor`, which for plain
    frequencies is the base $\theta \cdot \text{factor}^{hd/(hd-2)}$.

    Args:
        freqs: (hd/2,) float32, radians a position.
        factor: at least 1.

    Returns:
        (hd/2,) float32.

    Source: "NTK-aware" scaling, as in Peng et al. 2023, section 3.1.
    """
    k = torch.arange(len(freqs))  # (hd/2,)
    return freqs * factor ** (-k / max(len(freqs) - 1, 1))


# -- a needle, and what length costs ---------------------------------------


def plant(
    needles: list[list[int]], filler: Iterable[list[int]], room: int
) -> list[int]:
    r"""Needles among sentences of filler, from the start to the end.

    Needle i of n stands where i/(n-1) of the sentences have passed: the
    first before all of them, the last behind all.

    Args:
        needles: token ids of each, two needles or more.
        filler: token ids of each sentence; taken until the next is too long.
        room: ids altogether, at most, if the needles alone are not more.

    Returns:
        a list of ids.
    """
    free = room - sum(map(len, needles))
    sentences = []
    for sentence in filler:
        free -= len(sentence)
        if free < 0:
            break
        sentences.append(sentence)
    gaps, ids = len(needles) - 1, []
    for i, needle in enumerate(needles):
        ids += needle
        start, end = (j * len(sentences) // gaps for j in (i, i + 1))
        ids += sum(sentences[start:end], [])
    return ids


def prefill_operations(config: ModelArgs, T: int) -> tuple[int, int]:
    r"""Operations of one pass over T tokens, a multiplication and an addition
    being two.

    Args:
        config: of the model.
        T: tokens; logits are made for the last one alone.

    Returns:
        of the products with weights, and of attention's own two, scores and
        mixing, masked half included. RoPE, norms and softmax are left out.
    """
    c = config
    q_dim, kv_dim = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    layer = c.dim * (2 * q_dim + 2 * kv_dim + 3 * c.hidden_dim)
    weights = 2 * (T * c.n_layers * layer + c.vocab_size * c.dim)
    return weights, 2 * c.n_layers * 2 * T * T * q_dim
