r"""What the processes tell each other: numbers, facts and errors."""

import secrets

import torch
import torch.distributed as dist
from torch import Tensor

from ..checks import expect


def add(mesh, x: Tensor) -> Tensor:
    r"""Return the sum of every process's x, in each of them.

    On CPUs it is computed in float32: gloo's sums of 16-bit numbers differ
    between versions of PyTorch. x itself may be written to.
    """
    total = x.float() if x.device.type == "cpu" else x
    dist.all_reduce(total, group=mesh.get_group())
    return total.type_as(x)


def gather(mesh, fact) -> list:
    """Return what each process has, in the order of ranks."""
    facts = [None] * mesh.size()
    dist.all_gather_object(facts, fact, group=mesh.get_group())
    return facts


def together(mesh, function):
    """Call a function in every process; an error of one is raised in all."""
    made = error = None
    try:
        made = function()
    except (OSError, ValueError, MemoryError, RuntimeError) as caught:
        error = caught
    errors = gather(mesh, error and (type(error), str(error)))
    for rank, found in enumerate(errors):
        if found:
            kind, text = found
            raise kind(f"rank {rank}: {text}") from error
    return made


def agree(mesh, **facts) -> None:
    """Raise ValueError in every process unless all have the same facts."""
    first, *others = gather(mesh, facts)
    for rank, found in enumerate(others, 1):
        for name, value in found.items():
            same = f"{repr(first[name])[:200]}, as rank 0 has"
            expect(value == first[name], f"rank {rank}: {name}", value, same)


def shared_seed(mesh, seed, **facts) -> int:
    """Return the seed, or rank 0's random one if it is None; see `agree`."""
    agree(mesh, seed=seed, **facts)
    drawn = gather(mesh, secrets.randbits(62))[0]
    return drawn if seed is None else seed


def check_same(mesh, tokens: Tensor) -> None:
    """Raise ValueError unless every process runs the same ids, on CPUs."""
    if tokens.device.type != "cpu":
        return  # reading them would wait for the GPU
    weights = torch.arange(1, tokens.numel() + 1)
    code = (tokens.flatten() * weights * weights).sum()  # wraps around
    own = torch.stack([torch.tensor(tokens.numel()), code])
    codes = [torch.empty_like(own) for _ in range(mesh.size())]
    dist.all_gather(codes, own, group=mesh.get_group())
    same = [bool((code == codes[0]).all()) for code in codes]
    what = "a list of whether each rank runs the tokens of rank 0"
    expect(all(same), what, same, "only True: give all the same tokens")
