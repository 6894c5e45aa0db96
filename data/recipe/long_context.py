"""Measure SmolLM2's loss far into a text, as it is and with changes.

    python data/recipe/long_context.py TEXT     # all runs that are missing

TEXT is a long UTF-8 text, such as Tiny Shakespeare (data/README.md). It is
read in pieces through the KV cache, so the mask stays small. Each finished run
is added to long_context.json, so the same command continues. A run has the
mean loss of each piece, in nats a token.
"""

import argparse
import hashlib
import math
from pathlib import Path

import alternatives
import torch
import torch.nn.functional as F

import llamalib
from llamalib.cache import KVCache, LayerCache
from llamalib.load import ROOT, SMOL

FILE = ROOT / "data" / "long_context.json"
STRETCHES, LENGTH, PIECE = 2, 12288, 512  # texts, their tokens, of a pass
WINDOW = 2048  # keys that a window shows


def scaled(freqs, factor, original=8192, low=1.0, high=4.0):
    """Return the frequencies by Llama 3.1's rule for a trained length."""
    made = original * freqs / math.tau  # rotations in training
    kept = ((made - low) / (high - low)).clamp(0, 1)
    return freqs * (kept + (1 - kept) / factor)


class Layer(LayerCache):
    """One layer's keys and values, of which a pass gets the seen ones."""

    def update(self, xk, xv):
        return tuple(x[:, self.seen] for x in super().update(xk, xv))


class Cache(KVCache):
    """A KV cache that rotates by other frequencies and hides far keys.

    window: the last keys that a token sees, None: all. first: keys from the
    start that it sees as well.
    """

    def __init__(self, config, size, freqs, window=None, first=0):
        super().__init__(config, size)
        angles = torch.outer(torch.arange(size).float(), freqs)
        self.freqs_cis = torch.stack((angles.cos(), angles.sin()), dim=-1)
        self.layers = [Layer(each.k, each.v) for each in self.layers]
        self.window, self.first = window or size, first

    def mask(self, T):
        mask, start, end = super().mask(T), self.length, self.length + T
        if mask is None:  # a single token
            mask = torch.zeros(1, end)
        far = torch.ones(T, end).tril(start - self.window).bool()  # (T, end)
        far[:, : self.first] = False
        seen = ~far.all(0)  # (end,) by any of these tokens
        for layer in self.layers:
            layer.seen = seen.nonzero().flatten()
        return mask.masked_fill(far, -math.inf)[:, seen]


WAYS = {
    "as it is": {},
    "the rule, factor 2": dict(freqs=lambda f: scaled(f, 2)),
    "last keys only": dict(window=WINDOW),
    "last keys and the first": dict(window=WINDOW, first=1),
}


@torch.inference_mode()
def losses_of(llama, ids, freqs=lambda f: f, **seen) -> list[float]:
    """Return the mean loss of each piece of ids (n + 1,), in nats."""
    c = llama.config
    two_k = torch.arange(0, c.head_dim, 2).float()
    plain = 1.0 / c.rope_theta ** (two_k / c.head_dim)  # (hd/2,)
    cache = Cache(c, len(ids) - 1, freqs(plain), **seen)
    found = []
    pieces = ids[:-1].split(PIECE), ids[1:].split(PIECE)
    for part, target in zip(*pieces, strict=True):
        logits = llama(part[None], cache)[0]  # (PIECE, V)
        found.append(round(F.cross_entropy(logits, target).item(), 4))
    return found


def stretches(ids, n: int, length: int):
    """Return up to 3 stretches of `length` + 1 ids.

    They are at the text's start, in its middle, and at its end.
    """
    last = len(ids) - length - 1
    starts = [0, last // 2, last][:n]
    return [torch.tensor(ids[at : at + length + 1]) for at in starts]


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("text", type=Path)
    add("--file", type=Path, default=FILE)
    add("--only", nargs="+", choices=WAYS, default=list(WAYS))
    add("--length", type=int, default=LENGTH)
    add("--stretches", type=int, choices=(1, 2, 3), default=STRETCHES)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    llama = llamalib.load(SMOL, device="cpu", dtype=torch.float32)
    data = options.text.read_bytes()
    ids = llama.tokenizer.encode(data.decode(), bos=False, eos=False)
    about = dict(model=llama.name, sha256=hashlib.sha256(data).hexdigest())
    about |= dict(length=options.length, piece=PIECE, window=WINDOW)
    found = alternatives.read(options.file, **about)
    done = {(each["way"], each["stretch"]) for each in found["runs"]}
    for i, part in enumerate(
        stretches(ids, options.stretches, options.length)
    ):
        for way in options.only:
            if (way, i) in done:
                continue
            losses = losses_of(llama, part, **WAYS[way])
            found["runs"].append(dict(way=way, stretch=i, loss=losses))
            alternatives.write(options.file, found)
            print(way, i, losses[-1], flush=True)


if __name__ == "__main__":
    main()
