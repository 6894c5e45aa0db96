r"""One model over several processes: each holds a part of every matrix.

    LLAMA_DIR=data/pocket-llama torchrun --rdzv-backend=static \
        --master-addr=127.0.0.1 --master-port=29531 --nproc-per-node=2 \
        -m llamalib run "Hello"

or any script: `llamalib.load()` finds that torchrun started the process, and
reads this process's part. The number of processes must divide the KV heads.
All processes must then make the same calls, with the same tokens; `generate`
compares its arguments, a single pass does not. Each holds whole heads, a
share of the feed-forward network and of the vocabulary; two sums a block,
over all processes, complete the results.
Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.

On a trusted network only: PyTorch's processes trust whoever reaches their
ports. Keep `--rdzv-backend=static`: the default one, c10d, reads pickles from
its port, so a stranger could run code. This module sends numbers, no pickles.
"""

import atexit
import json
import os
import secrets
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from .load import OTHER_WAYS, build, choose_device, open_checkpoint
from .model import Attention, FeedForward, Llama, ModelArgs
from .quantize import GROUP
from .tensors import Checkpoint, shard_axis, tensor_shapes

LONGEST = timedelta(minutes=5)  # that a process waits for the others


class Processes:
    """The `n` processes that share a model; this one is number `rank`."""

    def __init__(self, rank: int, n: int, device: torch.device):
        self.rank, self.n, self.device = rank, n, device

    def add(self, x: Tensor) -> Tensor:
        r"""Return the sum of every process's x; x may be written to.

        On CPUs it is computed in float32: gloo's sums of 16-bit numbers
        differ between versions of PyTorch.
        """
        total = x.float() if x.device.type == "cpu" else x
        dist.all_reduce(total)
        return total.type_as(x)

    def concatenate(self, x: Tensor, sizes: list[int]) -> Tensor:
        """Return all processes' x (..., size), in order; sizes may differ."""
        own = F.pad(x, (0, max(sizes) - x.shape[-1])).contiguous()
        found = [torch.empty_like(own) for _ in sizes]
        dist.all_gather(found, own)
        return torch.cat(
            [x[..., :n] for x, n in zip(found, sizes, strict=True)], dim=-1
        )

    def gather(self, fact) -> list:
        """Return what each process has, in the order of ranks, sent as JSON."""
        data = list(json.dumps(fact).encode())
        own = torch.tensor(data, dtype=torch.uint8, device=self.device)
        size = torch.tensor([len(data)], device=self.device)
        sizes = self.concatenate(size, [1] * self.n).tolist()
        texts = self.concatenate(own, sizes).split(sizes)
        return [json.loads(bytes(text.tolist())) for text in texts]

    def agree(self, **facts) -> None:
        """Raise ValueError unless all processes have the same facts."""
        first, *others = self.gather({n: repr(f) for n, f in facts.items()})
        for rank, found in enumerate(others, 1):
            for name, fact in found.items():
                if fact != first[name]:
                    raise ValueError(
                        f"{name} must be the same in all processes, but rank "
                        f"0 has {first[name]:.80}, rank {rank} {fact:.80}"
                    )

    def share(self, seed, prompts, **facts) -> int:
        r"""Return the seed, or rank 0's random one for None; see `agree`.

        Called where a generation begins, before anything can fail in one
        process alone: all raise the same, or all sample the same tokens.
        """
        self.agree(seed=seed, prompts=as_lists(prompts), **facts)
        drawn = self.gather(secrets.randbits(62))
        return drawn[0] if seed is None else seed


def as_lists(ids):
    """Return tensors and arrays as lists: their `repr` leaves numbers out."""
    if hasattr(ids, "tolist"):
        return ids.tolist()
    is_list = isinstance(ids, (list, tuple))
    return [as_lists(each) for each in ids] if is_list else ids


def is_one_of_several() -> bool:
    """Return whether torchrun started this process, with others."""
    n = os.environ.get("WORLD_SIZE", "1")
    return n != "1" and {"RANK", "MASTER_ADDR"} <= os.environ.keys()


def join() -> Processes:
    r"""Join the processes that torchrun started.

    They talk by nccl on CUDA GPUs, one each, and by gloo on CPUs.
    Raises ValueError for a variable that is wrong, and RuntimeError if the
    processes cannot meet.
    """
    n = number("WORLD_SIZE", 1)
    rank = number("RANK", 0, n - 1)
    address, port = os.environ["MASTER_ADDR"], number("MASTER_PORT", 1, 65535)
    device = choose_device()
    if device.type == "cuda":
        device = choose_device(f"cuda:{number('LOCAL_RANK', 0)}")
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, timeout=LONGEST)
        except (RuntimeError, ValueError) as error:
            why = str(error).strip().split("\n")[0]
            raise RuntimeError(
                f"{n} processes cannot meet at {address}:{port}; is the port "
                f"free, and were all of them started? ({why:.160})"
            ) from None
        atexit.register(dist.destroy_process_group)
    return Processes(rank, n, device)


def number(name: str, least: int, most: int = 2**31) -> int:
    """Return a variable of torchrun's, or raise ValueError."""
    text = os.environ.get(name, "")
    if not (text.isdecimal() and least <= int(text) <= most):
        raise ValueError(
            f"the variable {name} must be a number from {least} to {most}, "
            f"got {text!r:.80}; torchrun sets it"
        )
    return int(text)


def load_part(path, *, device, dtype, quantize, check) -> Llama | None:
    r"""Open this process's part of a checkpoint; `load` calls it.

    `llama.config` has this process's heads, its parameters are its part, and
    its logits are the same in all processes. `llama.processes` are those that
    share the model.
    Returns None if this process is the only one. Raises ValueError unless the
    KV heads divide evenly.
    """
    if not is_one_of_several():
        return None
    if device is not None:
        raise ValueError(
            f"device must be None with several processes, got {device!r:.80}: "
            "each has its own"
        )
    here = join()
    checkpoint = open_checkpoint(path, check)
    check_number(checkpoint.config, here.n)
    own = own_part(checkpoint, here.rank, here.n)
    llama = build(own, here.device, dtype, quantize)
    set_sizes(llama)
    here.agree(config=checkpoint.config, dtype=str(llama.dtype))
    return connect(llama, here)


OTHER_WAYS.append(load_part)


def check_number(config: ModelArgs, n: int) -> None:
    """Raise ValueError unless each of n processes gets whole KV heads."""
    if config.n_kv_heads % n:
        raise ValueError(
            f"the number of processes must divide the model's "
            f"{config.n_kv_heads} KV heads, got {n}"
        )


def split(size: int, rank: int, n: int) -> tuple[int, int]:
    """Return a rank's share of `size`; shares differ by one at most."""
    return rank * size // n, (rank + 1) * size // n


def part(config: ModelArgs, name: str, shape, *, rank: int, n: int):
    r"""Return which part of a tensor a rank holds: (axis, start, stop).

    shape: the whole tensor's.  Returns None for a norm, which all hold.
    """
    axis = shard_axis(name)
    if axis is None:
        return None
    size, unit = shape[axis], 1
    if ".attention." in name:
        unit = config.head_dim
    elif ".feed_forward." in name and size % GROUP == 0 and size >= n * GROUP:
        unit = GROUP  # numbers that share a scale in 4 bits
    start, stop = split(size // unit, rank, n)
    return axis, start * unit, stop * unit


def own_part(checkpoint: Checkpoint, rank: int, n: int) -> Checkpoint:
    """Return a checkpoint whose tensors are the parts that a rank holds."""
    config, shapes = checkpoint.config, tensor_shapes(checkpoint.config)

    def parts(name: str, dtype: torch.dtype) -> list[Tensor]:
        found = checkpoint.parts(name, dtype)
        cut = part(config, name, shapes[name], rank=rank, n=n)
        # a copy: a view would keep the whole tensor in memory
        return [x.clone() for x in slices(found, *cut)] if cut else found

    return replace(checkpoint, parts=parts)


def slices(parts: list[Tensor], axis: int, start: int, stop: int):
    """Return views of what parts that follow each other hold of a slice."""
    views, first = [], 0
    for each in parts:  # it has the rows, or columns, from `first` on
        size = each.shape[axis]
        low, high = max(start - first, 0), min(stop - first, size)
        if low < high:
            views.append(each.narrow(axis, low, high - low))
        first += size
    return views


def set_sizes(llama: Llama) -> None:
    """Give each module the sizes of its weight, which is a part."""
    for module in llama.modules():
        if isinstance(module, nn.Linear):
            module.out_features, module.in_features = module.weight.shape
        if isinstance(module, nn.Embedding):
            module.num_embeddings, module.embedding_dim = module.weight.shape


class EmbeddingPart(nn.Module):
    """An embedding whose rows are cut: this process has some of them."""

    def __init__(self, rows: nn.Module, V: int, processes: Processes):
        super().__init__()
        self.rows, self.processes = rows, processes
        self.start, self.stop = split(V, processes.rank, processes.n)

    def forward(self, tokens: Tensor) -> Tensor:  # (..., T) -> (..., T, D)
        here = (tokens >= self.start) & (tokens < self.stop)
        x = self.rows((tokens - self.start).where(here, 0))
        # one process has the row; the others add zeros
        return self.processes.add(x.where(here[..., None], 0))


class OutputPart(nn.Module):
    """An output layer whose rows are cut: each process has some logits."""

    def __init__(self, rows: nn.Module, V: int, processes: Processes):
        super().__init__()
        self.rows, self.processes = rows, processes
        shares = [split(V, rank, processes.n) for rank in range(processes.n)]
        self.sizes = [stop - start for start, stop in shares]

    def forward(self, x: Tensor) -> Tensor:  # (..., D) -> (..., V)
        return self.processes.concatenate(self.rows(x), self.sizes)


def connect(llama: Llama, processes: Processes) -> Llama:
    """Join this process's part of a model to the parts of the others."""

    def add(module, args, out):  # after wo, and after w2
        return processes.add(out)

    for module in llama.layers.modules():
        if isinstance(module, (Attention, FeedForward)):
            module.register_forward_hook(add)
    c, n = llama.config, processes.n
    V = c.vocab_size
    embedding = EmbeddingPart(llama.tok_embeddings, V, processes)
    llama.add_module("tok_embeddings", embedding)
    llama.add_module("output", OutputPart(llama.output, V, processes))
    llama.config = replace(
        c,
        head_width=c.head_dim,
        n_heads=c.n_heads // n,
        n_kv_heads=c.n_kv_heads // n,
    )
    vars(llama)["processes"] = processes  # no parameter, no module
    return llama
