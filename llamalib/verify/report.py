"""Verify a folder, and print the report as a table of 100 columns."""

import textwrap
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm

from ..checks import expect
from ..files import read_json, read_text
from ..formats.find import find_checkpoint
from .files import FAILED, PASSED, UNKNOWN, Row, checksums
from .files import file_rows, judge, models_like, name_model
from .mistakes import cause_row
from .opened import Opened, open_folder, read_config, setting_row
from .texts import ULPS, prompt_problem, text_row

PUBLISHED = Path(__file__).with_name("published.json")
WINDOW = 2048  # tokens
TOLERANCE = 0.01  # of values with 3 or 4 digits, from 16-bit weights


def verify(folder=None, *, dtype="float32", wikitext=None, published=None):
    r"""Return the rows of the report on a checkpoint, see `find_checkpoint`.

    dtype: to compute in: "float32", "float16" or "bfloat16".
    wikitext: WikiText-2's test text, for the perplexity; None: none.
    published: facts by the model's name; None: those of PUBLISHED.
    Raises OSError or ValueError for an argument; rows tell of the content.
    """
    dtypes = {str(d)[6:]: d for d in ULPS}
    expect(dtype in dtypes, "dtype", dtype, f"one of {', '.join(dtypes)}")
    text = wikitext and read_text(Path(wikitext), "WikiText-2's test text")
    folder, rows = find_checkpoint(folder), []
    try:
        config = read_config(folder)
        models = models_like(config, published or read_json(PUBLISHED))
        names = [file for m in models.values() for file in m["files"]]
        found = checksums(folder, ["tokenizer.model", *names])
        name, row = name_model(folder, models, found)
        facts = models.pop(name) if name else {}
        rows += [row, *file_rows(folder, facts, found)]
        rows.append(setting_row(config, facts))
        opened, tensors = open_folder(folder, facts, dtypes[dtype])
        rows += tensors
        rows += text_rows(opened, facts, models, dtypes[dtype])
        return rows + ([perplexity_row(opened, facts, text)] if text else [])
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        return [*rows, Row(FAILED, "content", str(error))]


def text_rows(opened: Opened, facts, others, dtype) -> list[Row]:
    """Compare all texts and, if one fails, look for the cause."""
    texts, begin = facts.get("texts", []), facts.get("begin")
    asked = [*facts.get("prompts", []), *texts]
    wrong = [prompt_problem(opened, text, begin) for text in asked]
    bad = next(filter(None, wrong), "")
    rows = [judge(not bad, f"{len(wrong)} prompts", "ids as published", bad)]
    if bad:  # what needs no tokenizer
        texts = [t for t in texts if {"prompt_ids", "ids"} <= t.keys()]
    rows += [text_row(opened, text, dtype) for text in texts]
    if FAILED in [row.result for row in rows[1:]]:
        rows.append(cause_row(opened, facts | {"texts": texts}, others, dtype))
    if not texts:
        rows.append(Row(UNKNOWN, "continuations", "none were published"))
    return rows[not asked :]


def perplexity_row(opened: Opened, facts: dict, text: str) -> Row:
    r"""Compare the perplexity of WikiText-2's test text with the published.

    One begin token at the start; windows of 2,048 tokens without overlap, in
    which all but the first are predicted; an incomplete one only if alone.
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
        return Row(UNKNOWN, "perplexity", f"{words}; none was published")
    words += f", published {right}, tolerance {TOLERANCE:.0%}"
    bad = f"{words}. Is FILE the whole test text of WikiText-2, not tokenized?"
    return judge(abs(found / right - 1) <= TOLERANCE, "perplexity", words, bad)


def table(rows: list[Row]) -> str:
    """Return the rows as a table of 100 columns, and their counts."""
    lines, results = [], [row.result for row in rows]
    for result, what, words in rows:
        text = f"{result:11}{what[:30]:32}{words}"
        lines += textwrap.wrap(text, 100, subsequent_indent=" " * 43)
    count = [f"{results.count(k)} {k}" for k in (PASSED, FAILED, UNKNOWN)]
    return "\n".join([*lines, "", ", ".join(count)])


def print_report(folder=None, dtype="float32", wikitext=None) -> int:
    """Print the report; return 1 if a row failed, else 0."""
    rows = verify(folder, dtype=dtype, wikitext=wikitext)
    print(table(rows))
    return int(any(row.result == FAILED for row in rows))
