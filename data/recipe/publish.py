"""Measure what `python -m llamalib verify` expects of the pocket Llama.

    python data/recipe/publish.py

writes the entry "pocket-llama" of llamalib/published.json: settings, SHA-256
of the files, and for a few prompts their ids and the greedy continuation, in
float32 on a CPU.
"""

import hashlib
import json
import re
from pathlib import Path

import corpus
import torch
from evaluate import POCKET

from llamalib.checks import read_json
from llamalib.generate import generate
from llamalib.load import load
from llamalib.verify import PUBLISHED

# A fact, a text that ends in a space, one without a begin token, and a story
# that is long enough for RoPE's scaling to show.
STORIES = sorted(corpus.documents("publish", 300), key=len)[::-1]
PROMPTS = [
    "<|begin_of_text|>The capital of France is",
    "<|begin_of_text|>6 + 7 = ",
    "One summer day, Mira",
    f"<|begin_of_text|>{STORIES[0][:600]}",
]
N = 24  # ids of a continuation


def measure(folder=POCKET) -> dict:
    """Return the facts of a checkpoint in Meta's format."""
    llama = load(folder, device="cpu", dtype=torch.float32)
    names = "tokenizer.model", "consolidated.00.pth"
    return {
        "params": read_json(folder / "params.json"),
        "files": {name: sha256(folder / name) for name in names},
        "texts": [continued(llama, prompt) for prompt in PROMPTS],
    }


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def continued(llama, prompt: str) -> dict:
    """Return a prompt with its ids and those of its greedy continuation."""
    ids = llama.tokenizer.encode(
        prompt, bos=False, eos=False, allowed_special="all"
    )
    return {
        "prompt": prompt,
        "prompt_ids": ids,
        "ids": list(generate(llama, ids, max_new_tokens=N, stop=())),
        "source": "data/recipe/publish.py, float32",
    }


def write(facts: dict) -> None:
    """Write the facts to the published ones, short lists in a line each."""
    every = read_json(PUBLISHED) | {POCKET.name: facts}
    text = json.dumps(every, indent=1, ensure_ascii=False)
    flat = r"([\[{])\s+([^\[\]{}]*)\s([\]}])"  # nothing is nested in it
    text = re.sub(flat, lambda m: m[1] + " ".join(m[2].split()) + m[3], text)
    PUBLISHED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(measure())
