"""What each process of tests/test_parallel.py does; torchrun starts it.

    torchrun … tests/one_of_several.py TASK FOLDER

The folder holds jobs.json, checkpoint folders by name. Each process writes
{TASK}-{number of processes}-{rank}.pt: what it found, by name.
"""

import json
import os
import re
import signal
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import llamalib
from llamalib import fast, parallel
from tests.reference import weights

PROMPT = [256, 72, 101, 108, 108, 111]
SAMPLED = dict(max_new_tokens=12, temperature=1.0, stop=())
PLAIN = dict(max_new_tokens=40, stop=())


def compute(llama) -> dict:
    """Return logits and texts of one model, whole or a part."""
    found = dict(
        logits=llama(torch.tensor([PROMPT, PROMPT[::-1]])),
        greedy=list(llamalib.generate(llama, PROMPT, **PLAIN)),
    )
    processes = getattr(llama, "processes", None)
    if processes and processes.n != 2:  # more take a while
        return found
    rows = [PROMPT, PROMPT[:3]]
    return found | dict(
        sampled=list(llamalib.generate(llama, PROMPT, seed=3, **SAMPLED)),
        batch=llamalib.generate_batch(llama, rows, **PLAIN),
        unseeded=list(llamalib.generate(llama, PROMPT, **SAMPLED)),
    )


def load(name, folder, mesh=None):
    """Open a model to compute in float32, quantized if its name says so."""
    kind = name if name in fast.KINDS else None
    return llamalib.load(
        folder, mesh=mesh, dtype=torch.float32, quantize=kind
    )


def parity(mesh, folders) -> dict:
    """Compute with each folder's model."""
    found = {}
    for name, folder in folders.items():
        llama = load(name, folder, mesh)
        found[name] = compute(llama)
        held = {n: tuple(w.shape) for n, w in weights(llama).items()}
        cache = llamalib.KVCache(llama.config, 7)
        more = dict(shapes=held, cache=cache.layers[0].k.shape)
        more |= dict(said=said(llama), hooked=hooked(llama))
        found[name] |= more | dict(tied=llama.tied)
    return found


def said(llama) -> dict:
    """Return the sizes that each nn.Linear prints."""
    return {
        name: (module.out_features, module.in_features)
        for name, module in llama.named_modules()
        if isinstance(module, nn.Linear)
    }


def hooked(llama) -> dict:
    """Return how often a hook on each nn.Linear is called in one pass."""
    times, hooks = {}, []
    for name, module in llama.named_modules():
        if isinstance(module, nn.Linear):
            times[name] = 0

            def count(module, args, out, name=name):
                times[name] += out.shape[:-1].numel()

            hooks.append(module.register_forward_hook(count))
    llama(torch.tensor(PROMPT))
    for hook in hooks:
        hook.remove()
    return {name: n / len(PROMPT) for name, n in times.items()}


def errors(mesh, folders) -> dict:
    """Do what must be refused, and return what is said."""
    rank, first = mesh.get_local_rank(), folders["whole"]
    llama = llamalib.load(first, mesh=mesh)
    mine = [first, folders["other"]][rank]
    tokens = torch.tensor(PROMPT)
    attempts = {
        name: lambda folder=folder: llamalib.load(folder, mesh=mesh)
        for name, folder in folders.items()
        if name not in ("whole", "other")
    }
    new = dict(max_new_tokens=3 + rank)
    attempts |= {
        "one is missing here": lambda: llamalib.load(
            [first, "nowhere"][rank], mesh=mesh
        ),
        "models": lambda: llamalib.load(mine, mesh=mesh),
        "dtypes": lambda: llamalib.load(
            first, mesh=mesh, dtype=[torch.float32, torch.float16][rank]
        ),
        "tokens": lambda: llama(tokens + rank),
        "lengths": lambda: llama(tokens[rank:]),
        "arguments": lambda: llamalib.generate(llama, PROMPT, **new),
        "seeds": lambda: llamalib.generate(
            llama, PROMPT, seed=rank, **SAMPLED
        ),
        "a number": lambda: llamalib.load(first, mesh=2),
        "a device": lambda: llamalib.load(first, mesh=mesh, device="cpu"),
        "one id": lambda: llama(tokens[rank : rank + 1]),
        "one id, two": lambda: llama(tokens[: rank + 1]),
        "a bad argument": lambda: llamalib.generate(
            llama, PROMPT, max_new_tokens=1 - rank
        ),
        "a strange error": lambda: llama.processes.run(
            lambda: ["a", "é"][rank].encode("ascii")
        ),
        "a bug": lambda: llama.processes.run(lambda: {}["no such"]),
        "bias": lambda: F.linear(
            torch.zeros(1, 64), llama.output.weight, torch.zeros(560)
        ),
        "prepare": lambda: fast.prepare(llama),
        "compile": lambda: llamalib.generate(
            llama, PROMPT, max_new_tokens=3, compile=True
        ),
        "compile in one": lambda: llamalib.generate(
            llama, PROMPT, max_new_tokens=3, compile=rank == 1
        ),
        "other functions": lambda: llama.output.weight + 1,
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            said[name] = f"no error: {attempt()}"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    said["afterwards"] = llama(tokens).shape  # nobody is left waiting
    return said


def memory(mesh, folders) -> dict:
    """Return how far the memory rises while a part is opened and used.

    In float32, so that every part is copied: of a file that is mapped, Linux
    counts neighbouring pages too, which all processes share.
    """
    found = {}
    tokens = torch.tensor(PROMPT)
    llamalib.load(folders.pop("small"), mesh=mesh)(tokens)  # imports all
    for name, folder in folders.items():
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        before = peak()
        llama = llamalib.load(folder, mesh=mesh, dtype=torch.float32)
        llama(tokens)
        held = sum(w.nbytes for w in set(llama.parameters()))
        found[name] = dict(held=held, more=peak() - before)
        del llama
    return found


def peak() -> int:
    """Return the most memory that this process had, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def death(mesh, folders) -> dict:
    """Let rank 1 die while all generate."""
    llama = llamalib.load(folders["whole"], mesh=mesh)
    for i, _ in enumerate(llamalib.generate(llama, PROMPT, **PLAIN)):
        if i == 3 and mesh.get_local_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return {}


def main(task: str, folder: str) -> None:
    """Run one of the tasks above and save what it returns."""
    folders = json.loads((Path(folder) / "jobs.json").read_text())
    mesh = parallel.start()
    with torch.inference_mode():
        found = globals()[task](mesh, folders)
    rank, n = mesh.get_local_rank(), mesh.size()
    torch.save(found, Path(folder) / f"{task}-{n}-{rank}.pt")
    parallel.finish(mesh)
    tasks = Path("/proc/self/task").glob("*/comm")
    names = [task.read_text() for task in tasks]
    assert not any("gloo" in name for name in names)  # one may abort at exit


if __name__ == "__main__":
    main(*sys.argv[1:])
