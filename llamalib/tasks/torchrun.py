"""The command `torchrun --nproc-per-node N -m llamalib run`."""

import os
import sys

from ..decoding import generate
from ..loading import load
from ..parallel import finish, start


def run(prompt: str | None = None) -> int:
    """Continue a prompt by 40 tokens at most; rank 0 prints."""
    mesh, status = start(), 0
    is_first = mesh.get_local_rank() == 0
    text = prompt or os.environ.get("LLAMA_PROMPT", "The capital of France is")
    try:
        llama = load(mesh=mesh)
        ids = llama.tokenizer.encode(text, bos=True, eos=False)
        new = list(generate(llama, ids, max_new_tokens=40))
        if is_first:
            held = sum(w.nbytes for w in set(llama.weights().values()))
            print(llama, f"{mesh.size()} processes", sep="\n")
            print(f"rank 0 holds {held:,} bytes of weights")
            print(text + llama.tokenizer.decode(new), flush=True)
    except (OSError, ValueError, MemoryError) as error:  # the same in all
        status = 1
        if is_first:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finish()
    return status
