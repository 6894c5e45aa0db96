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
    try:  # one thread, as in the file: sums in another order round otherwise
        found = alternatives.run("LayerNorm", 0, alternatives.STEPS, until=10)
    finally:
        torch.set_num_threads(threads)
    assert found["loss"] == pytest.approx(first["loss"][:1], abs=0.005)


def test_enlarged_embeddings_enter_the_first_block_with_an_rms_of_1():
    variant = VARIANTS["no norm, embeddings × 50"]
    llama = alternatives.build(variant, 64, seed=0)
    plain = alternatives.build(VARIANTS["Llama"], 64, seed=0)
    x = llama.tok_embeddings(torch.arange(64))  # (V, D)
    assert x.pow(2).mean().sqrt().item() == pytest.approx(1, abs=0.02)
    # the output matrix keeps its size, and the norms return what they get
    assert torch.equal(llama.output.weight, plain.output.weight)
    with replaced(**variant.functions):
        assert torch.equal(llama.norm(x), x)


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
    assert shipped.changes("b", "a")


def test_runs_are_kept_and_not_repeated(tmp_path, capsys):
    file = tmp_path / "alternatives.json"
    how = ["--seeds", "0", "--steps", "2", "--processes", "1"]
    how += ["--file", str(file), "--only"]
    first = dict(name="no gate", seed=0)
    file.write_text(json.dumps(dict(about={}, machine={}, runs=[first])))
    alternatives.main([*how, "no gate", "Llama"])
    kept, made = json.loads(file.read_text(encoding="utf-8"))["runs"]
    assert kept == first and made["name"] == "Llama"
    assert len(made["loss"]) == 1 and made["held_out"][0] > 8  # ln 3,328
