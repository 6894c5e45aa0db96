"""Distill the pocket Llama into three of its layers, and train on labels.

    python data/recipe/distill.py            # all runs that are missing

A run keeps three of the pocket's six layers and trains them on texts of its
generator: on the labels, or on the pocket's probabilities. There the pocket
runs too, so a step takes longer; shorter runs of this kind last as long as
those on labels. Two run at once, on a thread each. Every finished run is
added to data/distilled.json, so the same command continues. The first
distilled model of 400 steps is written to data/pocket-draft, in Meta's format.
"""

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import alternatives
import torch
import torch.nn.functional as F
import train

import llamalib
from lessons.texts import own_documents, pack_rows
from llamalib.load import ROOT

POCKET = ROOT / "data" / "pocket-llama"
DRAFT = ROOT / "data" / "pocket-draft"
FILE = ROOT / "data" / "distilled.json"
KEPT = (0, 2, 5)  # the layers of the pocket that a student begins with
SEEDS, STEPS = (0, 1, 2), 400
RUNS = ("labels", STEPS), ("teacher", STEPS), ("teacher", 250)
BATCH, ROW = 8, 128  # rows in a step, positions in a row
PEAK_LR, WARM_UP = 1e-3, 20
EVERY = 50  # steps from one measurement on held-out texts to the next
MEAN_OF = 10  # steps in each number of the curve of training


def prune(teacher, kept=KEPT):
    """Return a copy of the model that has only these of its layers."""
    config = replace(teacher.config, n_layers=len(kept))
    student = llamalib.Llama(config, tied=teacher.tied)
    student.load_state_dict(teacher.state_dict(), strict=False)
    for layer, i in zip(student.layers, kept, strict=True):
        layer.load_state_dict(teacher.layers[i].state_dict())
    student.tokenizer = teacher.tokenizer
    return student


def loss_on(target, teacher, student, batch):
    """Return the mean loss on the labels or the teacher, in nats a token.

    batch: (B, T + 1) ids. A teacher's loss is the cross-entropy with its
    probabilities, less their entropy: the divergence.
    """
    logits = student(batch[:, :-1])  # (B, T, V)
    if target == "labels":
        return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    with torch.no_grad():
        wanted = teacher(batch[:, :-1]).log_softmax(-1)  # (B, T, V)
    gap = F.kl_div(
        logits.log_softmax(-1), wanted, reduction="none", log_target=True
    )
    return gap.sum(-1).mean()


@torch.no_grad()
def measure(teacher, student, rows) -> tuple[float, float]:
    """Return the loss and the divergence from the teacher on texts."""
    loss = divergence = n = 0
    for row in rows:
        log_p = student(row[:-1]).log_softmax(-1)  # (T, V)
        wanted = teacher(row[:-1]).log_softmax(-1)  # (T, V)
        loss += F.nll_loss(log_p, row[1:], reduction="sum").item()
        divergence += F.kl_div(
            log_p, wanted, reduction="sum", log_target=True
        ).item()
        n += len(row) - 1
    return round(loss / n, 4), round(divergence / n, 4)


def run(target: str, seed: int, steps: int, until: int | None = None):
    """Train one student.

    until: stop after this many of the steps; None: after all.

    Returns:
        the student, and its curves as distilled.json has them.
    """
    torch.set_num_threads(1)
    start = time.process_time()
    teacher = llamalib.load(POCKET, device="cpu", dtype=torch.float32)
    tokenizer = teacher.tokenizer
    n = (until or steps) * BATCH
    texts = own_documents(8 * n + 100, seed=f"distill {seed}")
    rows = pack_rows(texts, tokenizer, n, ROW)
    held_out = alternatives.held_out_rows(tokenizer)
    student = prune(teacher)
    optimizer = train.make_optimizer(student)
    losses, at = [], [measure(teacher, student, held_out)]
    for step, batch in enumerate(rows.split(BATCH)):
        loss = loss_on(target, teacher, student, batch)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = train.learning_rate(step, steps, PEAK_LR, WARM_UP)
        optimizer.step()
        if (step + 1) % EVERY == 0:
            at.append(measure(teacher, student, held_out))
    minutes = (time.process_time() - start) / 60  # of this thread alone
    found = dict(target=target, seed=seed, steps=steps)
    found["loss"] = [
        round(statistics.fmean(losses[i : i + MEAN_OF]), 4)
        for i in range(0, len(losses), MEAN_OF)
    ]
    found["held_out"] = [loss for loss, _ in at]
    found["divergence"] = [gap for _, gap in at]
    return student, found | dict(minutes=round(minutes, 1))


def job(arguments: tuple) -> dict:
    """Do a run; write its student into the folder, if there is one."""
    *settings, folder = arguments
    student, found = run(*settings)
    if folder:
        llamalib.save(student.to(torch.bfloat16), folder)
    return found


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--file", type=Path, default=FILE)
    add("--draft", type=Path, default=DRAFT)
    options = parser.parse_args(argv)
    about = dict(kept=KEPT, mean_of=MEAN_OF, every=EVERY, batch=BATCH)
    about |= dict(row=ROW, peak_lr=PEAK_LR, warm_up=WARM_UP)
    found = alternatives.read(options.file, **about)
    done = [(r["target"], r["seed"], r["steps"]) for r in found["runs"]]
    todo = [
        (target, seed, steps, options.draft if is_draft else None)
        for seed in SEEDS
        for target, steps in RUNS
        if (target, seed, steps) not in done
        for is_draft in [(target, seed, steps) == ("teacher", SEEDS[0], STEPS)]
    ]
    for made in alternatives.add_runs(options.file, found, job, todo):
        last = made["held_out"][-1], made["divergence"][-1]
        kind = made["target"], made["seed"], made["steps"]
        print(*kind, *last, flush=True)


if __name__ == "__main__":
    main()
