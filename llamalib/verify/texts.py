r"""Compare greedy continuations with published ones, step by step.

The model reads the published ids (teacher forcing), so the steps after one
where it prefers another id still compare like with like.

In a near tie the largest logit exceeds the published id's by at most `ULPS`
units in the last place (ulp) of the largest. Of the pocket's four largest
logits 9,588 gaps differ from float64's by at most 2.6 ulps in bfloat16, 1.9
in float16 and 11 in float32; the root mean square is 0.4 in 16 bits.
"""

import torch

from .files import FAILED, PASSED, UNKNOWN, Row
from .opened import Opened

ULPS = {torch.bfloat16: 4, torch.float16: 4, torch.float32: 64}


def rounding(size: float, *dtypes) -> float:
    """Return the gap that rounding explains between logits of this size."""
    ulp = 2.0 ** torch.tensor(size).log2().floor().item()
    return ulp * max(ULPS[d] * torch.finfo(d).eps for d in dtypes)


def encode(opened: Opened, text: dict) -> list[int]:
    """Return the ids that the tokenizer gives a text's prompt."""
    options = dict(bos=text["bos"], eos=False, allowed_special="all")
    return opened.tokenizer.encode(text["prompt"], **options)


def prompt_problem(opened: Opened, text: dict, begin: int) -> str | None:
    """Say what is wrong with the ids of a prompt, or return None."""
    found, right = encode(opened, text), text.get("prompt_ids")
    if text["bos"] and found[:1] != [begin]:
        return f"no begin token: put id {begin} at the start of every prompt"
    if right in (None, found):
        return None
    return f"wrong tokenizer: {found[:6]}…, published {right[:6]}…"


def compare(opened: Opened, text: dict, dtype) -> tuple[int, list, str | None]:
    """Return the steps; in words, those within rounding and one beyond it."""
    prompt = text.get("prompt_ids") or encode(opened, text)
    read = opened.tokenizer
    ids = text.get("ids") or read.encode(text["text"], bos=False, eos=False)
    logits = opened.logits(prompt + ids[:-1])[len(prompt) - 1 :]  # (n, V)
    source, within = getattr(torch, text["dtype"] or "bfloat16"), []
    for i, (row, right) in enumerate(zip(logits, ids)):
        (first, second), (best, _) = row.topk(2)
        gap = (first - row[right]).item()
        off = abs(row[right].item() - text.get("logits", {i: row[right]})[i])
        most = rounding(row.abs().max().item(), source, dtype)
        words = f"step {i + 1}: a logit is {off:.2g} off"
        if best != right:
            said = f"{read.decode([best])!r} for {read.decode([right])!r}"
            words = f"step {i + 1}: {said}, the two largest logits are "
            words += f"{first - second:.2g} apart, published {gap:.2g} below"
        if not (gap <= most and off <= most):  # a NaN is not
            return len(ids), within, f"{words}; rounding explains {most:.2g}"
        within += [words] if best != right else []
    return len(ids), within, None


def text_row(opened: Opened, text: dict, dtype) -> Row:
    """Return the row of one published text."""
    what = repr(text["prompt"][-18:]) + ", no begin" * (not text["bos"])
    source = f"{text['dtype'] or 'dtype not said'}, {text['source']}"
    n, within, beyond = compare(opened, text, dtype)
    if beyond:
        result = UNKNOWN if "uncertain" in text else FAILED
        return Row(result, what, f"{beyond} ({text.get('uncertain', source)})")
    words = f"{n - len(within)} of {n} ids as published ({source})"
    words += f"; {len(within)} within rounding, {within[0]}" if within else ""
    return Row(PASSED, what, words)
