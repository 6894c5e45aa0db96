r"""What the processes tell each other: sums, facts and errors."""

import secrets

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from ..checks import expect


class Processes:
    r"""The N processes of a mesh; all must call the same methods.

    rank: of this process, from 0.  n: how many there are.
    """

    def __init__(self, mesh):
        self.mesh, self.group = mesh, mesh.get_group()
        self.rank, self.n = mesh.get_local_rank(), mesh.size()

    def add(self, x: Tensor) -> Tensor:
        r"""Return the sum of every process's x; x may be written to.

        On CPUs it is computed in float32: gloo's sums of 16-bit numbers
        differ between versions of PyTorch.
        """
        total = x.float() if x.device.type == "cpu" else x
        dist.all_reduce(total, group=self.group)
        return total.type_as(x)

    def concatenate(self, x: Tensor, sizes: list[int]) -> Tensor:
        """Return every process's x (..., size), one after another."""
        # all must send the same number
        own = F.pad(x, (0, max(sizes) - x.shape[-1])).contiguous()
        found = [torch.empty_like(own) for _ in sizes]
        dist.all_gather(found, own, group=self.group)
        return torch.cat([x[..., :n] for x, n in zip(found, sizes)], dim=-1)

    def gather(self, fact) -> list:
        """Return what each process has, in the order of ranks."""
        facts = [None] * self.n
        dist.all_gather_object(facts, fact, group=self.group)
        return facts

    def run(self, function):
        """Call a function; an error of one process is raised in all."""
        made = error = None
        try:
            made = function()
        except (OSError, ValueError, MemoryError, RuntimeError) as caught:
            error = caught
        errors = self.gather(error and (type(error), str(error)))
        for rank, found in enumerate(errors):
            if found:
                kind, text = found
                raise kind(f"rank {rank}: {text}") from error
        return made

    def agree(self, **facts) -> None:
        """Raise ValueError in all processes unless all have the same facts."""
        first, *others = self.gather(facts)
        for rank, found in enumerate(others, 1):
            for name, value in found.items():
                same = f"{repr(first[name])[:200]}, as rank 0 has"
                what = f"rank {rank}: {name}"
                expect(value == first[name], what, value, same)

    def shared_seed(self, seed, **facts) -> int:
        """Return the seed, or rank 0's random one for None; see `agree`."""
        self.agree(seed=seed, **facts)
        drawn = self.gather(secrets.randbits(62))[0]
        return drawn if seed is None else seed
