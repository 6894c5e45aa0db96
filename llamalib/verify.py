r"""Compare a downloaded checkpoint with what was published about it.

Are its files complete and unaltered? Are its settings, its tokenizer, its loss
and its greedy continuations those that were published? published.json has the
facts by the model's name, and the source of each text.
"""

import hashlib
import re
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import torch
import torch.nn.functional as F

from .checks import read_json
from .config import ModelArgs, config_of
from .load import find_checkpoint, load
from .threads import choose_threads

PUBLISHED = Path(__file__).with_name("published.json")
PASSED, FAILED, UNKNOWN = "passed", "failed", "not known"
FILES = re.compile(
    r"tokenizer\.model|consolidated\.\d\d\.pth|model.*\.safetensors"
)
# The share of a continuation's tokens that must be as published, and the most
# that a loss may differ, in nats per token. Rounding decides near ties: in
# bfloat16 the pocket Llama and SmolLM2 give at least 23 of 24 tokens, and
# their losses change by 0.002. A matrix of zeros exceeds one of the two bounds:
# in SmolLM2 each of 50 that were tried, in the pocket 39 of 43.
LEAST, MOST = 0.9, 0.01
# What a GGUF file's name says of its numbers: -Q4_K_M, .f16, -UD-IQ2_XXS
ROUNDED = re.compile(r"([-._](UD|I?Q\d\w*|B?F16|F32|MXFP4))+$", re.IGNORECASE)

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
    sha256 = sha256_of(folder) if folder.is_file() else ""
    name = published_name(folder, published, sha256)
    if name:
        yield Row(PASSED, "model", f"{name}, by its name or SHA-256")
    else:
        words = f"name the folder or file like one of {', '.join(published)}"
        yield Row(UNKNOWN, "model", words)
    facts = published.get(name, {})
    files = facts.get("files", {})
    yield from file_rows(folder, files)
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
        rounded = is_rounded_otherwise(folder, files, sha256)
        yield from weights_rows(llama, facts["texts"], rounded)


def published_name(folder: Path, published, sha256="") -> str | None:
    """Return the model that a checkpoint, or a folder of it, is named like.

    sha256: a GGUF file's, by which it is known, too: Ollama's has no name.
    """
    names = [*folder.resolve().parts]
    if folder.is_file():  # it has another name inside
        from .gguf import model_name

        for name, facts in published.items():
            if sha256 in facts.get("files", {}).values():
                return name
        names[-1:] = [model_name(folder), ROUNDED.sub("", folder.stem)]
    for part in reversed(names):  # the innermost first
        for name in published:
            if letters(part).endswith(letters(name)):
                return name
    return None


def is_rounded_otherwise(folder: Path, files: dict, sha256: str) -> bool:
    """Return whether the facts are of the model with other numbers.

    Those of a GGUF file are of one quantization; the others, of what the
    model's owner published.
    """
    if folder.is_file():
        return sha256 not in files.values() and folder.name not in files
    return any(name.endswith(".gguf") for name in files)


def letters(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return re.sub("[^a-z0-9]", "", name.lower())


def file_rows(folder: Path, published: dict[str, str]) -> Iterator[Row]:
    """Compare the SHA-256 of the tokenizer and of the files of weights."""
    inside = folder.iterdir() if folder.is_dir() else []
    found = [file for file in inside if FILES.fullmatch(file.name)]
    for file in filter(Path.is_file, sorted(found) or [folder]):
        with open(file, "rb") as opened:
            converted = f"{file.name}/".encode() in opened.read(64)
        sha256 = sha256_of(file)
        right = published.get(file.name)
        words = f"{file.stat().st_size:,} bytes, SHA-256 {sha256[:8]}…"
        if sha256 in published.values():  # a GGUF file may have a new name
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


def sha256_of(file: Path) -> str:
    """Return a file's SHA-256."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


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
            words = f"{end_of(prompt, 30)!r} has the ids {found[-6:]}, "
            words += f"published {right[-6:]}: take the published tokenizer"
            return Row(FAILED, "tokenizer", words)
    words = f"ids as published, prompts: {len(texts)}"
    return Row(PASSED, "tokenizer", words)


def weights_rows(llama, texts: list[dict], rounded=False) -> Iterator[Row]:
    """Compare losses and continuations; rounded: see `is_rounded_otherwise`."""
    for row in chain(loss_rows(llama, texts), continuation_rows(llama, texts)):
        if row.result == FAILED and rounded:
            words = "nothing was published of this quantization"
            yield Row(UNKNOWN, row.what, f"{row.words}: {words}")
        elif row.result == FAILED:
            words = f"{row.words}: other weights, or damaged ones"
            yield Row(FAILED, row.what, words)
        else:
            yield row


@torch.inference_mode()
def loss_rows(llama, texts: list[dict]) -> Iterator[Row]:
    """Compare the mean loss on a text with the published one, in nats."""
    for text in [text for text in texts if "loss" in text]:
        tokens = torch.tensor(text["prompt_ids"], device=llama.device)  # (T,)
        found = float(F.cross_entropy(llama(tokens[:-1]), tokens[1:]))
        right, source = text["loss"], text["source"]
        words = f"{found:.3f} nats per token, published {right:.3f} ({source})"
        is_near = abs(found - right) <= MOST  # False for NaN
        yield Row(PASSED if is_near else FAILED, "loss", words)


def end_of(text: str, n: int) -> str:
    """Return a text's last n letters, after … if there are more."""
    return text if len(text) <= n else f"…{text[-n:]}"


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
        what = f"continuation of {end_of(start, 18)!r}"
        words = f"{same} of {len(ids)} tokens as published ({text['source']})"
        enough = same >= LEAST * len(ids)
        yield Row(PASSED if enough else FAILED, what, words)
