"""Distill the pocket Llama into three of its layers: data/pocket-draft.

    python data/recipe/distill.py
    python data/recipe/distill.py --labels --draft FOLDER

Three of the pocket's six layers are trained on texts of its generator. Their
targets are the pocket's probabilities, or with --labels the next tokens. It
takes about four minutes on a thread, and writes Meta's format.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import alternatives
import torch
import torch.nn.functional as F
import train

import llamalib
from lessons.texts import held_out_texts, own_documents, pack_rows
from llamalib.load import ROOT

POCKET = ROOT / "data" / "pocket-llama"
DRAFT = ROOT / "data" / "pocket-draft"
KEPT = (0, 2, 5)  # the layers of the pocket that the student begins with
STEPS = 400
BATCH, ROW = 8, 128  # rows in a step, positions in a row
PEAK_LR, WARM_UP = 1e-3, 20


def prune(teacher, kept=KEPT):
    """Return a copy of the model that has only these of its layers."""
    config = replace(teacher.config, n_layers=len(kept))
    student = llamalib.Llama(config, tied=teacher.tied)
    student.load_state_dict(teacher.state_dict(), strict=False)
    for layer, i in zip(student.layers, kept, strict=True):
        layer.load_state_dict(teacher.layers[i].state_dict())
    student.tokenizer = teacher.tokenizer
    return student


def divergence(teacher, student, tokens):
    """Return the mean KL divergence of the teacher, in nats a token.

    It is the cross-entropy with the teacher's probabilities, less their
    entropy.
    """
    with torch.no_grad():
        wanted = teacher(tokens).log_softmax(-1)  # (B, T, V)
    log_p = student(tokens).log_softmax(-1)
    gap = F.kl_div(log_p, wanted, reduction="none", log_target=True)
    return gap.sum(-1).mean()


def loss_on_labels(student, batch):
    """Return the mean loss of the next tokens, in nats."""
    return F.cross_entropy(student(batch[:, :-1]).mT, batch[:, 1:])


def distill(teacher, steps=STEPS, until: int | None = None, labels=False):
    """Train a student on one thread.

    until: stop after this many of the steps; None: after all.
    labels: learn from the next tokens, not from the teacher.

    Returns:
        the student, and what it minimizes, in each step.
    """
    torch.set_num_threads(1)
    n = (until or steps) * BATCH
    texts = own_documents(8 * n + 100, seed="distill 0")
    rows = pack_rows(texts, teacher.tokenizer, n, ROW)
    student = prune(teacher)
    optimizer = train.make_optimizer(student)
    losses = []
    for step, batch in enumerate(rows.split(BATCH)):
        if labels:
            loss = loss_on_labels(student, batch)
        else:
            loss = divergence(teacher, student, batch[:, :-1])
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = train.learning_rate(step, steps, PEAK_LR, WARM_UP)
        optimizer.step()
    return student, losses


@torch.no_grad()
def measure(teacher, student, rows) -> tuple[float, float]:
    """Return the loss and the divergence on rows, a mean over all tokens."""
    n = sum(len(row) - 1 for row in rows)
    gaps = [divergence(teacher, student, row[:-1]) for row in rows]
    gap = sum(g * (len(row) - 1) for g, row in zip(gaps, rows, strict=True))
    return alternatives.held_out_loss(student, rows), gap.item() / n


def loss_of_texts(student) -> float:
    """Return the mean loss of the fifty texts that A and B measure on."""
    losses = [llamalib.text_loss(student, t) for t in held_out_texts(student)]
    return sum(losses) / len(losses)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--steps", type=int, default=STEPS)
    add("--draft", type=Path, default=DRAFT)
    add("--labels", action="store_true", help="learn without a teacher")
    options = parser.parse_args(argv)
    teacher = llamalib.load(POCKET, device="cpu", dtype=torch.float32)
    student, _ = distill(teacher, options.steps, labels=options.labels)
    rows = alternatives.held_out_rows(teacher.tokenizer)
    for name, each in {"teacher": teacher, "student": student}.items():
        loss, gap = measure(teacher, each, rows)
        print(f"{name}: held-out loss {loss:.3f}, divergence {gap:.3f}")
    print(f"{loss_of_texts(student):.3f} nats a token on the fifty texts of A")
    llamalib.save(student.to(torch.bfloat16), options.draft)


if __name__ == "__main__":
    main()
