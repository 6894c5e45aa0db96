"""Train the students of notebook C for longer, and measure what they miss.

    python data/recipe/experts.py            # all runs that are missing

A student is a mixture of eight pieces of the pocket Llama's middle network,
trained with or without the balancing loss, or with a random router that
stays, or a narrow network of two pieces. Other runs train a student for each
network of the pocket, put all of them in place of the networks, and count the
capitals that the pocket then knows. The script runs the notebook's own cells
up to its training, so texts, students and training are the notebook's. Every
finished run is added to data/experts.json, so the same command continues.
"""

import argparse
import contextlib
import io
import json
from itertools import product
from pathlib import Path

import alternatives
import torch

from lessons import nC_mixture_of_experts as lesson
from llamalib.load import ROOT
from llamalib.probe import replaced

FILE = ROOT / "data" / "experts.json"
POCKET = ROOT / "data" / "pocket-llama"
NOTEBOOK = ROOT / "notebooks" / "appendix" / "C_mixture_of_experts.ipynb"
STEPS, RATES = 1000, (0.01, 0.04, 0.16, 0.32)
ALPHA = 0.02  # of the balancing loss
# the rates and seeds of each student
PLAN = dict.fromkeys(["mixture", "balanced mixture"], (RATES, range(5)))
PLAN["narrow network"] = RATES[1:], range(3)
PLAN["fixed router"] = RATES, range(3)
# in every block, each at its best rate, for the notebook's number of steps
BEST = {"mixture": 0.04, "narrow network": 0.16, "fixed router": 0.04}
SEEDS = range(2)


def notebook() -> dict:
    """Return the names of the notebook's cells before its training.

    Also those of later functions that it teaches.
    """
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names, late = {"__name__": "experts"}, False
    for cell in cells:
        tags = cell["metadata"].get("tags", ())
        late = late or "train" in names
        if late:
            wanted = "taught" in tags
        else:
            wanted = not {"check", "long"} & set(tags)
        if cell["cell_type"] == "code" and wanted:
            with contextlib.redirect_stdout(io.StringIO()):
                exec("".join(cell["source"]), names)
    if names["llama"].name != POCKET.name:
        raise ValueError(f"LLAMA_DIR must name {POCKET}, or nothing")
    return names


def begin(c: dict, student: str, seed: int) -> tuple:
    """Return a student's router and matrices before training.

    c: the names of the notebook.
    """
    router, *experts = c["student_of"](seed)
    if student != "narrow network":
        return router, *experts
    rng = torch.Generator().manual_seed(seed)
    some = torch.randperm(c["E"], generator=rng)[: c["k"]]
    # with a router of zeros every token uses all of the k, with weights 1/k;
    # its rate is a share of their standard deviation, 0, so it stays as it is
    return torch.zeros(c["k"], router.shape[1]), *(e[some] for e in experts)


def balanced_loss(c: dict, student, at):
    """Return a student's error and ALPHA times the balancing loss."""
    _, chosen, logits = c["route"](c["inputs"][at], student[0], c["k"])
    return c["loss_of"](student, at) + ALPHA * c["balance_loss"](
        logits, chosen
    )


def trained(c: dict, student: str, rate: float, seed: int, steps: int):
    """Train a student; return its router and matrices, and its error."""
    weights, route = begin(c, student, seed), c["route"]
    how = dict(seed=seed, steps=steps, rate=rate)
    if student == "balanced mixture":
        how["loss"] = lambda *batch: balanced_loss(c, *batch)
    if student == "fixed router":  # no gradient: Adam leaves it as it is
        c["route"] = lambda x, router, k: route(x, router.detach(), k)
    try:
        error, _ = c["train"](weights, **how)
    finally:
        c["route"] = route
    return [each.detach() for each in weights], error


def run(c: dict, student: str, rate: float, seed: int, steps: int) -> dict:
    """Train a student; return what experts.json has of it.

    Shares are those of the held-out tokens' choices, by expert.
    """
    (router, *_), error = trained(c, student, rate, seed, steps)
    _, chosen, _ = c["route"](c["inputs"][c["held"]], router, c["k"])
    counts = torch.bincount(chosen.flatten(), minlength=len(router))
    shares = [round(n / chosen.numel(), 4) for n in counts.tolist()]
    found = dict(student=student, rate=rate, seed=seed)
    return found | dict(error=round(error, 4), shares=shares)


def run_everywhere(c: dict, student: str, seed: int) -> dict:
    """Train a student for each block; count capitals with all of them."""
    steps = c["n_steps"]
    names = "ffn", "pieces", "inputs", "targets", "spread"
    llama, before = c["llama"], {name: c[name] for name in names}
    networks = {}
    for block, layer in enumerate(llama.layers):
        c["ffn"] = name = f"layers.{block}.feed_forward"
        matrices = (c["w"][f"{name}.w{i}.weight"] for i in (1, 2, 3))
        c["pieces"] = c["split_experts"](*matrices, c["E"])
        read = [c["ffn_input"](part) for part in c["rows"].split(4)]
        c["inputs"] = torch.cat(read).flatten(0, 1)  # (N, D)
        c["targets"] = layer.feed_forward(c["inputs"])
        held = c["targets"][c["held"]]
        c["spread"] = held.var(dim=0, correction=0).sum()
        weights, _ = trained(c, student, BEST[student], seed, steps)
        networks[layer.feed_forward] = weights
    c |= before

    def forward(self, x):
        return c["mixture_feed_forward"](x, *networks[self], c["k"])

    with replaced(**{"FeedForward.forward": forward}):
        capitals = lesson.known_capitals(llama, lesson.asked_countries(llama))
    found = dict(student=f"{student} in every block", rate=BEST[student])
    return found | dict(seed=seed, steps=steps, capitals=capitals)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--steps", type=int, default=STEPS)
    add("--file", type=Path, default=FILE)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    c = notebook()
    found = alternatives.read(options.file, steps=options.steps)
    steps = found["about"]["steps"]
    done = {(r["student"], r["rate"], r["seed"]) for r in found["runs"]}
    for student, (rates, seeds) in PLAN.items():
        for rate, seed in product(rates, seeds):
            if (student, rate, seed) not in done:
                made = run(c, student, rate, seed, steps)
                found["runs"].append(made)
                alternatives.write(options.file, found)
                print(*made.values(), flush=True)
    for seed, student in product(SEEDS, BEST):
        name, rate = f"{student} in every block", BEST[student]
        if (name, rate, seed) not in done:
            made = run_everywhere(c, student, seed)
            found["runs"].append(made)
            alternatives.write(options.file, found)
            print(*made.values(), flush=True)


if __name__ == "__main__":
    main()
