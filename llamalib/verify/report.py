"""Verify a folder, and print the report as a table of 100 columns."""

import textwrap
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm

from ..checks import expect
from ..config import ModelArgs
from ..files import read_json
from ..formats.find import find_checkpoint
from ..model import tensor_shapes
from .files import FAILED, PASSED, UNKNOWN, Row, checksum, file_rows
from .files import judge, name_model
from .mistakes import cause_row
from .opened import Opened, open_folder, read_config, setting_row
from .texts import ULPS, prompt_problem, text_row

PUBLISHED = Path(__file__).with_name("published.json")
WINDOW = 2048  # tokens
# Published with 3 or 4 digits, of 16-bit weights, and without saying how the
# lines of the text were joined.
TOLERANCE = 0.01


def verify(folder=None, *, dtype="float32", wikitext=None, published=None):
    r"""Return the rows of the report on a checkpoint, see `find_checkpoint`.

    dtype: to compute in: "float32", "float16" or "bfloat16".
    wikitext: WikiText-2's test text, for the perplexity; None: none.
    published: the facts by the model's name; None: those of PUBLISHED.
    Raises FileNotFoundError without a checkpoint or text, and ValueError for
    another dtype. What is wrong with the checkpoint's files is in the rows.
    """
    dtypes = {str(d)[6:]: d for d in ULPS}
    expect(dtype in dtypes, "dtype", dtype, f"one of {', '.join(dtypes)}")
    text = wikitext and Path(wikitext).read_text(encoding="utf-8")
    folder, rows = find_checkpoint(folder), []
    try:
        config = read_config(folder)
        shapes, every = tensor_shapes(config), published or read_json(PUBLISHED)
        models = {n: m for n, m in every.items() if shapes_of(m) == shapes}
        names = {"tokenizer.model"}.union(*(m["files"] for m in models.values()))
        files = [folder / name for name in names if (folder / name).is_file()]
        found = {file.name: checksum(file) for file in files}
        name, row = name_model(folder, models, found)
        facts = models.pop(name) if name else common(models.values())
        rows += [row, *file_rows(folder, facts, found)]
        rows.append(setting_row(config, facts))
        opened, tensors = open_folder(folder, facts, dtypes[dtype])
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        return [*rows, Row(FAILED, "content", str(error))]
    with torch.inference_mode():
        rows += tensors + text_rows(opened, facts, models, dtypes[dtype])
        return rows + (perplexity_rows(opened, facts, text) if text else [])


def shapes_of(facts: dict) -> dict:
    """Return the shapes of a published model's tensors."""
    return tensor_shapes(ModelArgs(**facts["params"]))


def common(models) -> dict:
    """Return the facts that all of the models share."""
    first, *more = [*models] or [{}]
    return {k: v for k, v in first.items() if all(m.get(k) == v for m in more)}


def text_rows(opened: Opened, facts, others, dtype) -> list[Row]:
    """Compare all texts and, if one fails, look for the cause."""
    texts, rows = facts.get("texts", []), []
    wrong = [prompt_problem(opened, text, facts["begin"]) for text in texts]
    if wrong:
        words = f"{len(wrong)} as published"
        bad = next(filter(None, wrong), "")
        rows.append(judge(not bad, "prompts' ids", words, bad))
        if bad:  # only what needs no tokenizer
            texts = [t for t in texts if {"prompt_ids", "ids"} <= t.keys()]
    texts = [t for t in texts if {"ids", "text"} & t.keys()]
    compared = [text_row(opened, text, dtype) for text in texts]
    if any(row.result == FAILED for row in compared):
        facts = facts | {"texts": texts}
        compared.append(cause_row(opened, facts, others, dtype))
    none = Row(UNKNOWN, "continuations", "none were published")
    return rows + (compared or [none])


def perplexity_rows(opened: Opened, facts: dict, text: str) -> list[Row]:
    r"""Compare the perplexity of WikiText-2's test text with the published.

    One begin token at the start of the text; windows of 2,048 tokens without
    overlap, in each of which all but the first token are predicted; without
    an incomplete last window, unless it is the only one.
    """
    ids = opened.tokenizer.encode(text, bos=True, eos=False)
    n, losses = max(1, len(ids) // WINDOW), []
    for i in tqdm(range(n), unit="window"):
        window = torch.tensor(ids[i * WINDOW : (i + 1) * WINDOW])
        logits = opened.logits(window[:-1].tolist())  # (T, V)
        pieces = zip(logits.split(256), window[1:].split(256))
        losses += [F.cross_entropy(*p, reduction="none") for p in pieces]
    found = torch.cat(losses).mean().exp().item()
    words, right = f"{found:.3f}, windows: {n}", facts.get("perplexity")
    if right is None:
        return [Row(UNKNOWN, "perplexity", f"{words}; none was published")]
    words += f", published {right}, tolerance {TOLERANCE:.0%}"
    bad = f"{words}. Is FILE the whole test text of WikiText-2, not tokenized?"
    ok = abs(found / right - 1) <= TOLERANCE
    return [judge(ok, "perplexity", words, bad)]


def table(rows: list[Row]) -> str:
    """Return the rows as a table of 100 columns, and their counts."""
    lines, counts = [], Counter(row.result for row in rows)
    for result, what, words in rows:
        head = f"{result:11}{textwrap.shorten(what, 30, placeholder='…'):32}"
        space = " " * len(head)
        lines += textwrap.wrap(head + words, 100, subsequent_indent=space)
    count = [f"{counts[kind]} {kind}" for kind in (PASSED, FAILED, UNKNOWN)]
    return "\n".join([*lines, "", ", ".join(count)])


def print_report(folder=None, dtype="float32", wikitext=None) -> int:
    """Print the report; return 1 if a row failed, else 0."""
    rows = verify(folder, dtype=dtype, wikitext=wikitext)
    print(table(rows))
    return int(any(row.result == FAILED for row in rows))
