"""Train tiny Llamas that differ in one thing, to see what each part is for.

    python data/recipe/alternatives.py          # all runs that are missing
    python data/recipe/alternatives.py --only "no gate" --seeds 0

Each run trains 1.4 million parameters on the pocket Llama's texts, on one
thread; two run at once. Every finished run is added to alternatives.json, so
the same command continues. Its curves: the loss in training, in means of ten
steps, and every fifty steps the loss on the held-out texts of the notebooks.
"""

import argparse
import json
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.nn.functional as F
import train
from make_pocket import describe_machine
from torch import nn

from lessons.texts import own_documents, pack_rows
from llamalib import LLAMA_1B, Llama
from llamalib.load import ROOT
from llamalib.model import attention
from llamalib.probe import replaced
from llamalib.tokenizer import Tokenizer

FILE = ROOT / "data" / "alternatives.json"
POCKET = ROOT / "data" / "pocket-llama"
STEPS, SEEDS = 600, (0, 1, 2)
BATCH, ROW = 16, 128  # rows in a step, positions in a row
PEAK_LR, WARM_UP = 3e-3, 60
EVERY = 50  # steps from one held-out loss to the next
MEAN_OF = 10  # steps in each number of the curve of training
# else the 1B's
SHAPE = dict(dim=128, n_layers=4, n_heads=4, n_kv_heads=2, multiple_of=32)


@dataclass(frozen=True)
class Variant:
    """What a run changes.

    Attributes:
        functions: what `llamalib.probe.replaced` replaces, in training and
            in measuring.
        prepare: changes a fresh Llama.
        tied: whether the output matrix is the embedding.
        warm_up: steps until the learning rate is at its peak.
    """

    functions: dict = field(default_factory=dict)
    prepare: Callable = lambda llama: None
    tied: bool = True
    warm_up: int = WARM_UP


# -- what is changed ---------------------------------------------------------


def unrotated(xq, xk, freqs_cis):
    return xq, xk


class WithPositions(nn.Module):
    """An embedding that adds a learned vector of each position."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.positions = nn.Embedding(ROW, embedding.embedding_dim)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        return self.embedding(tokens) + self.positions(places)


def learn_positions(llama):
    llama.tok_embeddings = WithPositions(llama.tok_embeddings)


def use_layer_norm(llama):
    dim, eps = llama.config.dim, llama.config.norm_eps
    for layer in llama.layers:
        layer.attention_norm = nn.LayerNorm(dim, eps)
        layer.ffn_norm = nn.LayerNorm(dim, eps)
    llama.norm = nn.LayerNorm(dim, eps)


def unnormalized(self, x):
    return x


def enlarge_embeddings(llama):
    # to a root mean square of 1, as a norm would: fresh ones have 0.02
    llama.tok_embeddings.register_forward_hook(lambda *call: 50 * call[-1])


def norm_after_the_sum(self, x, freqs_cis, mask, cache=None):
    x = self.attention_norm(x + self.attention(x, freqs_cis, mask, cache))
    return self.ffn_norm(x + self.feed_forward(x))


def without_sum(self, x, freqs_cis, mask, cache=None):
    x = self.attention(self.attention_norm(x), freqs_cis, mask, cache)
    return self.feed_forward(self.ffn_norm(x))


def undivided(xq, xk, xv, mask=None):
    # `attention` divides by the root
    return attention(xq * math.sqrt(xq.shape[-1]), xk, xv, mask)


def gated_by_relu(self, x):
    return self.w2(F.relu(self.w1(x)) * self.w3(x))


class WithoutGate(nn.Module):
    """Two matrices with SiLU between, as many parameters as the three."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden * 3 // 2, bias=False)
        self.w2 = nn.Linear(hidden * 3 // 2, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


def leave_out_the_gate(llama):
    c = llama.config
    for layer in llama.layers:
        usual = layer.feed_forward
        layer.feed_forward = WithoutGate(c.dim, c.hidden_dim)
        # the same spread as the matrices that they replace
        for name in ("w1", "w2"):
            weight = getattr(layer.feed_forward, name).weight
            std = getattr(usual, name).weight.std().item()
            nn.init.normal_(weight, std=std)


NO_DIVISION = dict(attention=undivided)
NO_NORM = {"RMSNorm.forward": unnormalized}
AFTER = {"TransformerBlock.forward": norm_after_the_sum}
VARIANTS = {
    "Llama": Variant(),
    "no position": Variant(functions=dict(apply_rotary_emb=unrotated)),
    "learned positions": Variant(
        functions=dict(apply_rotary_emb=unrotated), prepare=learn_positions
    ),
    "LayerNorm": Variant(prepare=use_layer_norm),
    "no norm": Variant(functions=NO_NORM),
    "no norm, embeddings × 50": Variant(
        functions=NO_NORM, prepare=enlarge_embeddings
    ),
    "embeddings × 50": Variant(prepare=enlarge_embeddings),
    "norm after the sum": Variant(functions=AFTER),
    "norm after the sum, no warm-up": Variant(functions=AFTER, warm_up=0),
    "no warm-up": Variant(warm_up=0),
    "no sum": Variant(functions={"TransformerBlock.forward": without_sum}),
    "no division by √hd": Variant(functions=NO_DIVISION),
    "ReLU": Variant(functions={"FeedForward.forward": gated_by_relu}),
    "no gate": Variant(prepare=leave_out_the_gate),
    "untied": Variant(tied=False),
}


# -- a run -------------------------------------------------------------------


def held_out_rows(tokenizer) -> list[torch.Tensor]:
    """Return the ids of the fifty held-out texts, up to the trained length."""
    file = Path(__file__).with_name("held_out.json")
    texts = json.loads(file.read_text(encoding="utf-8"))
    ids = [tokenizer.encode(text, bos=True, eos=False) for text in texts]
    return [torch.tensor(row[: ROW + 1]) for row in ids]


@torch.no_grad()
def held_out_loss(llama, rows) -> float:
    """Return the mean loss of all tokens of the held-out texts, in nats."""
    losses = [
        F.cross_entropy(llama(row[:-1]), row[1:], reduction="sum")
        for row in rows
    ]
    return sum(losses).item() / sum(len(row) - 1 for row in rows)


def build(variant: Variant, vocab_size: int, seed: int) -> Llama:
    """Return a variant's Llama before its training."""
    shape = SHAPE | dict(vocab_size=vocab_size)
    config = replace(LLAMA_1B, **shape)
    llama = train.fresh_model(config, tied=variant.tied, seed=seed)
    variant.prepare(llama)
    return llama


def run(name: str, seed: int, steps: int, until: int | None = None) -> dict:
    """Train one variant; return its curves, as alternatives.json has them.

    until: stop after this many of the steps; None: after all.
    """
    torch.set_num_threads(1)
    variant, start = VARIANTS[name], time.process_time()
    tokenizer = Tokenizer.from_file(POCKET / "tokenizer.model")
    n = (until or steps) * BATCH
    texts = own_documents(8 * n + 100, seed=f"alternatives {seed}")
    rows = pack_rows(texts, tokenizer, n, ROW)
    held_out = held_out_rows(tokenizer)
    llama = build(variant, tokenizer.n_words, seed)
    with replaced(**variant.functions):
        losses, at = learn(llama, rows, steps, variant.warm_up, held_out)
    found = dict(name=name, seed=seed, steps=steps)
    found["parameters"] = sum(p.numel() for p in llama.parameters())
    found["loss"] = [
        round(statistics.fmean(losses[i : i + MEAN_OF]), 4)
        for i in range(0, len(losses), MEAN_OF)
    ]
    found["held_out"] = [round(loss, 4) for loss in at]
    minutes = (time.process_time() - start) / 60  # of this thread alone
    return found | dict(minutes=round(minutes, 1))


def learn(llama, rows, steps, warm_up, held_out) -> tuple[list, list]:
    """Train on each row once; return all losses, and some held-out ones.

    steps: of the whole run; the rows may end earlier. A run whose loss is no
    number any more ends there.
    """
    optimizer = train.make_optimizer(llama)
    losses = []
    at = [held_out_loss(llama, held_out)]
    for step, batch in enumerate(rows.split(BATCH)):
        loss = train.loss_of(llama, batch, torch.float32)
        if not math.isfinite(loss.item()):
            break
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(llama.parameters(), 1.0)
        rate = train.learning_rate(step, steps, PEAK_LR, warm_up)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        if (step + 1) % EVERY == 0:
            at.append(held_out_loss(llama, held_out))
    return losses, at


# -- all runs ----------------------------------------------------------------


def read(file: Path, **about) -> dict:
    """Return what the file has, or an empty beginning with this about it."""
    if file.is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    return dict(about=about, machine=describe_machine("cpu"), runs=[])


def write(file: Path, found: dict) -> None:
    """Write a run a line, into a new file that takes the old one's name."""
    head = {key: value for key, value in found.items() if key != "runs"}
    head = json.dumps(head, ensure_ascii=False)[1:-1]
    runs = [json.dumps(each, ensure_ascii=False) for each in found["runs"]]
    text = "{" + head + ', "runs": [\n' + ",\n".join(runs) + "\n]}\n"
    part = file.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def add_runs(file: Path, found: dict, job: Callable, todo: list, at_once=2):
    """Do runs in processes of their own; write the file after each.

    Yields:
        what `job` returns for each of `todo`, in the order they finish.
    """
    with multiprocessing.get_context("spawn").Pool(at_once) as pool:
        for made in pool.imap_unordered(job, todo):
            found["runs"].append(made)
            write(file, found)
            yield made


def job(settings: tuple) -> dict:
    return run(*settings)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    add("--seeds", nargs="+", type=int, default=SEEDS)
    add("--steps", type=int, default=STEPS)
    add("--file", type=Path, default=FILE)
    add("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    about = dict(mean_of=MEAN_OF, every=EVERY, batch=BATCH, row=ROW)
    about |= dict(peak_lr=PEAK_LR, warm_up=WARM_UP)
    found = read(options.file, **about)
    done = {(each["name"], each["seed"]) for each in found["runs"]}
    todo = [
        (name, seed, options.steps)
        for seed in options.seeds
        for name in options.only
        if (name, seed) not in done
    ]
    for made in add_runs(options.file, found, job, todo, options.processes):
        last = made["held_out"][-1]
        print(f"{made['name']}, seed {made['seed']}: {last}, ", end="")
        print(f"{made['minutes']} minutes", flush=True)


if __name__ == "__main__":
    main()
