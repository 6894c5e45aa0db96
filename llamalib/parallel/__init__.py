r"""One model over several processes: each holds a part of every matrix.

    torchrun --nproc-per-node 2 -m llamalib run

or, in a script that torchrun starts: `mesh = parallel.start()`, then
`load(folder, mesh=mesh)`, and `parallel.finish(mesh)` as the last line. A
hook sums a sub-layer's results; the vocabulary is one class of tensor.
Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
"""

import os
from dataclasses import replace
from functools import partial
from hashlib import sha256

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ..checks import expect
from ..fast import quantized, weights
from ..formats.placing import choose_device
from ..loading import load
from ..model import Llama
from .plan import keep_part, kv_heads, part, part_shapes
from .processes import Processes
from .vocabulary import VocabularyPart

ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")


def start() -> DeviceMesh:
    r"""Join the processes that torchrun started, as a mesh of one dimension.

    They talk by nccl on CUDA GPUs, one each, and by gloo on CPUs.
    Raises ValueError without torchrun, or with more processes than GPUs.
    """
    missing = [name for name in ENVIRONMENT if name not in os.environ]
    how = "start N processes by `torchrun --nproc-per-node N` and a script"
    expect(not missing, "the missing variables", missing, f"none: {how}")
    on_gpu = choose_device().type == "cuda"
    if on_gpu:
        choose_device(f"cuda:{os.environ['LOCAL_RANK']}")  # is it here?
    n = int(os.environ["WORLD_SIZE"])
    return init_device_mesh("cuda" if on_gpu else "cpu", (n,))


def finish(mesh: DeviceMesh) -> None:
    """Wait for the other processes, then leave them; a script ends so."""
    dist.barrier()
    dist.destroy_process_group()
    vars(mesh).pop("_pg_registry", None)  # or gloo's threads outlive Python


def load_part(mesh, path=None, *, device=None, **options) -> Llama:
    r"""Open this process's part of a checkpoint; see `load`.

    mesh: a DeviceMesh of one dimension, with N processes.
    `llama.config` has this process's heads, the parameters are its part, and
    the logits are the same in all processes. `llama.processes` are those
    that share the model.
    An error of one process is raised in all, with its rank; ValueError for
    an N that does not divide the heads, and for different configs or norms.
    """
    ok = isinstance(mesh, DeviceMesh) and mesh.ndim == 1
    expect(ok, "mesh", mesh, "llamalib.parallel.start()")
    expect(device is None, "device", device, "None: the mesh has it")
    here, norms = Processes(mesh), sha256()
    keep = partial(keep_part, rank=here.rank, n=here.n)
    device = mesh.device_type
    if device == "cuda":  # the one that the mesh has chosen
        device = f"cuda:{torch.cuda.current_device()}"
    llama = here.run(partial(load, path, device=device, keep=keep, **options))
    for name, w in weights(llama).items():
        if "norm" in name:  # the only numbers that all processes hold
            norms.update(w.detach().cpu().float().numpy())
    facts = dict(config=llama.config, dtype=llama.dtype, norms=norms.digest())
    here.agree(**facts, quantized=quantized(llama))
    return connect(llama, here)


def connect(llama: Llama, processes: Processes) -> Llama:
    """Join this process's part of a model to the parts of the others."""
    rank, n, add = processes.rank, processes.n, processes.add
    for layer in llama.layers:
        for sub_layer in (layer.attention, layer.feed_forward):
            sub_layer.register_forward_hook(lambda m, args, out: add(out))
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                module.out_features, module.in_features = module.weight.shape
    c, tied, llama.processes = llama.config, llama.tied, processes
    for holder in (llama.tok_embeddings, llama.output):
        holder.weight = VocabularyPart.of(
            holder.weight, c.vocab_size, processes
        )
    if tied:
        llama.output.weight = llama.tok_embeddings.weight
    own = dict(n_heads=c.n_heads // n, n_kv_heads=len(kv_heads(c, rank, n)))
    llama.config = replace(c, head_width=c.head_dim, **own)
    return llama
