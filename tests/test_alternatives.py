"""Training runs that differ in one thing: each changes it, and goes on."""

import json
import sys

import pytest
import torch

from lessons import alternatives as shipped
from llamalib.load import ROOT
from llamalib.probe import replaced

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import alternatives  # noqa: E402
from alternatives import VARIANTS  # noqa: E402


def logits(name):
    variant = VARIANTS[name]
    tokens = torch.arange(5, 37).view(2, 16)  # (B, T)
    with torch.no_grad(), replaced(**variant.functions):
        return alternatives.build(variant, 64, seed=0)(tokens)


@pytest.mark.parametrize("name", list(VARIANTS)[1:])
def test_a_variant_changes_the_model_or_its_training(name):
    plain = VARIANTS["Llama"]
    found, usual = logits(name), logits("Llama")
    assert found.isfinite().all() and found.shape == usual.shape
    same = torch.equal(found, usual)
    assert same == (name == "no warm-up")
    warm_up = VARIANTS[name].warm_up
    assert (warm_up != plain.warm_up) == ("no warm-up" in name)


def test_a_gate_less_network_has_as_many_parameters():
    gated, plain = (
        alternatives.build(VARIANTS[name], 64, seed=0)
        for name in ("Llama", "no gate")
    )
    counts = [sum(p.numel() for p in m.parameters()) for m in (gated, plain)]
    assert counts[0] == counts[1]


def test_a_run_begins_as_the_shipped_one():
    (first, *_) = shipped.read_runs(["LayerNorm"])["LayerNorm"]
    threads = torch.get_num_threads()
    found = shipped.first_steps("LayerNorm", steps=20)
    assert found == pytest.approx(first["loss"][:2], abs=0.005)
    assert torch.get_num_threads() == threads


def test_every_variant_has_its_runs():
    found = shipped.read_runs(VARIANTS)
    for name, runs in found.items():
        seeds = [run["seed"] for run in runs]
        assert seeds == [0, 1, 2], name
        assert {run["steps"] for run in runs} == {alternatives.STEPS}
        assert all(run["minutes"] <= 5 for run in runs)
    with pytest.raises(ValueError, match="no runs of .'no llama'."):
        shipped.read_runs(["Llama", "no llama"])


def test_a_run_that_ended_early_has_no_last_loss(tmp_path, monkeypatch):
    run = dict(name="a", seed=0, steps=100, loss=[8.0], held_out=[8.1, 7.0])
    whole = run | dict(name="b", held_out=[8.1, 7.0, 6.0])
    found = dict(about=dict(mean_of=10, every=50), runs=[run, whole])
    monkeypatch.setattr(shipped, "FILE", tmp_path / "runs.json")
    shipped.FILE.write_text(json.dumps(found), encoding="utf-8")
    losses = shipped.final_losses("a", "b")
    assert losses == {"a": [float("inf")], "b": [6.0]}
    assert shipped.training_curves("a", "b", own=[8.0])


def test_runs_are_kept_and_not_repeated(tmp_path, capsys):
    file = tmp_path / "alternatives.json"
    how = ["--seeds", "0", "--steps", "2", "--processes", "1"]
    how += ["--file", str(file), "--only"]
    alternatives.main([*how, "no mask"])
    (first,) = json.loads(file.read_text(encoding="utf-8"))["runs"]
    assert len(first["loss"]) == 1 and first["held_out"][0] > 8  # ln 3,328
    # with the mask it has not seen what it must predict
    assert first["held_out_masked"] != first["held_out"][-1]
    alternatives.main([*how, "no mask", "Llama"])
    again = json.loads(file.read_text(encoding="utf-8"))["runs"]
    assert [each["name"] for each in again] == ["no mask", "Llama"]
    assert again[0] == first
