r"""The KV cache: keys and values of the tokens that a model has seen.

`L` layers, `B` batch, `S` positions, `KV` key/value heads, `hd` head dim. A
column of the cache is a row's position in its text plus that row's padding.
"""

import torch
from torch import Tensor

from .checks import expect, is_count
from .gqa import causal_mask


class KVCache:
    r"""Keys and values of the positions already seen, in preallocated memory.

    max_seq_len: S, the most positions it can hold.  batch_size: B.
    padding: (B,) int64, columns of left padding in each row; None: none.
    like: device and dtype, as for `torch.zeros`.
    `k` and `v` are (L, B, KV, S, hd); columns from `length` on are not yet
    written. Together they take 2·L·B·KV·S·hd elements, and never grow.
    """

    def __init__(
        self, config, max_seq_len, batch_size=1, padding=None, **like
    ):
        count = "a whole number from 1"
        expect(is_count(max_seq_len), "max_seq_len", max_seq_len, count)
        expect(is_count(batch_size), "batch_size", batch_size, count)
        L, KV, hd = config.n_layers, config.n_kv_heads, config.head_dim
        shape = L, batch_size, KV, max_seq_len, hd
        self.k = torch.zeros(shape, **like)
        self.v = torch.zeros(shape, **like)
        self.reset(padding)

    @property
    def max_seq_len(self) -> int:
        """S, the most positions it can hold."""
        return self.k.shape[3]

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors."""
        return self.k.nbytes + self.v.nbytes

    def update(self, layer: int, xk: Tensor, xv: Tensor):
        r"""Write T new positions of a layer and return all there are now.

        layer: 0 … L-1.  xk, xv: (B, T, KV, hd).
        Returns keys and values, each (B, length + T, KV, hd): views, no copy.
        Raises ValueError if they do not fit.
        """
        start, end = self.length, self.length + xk.shape[1]
        most = f"at most {self.max_seq_len}; make it with a larger max_seq_len"
        expect(end <= self.max_seq_len, "the cache's length", end, most)
        self.k[layer, :, :, start:end] = xk.transpose(1, 2)
        self.v[layer, :, :, start:end] = xv.transpose(1, 2)
        k = self.k[layer, :, :, :end].transpose(1, 2)  # (B, end, KV, hd)
        v = self.v[layer, :, :, :end].transpose(1, 2)  # (B, end, KV, hd)
        return k, v

    def positions(self, T: int) -> Tensor:
        """Return the positions of the next T columns, (T,) or (B, T)."""
        columns = torch.arange(T, device=self.k.device) + self.length
        if self.padding is None:
            return columns
        return (columns - self.padding[:, None]).clamp(min=0)

    def mask(self, T: int) -> Tensor | None:
        r"""Return the causal mask of the next T columns, padding hidden too.

        A padding column sees itself: a row of -inf alone has no softmax.
        Returns (T, S) or (B, 1, T, S) float32, S = length + T; None if
        nothing is hidden.
        """
        S = self.length + T
        if self.padding is None and T == 1:
            return None
        mask = causal_mask(T, S, self.k.device)  # (T, S)
        if self.padding is None:
            return mask
        mask = mask + self._padding_mask[..., :S]  # (B, 1, T, S)
        mask[..., self.length :].diagonal(dim1=-2, dim2=-1).zero_()
        return mask

    def advance(self, T: int) -> None:
        """Count T positions as written, once every layer has written them."""
        self.length += T

    def reset(self, padding: Tensor | None = None) -> None:
        """Empty the cache, keep its memory; padding is for the next text."""
        self.length, self.padding, B = 0, padding, self.k.shape[1]
        if padding is None:
            return
        found = getattr(padding, "dtype", None), getattr(padding, "shape", ())
        expected = torch.int64, (B,)
        expect(found == expected, "padding's dtype and shape", found, expected)
        columns = torch.arange(self.max_seq_len, device=self.k.device)
        is_padding = columns < padding[:, None, None, None]  # (B, 1, 1, S)
        self._padding_mask = torch.where(is_padding, float("-inf"), 0.0)
