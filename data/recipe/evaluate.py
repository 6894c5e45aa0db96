"""Measure a checkpoint of this recipe: the figures of data/README.md.

    python data/recipe/evaluate.py [FOLDER]

prints the figures of a folder, by default those of the pocket Llama.
"""

import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import corpus  # noqa: E402

import llamalib  # noqa: E402
from llamalib import attention, attention_weights, replaced  # noqa: E402

# Asked of every country; no document of the corpus has these wordings.
NEW_WORDINGS = [
    "The capital town of {c} is named {x}.",
    "Question: Which city is the capital of {c}? Answer: {x}.",
]


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


def encode(llama, text, eos=False):
    ids = llama.tokenizer.encode(text, bos=True, eos=eos)
    return torch.tensor(ids)  # (T,)


# -- facts ------------------------------------------------------------------


def knows(llama, wording, row, kind) -> bool:
    """Return whether greedy decoding completes the wording with the fact.

    Every token of the answer must be the most likely one. The most likely
    token after it must begin with a full stop.
    """
    before, after = wording.split("{x}")
    assert after == ".", wording
    asked = encode(llama, corpus.fill(before.rstrip(), row, kind))
    answer = llama.tokenizer.encode(" " + row[kind], bos=False, eos=False)
    tokens = torch.cat([asked, torch.tensor(answer)])
    best = llama(tokens)[len(asked) - 1 :].argmax(-1).tolist()
    end = llama.tokenizer.decode(best[-1:])
    return best[:-1] == answer and end.startswith(".")


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
    # the new line does not count: a list of sums may end here too
    return bool((best[len(asked) - 1 : -2] == tokens[len(asked) : -1]).all())


# -- stories ----------------------------------------------------------------


def held_out_stories(n):
    return list(
        corpus.documents("held-out stories", n, kinds=[corpus.story_doc])
    )


def story_ids(llama, stories):
    return [encode(llama, s, eos=True) for s in stories]


def measure_stories(llama, stories) -> dict:
    """Return loss in nats per token and perplexity; a bigram model's too."""
    rows = story_ids(llama, stories)
    loss, bigram = story_loss(llama, rows), bigram_loss(llama, rows)
    return {
        "stories": len(stories),
        "tokens": sum(len(row) - 1 for row in rows),
        "loss": round(loss, 4),
        "perplexity": round(math.exp(loss), 3),
        "bigram_loss": round(bigram, 4),
        "bigram_perplexity": round(math.exp(bigram), 3),
    }


def story_loss(llama, rows) -> float:
    """Return the mean cross-entropy in nats of all tokens but the first."""
    total = sum(
        F.cross_entropy(llama(row[:-1]), row[1:], reduction="sum").item()
        for row in rows
    )
    return total / sum(len(row) - 1 for row in rows)


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
    n_heads = llama.config.n_heads
    previous = previous_token_scores(llama, stories)
    induction = induction_scores(llama)
    names = name_scores(llama)
    capital, silenced = measure_capital_heads(llama)

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

    return {
        "previous_token": best(previous),
        "induction_random": best(induction),
        "induction_names": best(names),
        "capital": capital,
        "capital_silenced": silenced,
    }


def previous_token_scores(llama, stories):
    """Return the mean weight on the previous token, (L, H)."""
    scores = []
    for tokens in story_ids(llama, stories):
        maps = llamalib.attention_maps(llama, tokens)  # (L, H, T, T)
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
        maps = llamalib.attention_maps(llama, tokens)
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


LOOKS = ("begin", "of", "country", "is", "rest")


def capital_prompts(llama):
    """Return (tokens (B, T), answers (B,)) of each length of prompt."""
    by_length = {}
    for row in corpus.COUNTRIES:
        tokens = encode(llama, f"The capital of {row['country']} is")
        assert llama.tokenizer.decode(tokens[1:4]) == "The capital of"
        answer = encode(llama, " " + row["capital"])[1]
        group = by_length.setdefault(len(tokens), ([], []))
        group[0].append(tokens)
        group[1].append(answer)
    return [
        (torch.stack(tokens), torch.stack(answers))
        for tokens, answers in by_length.values()
    ]


def capital_looks(llama, prompts):
    """Return the weights of " is" on each of LOOKS, (L, H, 5).

    They are means over all countries; a country's tokens are summed.
    """
    total = 0
    for tokens, _ in prompts:
        layers = []

        def attend(xq, xk, xv, mask):
            layers.append(attention_weights(xq, xk, mask)[:, :, -1])
            return attention(xq, xk, xv, mask)

        with replaced(attention=attend):
            llama(tokens)
        at = torch.stack(layers)  # (L, B, H, T)
        parts = [at[..., 0], at[..., 3], at[..., 4:-1].sum(-1), at[..., -1]]
        parts.append(1 - sum(parts))
        total = total + torch.stack(parts, dim=-1).sum(1)  # (L, H, 5)
    return total / len(corpus.COUNTRIES)


def capitals_right(llama, prompts, change) -> int:
    """Count the right first tokens with the attention of `change()`."""
    right = 0
    for tokens, answers in prompts:
        with replaced(attention=change()):
            best = llama(tokens, last_only=True)[:, -1].argmax(-1)
        right += (best == answers).sum().item()
    return right


def silence(config, heads):
    """Return an attention that sets these heads' outputs to zero."""
    layers = iter(range(config.n_layers))

    def attend(xq, xk, xv, mask):
        out = attention(xq, xk, xv, mask)  # (B, T, H·hd)
        layer = next(layers)
        out = out.unflatten(-1, (config.n_heads, -1)).clone()
        for where, head in heads:
            if where == layer:
                out[..., head, :] = 0
        return out.flatten(-2)

    return attend


def blindfold(config, layers):
    """Return an attention that hides the country from " is" in some layers."""
    numbers = iter(range(config.n_layers))

    def attend(xq, xk, xv, mask):
        if next(numbers) in layers:
            mask = mask.clone()
            mask[-1, 4:-1] = float("-inf")
        return attention(xq, xk, xv, mask)

    return attend


def measure_capital_heads(llama) -> tuple[list, dict]:
    """Return the heads that look at the country, and results without them."""
    prompts = capital_prompts(llama)
    looks = capital_looks(llama, prompts)
    country = looks[..., LOOKS.index("country")]  # (L, H)
    n_heads = llama.config.n_heads
    order = country.flatten().argsort(descending=True).tolist()
    order = [(i // n_heads, i % n_heads) for i in order]
    n = max(1, int((country > 0.75).sum()))
    best = [
        {
            "layer": layer,
            "head": head,
            "score": round(country[layer, head].item(), 3),
            "looks": {
                name: round(value, 3)
                for name, value in zip(LOOKS, looks[layer, head].tolist())
            },
        }
        for layer, head in order[:n]
    ]
    r = random.Random(0)
    config, of = llama.config, len(corpus.COUNTRIES)

    def right(change, *how):
        return capitals_right(llama, prompts, lambda: change(config, *how))

    draws = [right(silence, r.sample(order[n:], n)) for _ in range(20)]
    layers = range(config.n_layers)
    return best, {
        "heads": n,
        "none": {"right": right(silence, ()), "of": of},
        "looking": {"right": right(silence, order[:n]), "of": of},
        "others": {"right": sum(draws), "of": of * len(draws)},
        "blind_in_one_layer": [right(blindfold, [i]) for i in layers],
        "blind": {"right": right(blindfold, layers), "of": of},
    }


# -- the table --------------------------------------------------------------


@dataclass
class Share:
    """So many right answers of so many; formatted as a percentage."""

    right: int
    of: int

    @property
    def of_20_draws(self):
        return self.right / 20

    def __str__(self):
        share = 100 * self.right / self.of
        return f"{share:.1f} % ({self.right:,} of {self.of:,})"


@dataclass
class Head:
    """A head and its mean weight."""

    layer: int
    head: int
    score: float

    def __format__(self, words):
        name = f"layer {self.layer}, head {self.head}"
        weight = f"{self.score:.2f}"
        return f"{name}: {words} {weight}" if words else f"{name} ({weight})"


class Series(list):
    """A list that is formatted as words: numbers with "and", or heads."""

    def __str__(self):
        words = [format(each) for each in self]
        if isinstance(self[0], Head):
            return "; ".join(words)
        return corpus.and_list(words)


def readable(value):
    """Return a figure as an object that formats itself."""
    if isinstance(value, list):
        return Series(map(readable, value))
    if not isinstance(value, dict):
        return value
    if value.keys() == {"right", "of"}:
        return Share(**value)
    if "score" in value:
        return Head(value["layer"], value["head"], value["score"])
    return {name: readable(each) for name, each in value.items()}


def report(figures) -> str:
    """Return the text between the marks of data/README.md."""
    template = Path(__file__).with_name("figures.md").read_text("utf-8")
    rows = template.rstrip("\n").split("\n")
    if "training" not in figures:
        rows = [row for row in rows if "{training" not in row]
    return "\n".join(rows).format(**readable(figures))


def show_in(readme: Path, figures) -> None:
    """Write the report between the marks of a README."""
    before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    text = before + BEGIN + "\n\n" + report(figures) + "\n\n" + END + after
    readme.write_text(text, encoding="utf-8")


BEGIN, END = "<!-- figures -->", "<!-- /figures -->"


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    print(report(measure(folder)))
