r"""The KV cache: keys and values of earlier tokens.

Shapes: `B` batch, `T` query positions, `S` key positions, `KV` key/value
heads, `hd` head dim, `V` vocabulary, `L` layers; `...` any leading dimensions.
"""

import torch
from torch import Tensor

from .model import ModelArgs, causal_mask, precompute_freqs_cis


class LayerCache:
    """Keys and values of one layer: `k` and `v`, each (B, KV, S, hd).

    S is the capacity, of which the first `length` positions are filled.
    `KVCache` updates `length` after all layers have stored a pass's tokens.
    """

    def __init__(self, k: Tensor, v: Tensor):
        self.k, self.v, self.length = k, v, 0

    def update(self, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        r"""Store keys and values of T tokens; return all keys and values.

        The new ones follow the first `length` tokens; `KVCache.advance`
        changes `length`.
        xk, xv: (B, T, KV, hd).
        Returns two tensors (B, length + T, KV, hd): views, not copies.
        """
        start, end = self.length, self.length + xk.shape[1]
        if len(xk) != len(self.k):
            raise ValueError(f"batch of {len(xk)}, cache of {len(self.k)}")
        self.k[:, :, start:end] = xk.transpose(1, 2)
        self.v[:, :, start:end] = xv.transpose(1, 2)
        k, v = self.k[:, :, :end], self.v[:, :, :end]  # (B, KV, end, hd)
        return k.transpose(1, 2), v.transpose(1, 2)  # (B, end, KV, hd)


class KVCache:
    r"""Keys and values of all tokens so far, in memory allocated once.

    max_seq_len: S, the capacity in tokens.
    batch_size: B, texts of the same length; see `batch.PaddedCache` for others.
    config, device, dtype: those of the model. Another config of the same
    shapes, such as another rope_theta, gives wrong logits and no error.
    `layers[i]` is layer i's `LayerCache`. Use it without gradients: its
    tensors are written in place.
    """

    def __init__(
        self,
        config: ModelArgs,
        max_seq_len: int,
        batch_size: int = 1,
        *,
        device=None,
        dtype=None,
    ):
        c, S = config, max_seq_len
        self.max_seq_len = S
        shape = batch_size, c.n_kv_heads, S, c.head_dim
        self.layers = []
        for _ in range(c.n_layers):
            k = torch.zeros(shape, device=device, dtype=dtype)
            self.layers.append(LayerCache(k, torch.zeros_like(k)))
        self.freqs_cis = precompute_freqs_cis(
            c.head_dim, S, c.rope_theta, c.scaling_factor
        ).to(k.device)

    def positions(self, T: int) -> Tensor:
        r"""Return the positions of the next T tokens, (T,).

        Raises ValueError if they exceed the capacity.
        """
        end = self.length + T
        if end > self.max_seq_len:  # before any layer writes
            raise ValueError(
                f"KVCache is full: {end} tokens, capacity "
                f"{self.max_seq_len}; create it with a larger max_seq_len"
            )
        return torch.arange(self.length, end, device=self.freqs_cis.device)

    def mask(self, T: int) -> Tensor | None:
        r"""Return the causal mask of the next T tokens, (T, length + T).

        A single token needs no mask: None.
        """
        if T == 1:
            return None
        return causal_mask(T, self.length + T, self.freqs_cis.device)

    def advance(self, T: int) -> None:
        r"""Count T more tokens as stored; a negative T goes back.

        `llama` calls it once a pass, after all layers have run.
        """
        length = self.length + T
        assert 0 <= length <= self.max_seq_len
        for layer in self.layers:
            layer.length = length

    @property
    def length(self) -> int:
        """The number of stored tokens, the same in all layers."""
        return self.layers[0].length

    @property
    def nbytes(self) -> int:
        """The bytes of all keys and values."""
        return sum(layer.k.nbytes + layer.v.nbytes for layer in self.layers)
