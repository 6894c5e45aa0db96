r"""The embedding and the output matrix, (V, D), their rows cut."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .plan import split


class VocabularyPart(Tensor):
    r"""A process's rows of a matrix (V, D), about V/N.

    `F.embedding` looks up rows of the whole matrix, `F.linear` multiplies by
    the whole; nothing else is possible. All processes must do the same.
    """

    @classmethod
    def of(cls, rows: Tensor, V: int, processes):
        """Return the parameter that holds these rows."""
        like = dict(dtype=rows.dtype, device=rows.device)
        made = Tensor._make_wrapper_subclass(cls, rows.shape, **like)
        made.rows, made.processes, made._is_param = rows, processes, True
        made.shares = [split(V, r, processes.n) for r in range(processes.n)]
        return made

    @property
    def nbytes(self) -> int:
        """Return the bytes of this process's rows."""
        return self.rows.nbytes

    def look_up(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of ids (..., T), as (..., T, D)."""
        # reading one id would stall a GPU; it is not compared there
        if not tokens.is_cuda or tokens.shape[-1] > 1:
            self.processes.agree(tokens=tokens.tolist())
        own = self.shares[self.processes.rank]
        here = (tokens >= own.start) & (tokens < own.stop)
        x = F.embedding((tokens - own.start).where(here, 0), self.rows)
        # one process has the row; the others add zeros
        return self.processes.add(x.where(here[..., None], 0))

    def multiply(self, x: Tensor) -> Tensor:
        """Return x @ w.T, (..., V), of the whole matrix w."""
        sizes = [len(share) for share in self.shares]
        return self.processes.concatenate(F.linear(x, self.rows), sizes)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.embedding and kwargs["max_norm"] is None:
            return args[1].look_up(args[0])
        if func is F.linear and args[2:] in ((), (None,)) and not kwargs:
            return args[1].multiply(args[0])
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:  # for state_dict
            return args[0]
        raise NotImplementedError(f"{func} of cut rows: use its `rows`")
