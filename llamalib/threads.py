r"""How many threads a model computes with.

PyTorch takes a thread per core. The threads wait for each other after every
product, which costs more than it saves where the matrices are small, and
much more where other processes, or a container's limit, take the cores away.
"""

import os
from contextlib import suppress
from pathlib import Path

import torch

from .model import Llama

LARGE = 10**6  # numbers of a matrix from which a second thread pays
CORES = torch.get_num_threads()  # PyTorch's own choice


def choose_threads(llama: Llama) -> int:
    r"""Set the number of threads that suits a model, and return it.

    Commands and first cells of notebooks call it, `load` does not. With
    $OMP_NUM_THREADS it changes nothing.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        size = llama.config.dim * llama.config.hidden_dim
        torch.set_num_threads(thread_count(size, CORES, cpu_quota()))
    return torch.get_num_threads()


def thread_count(size: int, cores: int, quota: float | None) -> int:
    r"""Return the number of threads for a model on a machine.

    size: D·F, the numbers of its feed-forward matrices.
    cores: those that PyTorch would use.
    quota: cores' worth of time that this process may use; None: all.
    """
    if size < LARGE:
        return 1
    return max(1, min(cores, int(quota or cores)))


def cpu_quota(root: Path = Path("/")) -> float | None:
    r"""Return how many cores' time Linux grants this process; None: all.

    root: the folder with `proc` and `sys`.
    Source: the kernel's documents, admin-guide/cgroup-v2.rst, and
    scheduler/sched-bwc.rst for version 1.
    """
    found = []
    with suppress(OSError):  # another system
        text = (root / "proc/self/cgroup").read_text("utf-8")
        for line in text.splitlines():
            _, names, path = line.split(":", 2)
            groups = root / "sys/fs/cgroup"
            if names and "cpu" not in names.split(","):
                continue
            if names:  # version 1 has a tree for each resource
                groups /= "cpu"
            own = groups / path.strip("/")
            while own.is_relative_to(groups):  # those above limit it, too
                found.append(read_quota(own))
                own = own.parent
    return min(filter(None, found), default=None)


def read_quota(group: Path) -> float | None:
    """Return the limit of one control group, in cores; None: no limit."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with suppress(OSError, ValueError):  # not there, or no limit: "max"
            texts = [(group / name).read_text("utf-8") for name in names]
            quota, period = map(int, " ".join(texts).split())
            if quota > 0:  # -1: no limit
                return quota / period
    return None
