"""Three of the pocket's layers, trained on its probabilities."""

import sys

import pytest
import torch

import llamalib
from llamalib.load import ROOT

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import alternatives  # noqa: E402
import distill  # noqa: E402

TOKENS = torch.arange(5, 37).view(2, 16)  # (B, T)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Learn from batches of two rows; measure on few texts."""
    rows, texts = alternatives.held_out_rows, distill.held_out_texts
    monkeypatch.setattr(distill, "BATCH", 2)
    monkeypatch.setattr(alternatives, "held_out_rows", lambda t: rows(t)[:12])
    monkeypatch.setattr(distill, "held_out_texts", lambda m: texts(m)[:3])


@pytest.fixture(scope="module")
def teacher():
    return llamalib.load(distill.POCKET, device="cpu", dtype=torch.float32)


def logits(llama):
    with torch.no_grad():
        return llama(TOKENS)


def test_a_student_has_the_kept_layers(teacher):
    whole = distill.prune(teacher, range(len(teacher.layers)))
    assert torch.equal(logits(whole), logits(teacher))
    student = distill.prune(teacher)
    assert student.config.n_layers == len(student.layers) == 3
    for layer, i in zip(student.layers, distill.KEPT, strict=True):
        wo = teacher.layers[i].attention.wo.weight
        assert torch.equal(layer.attention.wo.weight, wo)
    assert student.tied and student.output.weight is not teacher.output.weight
    with torch.no_grad():  # a copy: the teacher stays
        student.layers[0].attention.wo.weight.zero_()
    assert teacher.layers[0].attention.wo.weight.any()


def test_the_divergence(teacher):
    """Its slope in the logits is p - q, and the teacher gets none."""
    student = distill.prune(teacher)
    found = distill.divergence(teacher, student, TOKENS)
    z, q = student(TOKENS), teacher(TOKENS).softmax(-1)
    expected = (q * (q.log() - z.log_softmax(-1))).sum(-1).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    found.backward()
    assert student.norm.weight.grad.any() and teacher.norm.weight.grad is None
    by_hand = (z.softmax(-1) - q) / z[..., 0].numel()
    (slope,) = torch.autograd.grad(expected, z)
    assert torch.allclose(slope, by_hand.detach(), atol=1e-6)
    itself = distill.divergence(teacher, teacher, TOKENS)
    assert abs(itself.item()) < 1e-5 < found.item()


def test_a_run_comes_nearer_to_the_teacher(teacher):
    threads = torch.get_num_threads()
    try:
        student, losses = distill.distill(teacher, until=12)
    finally:
        torch.set_num_threads(threads)
    assert len(losses) == 12 and losses[-1] < losses[0] - 0.2
    assert student.config.n_layers == 3


def test_a_run_on_labels_has_no_teacher(teacher):
    """It starts at the loss of the pruned model, not at its divergence."""
    threads = torch.get_num_threads()
    try:
        student, losses = distill.distill(teacher, until=12, labels=True)
    finally:
        torch.set_num_threads(threads)
    assert losses[0] > 2 and losses[-1] < losses[0] - 0.5
    assert student.config.n_layers == 3
    pruned, batch = distill.prune(teacher), TOKENS.view(2, -1)
    log_p = pruned(batch[:, :-1]).log_softmax(-1)
    by_hand = -log_p.gather(-1, batch[:, 1:, None]).mean()
    found = distill.loss_on_labels(pruned, batch)
    assert found.item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_the_recipe_writes_a_draft(tmp_path, teacher):
    threads = torch.get_num_threads()
    try:
        distill.main(["--steps", "2", "--draft", str(tmp_path / "draft")])
    finally:
        torch.set_num_threads(threads)
    student = llamalib.load(tmp_path / "draft", device="cpu")
    before = logits(distill.prune(teacher))
    assert student.config.n_layers == 3
    assert not torch.allclose(logits(student), before, atol=1e-2)


def test_the_shipped_draft_is_near_the_teacher(teacher):
    draft = llamalib.load(distill.DRAFT, device="cpu", dtype=torch.float32)
    assert draft.config.n_layers == 3 and draft.tied
    assert draft.tokenizer.ranks == teacher.tokenizer.ranks
    rows = alternatives.held_out_rows(teacher.tokenizer)
    loss, gap = distill.measure(teacher, draft, rows)
    best, none = distill.measure(teacher, teacher, rows)
    assert abs(none) < 1e-5 and abs(loss - best) < 0.1 and 0.01 < gap < 0.06
    pruned, far = distill.measure(teacher, distill.prune(teacher), rows)
    assert pruned > best + 1 and far > 1
