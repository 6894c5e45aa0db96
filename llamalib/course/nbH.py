r"""Data of appendix H, and the checks of its exercises."""

import json
from functools import partial
from pathlib import Path

import torch

from .judge import agree, exercise
from .text import own_documents

FILE = Path(__file__).with_name("documents.json")
DOCUMENTS = json.loads(FILE.read_text(encoding="utf-8"))


@exercise(1, expects="the name of a formula")
def check_1(name_of, formulas):
    def network(name, dtype, *given):
        x, w1, w2, w3 = (each.to(dtype) for each in given)
        return formulas[name](x @ w1.T, x @ w3.T) @ w2.T

    kinds, names = (torch.float32, torch.bfloat16), [*formulas]
    found = [name_of(partial(network, n, k)) for k in kinds for n in names]
    a, b, *others = names  # w1 gates, w3 gates
    words = f"{a} and {b} look alike: w1 and w3 equal, or small numbers?"
    mistakes = [(words, [each, each, *others] * 2) for each in (a, b)]
    mistakes += [("you have exchanged w1 and w3", [b, a, *others] * 2)]
    words = "half of the networks run in bfloat16: take the closest formula"
    mistakes += [(words, names + [each] * 4) for each in names]
    agree(found, names * 2, mistakes)


def shortest(word, ranks, best=(0,)):  # of the first 0, 1, 2, … bytes
    for n in range(1, len(word) + 1):
        best += (1 + min(best[s] for s in range(n) if word[s:n] in ranks),)
    return best[-1]


def longest(word, ranks):  # first
    found = (n for n in range(len(word), 0, -1) if word[:n] in ranks)
    return 1 + longest(word[next(found) :], ranks) if word else 0


@exercise(2, expects="a whole number")
def check_2(fewest, ranks, tokenizer):
    words = {" " + w for text in own_documents(60) for w in text.split()}
    words = sorted(word for word in words if word[1:].isalpha())
    right = [shortest(w.encode(), ranks) for w in words]
    bpe = [len(tokenizer.encode(w, bos=False, eos=False)) for w in words]
    found = [fewest(w.encode(), ranks) for w in words]
    agree(found, right, [("that is what BPE takes", bpe)])
    tokens = "a b c d e f u v w x y z bc ab cd cdef abcd wx yz uvwx wxyz"
    small = {token.encode(): i for i, token in enumerate(tokens.split())}
    cases = [b"abcdef" * n for n in (1, 5, 0)] + [b"uvwxyz", b"abcdefuvwxyz"]
    first = [longest(w, small) for w in cases]
    last = [longest(w[::-1], {t[::-1] for t in small}) for w in cases]
    words = "the longest token {} is not always best".format
    goal, found = ([f(w, small) for w in cases] for f in (shortest, fewest))
    agree(found, goal, [(words("first"), first), (words("last"), last)])
    return f"BPE takes more on {sum(map(int.__gt__, bpe, right))} words"
