r"""One model over several processes: each holds a part of every matrix.

    torchrun --nproc-per-node 2 -m llamalib run

or, in a script that torchrun starts, `load(folder, mesh=parallel.start())`.
`plan` says who holds what. The model's functions stay as they are: a hook
adds each sub-layer's partial results over all processes, and the vocabulary
is one class of tensor.
Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
"""

import os
from functools import partial
from hashlib import sha256

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ..checks import expect
from ..formats.placing import choose_device
from ..loading import open_folder
from ..model import Llama
from .plan import keep_part, kv_heads, part, part_shapes
from .processes import add, agree, shared_seed, together
from .vocabulary import VocabularyPart

__all__ = [
    "finish",
    "load_part",
    "part",
    "part_shapes",
    "shared_seed",
    "start",
]

COMMAND = "torchrun --nproc-per-node N -m llamalib run (or your script)"
ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")


def start() -> DeviceMesh:
    r"""Join the processes that torchrun started, as a mesh of one dimension.

    They talk by nccl on CUDA GPUs, one each, and by gloo on CPUs.
    Raises ValueError without torchrun, or with more processes than GPUs.
    """
    missing = [name for name in ENVIRONMENT if name not in os.environ]
    what = "the list of environment variables that are missing"
    expect(not missing, what, missing, f"none: start it by {COMMAND}")
    n, kind = int(os.environ["WORLD_SIZE"]), choose_device().type
    if kind == "cuda":
        choose_device(own_gpu())
    return init_device_mesh("cuda" if kind == "cuda" else "cpu", (n,))


def finish() -> None:
    r"""Leave the other processes, once all of them are ready to.

    One that ends by itself may abort with "terminate called without an active
    exception", in PyTorch 2.13: gloo's threads still run.
    """
    dist.barrier()
    dist.destroy_process_group()


def own_gpu() -> str:
    """Return the GPU of this process."""
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}"


def load_part(mesh, path=None, *, device=None, **options) -> Llama:
    r"""Open this process's part of a checkpoint; see `load`.

    mesh: a DeviceMesh of one dimension, with N processes.
    `llama.config` is the whole model's, `llama.weights()` are this process's
    part, and the logits are the same everywhere.
    An error of one process is raised in all, with its rank. Raises
    ValueError if N does not divide the heads, or if two processes have
    different settings, dtypes or norms.
    """
    ok = isinstance(mesh, DeviceMesh) and mesh.ndim == 1
    expect(ok, "mesh", mesh, "one of llamalib.parallel.start()")
    rank, n = mesh.get_local_rank(), mesh.size()
    expect(device is None, "device", device, "None: the mesh has it")
    device = own_gpu() if mesh.device_type == "cuda" else "cpu"
    keep = partial(keep_part, rank=rank, n=n)
    opened = partial(open_folder, path, device=device, keep=keep, **options)
    llama = together(mesh, opened)
    norms, weights = sha256(), llama.weights()
    for name in weights:
        if "norm" in name:  # every process holds all of it
            norms.update(weights[name].detach().cpu().float().numpy())
    facts = dict(config=llama.config, dtype=llama.dtype)
    agree(mesh, **facts, quantized=llama.quantized, norms=norms.hexdigest())
    return connect(llama, mesh)


def connect(llama: Llama, mesh) -> Llama:
    """Let a part of a model add its results to those of the others."""

    def add_parts(module, args, out):
        return add(mesh, out)  # (..., T, D)

    for layer in llama.layers:
        layer.attention.register_forward_hook(add_parts)
        layer.feed_forward.register_forward_hook(add_parts)
    rank, n = mesh.get_local_rank(), mesh.size()
    llama.n_kv_heads = len(kv_heads(llama.config, rank, n))
    llama.mesh, tied = mesh, llama.tied
    for holder in (llama.tok_embeddings, llama.output):
        V = llama.config.vocab_size
        holder.weight = VocabularyPart.of(holder.weight, V, mesh)
    if tied:
        llama.output.weight = llama.tok_embeddings.weight
    return llama
