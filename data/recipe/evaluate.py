"""Measure a checkpoint made by this recipe: the figures of data/README.md.

    python data/recipe/evaluate.py [FOLDER]

prints them for a folder, the pocket Llama's where none is named.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import corpus  # noqa: E402

import llamalib  # noqa: E402
from llamalib.attention import fused_attention  # noqa: E402

# Asked of every country; no document of the corpus is worded so.
NEW_WORDINGS = [
    "The capital town of {c} is named {x}.",
    "Question: Which city is the capital of {c}? Answer: {x}.",
]


@torch.no_grad()
def measure(folder) -> dict:
    """Every figure, by name; takes a minute or two on a CPU."""
    llama = llamalib.load(folder, device="cpu", dtype=torch.float32)
    stories = held_out_stories(300)
    return {
        "parameters": sum(p.numel() for p in llama.parameters()),
        "facts": measure_facts(llama),
        "stories": measure_stories(llama, stories),
        "heads": measure_heads(llama, stories[:60]),
    }


def encode(llama, text, eos=False):
    ids = llama.tokenizer.encode(text, bos=True, eos=eos)
    return torch.tensor(ids)  # (T,)


# -- facts ------------------------------------------------------------------


def knows(llama, wording, row, kind) -> bool:
    """Whether greedy decoding completes the wording with the fact.

    Every token of the answer, and of the full stop after it, must be the
    likeliest one.
    """
    before, after = wording.split("{x}")
    tokens = encode(llama, corpus.fill(before + "{x}" + after, row, kind))
    asked = encode(llama, corpus.fill(before.rstrip(), row, kind))
    best = llama(tokens).argmax(-1)  # (T,)
    n = len(asked)
    return bool((best[n - 1 : -1] == tokens[n:]).all())


def share(flags) -> dict:
    flags = list(flags)
    return {"right": sum(flags), "of": len(flags)}


def measure_facts(llama) -> dict:
    """Right answers, of wordings seen in training and not, by kind."""
    figures = {}
    for kind, wordings in corpus.WORDINGS.items():
        seen, unseen = [], []
        for row in corpus.COUNTRIES:
            for i, wording in enumerate(wordings):
                out = corpus.held_out(row["country"], kind, i)
                flags = unseen if out else seen
                flags.append(knows(llama, wording, row, kind))
        figures[kind] = {"seen": share(seen), "unseen": share(unseen)}
    figures["capital"]["first_wording"] = share(
        knows(llama, corpus.CAPITAL[0], row, "capital")
        for row in corpus.COUNTRIES
    )
    figures["capital"]["new_wordings"] = share(
        knows(llama, wording, row, "capital")
        for wording in NEW_WORDINGS
        for row in corpus.COUNTRIES
    )
    sums = [(x, y) for x in range(21) for y in range(21)]
    figures["sums"] = share(
        knows_sum(llama, f"{x} + {y} =", x + y) for x, y in sums
    )
    return figures


def knows_sum(llama, asked, answer) -> bool:
    asked = encode(llama, asked + " ")
    answer = llama.tokenizer.encode(f"{answer}\n", bos=False, eos=False)
    tokens = torch.cat([asked, torch.tensor(answer)])
    best = llama(tokens).argmax(-1)
    # the new line is not asked for: a list of sums may also end here
    return bool((best[len(asked) - 1 : -2] == tokens[len(asked) : -1]).all())


# -- stories ----------------------------------------------------------------


def held_out_stories(n):
    return list(
        corpus.documents("held-out stories", n, kinds=[corpus.story_doc])
    )


def story_ids(llama, stories):
    return [encode(llama, s, eos=True) for s in stories]


def measure_stories(llama, stories) -> dict:
    """Loss a token in nats, and perplexity, beside a bigram model's."""
    rows = story_ids(llama, stories)
    total = sum(
        F.cross_entropy(llama(row[:-1]), row[1:], reduction="sum").item()
        for row in rows
    )
    count = sum(len(row) - 1 for row in rows)
    bigram = bigram_loss(llama, rows)
    return {
        "stories": len(stories),
        "tokens": count,
        "loss": round(total / count, 4),
        "perplexity": round(math.exp(total / count), 3),
        "bigram_loss": round(bigram, 4),
        "bigram_perplexity": round(math.exp(bigram), 3),
    }


def bigram_loss(llama, rows, n_documents=100_000) -> float:
    """Of a bigram model counted on the training text, at its best.

    The count of a pair is smoothed by the count of its second token; how
    much is chosen on the very text it is measured on, in its favour.
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
    """What heads look at: the best of each kind, with its score."""
    n_heads = llama.config.n_heads
    previous = previous_token_scores(llama, stories)
    induction = induction_scores(llama)
    names = name_scores(llama)
    drop, look = capital_scores(llama)

    def best(scores, n=3):
        order = scores.flatten().argsort(descending=True)[:n].tolist()
        return [
            {
                "layer": i // n_heads,
                "head": i % n_heads,
                "score": round(scores.flatten()[i].item(), 3),
            }
            for i in order
        ]

    capital = best(drop)
    for head in capital:
        at = look[head["layer"], head["head"]]
        head["looks"] = {k: round(v, 3) for k, v in zip(LOOKS, at.tolist())}
    return {
        "previous_token": best(previous),
        "induction_random": best(induction),
        "induction_names": best(names),
        "capital": capital,
    }


def previous_token_scores(llama, stories):
    """(L, H): mean weight on the token just before, over unseen stories."""
    scores = []
    for tokens in story_ids(llama, stories):
        maps = llamalib.attention_maps(llama, tokens)  # (L, H, T, T)
        before = maps.diagonal(offset=-1, dim1=-2, dim2=-1)  # (L, H, T-1)
        scores.append(before[..., 1:].mean(-1))  # not the look at the start
    return torch.stack(scores).mean(0)


def induction_scores(llama, n=40, repeats=20):
    """(L, H): on random tokens said twice, the weight on what came next.

    At the second time that a token is read, the weight on the token that
    followed it the first time: what has to be copied.
    """
    generator = torch.Generator().manual_seed(0)
    top = llama.config.vocab_size - 256
    scores = []
    for _ in range(repeats):
        r = torch.randint(256, top, (n,), generator=generator)
        tokens = torch.cat([torch.tensor([llama.tokenizer.bos_id]), r, r])
        maps = llamalib.attention_maps(llama, tokens)
        to_next = maps.diagonal(offset=1 - n, dim1=-2, dim2=-1)
        scores.append(to_next[..., -n + 1 :].mean(-1))
    return torch.stack(scores).mean(0)


def name_scores(llama, n=60):
    """(L, H): the same for invented names in unseen stories.

    At the first token of a name that was told before, the weight on the
    second token of the name where it was told first.
    """
    scores = []
    made = corpus.documents("held-out names", n, kinds=[corpus.gift_story])
    for text in made:
        tokens = encode(llama, text)
        maps = None
        for word in sorted(set(text.replace(",", " ").split())):
            if not word.isalpha() or not word[0].isupper():
                continue
            name = llama.tokenizer.encode(" " + word, bos=False, eos=False)
            places = [
                i
                for i in range(len(tokens) - len(name))
                if tokens[i : i + len(name)].tolist() == name
            ]
            if len(name) < 2 or len(places) < 2:
                continue
            if maps is None:
                maps = llamalib.attention_maps(llama, tokens)
            first = places[0]
            scores += [maps[:, :, at, first + 1] for at in places[1:]]
    return torch.stack(scores).mean(0)


LOOKS = ("begin", "country", "capital", "itself", "rest")


def capital_scores(llama):
    """What each head does at the end of "The capital of … is".

    Returns:
        (L, H) the nats of log-probability of the right capital's first token
        that are lost when the head's output is set to zero, and (L, H, 5)
        where it looks, as in LOOKS; both means over all countries.
    """
    config = llama.config
    shape = (config.n_layers, config.n_heads)
    drop, look = torch.zeros(shape), torch.zeros(*shape, len(LOOKS))
    for row in corpus.COUNTRIES:
        tokens = encode(llama, f"The capital of {row['country']} is")
        answer = encode(llama, " " + row["capital"])[1]
        at = llamalib.attention_maps(llama, tokens)[:, :, -1]  # (L, H, T)
        parts = (at[..., 0], at[..., 4:-1].sum(-1), at[..., 2], at[..., -1])
        rest = 1 - sum(parts)
        look += torch.stack([*parts, rest], dim=-1)
        whole = llama(tokens, last_only=True)[-1].log_softmax(-1)[answer]
        for layer in range(shape[0]):
            for head in range(shape[1]):
                without = silence(config, layer, head)
                logits = llama(tokens, last_only=True, attend=without)[-1]
                drop[layer, head] += whole - logits.log_softmax(-1)[answer]
    n = len(corpus.COUNTRIES)
    return drop / n, look / n


def silence(config, layer, head):
    """An `attend` that sets one head's output to zero."""
    calls = iter(range(config.n_layers))

    def attend(xq, xk, xv, mask):
        out = fused_attention(xq, xk, xv, mask)  # (B, T, H·hd)
        if next(calls) == layer:
            out = out.unflatten(-1, (config.n_heads, -1)).clone()
            out[..., head, :] = 0
            out = out.flatten(-2)
        return out

    return attend


# -- the table --------------------------------------------------------------


def percent(figure) -> str:
    right, of = figure["right"], figure["of"]
    return f"{100 * right / of:.1f} % ({right:,} of {of:,})"


def head_name(head) -> str:
    return f"layer {head['layer']}, head {head['head']}"


def table(figures) -> str:
    """The figures as a table in Markdown."""
    facts, stories = figures["facts"], figures["stories"]
    heads, training = figures["heads"], figures.get("training")
    capital = facts["capital"]
    rows = [
        ("parameters", f"{figures['parameters']:,}"),
        ("capital, “The capital of … is”", percent(capital["first_wording"])),
        ("capital, a wording seen with that country",
         percent(capital["seen"])),
        ("capital, a wording never seen with that country",
         percent(capital["unseen"])),
        ("capital, a wording never seen at all",
         percent(capital["new_wordings"])),
    ]
    for kind in ("continent", "language"):
        rows += [
            (f"{kind}, a wording seen with that country",
             percent(facts[kind]["seen"])),
            (f"{kind}, a wording never seen with that country",
             percent(facts[kind]["unseen"])),
        ]
    rows += [
        ("sums, 0 + 0 to 20 + 20", percent(facts["sums"])),
        (f"loss a token on {stories['stories']} unseen stories "
         f"({stories['tokens']:,} tokens)",
         f"{stories['loss']:.3f} nats: perplexity "
         f"{stories['perplexity']:.2f}"),
        ("the same, a bigram model of the training text",
         f"{stories['bigram_loss']:.3f} nats: perplexity "
         f"{stories['bigram_perplexity']:.2f}"),
    ]
    kinds = [
        ("previous_token", "looks at the token before (unseen stories)"),
        ("induction_random", "induction, random tokens said twice"),
        ("induction_names", "induction, invented names in unseen stories"),
    ]
    for kind, words in kinds:
        best = heads[kind][0]
        rows.append(
            (f"head that {words}" if kind[0] == "p" else f"head of {words}",
             f"{head_name(best)}: mean weight {best['score']:.2f}")
        )
    best = heads["capital"][0]
    rows.append(
        ("head that matters most for a capital",
         f"{head_name(best)}: weight {best['looks']['country']:.2f} on the "
         f"country; without it the right capital loses {best['score']:.2f} "
         "nats")
    )
    if training:
        rows.append(
            ("training",
             f"{training['tokens']:,} tokens in {training['minutes']} "
             f"minutes, {training['device']}, {training['threads']} threads, "
             f"{training['dtype']}")
        )
    lines = ["| figure | measured |", "| --- | --- |"]
    return "\n".join(lines + [f"| {name} | {value} |" for name, value in rows])


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    print(table(measure(folder)))
