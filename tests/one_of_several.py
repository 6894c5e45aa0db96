"""What each process of tests/test_parallel.py does; it starts torchrun.

    torchrun --rdzv-backend=static --master-addr=127.0.0.1 \\
        --master-port=29531 --nproc-per-node=2 tests/one_of_several.py \\
        TASK FOLDER

The folder holds jobs.json, checkpoint folders by name. Each process writes
{TASK}-{number of processes}-{rank}.pt: what it found, by name.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

import llamalib
from llamalib.quantize import QuantizedLinear

PROMPT = [256, 72, 101, 108, 108, 111]
SAMPLED = dict(max_new_tokens=12, temperature=1.0, stop=())
PLAIN = dict(max_new_tokens=10, stop=())


def load(name, folder, **options):
    """Open a model to compute in float32, quantized if its name says so."""
    kind = name if name in ("int8", "int4") else None
    how = dict(dtype=torch.float32, quantize=kind) | options
    return llamalib.load(folder, **how)


def compute(llama) -> dict:
    """Return logits and texts of one model, whole or a part."""
    rows = [PROMPT, PROMPT[:3]]
    return dict(
        bytes=sum(w.nbytes for w in llama.parameters()),
        held=sum(w.untyped_storage().nbytes() for w in llama.parameters()),
        logits=llama(torch.tensor([PROMPT, PROMPT[::-1]])),
        greedy=list(llamalib.generate(llama, PROMPT, **PLAIN)),
        sampled=list(llamalib.generate(llama, PROMPT, seed=3, **SAMPLED)),
        batch=llamalib.generate_batch(llama, rows, **PLAIN),
        unseeded=list(llamalib.generate(llama, PROMPT, **SAMPLED)),
    )


def parity(folders) -> dict:
    """Compute with each folder's model."""
    found = {}
    for name, folder in folders.items():
        llama = load(name, folder)
        cache = llamalib.KVCache(llama.config, 7)
        found[name] = compute(llama) | dict(
            cache=cache.layers[0].k.shape,
            hooked=hooked(llama),
            tied=llama.tied,
        )
    return found


def hooked(llama) -> list[tuple]:
    """Return each linear layer that a hook saw in a pass, and its sizes."""
    seen, hooks = [], []
    for name, module in llama.named_modules():
        if isinstance(module, (nn.Linear, QuantizedLinear)):

            def note(module, args, out, name=name):
                sizes = module.out_features, module.in_features
                assert sizes == (out.shape[-1], args[0].shape[-1])
                seen.append(name)

            hooks.append(module.register_forward_hook(note))
    llama(torch.tensor(PROMPT))
    for hook in hooks:
        hook.remove()
    return seen


def errors(folders) -> dict:
    """Do what must be refused, and return what is said."""
    rank, first = int(os.environ["RANK"]), folders["whole"]
    llama = llamalib.load(first)
    tokens, new = torch.tensor(PROMPT), dict(max_new_tokens=3)
    long = torch.arange(2000) % 500  # `repr` leaves most of it out
    long[1000] += rank

    def generate(ids, **options):
        return llamalib.generate(llama, ids, **new | options)

    attempts = {
        "heads": lambda: llamalib.load(folders["one KV head"]),
        "models": lambda: llamalib.load([first, folders["other"]][rank]),
        "dtypes": lambda: llamalib.load(
            first, dtype=[torch.float32, torch.float16][rank]
        ),
        "a device": lambda: llamalib.load(first, device="cpu"),
        "tokens": lambda: generate(tokens + rank),
        "lengths": lambda: generate(PROMPT[rank:]),
        "long prompts": lambda: generate(long),
        "batches": lambda: llamalib.generate_batch(
            llama, [PROMPT, PROMPT[: 2 + rank]], **new
        ),
        "arguments": lambda: generate(PROMPT, max_new_tokens=3 + rank),
        "seeds": lambda: generate(PROMPT, seed=rank),
        "one wrong seed": lambda: generate(PROMPT, seed=[3, object()][rank]),
        "compile": lambda: generate(PROMPT, compile=True),
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            said[name] = f"no error: {attempt()}"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    said["afterwards"] = llama(tokens).shape  # nobody is left waiting
    return said


def main(task: str, folder: str) -> None:
    """Run one of the tasks above and save what it returns."""
    folders = json.loads((Path(folder) / "jobs.json").read_text())
    with torch.inference_mode():
        found = globals()[task](folders)
    rank, n = os.environ["RANK"], os.environ["WORLD_SIZE"]
    torch.save(found, Path(folder) / f"{task}-{n}-{rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
