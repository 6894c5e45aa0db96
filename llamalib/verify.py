r"""Compare a downloaded checkpoint with what was published about it.

The facts are in published.json: checksums, settings, ids of prompts, greedy
continuations, perplexities. The report has a row for each comparison, which
passed, failed, or is not known, because nobody published the fact.
"""

import hashlib
import re
import textwrap
from collections import namedtuple
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm

from .checks import read_json, reject_lookalikes, require
from .config import config_of
from .load import find_checkpoint, load, tensor_shapes

PUBLISHED = Path(__file__).with_name("published.json")
PASSED, FAILED, UNKNOWN = "passed", "failed", "not known"
PROBLEMS = OSError, ValueError, RuntimeError, MemoryError
FIELDS = ("scaling_factor", "rope_theta", "norm_eps")
FIELDS += ("context_length", "n_heads")
FILES = re.compile(
    r"tokenizer\.model|consolidated\.\d\d\.pth|model.*\.safetensors"
)
WINDOW = 2048  # tokens of a window of the perplexity
TOLERANCE = 0.01  # perplexities have 3 or 4 digits, from 16-bit weights
# A continuation may differ in a near tie: the largest logit exceeds the
# published id's by at most this many units in the last place (ulp) of the
# largest. Of the pocket's four largest logits, 9,588 gaps differ from
# float64's by at most 2.6 ulps in bfloat16, 1.9 in float16, 11 in float32.
ULPS = {torch.bfloat16: 4, torch.float16: 4, torch.float32: 64}

Row = namedtuple("Row", "result what words")  # a line of the report


def read_text(file: Path, kind: str) -> str:
    """Return a text in UTF-8, or raise OSError or ValueError."""
    try:
        reject_lookalikes(file)
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"{file} is not {kind} in UTF-8: {error}") from None


def print_report(folder=None, dtype="float32", wikitext=None) -> int:
    """Print the report as a table; return 1 if a row failed, otherwise 0."""
    rows = verify(folder, dtype=dtype, wikitext=wikitext)
    print(table(rows))
    return int(any(row.result == FAILED for row in rows))


def table(rows: list[Row]) -> str:
    """Return the rows as a table of 100 columns, and how many of each kind."""
    lines, results = [], [row.result for row in rows]
    for result, what, words in rows:
        text = f"{result:11}{what[:30]:32}{words}"
        lines += textwrap.wrap(text, 100, subsequent_indent=" " * 43)
    count = [f"{results.count(k)} {k}" for k in (PASSED, FAILED, UNKNOWN)]
    return "\n".join([*lines, "", ", ".join(count)])


def judge(ok: bool, what: str, passed: str, failed: str) -> Row:
    """Return a row that passed or failed, with its words."""
    return Row(PASSED, what, passed) if ok else Row(FAILED, what, failed)


def verify(folder=None, *, dtype="float32", wikitext=None, published=None):
    r"""Return the rows of the report on a checkpoint; see `find_checkpoint`.

    dtype: to compute in: "float32", "float16" or "bfloat16".
    wikitext: a file with WikiText-2's test text, for the perplexity, or None.
    published: facts by the model's name; None: those of PUBLISHED.
    Raises OSError or ValueError for an argument. What is wrong with a file is
    a row that failed.
    """
    dtypes = {str(d).removeprefix("torch."): d for d in ULPS}
    require(
        dtype in dtypes,
        f"dtype must be one of {', '.join(dtypes)}, got {dtype!r:.80}",
    )
    text = wikitext and read_text(Path(wikitext), "WikiText-2's test text")
    folder, rows = find_checkpoint(folder), []
    published = published or read_json(PUBLISHED)
    try:  # in the file's dtype, whose numbers can be compared
        stored, problem = load(folder, device="cpu", check=True), None
    except PROBLEMS as error:
        stored, problem = None, Row(FAILED, "content", str(error))
    try:
        found = checksums(folder)
        name, row = name_model(folder, published, found, stored)
        facts = published.get(name, {})
        rows += [row, *file_rows(folder, facts, found)]
        if problem:
            return [*rows, problem]
        rows += setting_rows(stored.config, facts)
        rows += tensor_rows(stored, facts)
        rows += token_rows(stored.tokenizer, facts)
        stored = None  # its memory is needed again
        llama = load(folder, dtype=dtypes[dtype])
        rows += text_rows(llama, facts)
        if text:
            rows.append(perplexity_row(llama, facts, text))
        return rows
    except PROBLEMS as error:
        return [*rows, problem or Row(FAILED, "content", str(error))]


# -- files --


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the tokenizer and of the files of weights."""
    found = {}
    for file in sorted(folder.iterdir()):
        if file.is_file() and FILES.fullmatch(file.name):
            with open(file, "rb") as opened:
                digest = hashlib.file_digest(opened, "sha256")
            found[file.name] = digest.hexdigest()
    return found


def name_model(folder: Path, published, found, stored) -> tuple:
    """Return the model's name or None, and a row.

    The folder's name decides, then a published checksum, then the shapes.
    found: SHA-256 by file.  stored: the model, or None if it does not load.
    """
    for part in reversed(folder.resolve().parts):  # the innermost first
        part = re.sub("[^a-z0-9]|original$", "", part.lower())
        for name in published:
            if part.endswith(re.sub("[^a-z0-9]", "", name.lower())):
                return name, Row(PASSED, "model", f"{name}, by the folder")
    for name, facts in published.items():
        for file, fact in facts["files"].items():
            if found.get(file) == fact["sha256"]:
                return name, Row(PASSED, "model", f"{name}, by {file}")
    shapes = stored and tensor_shapes(stored.config)
    like = [
        name
        for name, facts in published.items()
        if tensor_shapes(config_of(facts["params"])) == shapes
    ]
    if len(like) == 1:
        return like[0], Row(PASSED, "model", f"{like[0]}, by its shapes")
    words = "no published model has this name or these shapes"
    if like:
        words = f"which of {', '.join(like)}? Name the folder like it"
    return None, Row(UNKNOWN, "model", words)


def file_rows(folder: Path, facts: dict, found: dict) -> list[Row]:
    """Compare the files' SHA-256 with the published ones."""
    known = {"tokenizer.model": facts.get("tokenizer")}
    known |= facts.get("files", {})
    rows = []
    for name, sha256 in found.items():
        file, fact = folder / name, known.get(name)
        with open(file, "rb") as opened:  # `save` writes the name in front
            converted = f"{name}/".encode() in opened.read(64)
        if not fact or converted and not fact.get("own"):
            rows.append(Row(UNKNOWN, name, "no checksum was published"))
            continue
        right, size = fact["sha256"], file.stat().st_size
        words = f"{size:,} bytes, SHA-256 {sha256[:8]}…"
        bad = f"{words}, published {fact.get('bytes', size):,} bytes, "
        bad += f"{right[:8]}…: cut short, damaged or another. Download again"
        rows.append(judge(sha256 == right, name, f"{words} as published", bad))
    return rows


# -- settings and tensors --


def setting_rows(config, facts: dict) -> list[Row]:
    """Compare the settings with the published ones."""
    if not facts:
        return []
    right = config_of(facts["params"])
    pairs = [(n, getattr(config, n), getattr(right, n)) for n in FIELDS]
    wrong = [f"{n} is {a}, not {b}" for n, a, b in pairs if a != b]
    words = ", ".join(f"{n} {a}" for n, a, _ in pairs)
    bad = f"{', '.join(wrong)}. Correct the config, or take the published one"
    return [judge(not wrong, "settings", words, bad)]


def tensor_rows(stored, facts: dict) -> list[Row]:
    """Compare the tensors' count, dtype and numbers with the published."""
    count = sum(weight.numel() for weight in stored.parameters())
    found = count, str(stored.dtype).removeprefix("torch."), stored.tied
    keys, words = ("parameters", "dtype", "tied"), "{:,} {}, tied output: {}"
    right = tuple(map(facts.get, keys, found))
    bad = f"{words.format(*found)}; published {words.format(*right)}"
    rows = [judge(found == right, "tensors", words.format(*found), bad)]
    if right := facts.get("tensors"):
        found = tensor_checksums(stored)
        wrong = [n for n, sha256 in found.items() if sha256 != right.get(n)]
        good = f"SHA-256 of {len(found)} tensors as published"
        bad = (
            f"{len(wrong)} tensors have other numbers: {', '.join(wrong[:4])}"
        )
        rows.append(judge(not wrong, "numbers", good, bad))
    return rows


def tensor_checksums(stored) -> dict[str, str]:
    """Return the first 16 digits of each tensor's SHA-256, by Meta's name."""
    found = {}
    for name, weight in stored.state_dict().items():
        if not (stored.tied and name == "output.weight"):
            data = weight.contiguous().view(torch.uint8).numpy()
            found[name] = hashlib.sha256(data).hexdigest()[:16]
    return found


# -- ids and texts --


def token_rows(tokenizer, facts: dict) -> list[Row]:
    """Compare the ids that end a text, and the ids of all prompts."""
    if "begin" not in facts:
        return []
    begin = facts["begin"]
    right = {begin + 1, begin + 8, begin + 9}  # of a text, message and turn
    ends = tokenizer.stop_tokens
    words = f"{sorted(ends)}, Llama 3's are {sorted(right)}"
    bad = f"{words}: correct eos_token_id, or take the published config"
    rows = [judge(set() < ends <= right, "stop ids", words, bad)]
    asked, wrong = [*facts.get("prompts", []), *facts["texts"]], []
    for text in asked:
        found = encode(tokenizer, text)
        right = text.get("prompt_ids") or [begin] * text["bos"]
        same = found if "prompt_ids" in text else found[: len(right)]
        if same != right:
            wrong.append(f"{found[:6]}…, published {right[:6]}…")
    bad = f"{len(wrong)} have other ids: {''.join(wrong[:1])}"
    what = f"{len(asked)} prompts"
    return [*rows, judge(not wrong, what, "ids as published", bad)]


def encode(tokenizer, text: dict) -> list[int]:
    """Return the ids that the tokenizer gives a text's prompt."""
    return tokenizer.encode(
        text["prompt"], bos=text["bos"], eos=False, allowed_special="all"
    )


def text_rows(llama, facts: dict) -> list[Row]:
    """Compare greedy continuations with the published ones."""
    rows = [text_row(llama, text) for text in facts.get("texts", ())]
    none = Row(UNKNOWN, "continuations", "none were published")
    return rows or [none]


@torch.inference_mode()
def text_row(llama, text: dict) -> Row:
    """Compare a continuation, step by step, and allow what rounding explains.

    The model reads the published ids (teacher forcing). So it can be compared
    after a step where it prefers another id.
    """
    read, what = llama.tokenizer, repr(text["prompt"][-18:])
    prompt = text.get("prompt_ids") or encode(read, text)
    ids = text.get("ids") or read.encode(text["text"], bos=False, eos=False)
    tokens = torch.tensor(prompt + ids[:-1], device=llama.device)  # (T,)
    logits = llama(tokens)[len(prompt) - 1 :].cpu()  # (n, V)
    published, ties, bad = text.get("logits"), [], None
    for i, (row, right) in enumerate(zip(logits, ids)):
        gap = (row.max() - row[right]).item()
        off = abs(row[right].item() - published[i]) if published else 0.0
        most = rounding(row.abs().max().item(), llama.dtype, text["dtype"])
        words = f"step {i + 1}: a logit is {off:.2g} off"
        if gap > 0:
            best = read.decode([row.argmax().item()])
            words = f"step {i + 1}: {best!r} for {read.decode([right])!r}, "
            words += f"whose logit is {gap:.2g} less"
            ties.append(words)
        if not (gap <= most and off <= most):  # a NaN is not
            bad = f"{words}; rounding explains {most:.2g}"
            break
    source = f"{text['dtype'] or 'dtype not said'}, {text['source']}"
    if bad:
        result = UNKNOWN if "uncertain" in text else FAILED
        return Row(result, what, f"{bad} ({text.get('uncertain', source)})")
    n = len(ids)
    words = f"{n - len(ties)} of {n} ids as published ({source})"
    words += f"; near ties: {len(ties)}, {ties[0]}" if ties else ""
    return Row(PASSED, what, words)


def rounding(size: float, dtype: torch.dtype, published: str | None) -> float:
    """Return the gap that rounding explains between logits of this size.

    The coarser of both dtypes decides; an unknown one is taken as bfloat16.
    """
    ulp = 2.0 ** torch.tensor(size).log2().floor().item()
    both = dtype, getattr(torch, published or "bfloat16")
    return ulp * max(ULPS[d] * torch.finfo(d).eps for d in both)


@torch.inference_mode()
def perplexity_row(llama, facts: dict, text: str) -> Row:
    r"""Compare the perplexity of WikiText-2's test text with the published.

    One begin token at the start; windows of 2,048 tokens without overlap, in
    which all but the first are predicted; an incomplete one only if alone.
    """
    ids = torch.tensor(llama.tokenizer.encode(text, bos=True, eos=False))
    n, losses = max(1, len(ids) // WINDOW), []
    for i in tqdm(range(n), unit="window"):
        window = ids[i * WINDOW : (i + 1) * WINDOW].to(llama.device)
        logits = llama(window[:-1])  # (T, V)
        # in pieces: cross_entropy copies its logits, here a gigabyte
        pieces = zip(logits.split(256), window[1:].split(256))
        losses += [F.cross_entropy(*p, reduction="none") for p in pieces]
    found = torch.cat(losses).mean().exp().item()
    words, right = f"{found:.3f}, windows: {n}", facts.get("perplexity")
    if right is None:
        return Row(UNKNOWN, "perplexity", f"{words}; none was published")
    words += f", published {right}, tolerance {TOLERANCE:.0%}"
    bad = f"{words}. Is FILE the whole test text of WikiText-2, not tokenized?"
    return judge(abs(found / right - 1) <= TOLERANCE, "perplexity", words, bad)
