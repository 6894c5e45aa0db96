"""Training runs of tiny Llamas that differ in one thing, and their picture.

`data/recipe/alternatives.py` made them; `data/alternatives.json` has them.
"""

import importlib
import json
import sys
from unittest.mock import patch

import torch
from matplotlib.ticker import MaxNLocator

from llamalib.load import ROOT

from . import charts
from .theme import GROUPS, colour, panels

FILE = ROOT / "data" / "alternatives.json"


def read_runs(names) -> dict[str, list[dict]]:
    """Return the runs of each variant, by name, in the order of seeds.

    Raise ValueError for a name that has no runs.
    """
    runs = json.loads(FILE.read_text(encoding="utf-8"))["runs"]
    known = list(dict.fromkeys(run["name"] for run in runs))
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no runs of {unknown}; expected some of {known}")
    runs.sort(key=lambda run: run["seed"])
    return {n: [run for run in runs if run["name"] == n] for n in names}


def final_losses(*names) -> dict[str, list[float]]:
    """Return by variant the last held-out loss of each seed, in nats.

    It is infinite for a run that ended early: its loss was no number.
    """
    every = json.loads(FILE.read_text(encoding="utf-8"))["about"]["every"]

    def last(run):
        ended = len(run["held_out"]) == run["steps"] // every + 1
        return run["held_out"][-1] if ended else float("inf")

    return {n: [last(run) for run in r] for n, r in read_runs(names).items()}


def print_final(first, *others) -> None:
    """Print each seed's last held-out loss, and its change from `first`.

    The runs of a seed read the same texts, so their change is paired.
    """
    found = final_losses(first, *others)
    width = max(map(len, found))
    print(" " * width, " nats at the end     change, seed by seed")
    for name, losses in found.items():
        each = " ".join(f"{loss:5.2f}" for loss in losses)
        pairs = zip(losses, found[first], strict=True)
        change = " ".join(f"{a - b:+.2f}" for a, b in pairs)
        line = f"{name:{width}}  {each}"
        print(line if name == first else f"{line:{width + 20}}  {change}")


def first_steps(name: str, steps: int = 100, seed: int = 0) -> list[float]:
    """Train the first steps of a variant again, on one thread.

    Returns the loss in training, in means of ten steps, in nats.
    """
    folder = str(ROOT / "data" / "recipe")
    with patch.object(sys, "path", [folder, *sys.path]):
        recipe = importlib.import_module("alternatives")
    threads = torch.get_num_threads()
    try:  # one thread, as in the file: sums in another order round otherwise
        return recipe.run(name, seed, recipe.STEPS, until=steps)["loss"]
    finally:
        torch.set_num_threads(threads)


def training_curves(*names, own=None, top=4.0):
    """Draw variants' loss in training, and their last held-out losses.

    own: losses of `first_steps`. top: the largest loss that is drawn.
    """
    about = json.loads(FILE.read_text(encoding="utf-8"))["about"]
    width = about["mean_of"]
    size = dict(width_ratios=(3, 2))
    fig, (left, right) = panels(0.9 + 0.42 * max(len(names), 5), 2, **size)
    for i, (name, runs) in enumerate(read_runs(names).items()):
        tone = colour(GROUPS[i])
        for run in runs:
            steps = [width * (n + 1) for n in range(len(run["loss"]))]
            left.plot(steps, run["loss"], color=tone, lw=1, alpha=0.8)
        found = final_losses(name)[name]
        right.plot(found, [i] * len(found), "o", color=tone, ms=6)
    if own:
        steps = [width * (n + 1) for n in range(len(own))]
        left.plot(steps, own, "k.", ms=5, label="trained here")
        charts.add_legend(left)
    right.set_yticks(range(len(names)), names)
    right.set_ylim(len(names) - 0.5, -0.5)
    right.xaxis.set_major_locator(MaxNLocator(4))
    right.grid(axis="x", alpha=0.3)
    lowest = min(line.get_ydata().min() for line in left.lines)
    labels = "Loss in training", "step", "nats per token"
    charts.finish(left, *labels, ylim=(0.9 * lowest, top))
    x = "nats per token; each dot is a seed"
    charts.finish(right, "Held-out texts, last step", x)
    return fig
