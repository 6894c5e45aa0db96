r"""The one thing that changes while a model runs.

Shapes: `L` layers, `B` batch, `S` positions, `KV` key/value heads, `hd`
head dim.
"""

import torch
from torch import Tensor


class KVCache:
    r"""Keys and values of the positions already seen, in preallocated memory.

    Args:
        config: ModelArgs of the model it is for.
        max_seq_len: S, the most positions it will hold.
        batch_size: B.
        device, dtype: of the model's weights.

    `k` and `v` are (L, B, KV, S, hd); positions from `length` on are not yet
    written. Together they take 2·L·B·KV·S·hd elements, and never grow.
    """

    def __init__(
        self, config, max_seq_len, *, batch_size=1, device=None, dtype=None
    ):
        for name, count in (
            ("max_seq_len", max_seq_len),
            ("batch_size", batch_size),
        ):
            if type(count) is not int or count < 1:
                raise ValueError(
                    f"{name} is {count!r}; wanted a whole number from 1"
                )
        shape = (
            config.n_layers,
            batch_size,
            config.n_kv_heads,
            max_seq_len,
            config.head_dim,
        )
        self.k = torch.zeros(shape, device=device, dtype=dtype)
        self.v = torch.zeros(shape, device=device, dtype=dtype)
        self.length = 0

    @property
    def max_seq_len(self) -> int:
        """S, the most positions it holds."""
        return self.k.shape[3]

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors."""
        return self.k.nbytes + self.v.nbytes

    def update(self, layer: int, xk: Tensor, xv: Tensor):
        r"""Write T new positions of a layer; return all there are now.

        Args:
            layer: 0 … L-1.
            xk, xv: (B, T, KV, hd).

        Returns:
            keys and values, each (B, length + T, KV, hd): views, no copy.

        Raises:
            ValueError: if they do not fit.
        """
        start, end = self.length, self.length + xk.shape[1]
        if end > self.max_seq_len:
            raise ValueError(
                f"position {end - 1} does not fit a cache of "
                f"{self.max_seq_len} positions; make it with a larger "
                "max_seq_len"
            )
        self.k[layer, :, :, start:end] = xk.transpose(1, 2)
        self.v[layer, :, :, start:end] = xv.transpose(1, 2)
        k = self.k[layer, :, :, :end].transpose(1, 2)  # (B, end, KV, hd)
        v = self.v[layer, :, :, :end].transpose(1, 2)  # (B, end, KV, hd)
        return k, v

    def advance(self, T: int) -> None:
        """Count T positions as written, once every layer has written them."""
        self.length += T

    def reset(self) -> None:
        """Forget everything; the memory stays."""
        self.length = 0
