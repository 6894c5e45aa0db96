"""Three of the pocket's layers, trained on labels and on its probabilities."""

import json
import sys

import pytest
import torch
import torch.nn.functional as F

import llamalib
from llamalib.load import ROOT

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import alternatives  # noqa: E402
import distill  # noqa: E402

SHIPPED = json.loads(distill.FILE.read_text(encoding="utf-8"))
TOKENS = torch.arange(5, 37).view(2, 16)  # (B, T + 1)


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


def test_the_losses(teacher):
    student = distill.prune(teacher)
    found = distill.loss_on("labels", teacher, student, TOKENS)
    z, labels = student(TOKENS[:, :-1]), TOKENS[:, 1:]
    expected = -z.log_softmax(-1).gather(-1, labels[..., None]).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)

    q = teacher(TOKENS[:, :-1]).softmax(-1)
    expected = (q * (q.log() - z.log_softmax(-1))).sum(-1).mean()
    found = distill.loss_on("teacher", teacher, student, TOKENS)
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    # the slope in the logits is p - q, the teacher gets none
    found.backward()
    assert student.norm.weight.grad.any() and teacher.norm.weight.grad is None
    itself = distill.loss_on("teacher", teacher, teacher, TOKENS)
    assert abs(itself.item()) < 1e-5 < found.item()


def test_what_is_measured(teacher):
    rows = [row for row in TOKENS]
    loss, gap = distill.measure(teacher, teacher, rows)
    expected = F.cross_entropy(
        teacher(TOKENS[:, :-1]).flatten(0, 1), TOKENS[:, 1:].flatten()
    )
    assert loss == pytest.approx(expected.item(), abs=1e-3) and abs(gap) < 1e-4
    _, other = distill.measure(teacher, distill.prune(teacher), rows)
    assert other > 0.1


def shipped_run(*kind):
    """Return the shipped run of a target, a seed and a number of steps."""
    (found,) = (
        run
        for run in SHIPPED["runs"]
        if (run["target"], run["seed"], run["steps"]) == kind
    )
    return found


@pytest.mark.parametrize("target, steps", distill.RUNS)
def test_a_run_begins_as_the_shipped_one(target, steps):
    shipped = shipped_run(target, 0, steps)
    threads = torch.get_num_threads()
    try:
        _, found = distill.run(target, 0, steps, until=10)
    finally:
        torch.set_num_threads(threads)
    assert found["loss"] == pytest.approx(shipped["loss"][:1], abs=0.005)
    assert found["held_out"] == pytest.approx(shipped["held_out"][:1])
    assert found["divergence"] == pytest.approx(shipped["divergence"][:1])


def test_every_run_is_there():
    found = [(r["target"], r["steps"], r["seed"]) for r in SHIPPED["runs"]]
    expected = [(*kind, s) for kind in distill.RUNS for s in distill.SEEDS]
    assert sorted(found) == sorted(expected)
    about = SHIPPED["about"]
    assert tuple(about["kept"]) == distill.KEPT
    assert (about["batch"], about["row"]) == (distill.BATCH, distill.ROW)
    assert (about["every"], about["mean_of"]) == (50, 10)
    for run in SHIPPED["runs"]:
        assert run["minutes"] <= 10
        assert len(run["loss"]) == run["steps"] // about["mean_of"]
        points = run["steps"] // about["every"] + 1
        assert len(run["held_out"]) == len(run["divergence"]) == points


def test_the_recipe_adds_what_is_missing(tmp_path, monkeypatch, teacher):
    file, draft = tmp_path / "distilled.json", tmp_path / "draft"
    monkeypatch.setattr(distill, "SEEDS", (0,))
    monkeypatch.setattr(distill, "STEPS", 2)
    found = []
    for kinds in ([("labels", 2)], [("labels", 2), ("teacher", 2)]):
        monkeypatch.setattr(distill, "RUNS", kinds)
        assert not draft.exists()
        distill.main(["--file", str(file), "--draft", str(draft)])
        found.append(json.loads(file.read_text(encoding="utf-8")))
    first, both = found
    assert first["about"] == both["about"] == SHIPPED["about"]
    assert both["runs"][0] == first["runs"][0]  # not a second time
    assert [(run["target"], run["steps"]) for run in both["runs"]] == kinds
    student = llamalib.load(draft, device="cpu", dtype=torch.float32)
    before = logits(distill.prune(teacher))
    assert student.config.n_layers == 3
    assert not torch.allclose(logits(student), before, atol=1e-2)


def test_the_draft_is_the_first_seeds_student(teacher):
    draft = llamalib.load(distill.DRAFT, device="cpu", dtype=torch.float32)
    assert draft.config.n_layers == 3 and draft.tied
    assert draft.tokenizer.ranks == teacher.tokenizer.ranks
    run = shipped_run("teacher", 0, distill.STEPS)
    held_out = alternatives.held_out_rows(teacher.tokenizer)
    loss, gap = distill.measure(teacher, draft, held_out)
    # its file is bfloat16
    assert loss == pytest.approx(run["held_out"][-1], abs=0.005)
    assert gap == pytest.approx(run["divergence"][-1], abs=0.005)
