r"""What the processes tell each other: sums, facts and errors."""

import secrets

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from ..checks import expect

# Errors are sent as one of these: others may need more than a text.
KINDS = (FileNotFoundError, PermissionError, OSError, MemoryError, ValueError)


class Processes:
    """The `n` processes of a mesh, which must all call the same methods."""

    def __init__(self, mesh):
        self.mesh, self.n = mesh, mesh.size()
        self.rank = mesh.get_local_rank()

    def add(self, x: Tensor) -> Tensor:
        r"""Return the sum of every process's x; x may be written to.

        On CPUs it is computed in float32: gloo's sums of 16-bit numbers
        differ between versions of PyTorch.
        """
        total = x.float() if x.device.type == "cpu" else x
        dist.all_reduce(total, group=self.mesh.get_group())
        return total.type_as(x)

    def concatenate(self, x: Tensor, sizes: list[int]) -> Tensor:
        """Return all processes' x (..., size); the sizes may differ."""
        own = F.pad(x, (0, max(sizes) - x.shape[-1])).contiguous()
        found = [torch.empty_like(own) for _ in sizes]
        dist.all_gather(found, own, group=self.mesh.get_group())
        return torch.cat([x[..., :n] for x, n in zip(found, sizes)], dim=-1)

    def gather(self, fact) -> list:
        """Return what each process has, in the order of ranks."""
        facts = [None] * self.n
        dist.all_gather_object(facts, fact, group=self.mesh.get_group())
        return facts

    def run(self, function):
        """Call a function; an error in one process is raised in all."""
        made = error = said = None
        try:
            made = function()
        except Exception as caught:  # raised below, in all processes
            error, kinds = caught, [k for k in KINDS if isinstance(caught, k)]
            said = [*kinds, RuntimeError][0], str(caught)
        for rank, found in enumerate(self.gather(said)):
            if found:
                raise found[0](f"rank {rank}: {found[1]}") from error
        return made

    def agree(self, **facts) -> None:
        """Raise ValueError in all processes unless all have the same facts."""
        first, *others = self.gather(facts)
        for rank, found in enumerate(others, 1):
            for name, fact in found.items():
                same = f"{repr(first[name])[:200]}, as rank 0 has"
                expect(fact == first[name], f"rank {rank}: {name}", fact, same)

    def shared_seed(self, seed, **facts) -> int:
        """Return the seed, or rank 0's random one for None; see `agree`."""
        self.agree(seed=seed, **facts)
        drawn = self.gather(secrets.randbits(62))
        return drawn[0] if seed is None else seed
