"""The command `torchrun --nproc-per-node N -m llamalib run`."""

import os
import sys

from ..generate import generate
from ..loading import describe, load
from ..parallel import finish, start


def run(prompt: str | None = None) -> int:
    """Continue a prompt by 40 tokens at most; rank 0 prints."""
    mesh = start()
    is_first = mesh.get_local_rank() == 0
    text = prompt or os.environ.get("LLAMA_PROMPT", "The capital of France is")
    try:
        llama = load(mesh=mesh)
    except (OSError, ValueError, MemoryError) as error:  # the same in all
        if is_first:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finish(mesh)
        return 1
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    new = list(generate(llama, ids, max_new_tokens=40))
    if is_first:
        held = sum(w.nbytes for w in llama.parameters())
        print(f"{mesh.size()} processes\nrank 0: {describe(llama)}")
        print(f"rank 0: {held:,} bytes")
        print(text + llama.tokenizer.decode(new), flush=True)
    finish(mesh)
    return 0
