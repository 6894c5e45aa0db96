"""Train the students of notebook C for longer, and measure what they miss.

    python data/recipe/experts.py            # all runs that are missing

A student is a mixture of eight pieces of the pocket Llama's middle network,
with a router that learns or a random one that stays, or a narrow network of
two pieces. The script runs the notebook's own cells up to its training, so
texts, students and training are the notebook's. Every finished run is added
to data/experts.json, so the same command continues.
"""

import argparse
import contextlib
import io
import json
import time
from pathlib import Path

import alternatives
import torch
import torch.nn.functional as F

from llamalib.load import ROOT

FILE = ROOT / "data" / "experts.json"
POCKET = ROOT / "data" / "pocket-llama"
NOTEBOOK = ROOT / "notebooks" / "appendix" / "C_mixture_of_experts.ipynb"
STEPS, RATES, SEEDS = 1000, (0.02, 0.04, 0.08, 0.16, 0.32), (0, 1, 2)
STUDENTS = "mixture", "collapsed", "narrow network", "fixed router"


def notebook() -> dict:
    """Return the names of the notebook's cells before its training."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names = {"__name__": "experts"}
    for cell in cells:
        tags = cell["metadata"].get("tags", ())
        if "long" in tags:
            break
        if cell["cell_type"] == "code" and "check" not in tags:
            with contextlib.redirect_stdout(io.StringIO()):
                exec("".join(cell["source"]), names)
    if names["llama"].name != POCKET.name:
        raise ValueError(f"LLAMA_DIR must name {POCKET}, or nothing")
    return names


def begin(c: dict, student: str, seed: int) -> tuple:
    """Return a student's router and matrices before training.

    c: the names of the notebook.
    """
    if student == "collapsed":
        return c["student_of"](seed, 2.0)
    router, *experts = c["student_of"](seed)
    if student != "narrow network":
        return router, *experts
    rng = torch.Generator().manual_seed(seed)
    some = torch.randperm(c["E"], generator=rng)[: c["k"]]
    # with a router of zeros every token uses all of the k, with weights 1/k;
    # its rate is 5 % of their standard deviation, 0, so it stays as it is
    return torch.zeros(c["k"], router.shape[1]), *(e[some] for e in experts)


@torch.no_grad()
def next_token_loss(c: dict, forward=None) -> float:
    """Return the loss on the held-out rows, in nats a token.

    forward: replaces the middle layer's network, (..., D) to (..., D).
    """
    rows, network = c["rows"][::8], c["llama"].layers[c["middle"]].feed_forward
    if forward:
        network.forward = forward
    try:
        logits = c["llama"](rows[:, :-1])  # (B, T, V)
    finally:
        vars(network).pop("forward", None)
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()


def run(c: dict, student: str, rate: float, seed: int, steps: int) -> dict:
    """Train a student; return what experts.json has of it."""
    start, weights = time.process_time(), begin(c, student, seed)
    route = c["route"]
    if student == "fixed router":  # no gradient: Adam leaves it as it is
        c["route"] = lambda x, router, k: route(x, router.detach(), k)
    try:
        error, _ = c["train"](weights, seed=seed, steps=steps, rate=rate)
    finally:
        c["route"] = route
    loss = next_token_loss(
        c, lambda x: c["mixture_feed_forward"](x, *weights, c["k"])
    )
    found = dict(student=student, rate=rate, seed=seed, error=round(error, 4))
    seconds = round(time.process_time() - start, 1)
    return found | dict(next_token_loss=round(loss, 4), seconds=seconds)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--steps", type=int, default=STEPS)
    add("--file", type=Path, default=FILE)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    c = notebook()
    losses = next_token_loss(c), next_token_loss(c, torch.zeros_like)
    intact, without = (round(loss, 4) for loss in losses)
    about = dict(steps=options.steps, intact=intact, without=without)
    found = alternatives.read(options.file, **about)
    steps = found["about"]["steps"]
    done = {(r["student"], r["rate"], r["seed"]) for r in found["runs"]}
    for seed in SEEDS:
        for rate in RATES:
            for student in STUDENTS:
                if (student, rate, seed) not in done:
                    made = run(c, student, rate, seed, steps)
                    found["runs"].append(made)
                    alternatives.write(options.file, found)
                    print(*made.values(), flush=True)


if __name__ == "__main__":
    main()
