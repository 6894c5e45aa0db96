r"""The embedding and the output matrix, their rows cut over processes.

`V` vocabulary, `D` model dim, `T` positions.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from .plan import split
from .processes import add, check_same


class VocabularyPart(Tensor):
    r"""A process's rows of a matrix (V, D).

    `F.embedding` looks up rows of the whole matrix, `F.linear` multiplies by
    the whole; nothing else is possible. Every process must do the same.
    part: (about V/N, D), this process's rows.  V: rows in all.
    """

    @staticmethod
    def __new__(cls, part: Tensor, V: int, mesh):
        like = dict(dtype=part.dtype, device=part.device)
        return Tensor._make_wrapper_subclass(cls, part.shape, **like)

    def __init__(self, part, V, mesh):
        self.part, self.V, self.mesh = part, V, mesh

    @classmethod
    def of(cls, part: Tensor, V: int, mesh) -> "VocabularyPart":
        """Return one that a module takes as its parameter."""
        made = cls(part, V, mesh)
        made._is_param = True
        return made

    @property
    def nbytes(self) -> int:
        """Return the bytes of this process's rows."""
        return self.part.nbytes

    def __repr__(self) -> str:
        return f"VocabularyPart({self.part!r}, {self.V} rows in all)"

    def look_up(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of ids (..., T), as (..., T, D)."""
        check_same(self.mesh, tokens)
        own = split(self.V, self.mesh.get_local_rank(), self.mesh.size())
        row = tokens - own.start
        here = (row >= 0) & (row < len(own))
        x = F.embedding(row.where(here, 0), self.part)
        # a row is in one process; all others add zeros
        return add(self.mesh, x.where(here[..., None], 0))

    def multiply(self, x: Tensor) -> Tensor:
        """Return the whole x @ w.T, (..., V), of every process's columns."""
        n, columns = self.mesh.size(), F.linear(x, self.part)
        most = -(-self.V // n)  # all must send the same number
        columns = F.pad(columns, (0, most - columns.shape[-1])).contiguous()
        found = [torch.empty_like(columns) for _ in range(n)]
        dist.all_gather(found, columns, group=self.mesh.get_group())
        sizes = [len(split(self.V, rank, n)) for rank in range(n)]
        found = [each[..., :size] for each, size in zip(found, sizes)]
        return torch.cat(found, dim=-1)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.embedding and isinstance(args[1], cls):
            return args[1].look_up(args[0])
        if func is F.linear and isinstance(args[1], cls):
            return args[1].multiply(args[0])
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        name = func.name().partition("::")[2]
        raise NotImplementedError(
            f"{name} of a vocabulary whose rows are cut over processes: "
            "use its `part`, or load the model without a mesh"
        )
