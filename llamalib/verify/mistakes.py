"""Undo known mistakes one by one, to name what makes published texts fail."""

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from ..config import ModelArgs
from ..formats.huggingface import to_meta_layout
from .files import FAILED, Row
from .opened import Lazy, Opened, setting_row
from .texts import compare

SAME_SHAPE = {".w1.": ".w3.", ".wk.": ".wv.", ".attention_norm.": ".ffn_norm."}


def cause_row(opened: Opened, facts: dict, others: dict, dtype) -> Row:
    """Return a row that names the cause. others: models of its shapes."""

    def come_out(texts, **change):
        changed = replace(opened, **change)
        return texts and not any(compare(changed, t, dtype)[2] for t in texts)

    for name, model in others.items():
        if come_out(model["texts"]):
            words = f"wrong file: it continues like {name}. Download it again"
            return Row(FAILED, "cause", words)
    certain = [text for text in facts["texts"] if "uncertain" not in text]
    for words, config, tensors in suspects(opened, facts):
        w = Lazy(dict(opened.w) | tensors)
        if come_out(certain, config=config, w=w):
            return Row(FAILED, "cause", words)
    words = "no known mistake: download it again, unless it was trained further"
    return Row(FAILED, "cause", words)


def suspects(opened: Opened, facts: dict) -> Iterator[tuple]:
    """Yield what to say of a mistake; config and tensors that are without."""
    config, make = opened.config, dict(opened.w)
    hd, wrong = config.head_dim, setting_row(config, facts).words
    yield f"these settings: {wrong}", ModelArgs(**facts["params"]), {}
    qk = [n for n in make if n.endswith((".wq.weight", ".wk.weight"))]
    words = "halves for neighbours: the rows of wq and wk are in Hugging "
    words += "Face's order. Undo the permutation, once"
    new = {n: lambda m=make[n]: to_meta_layout(m(), hd) for n in qk}
    yield words, config, new
    words = "neighbours for halves: the permutation of wq and wk was undone "
    words += "twice, or was never made. Convert the original again"
    new = {n: lambda m=make[n]: to_halves(m(), hd) for n in qk}
    yield words, config, new
    for a, b in SAME_SHAPE.items():
        new = {n: make[n.replace(a, b)] for n in make if a in n}
        new |= {n: make[n.replace(b, a)] for n in make if b in n}
        words = f"{a[1:-1]} and {b[1:-1]} are swapped in every layer"
        yield f"{words}. Swap them back", config, new
    if facts["tied"] and not opened.tied:
        words = "output not tied: use the embedding as output.weight"
        new = {"output.weight": make["tok_embeddings.weight"]}
        yield words, config, new


def to_halves(weight: Tensor, head_dim: int) -> Tensor:
    """Return wq or wk, (n·hd, D), with its rows in Hugging Face's order."""
    pairs = weight.unflatten(0, (-1, head_dim // 2, 2))  # (n, hd/2, 2, D)
    return pairs.transpose(1, 2).flatten(0, 2)
