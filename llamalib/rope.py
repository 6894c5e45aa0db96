r"""Rotary position embedding (RoPE), with Llama 3.1 and 3.2's scaling.

`T` positions, `H` query heads, `KV` key/value heads, `hd` head dim. Pairs are
Meta's: components 2k and 2k+1 rotate together.
"""

import math

import torch
from torch import Tensor

ORIGINAL_CONTEXT = 8192  # positions in Llama 3's training before scaling
LOW_FREQ_FACTOR = 1.0  # wavelengths over 8192 / 1 are scaled fully
HIGH_FREQ_FACTOR = 4.0  # wavelengths under 8192 / 4 are not scaled


def scale_frequencies(freqs: Tensor, factor: float) -> Tensor:
    r"""Scale the low frequencies down, as Llama 3.1 and 3.2's configs say.

    Frequencies with a wavelength over 8192 positions are divided by
    `factor`; those under 2048 are unchanged; those between are a blend.

    freqs: (hd/2,) float32, radians per position; returns the same.
    factor: 8 for Llama 3.1, 32 for Llama 3.2 1B and 3B.
    Source: the published configurations (`rope_scaling` of type "llama3").
    """
    wavelength = 2 * math.pi / freqs  # (hd/2,) positions per rotation
    blend = (ORIGINAL_CONTEXT / wavelength - LOW_FREQ_FACTOR) / (
        HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR
    )
    slowed = freqs / factor  # (hd/2,)
    mixed = (1 - blend) * slowed + blend * freqs  # (hd/2,)
    scaled = torch.where(blend < 0, slowed, mixed)
    return torch.where(blend > 1, freqs, scaled)  # (hd/2,)


def precompute_freqs_cis(
    head_dim: int,
    end: int,
    theta: float = 500000.0,
    scaling_factor: float | None = None,
) -> Tensor:
    r"""Return cos + i·sin of every position's angle for every pair.

    Pair k rotates by $\Theta_k = \theta^{-2k/hd}$ radians per position.

    head_dim: hd.  end: the number of positions, 0 … end-1.
    theta: the base, `rope_theta` of params.json.
    scaling_factor: None for plain RoPE, else see `scale_frequencies`.
    Returns (end, hd/2) complex64 of modulus 1, on the CPU.
    Raises ValueError if head_dim is odd.
    Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim is {head_dim}; expected an even number")
    pair = torch.arange(0, head_dim, 2).float()  # (hd/2,) = 2k
    freqs = 1.0 / theta ** (pair / head_dim)  # (hd/2,)
    if scaling_factor is not None:
        freqs = scale_frequencies(freqs, scaling_factor)
    # float32, as in Meta's published code: bfloat16 would round positions
    angles = torch.outer(torch.arange(end).float(), freqs)  # (end, hd/2)
    return torch.polar(torch.ones_like(angles), angles)  # (end, hd/2)


def apply_rotary_emb(
    xq: Tensor, xk: Tensor, freqs_cis: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Rotate each pair of each query and key by its position's angle.

    xq: (..., T, H, hd).  xk: (..., T, KV, hd).  Any floating dtype; the
    result has it too, computed in float32.
    freqs_cis: (T, hd/2) or (B, T, hd/2) complex64.
    Source: Su et al. 2021, equation 34; pairs adjacent, as in Meta's code.
    """
    rotation = freqs_cis.unsqueeze(-2)  # (..., T, 1, hd/2): all heads alike
    q = torch.view_as_complex(xq.float().unflatten(-1, (-1, 2)))
    k = torch.view_as_complex(xk.float().unflatten(-1, (-1, 2)))
    q = torch.view_as_real(q * rotation).flatten(-2)  # (..., T, H, hd)
    k = torch.view_as_real(k * rotation).flatten(-2)  # (..., T, KV, hd)
    return q.type_as(xq), k.type_as(xk)


def turn_pairs(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate x (..., n, hd) by (..., 1, hd/2, 2), cosines and sines."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # (..., n, hd/2)
    cos, sin = turn.unbind(-1)  # (..., 1, hd/2)
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return turned.flatten(-2).type_as(x)  # (..., n, hd)


def rotate(xq, xk, freqs_cis, taught=apply_rotary_emb):
    """Run `apply_rotary_emb`, or the same on real freqs_cis (..., hd/2, 2)."""
    if freqs_cis.is_complex():
        return apply_rotary_emb(xq, xk, freqs_cis)
    if apply_rotary_emb is not taught:  # replaced by `break_it`
        return apply_rotary_emb(xq, xk, torch.view_as_complex(freqs_cis))
    turn = freqs_cis.unsqueeze(-3)  # (..., T, 1, hd/2, 2)
    return turn_pairs(xq, turn), turn_pairs(xk, turn)
