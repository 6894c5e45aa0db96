r"""Compare a downloaded checkpoint with what was published about it.

Are its files complete and unaltered? Are its settings, its tokenizer and its
greedy continuations those that were published? published.json has the facts
by the model's name, and the source of each continuation.
"""

import hashlib
import re
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from .checks import read_json
from .config import ModelArgs, config_of
from .load import find_checkpoint, load
from .threads import choose_threads

PUBLISHED = Path(__file__).with_name("published.json")
PASSED, FAILED, UNKNOWN = "passed", "failed", "not known"
FILES = re.compile(
    r"tokenizer\.model|consolidated\.\d\d\.pth|model.*\.safetensors"
)
# The share of a continuation's tokens that must be as published. Rounding
# decides near ties: in 16 bits, the pocket Llama gives at least 23 of 24
# tokens. With one matrix of zeros, it gives at most 15 in one of its texts.
LEAST = 0.9

Row = namedtuple("Row", "result what words")  # a line of the report


def print_report(folder=None) -> int:
    """Print a line per comparison; return 1 if one failed, otherwise 0."""
    results = []
    for row in verify(folder):
        print(f"{row.result:10} {row.what}: {row.words}", flush=True)
        results.append(row.result)
    count = [f"{results.count(k)} {k}" for k in (PASSED, FAILED, UNKNOWN)]
    print(f"\n{', '.join(count)}")
    return int(FAILED in results)


def verify(folder=None) -> Iterator[Row]:
    r"""Yield the rows of the report on a checkpoint.

    folder: see `find_checkpoint`, whose errors this raises. What is wrong with
    a file is a row that failed.
    """
    folder, published = find_checkpoint(folder), read_json(PUBLISHED)
    name = published_name(folder, published)
    if name:
        yield Row(PASSED, "model", f"{name}, by the name of the folder")
    else:
        words = f"name the folder like one of {', '.join(published)}"
        yield Row(UNKNOWN, "model", words)
    facts = published.get(name, {})
    yield from file_rows(folder, facts.get("files", {}))
    try:
        llama = load(folder, check=True)
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        yield Row(FAILED, "content", str(error))
        return
    choose_threads(llama)
    yield Row(PASSED, "content", "the model opens, all tensors are there")
    if not facts:
        return
    row = settings_row(llama.config, config_of(facts["params"]))
    yield row
    if row.result == PASSED:  # the rest would only repeat the failure
        yield tokenizer_row(llama.tokenizer, facts["texts"])
        yield from continuation_rows(llama, facts["texts"])


def published_name(folder: Path, published) -> str | None:
    """Return the model that a folder, or one above it, is named like."""
    for part in reversed(folder.resolve().parts):  # the innermost first
        for name in published:
            if letters(part).endswith(letters(name)):
                return name
    return None


def letters(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return re.sub("[^a-z0-9]", "", name.lower())


def file_rows(folder: Path, published: dict[str, str]) -> Iterator[Row]:
    """Compare the SHA-256 of the tokenizer and of the files of weights."""
    for file in sorted(folder.iterdir()):
        if not (file.is_file() and FILES.fullmatch(file.name)):
            continue
        with open(file, "rb") as opened:
            converted = f"{file.name}/".encode() in opened.read(64)
            opened.seek(0)
            sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        right = published.get(file.name)
        words = f"{file.stat().st_size:,} bytes, SHA-256 {sha256[:8]}…"
        if sha256 == right:
            yield Row(PASSED, file.name, f"{words} as published")
        elif right is None:
            words += "; no checksum was published"
            yield Row(UNKNOWN, file.name, words)
        elif converted:  # `save` writes the name in front
            words += "; `convert` wrote it, so it has a checksum of its own"
            yield Row(UNKNOWN, file.name, words)
        else:
            words += f", published {right[:8]}…: download it again"
            yield Row(FAILED, file.name, words)


def settings_row(config: ModelArgs, right: ModelArgs) -> Row:
    """Compare each setting with the published one."""
    found, published = asdict(config), asdict(right)
    wrong = [
        f"{name} is {found[name]}, not {published[name]}"
        for name in found
        if found[name] != published[name]
    ]
    if wrong:
        words = f"{', '.join(wrong)}: take the published params.json or config"
        return Row(FAILED, "settings", words)
    return Row(PASSED, "settings", f"{len(found)} values as published")


def tokenizer_row(tokenizer, texts: list[dict]) -> Row:
    """Compare the ids of the prompts with the published ones."""
    for text in texts:
        prompt, right = text["prompt"], text["prompt_ids"]
        found = tokenizer.encode(
            prompt, bos=False, eos=False, allowed_special="all"
        )
        if found != right:
            words = f"{prompt[-30:]!r} has the ids {found[-6:]}, published "
            words += f"{right[-6:]}: take the published tokenizer"
            return Row(FAILED, "tokenizer", words)
    words = f"ids as published, prompts: {len(texts)}"
    return Row(PASSED, "tokenizer", words)


@torch.inference_mode()
def continuation_rows(llama, texts: list[dict]) -> Iterator[Row]:
    """Compare greedy continuations with the published ones.

    The model reads the published ids (teacher forcing): where rounding
    decides a near tie differently, only one token differs.
    """
    texts = [text for text in texts if text["ids"]]
    if not texts:
        yield Row(UNKNOWN, "continuation", "none was published")
    for text in texts:
        prompt, ids = text["prompt_ids"], text["ids"]
        tokens = torch.tensor(prompt + ids[:-1], device=llama.device)  # (T,)
        logits = llama(tokens)[len(prompt) - 1 :]  # (n, V)
        found = logits.argmax(-1).tolist()
        same = sum(a == b for a, b in zip(found, ids, strict=True))
        start = text["prompt"].removeprefix("<|begin_of_text|>")
        what = f"continuation of {start[-18:]!r}"
        words = f"{same} of {len(ids)} tokens as published ({text['source']})"
        if same >= LEAST * len(ids):
            yield Row(PASSED, what, words)
        else:
            words += ": other weights, or damaged ones"
            yield Row(FAILED, what, words)
