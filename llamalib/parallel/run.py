"""The command `torchrun --nproc-per-node N -m llamalib run`."""

import os

from ..decoding import generate
from ..loading import load
from . import finish, start

NEW = 40  # tokens


def run(prompt: str | None = None) -> int:
    r"""Continue a prompt greedily over all processes; rank 0 prints.

    prompt: None: $LLAMA_PROMPT, or one of our own. Returns the exit status.
    """
    mesh = start()
    rank = mesh.get_local_rank()
    try:
        llama = load(mesh=mesh)
        asked = prompt or os.environ.get("LLAMA_PROMPT")
        text = asked or "The capital of France is"
        ids = llama.tokenizer.encode(text, bos=True, eos=False)
        new = list(generate(llama, ids, max_new_tokens=NEW))
    except (OSError, ValueError):  # in every process the same
        finish()
        if rank == 0:
            raise
        return 1
    if rank == 0:
        held = sum(w.nbytes for w in set(llama.weights().values()))
        print(f"{llama}\n{mesh.size()} processes; rank 0 holds {held:,} bytes")
        print(text + llama.tokenizer.decode(new), flush=True)
    finish()
    return 0
