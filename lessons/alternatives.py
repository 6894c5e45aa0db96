"""Training runs of tiny Llamas that differ in one thing, and their picture.

`data/recipe/alternatives.py` made them; `data/alternatives.json` has them.
"""

import json

from llamalib.load import ROOT

from .charts import finish, mark_x
from .theme import COLOURS, panels

FILE = ROOT / "data" / "alternatives.json"
NAMES = (
    "Llama",
    "no sum",
    "no norm",
    "no norm, embeddings × 50",
    "embeddings × 50",
    "no position",
    "no warm-up",
    "norm after the sum, no warm-up",
)  # appendix A shows these


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


def changes(first, *others, near=0.25):
    """Draw each variant's changes from `first`: all, and those near 0.

    near: the largest change of the right panel, in nats.
    """
    base, *found = final_losses(first, *others).values()
    fig, axes = panels(0.9 + 0.25 * len(others), 2, sharey=True)
    for y, losses in enumerate(found):
        change = [a - b for a, b in zip(losses, base, strict=True)]
        for ax, most in zip(axes, (float("inf"), near), strict=True):
            xs = [x for x in change if x <= most]
            ax.plot(xs, [y] * len(xs), "o", color=COLOURS["query"], ms=5)
    axes[0].set_yticks(range(len(others)), others)
    axes[0].set_ylim(len(others) - 0.5, -0.5)
    for ax in axes:
        mark_x(ax, 0)
        ax.grid(axis="y", alpha=0.3)
    finish(axes[0], "All changes", f"change from {first}, nats")
    x = "change, nats; each dot is a seed"
    return finish(axes[1], f"Up to {near} nats", x, xlim=(-near, near))
