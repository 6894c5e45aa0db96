"""Measure what `python -m llamalib verify` expects of the pocket Llama.

    python data/recipe/publish.py

writes the entry "pocket-llama" of llamalib/published.json: SHA-256 of
the files and of every tensor, and for a few prompts the greedy continuation
with the logit of each of its ids, in float32 on a CPU.
"""

import hashlib
import json
import re
from pathlib import Path

import corpus
import torch
from evaluate import POCKET

from llamalib.checks import read_json
from llamalib.load import load
from llamalib.verify import PUBLISHED, tensor_checksums

# A fact, a text that ends in a space, one without a begin token, and a story
# that is long enough for RoPE's scaling to show.
STORIES = sorted(corpus.documents("publish", 300), key=len)[::-1]
PROMPTS = [
    ("The capital of France is", True),
    ("6 + 7 = ", True),
    ("One summer day, Mira", False),
    (STORIES[0][:600], True),
]
N = 24  # ids of a continuation


def measure(folder=POCKET) -> dict:
    """Return the facts of a checkpoint in Meta's format."""
    stored = load(folder, device="cpu")  # in the file's dtype
    llama = load(folder, device="cpu", dtype=torch.float32)
    weights = describe(folder / "consolidated.00.pth")
    return {
        "params": read_json(folder / "params.json"),
        "dtype": str(stored.dtype).removeprefix("torch."),
        "tied": stored.tied,
        "parameters": sum(w.numel() for w in stored.parameters()),
        "begin": stored.tokenizer.bos_id,
        "tokenizer": describe(folder / "tokenizer.model"),
        "files": {"consolidated.00.pth": weights | {"own": True}},
        "tensors": tensor_checksums(stored),
        "perplexity": None,
        "texts": [continued(llama, *prompt) for prompt in PROMPTS],
    }


def describe(file: Path) -> dict:
    data = file.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def continued(llama, prompt: str, bos: bool) -> dict:
    """Return a prompt with its greedy ids and their logits."""
    start = llama.tokenizer.encode(prompt, bos=bos, eos=False)
    ids, values = list(start), []
    for _ in range(N):
        value, best = llama(torch.tensor(ids))[-1].max(-1)
        ids.append(best.item())
        values.append(round(value.item(), 6))
    return {
        "prompt": prompt,
        "bos": bos,
        "prompt_ids": start,
        "ids": ids[len(start) :],
        "logits": values,
        "dtype": "float32",
        "source": "data/recipe/publish.py",
    }


def write(facts: dict) -> None:
    """Write the facts to the published ones, lists of numbers in a line."""
    every = read_json(PUBLISHED) | {POCKET.name: facts}
    text = json.dumps(every, indent=1, ensure_ascii=False)
    numbers = r"\[([\s\d.,-]+)\]"
    text = re.sub(numbers, lambda m: f"[{' '.join(m[1].split())}]", text)
    PUBLISHED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(measure())
