r"""The one thing that changes while a model runs.

Shapes: `L` layers, `B` batch, `S` positions, `KV` key/value heads, `hd`
head dim.
"""

import torch
from torch import Tensor

from .gqa import causal_mask


class KVCache:
    r"""Keys and values of the positions already seen, in preallocated memory.

    Args:
        config: ModelArgs of the model it is for.
        max_seq_len: S, the most positions it will hold.
        batch_size: B.
        device, dtype: of the model's weights.
        padding: (B,) int64, how many of each row's first columns hold no
            text; None: of none. Prompts of different lengths are padded on
            the left, so that all end in the same column.

    `k` and `v` are (L, B, KV, S, hd); columns from `length` on are not yet
    written. Together they take 2·L·B·KV·S·hd elements, and never grow.
    Without padding a column is a position in the text.
    """

    def __init__(
        self,
        config,
        max_seq_len,
        *,
        batch_size=1,
        device=None,
        dtype=None,
        padding=None,
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
        self.reset(padding)

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

    def positions(self, T: int) -> Tensor:
        """Where each row's text is in the next T columns: (B, T), from 0."""
        columns = torch.arange(T, device=self.k.device) + self.length
        return (columns - self.padding[:, None]).clamp(min=0)

    def mask(self, T: int) -> Tensor:
        r"""What tokens in the next T columns may not see; as `causal_mask`.

        Nothing sees a column without text, but that such a column sees
        itself: a row of -inf alone has no softmax.

        Returns:
            (B, 1, T, S) float32, S = length + T.
        """
        S = self.length + T
        no_text = self._no_text[..., :S]  # (B, 1, 1, S)
        if T == 1:  # of a prompt all columns but the padding are text
            return no_text
        mask = causal_mask(T, S, self.k.device) + no_text  # (B, 1, T, S)
        mask[..., self.length :].diagonal(dim1=-2, dim2=-1).zero_()
        return mask

    def advance(self, T: int) -> None:
        """Count T positions as written, once every layer has written them."""
        self.length += T

    def reset(self, padding: Tensor | None = None) -> None:
        """Forget everything, with padding for the next; the memory stays."""
        self.length, self.padding = 0, padding
        if padding is not None:
            B = self.k.shape[1]
            if padding.shape != (B,) or padding.dtype != torch.int64:
                raise ValueError(
                    f"padding is {padding.dtype} of shape "
                    f"{tuple(padding.shape)}; wanted int64 of shape ({B},), "
                    "a number of columns for each row"
                )
            columns = torch.arange(self.max_seq_len, device=self.k.device)
            no_text = columns < padding[:, None, None, None]  # (B, 1, 1, S)
            self._no_text = torch.zeros(no_text.shape, device=self.k.device)
            self._no_text.masked_fill_(no_text, float("-inf"))
