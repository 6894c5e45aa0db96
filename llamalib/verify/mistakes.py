"""Undo known mistakes one by one, to name what makes published texts fail."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ..model import ModelArgs
from .files import FAILED, Row
from .opened import Lazy, Opened, setting_row
from .texts import compare

ORDERS = (
    "halves for neighbours: undo Hugging Face's permutation of wq and wk",
    "neighbours for halves: the permutation of wq and wk was undone twice",
)
SAME_SHAPE = "w1 w3 wk wv attention_norm ffn_norm".split()


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
        if come_out(certain, config=config, w=Lazy(opened.w | tensors)):
            return Row(FAILED, "cause", words)
    return Row(FAILED, "cause", "no known mistake. Download the files again")


def suspects(opened: Opened, facts: dict) -> Iterator[tuple]:
    """Yield what to say of a mistake; config and tensors that are without."""
    config, make = ModelArgs(**facts["params"]), dict(opened.w)
    hd, wrong = config.head_dim, setting_row(opened.config, facts).words
    yield f"these settings: {wrong}", config, {}
    qk = [n for n in make if n.endswith((".wq.weight", ".wk.weight"))]

    def reorder(make, cut):  # rows in Meta's order, or Hugging Face's
        return make().unflatten(0, cut).transpose(1, 2).flatten(0, 2)

    for words, cut in zip(ORDERS, ((-1, 2, hd // 2), (-1, hd // 2, 2))):
        yield words, config, {n: partial(reorder, make[n], cut) for n in qk}
    for a, b in zip(SAME_SHAPE[::2], SAME_SHAPE[1::2]):
        new = {n: make[n.replace(a, b)] for n in make if f".{a}." in n}
        new |= {n: make[n.replace(b, a)] for n in make if f".{b}." in n}
        yield f"{a} and {b} are swapped in every layer: undo it", config, new
    if facts["tied"] and not opened.tied:
        words = "output not tied: use the embedding as output.weight"
        yield words, config, {"output.weight": make["tok_embeddings.weight"]}
