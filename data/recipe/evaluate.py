"""Measure a checkpoint of this recipe: the figures of data/README.md.

    python data/recipe/evaluate.py [FOLDER]

prints the figures of a folder, by default those of the pocket Llama.
"""

import copy
import math
import random
import string
import sys
from collections import defaultdict
from pathlib import Path

import corpus
import numpy as np
import torch
import torch.nn.functional as F

import llamalib
from llamalib import attention_maps
from llamalib.load import ROOT

POCKET = ROOT / "data" / "pocket-llama"
# Asked of every country; no document of the corpus has these wordings.
NEW_WORDINGS = [
    "The capital town of {c} is named {x}.",
    "Question: Which city is the capital of {c}? Answer: {x}.",
]
DRAWS = 20  # of heads to silence, for comparison


@torch.no_grad()
def measure(folder) -> dict:
    """Return every figure by name; this takes a minute or two on a CPU."""
    llama = llamalib.load(folder, device="cpu", dtype=torch.float32)
    stories = held_out_stories(300)
    return {
        "parameters": sum(p.numel() for p in llama.parameters()),
        "facts": measure_facts(llama),
        "stories": measure_stories(llama, stories),
        "heads": measure_heads(llama, stories[:60]),
    }


def encode(llama, text, bos=True, eos=False):
    ids = llama.tokenizer.encode(text, bos=bos, eos=eos)
    return torch.tensor(ids)  # (T,)


# -- facts ------------------------------------------------------------------


def complete(llama, text, answer) -> tuple[bool, str]:
    """Return whether greedy decoding gives the answer, and what follows it.

    Every token of the answer must be the most likely one.
    """
    asked, answer = encode(llama, text), encode(llama, answer, bos=False)
    best = llama(torch.cat([asked, answer]))[len(asked) - 1 :].argmax(-1)
    after = llama.tokenizer.decode(best[-1:].tolist())
    return torch.equal(best[:-1], answer), after


def knows(llama, wording, row, kind) -> bool:
    """Return whether the model completes the wording, and then stops."""
    before, after = wording.split(" {x}")
    assert after == ".", wording
    asked = corpus.fill(before, row, kind)
    right, end = complete(llama, asked, " " + row[kind])
    return right and end.startswith(".")


def share(flags) -> dict:
    flags = list(flags)
    return {"right": sum(flags), "of": len(flags)}


def measure_facts(llama) -> dict:
    """Count right answers by kind, for seen and for held-out wordings."""
    figures = {}
    for kind, wordings in corpus.WORDINGS.items():
        seen, unseen = [], []
        for row in corpus.COUNTRIES:
            for i, wording in enumerate(wordings):
                out = corpus.held_out(row["country"], kind, i)
                flags = unseen if out else seen
                flags.append(knows(llama, wording, row, kind))
        figures[kind] = {"seen": share(seen), "unseen": share(unseen)}
    new = (corpus.CAPITAL[0], *NEW_WORDINGS)
    first, *others = [
        [knows(llama, wording, row, "capital") for row in corpus.COUNTRIES]
        for wording in new
    ]
    figures["capital"]["first_wording"] = share(first)
    figures["capital"]["new_wordings"] = share(sum(others, []))
    figures["sums"] = share(
        complete(llama, f"{x} + {y} = ", str(x + y))[0]
        for x in range(21)
        for y in range(21)
    )
    return figures


# -- stories ----------------------------------------------------------------


def held_out_stories(n):
    return list(
        corpus.documents("held-out stories", n, kinds=[corpus.story_doc])
    )


def measure_stories(llama, stories) -> dict:
    """Return loss in nats per token and perplexity; a bigram model's too."""
    rows = [encode(llama, story, eos=True) for story in stories]
    n = sum(len(row) - 1 for row in rows)
    total = sum(
        F.cross_entropy(llama(row[:-1]), row[1:], reduction="sum").item()
        for row in rows
    )
    loss, bigram = total / n, bigram_loss(llama, rows)
    return {
        "stories": len(stories),
        "tokens": n,
        "loss": round(loss, 4),
        "perplexity": round(math.exp(loss), 3),
        "bigram_loss": round(bigram, 4),
        "bigram_perplexity": round(math.exp(bigram), 3),
    }


def bigram_loss(llama, rows, n_documents=100_000) -> float:
    """Return the loss of a bigram model counted on the training text.

    The counts of pairs are smoothed by those of single tokens. The strength
    is the best one for the measured text, which favours the bigram model.
    """
    V = llama.config.vocab_size
    pairs = np.zeros((V, V), dtype=np.float32)
    for text in corpus.documents("train", n_documents):
        ids = llama.tokenizer.encode(text, bos=True, eos=True)
        np.add.at(pairs, (ids[:-1], ids[1:]), 1)
    single = (pairs.sum(0) + 1) / (pairs.sum() + V)
    first = np.concatenate([row[:-1].numpy() for row in rows])
    second = np.concatenate([row[1:].numpy() for row in rows])
    totals = pairs.sum(1)

    def loss(alpha):
        p = pairs[first, second] + alpha * single[second]
        return -np.log(p / (totals[first] + alpha)).mean()

    return float(min(loss(alpha) for alpha in (0.3, 1, 3, 10, 30, 100)))


# -- heads ------------------------------------------------------------------


def measure_heads(llama, stories) -> dict:
    """Return the heads with the highest score of each kind."""
    capital, silenced = measure_capital_heads(llama)
    return {
        "previous_token": best(previous_token_scores(llama, stories)),
        "induction_random": best(induction_scores(llama)),
        "induction_names": best(name_scores(llama)),
        "capital": capital,
        "capital_silenced": silenced,
    }


def ranked(scores) -> list[tuple[int, int]]:
    """Return (layer, head) of the scores (L, H), the highest first."""
    order = scores.flatten().argsort(descending=True).tolist()
    return [divmod(i, scores.shape[1]) for i in order]


def best(scores, n=3) -> list[dict]:
    """Return the n heads with the highest scores (L, H)."""
    return [
        {
            "layer": layer,
            "head": head,
            "score": round(scores[layer, head].item(), 3),
        }
        for layer, head in ranked(scores)[:n]
    ]


def previous_token_scores(llama, stories):
    """Return the mean weight on the previous token, (L, H)."""
    scores = []
    for story in stories:
        maps = attention_maps(llama, encode(llama, story, eos=True))
        before = maps.diagonal(offset=-1, dim1=-2, dim2=-1)  # (L, H, T-1)
        scores.append(before[..., 1:].mean(-1))  # without the begin token
    return torch.stack(scores).mean(0)


def induction_scores(llama, n=40, repeats=20):
    """Return the induction scores on repeated random tokens, (L, H).

    That is the weight, at a token's second occurrence, on the token that
    followed its first occurrence.
    """
    generator = torch.Generator().manual_seed(0)
    top = llama.config.vocab_size - 256
    scores = []
    for _ in range(repeats):
        r = torch.randint(256, top, (n,), generator=generator)
        tokens = torch.cat([torch.tensor([llama.tokenizer.bos_id]), r, r])
        maps = attention_maps(llama, tokens)  # (L, H, T, T)
        to_next = maps.diagonal(offset=1 - n, dim1=-2, dim2=-1)
        scores.append(to_next[..., -n:-1].mean(-1))  # the last has no next
    return torch.stack(scores).mean(0)


def name_scores(llama, n=60):
    """Return the induction scores on invented names in stories, (L, H).

    That is the weight, at the first token of a repeated name, on the second
    token of the name's first occurrence.
    """
    scores = []
    made = corpus.documents("held-out names", n, kinds=[corpus.gift_story])
    for text in made:
        tokens = encode(llama, text)
        maps = attention_maps(llama, tokens)  # (L, H, T, T)
        for word in sorted(set(text.replace(",", " ").split())):
            if not word.isalpha() or not word[0].isupper():
                continue
            name = encode(llama, " " + word, bos=False)
            windows = tokens.unfold(0, len(name), 1)[:-1]  # (T - n, n)
            at = (windows == name).all(-1).nonzero().flatten().tolist()
            if len(name) > 1:
                scores += [maps[:, :, i, at[0] + 1] for i in at[1:]]
    return torch.stack(scores).mean(0)


def measure_capital_heads(llama) -> tuple[list, dict]:
    """Return the heads that look at the country, and results without them."""
    prompts = capital_prompts(llama)
    weights = country_weights(llama, prompts)  # (L, H)
    order, n = ranked(weights), max(1, int((weights > 0.75).sum()))
    layers, of = range(llama.config.n_layers), len(corpus.COUNTRIES)
    r = random.Random(0)

    def right(changed) -> int:
        return sum(
            (changed(tokens)[:, -1].argmax(-1) == answers).sum().item()
            for tokens, answers in prompts
        )

    others = sum(
        right(silence(llama, r.sample(order[n:], n))) for _ in range(DRAWS)
    )
    looking = right(silence(llama, order[:n]))
    return best(weights, n), {
        "heads": n,
        "none": {"right": right(llama), "of": of},
        "looking": {"right": looking, "of": of},
        "others": {"right": others, "of": of * DRAWS},
        "blind_in_one_layer": [right(blindfold(llama, [i])) for i in layers],
        "blind": {"right": right(blindfold(llama, layers)), "of": of},
    }


def capital_prompts(llama):
    """Return (tokens (B, T), first ids (B,)) of each length of prompt."""
    by_length = defaultdict(list)
    for row in corpus.COUNTRIES:
        tokens = encode(llama, f"The capital of {row['country']} is")
        start = llama.tokenizer.decode(tokens[1:4].tolist())
        assert start == "The capital of", start
        answer = encode(llama, " " + row["capital"], bos=False)[0]
        by_length[len(tokens)].append((tokens, answer))
    batches = (zip(*pairs, strict=True) for pairs in by_length.values())
    return [tuple(map(torch.stack, each)) for each in batches]


def country_weights(llama, prompts):
    """Return the weight of " is" on the country's tokens, (L, H)."""
    weights = [
        attention_maps(llama, tokens)[:, :, -1, 4:-1].sum(-1)
        for batch, _ in prompts
        for tokens in batch
    ]
    return torch.stack(weights).mean(0)


def silence(llama, heads):
    """Return a copy in which these heads add nothing to the stream."""
    llama = copy.deepcopy(llama)
    for layer, head in heads:
        wo = llama.layers[layer].attention.wo.weight  # (D, H·hd)
        wo.unflatten(1, (llama.config.n_heads, -1))[:, head] = 0
    return llama


def blindfold(llama, layers):
    """Return a copy in which some layers hide the country from " is"."""

    def hide(block, args):
        x, freqs_cis, mask, cache = args
        mask = mask.clone()
        mask[-1, 4:-1] = float("-inf")
        return x, freqs_cis, mask, cache

    llama = copy.deepcopy(llama)
    for layer in layers:
        llama.layers[layer].register_forward_pre_hook(hide)
    return llama


# -- the table --------------------------------------------------------------


class Report(string.Formatter):
    """Writes a figure in the way that figures.md names after its colon."""

    def format_field(self, value, way):
        if way == "share":
            right, of = value["right"], value["of"]
            return f"{100 * right / of:.1f} % ({right:,} of {of:,})"
        if way == "per draw":
            return f"{value / DRAWS:.0f}"
        if way == "head":
            name = "layer {layer}, head {head}: mean weight {score:.2f}"
            return name.format(**value)
        if way == "heads":
            name = "layer {layer}, head {head} ({score:.2f})"
            return "; ".join(name.format(**head) for head in value)
        if way == "list":
            return corpus.and_list(map(str, value))
        return super().format_field(value, way)


def report(figures) -> str:
    """Return the text between the marks of data/README.md."""
    template = Path(__file__).with_name("figures.md").read_text("utf-8")
    rows = template.rstrip("\n").split("\n")
    if "training" not in figures:
        rows = [row for row in rows if "{training" not in row]
    return Report().format("\n".join(rows), **figures)


def show_in(readme: Path, figures) -> None:
    """Write the report between the marks of a README."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition("<!-- figures -->\n\n")
    _, end, after = rest.partition("\n\n<!-- /figures -->")
    text = before + begin + report(figures) + end + after
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else POCKET
    print(report(measure(folder)))
