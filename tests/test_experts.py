"""The functions of appendix C: experts, router, balance, capacity."""

import json
import sys

import pytest
import torch

from lessons import nC_mixture_of_experts as lesson_C
from llamalib import ModelArgs, record, replaced
from llamalib.load import ROOT
from tests.helpers import random_llama
from tests.taught import namespace, taught

sys.path.insert(0, str(ROOT / "data" / "recipe"))

import experts as recipe  # noqa: E402

NOTEBOOK = "C_mixture_of_experts"
split_experts, route = taught(NOTEBOOK, "split_experts", "route")
feed_forward, mixture_feed_forward = taught(
    NOTEBOOK, "feed_forward", "mixture_feed_forward"
)
mixture_parameters, balance_loss = taught(
    NOTEBOOK, "mixture_parameters", "balance_loss"
)

D, HIDDEN, E = 12, 24, 4


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def network(seed=0):
    """w1, w2, w3 of one feed-forward network."""
    shapes = (HIDDEN, D), (D, HIDDEN), (HIDDEN, D)
    return tuple(draw(*s, seed=seed + i) for i, s in enumerate(shapes))


def experts(seed=0):
    """w1, w2, w3 of E experts that are all different."""
    each = [network(seed + 10 * e) for e in range(E)]
    return [torch.stack(weights) for weights in zip(*each)]


# -- the router ---------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, E])
def test_weights_sum_to_1_in_any_shape(k):
    weights, chosen, logits = route(draw(2, 5, D), draw(E, D, seed=3), k)
    assert weights.shape == chosen.shape == (2, 5, k)
    assert logits.shape == (2, 5, E)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 5))
    assert (weights.diff(dim=-1) <= 0).all()


def test_router_computes_in_float32_and_casts_back():
    weights, _, logits = route(draw(3, D).bfloat16(), draw(E, D).bfloat16(), 2)
    assert weights.dtype == torch.bfloat16 and logits.dtype == torch.float32


# -- the mixture --------------------------------------------------------------


def test_each_expert_is_run_once_on_its_tokens_alone(monkeypatch):
    runs = []

    def noting(x, w1, w2, w3):
        runs.append(len(x))
        return feed_forward(x, w1, w2, w3)

    monkeypatch.setitem(namespace(NOTEBOOK), "feed_forward", noting)
    x, router = draw(3, D), draw(E, D, seed=5)
    _, chosen, _ = route(x, router, 1)
    mixture_feed_forward(x, router, *experts(), 1)
    counts = torch.bincount(chosen.flatten(), minlength=E)
    assert runs == [n for n in counts.tolist() if n] and len(runs) < E


def test_against_transformers():
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import (
        MixtralSparseMoeBlock,
        load_balancing_loss_func,
    )

    config = MixtralConfig(
        hidden_size=D,
        intermediate_size=HIDDEN,
        num_local_experts=E,
        num_experts_per_tok=2,
    )
    block = MixtralSparseMoeBlock(config).eval()
    w1, w2, w3 = experts()
    router, x = draw(E, D, seed=5), draw(1, 9, D)
    with torch.no_grad():
        block.gate.weight.copy_(router)
        block.experts.gate_up_proj.copy_(torch.cat([w1, w3], dim=1))
        block.experts.down_proj.copy_(w2)
        theirs = block(x)
    ours = mixture_feed_forward(x, router, w1, w2, w3, 2)
    assert torch.allclose(ours, theirs, atol=1e-4)
    alone = mixture_feed_forward(x[0, 0], router, w1, w2, w3, 2)
    assert alone.shape == (D,)
    assert torch.allclose(alone, theirs[0, 0], atol=1e-4)

    _, chosen, logits = route(x[0], router, 2)
    theirs = load_balancing_loss_func((logits,), E, 2)
    assert torch.allclose(2 * balance_loss(logits, chosen), theirs)

    # of two layers: over the tokens of both together
    other = draw(9, E, seed=7)
    both = torch.stack([logits, other])  # (2, 9, E)
    theirs = load_balancing_loss_func((logits, other), E, 2)
    ours = balance_loss(both, both.topk(2).indices)
    assert torch.allclose(2 * ours, theirs)


# -- upcycling ----------------------------------------------------------------


def test_pieces_sum_to_the_network():
    x, whole = draw(9, D), network()
    pieces = split_experts(*whole, E)
    total = sum(feed_forward(x, *each) for each in zip(*pieces))
    expected = feed_forward(x, *whole)
    assert torch.allclose(total, expected, rtol=1e-3, atol=1e-3)
    w1, w2, w3 = pieces  # equal weights 1/E undo the E
    y = mixture_feed_forward(x, torch.zeros(E, D), w1, E * w2, w3, E)
    assert torch.allclose(y, expected, rtol=1e-3, atol=1e-3)


def test_in_place_of_feed_forward():
    """Copies change no logit, in the place of every network."""
    llama, ids = random_llama(), torch.arange(9)
    router, runs = draw(E, llama.config.dim), []

    def upcycled(self, x):
        runs.append(self)
        matrices = self.w1.weight, self.w2.weight, self.w3.weight
        copies = (each.expand(E, -1, -1) for each in matrices)
        return mixture_feed_forward(x, router, *copies, 2)

    before = llama(ids)
    with replaced(**{"FeedForward.forward": upcycled}):
        after = llama(ids)
    assert runs == [layer.feed_forward for layer in llama.layers]
    assert torch.allclose(before, after, atol=1e-3)
    assert torch.equal(llama(ids), before)


@pytest.mark.parametrize(
    "router, top_k, apart", [(torch.zeros(E, D), E, False), (None, 2, True)]
)
def test_equal_experts_stay_equal_unless_they_read_different_tokens(
    router, top_k, apart
):
    equal = [weight.repeat(E, 1, 1) for weight in network()]
    equal[0].requires_grad_()
    x = draw(9, D, seed=3)
    router = draw(E, D, seed=5) if router is None else router
    y = mixture_feed_forward(x, router, *equal, top_k)
    (y - draw(9, D, seed=7)).square().sum().backward()
    grad = equal[0].grad  # (E, HIDDEN, D)
    rest = (grad - grad.mean(dim=0)).norm() / grad.norm()
    assert rest > 0.3 if apart else rest < 1e-5


# -- how many parameters ------------------------------------------------------

MIXTRAL = ModelArgs(
    dim=4096,
    n_layers=32,
    n_heads=32,
    n_kv_heads=8,
    vocab_size=32000,
    multiple_of=1024,
    ffn_dim_multiplier=1.3,
    norm_eps=1e-5,
    rope_theta=1e6,
)


def test_mixtrals_parameters_are_transformers():
    from transformers import MixtralConfig, MixtralForCausalLM

    with torch.device("meta"):
        theirs = MixtralForCausalLM(
            MixtralConfig(
                vocab_size=32000,
                hidden_size=4096,
                intermediate_size=14336,
                num_hidden_layers=32,
                num_attention_heads=32,
                num_key_value_heads=8,
                num_local_experts=8,
                tie_word_embeddings=False,
            )
        )
    total, active = mixture_parameters(MIXTRAL, 8, 2, tied=False)
    assert total == sum(p.numel() for p in theirs.parameters())
    assert round(total / 1e9, 1) == 46.7 and round(active / 1e9, 1) == 12.9


# -- the balancing loss -------------------------------------------------------


def test_the_balancing_loss_has_its_ends():
    picks = torch.arange(2 * E).view(-1, 2) % E  # each expert as often
    assert balance_loss(torch.zeros(E, E), picks) == pytest.approx(1)
    logits = torch.tensor([[50.0, 50, 0, 0]]).expand(E, E)
    same = torch.tensor([[0, 1]]).expand(E, 2)  # and all are certain
    assert balance_loss(logits, same) == pytest.approx(E / 2)
    g = torch.Generator().manual_seed(0)
    P = torch.rand(1000, E, generator=g).softmax(-1)  # where f = P
    assert (E * P.square().sum(-1)).min() >= 1


# -- the longer training ------------------------------------------------------


@pytest.fixture(scope="module")
def lesson():
    """Return the notebook's names before its training."""
    return recipe.notebook()


def test_each_longer_run_is_there_once():
    for student, rate in recipe.BEST.items():
        found = lesson_C.runs_of(f"{student} in every block")
        assert list(found) == [rate]
        assert [run["seed"] for run in found[rate]] == list(recipe.SEEDS)
    for student, (rates, seeds) in recipe.PLAN.items():
        found = lesson_C.runs_of(student)
        assert list(found) == list(rates)
        for runs in found.values():
            assert sorted(run["seed"] for run in runs) == list(seeds)
            for run in runs:
                assert sum(run["shares"]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("student", recipe.PLAN)
def test_a_student_of_the_longer_runs(lesson, student):
    before = recipe.begin(lesson, student, seed=1)
    router, w1, w2, w3 = before
    n = 2 if student == "narrow network" else 8
    assert len(router) == len(w1) == len(w2) == len(w3) == n
    assert w1.shape[1] * 8 == lesson["config"].hidden_dim
    at = lesson["held"]
    error = lesson["loss_of"](before, at).item()
    x = lesson["inputs"][at]
    _, chosen, _ = route(x, router, 2)
    led = (chosen < 2).float().mean()
    assert led == 1 if student == "narrow network" else led < 0.5
    made = recipe.run(lesson, student, 0.04, seed=1, steps=5)
    assert made["student"] == student and made["error"] < error
    _, chosen, _ = route(x, before[0].detach(), 2)
    counts = torch.bincount(chosen.flatten(), minlength=n)
    shares = (counts / counts.sum()).tolist()
    assert made["shares"] != [] and len(made["shares"]) == n
    if student in ("narrow network", "fixed router"):  # it does not move
        assert made["shares"] == pytest.approx(shares, abs=1e-3)


def test_a_narrow_network_keeps_its_choice(lesson):
    c = dict(lesson)
    seen = []

    def noting(weights, **settings):
        found = lesson["train"](weights, **settings)
        seen.append(weights[0])
        return found

    c["train"] = noting
    recipe.run(c, "narrow network", 0.04, seed=0, steps=2)
    recipe.run(c, "mixture", 0.04, seed=0, steps=2)
    assert not seen[0].any()
    fresh, *_ = recipe.begin(c, "mixture", 0)
    assert not torch.equal(seen[1], fresh)


def test_a_fixed_router_stays(lesson, monkeypatch):
    before, train, seen = lesson["route"], lesson["train"], []

    def noting(weights, **settings):
        seen.append(weights)
        return train(weights, **settings)

    monkeypatch.setitem(lesson, "train", noting)
    recipe.run(lesson, "fixed router", 0.04, seed=0, steps=2)
    router, w1, *_ = recipe.begin(lesson, "fixed router", 0)
    assert torch.equal(seen[0][0], router)
    assert not torch.equal(seen[0][1], w1)
    assert lesson["route"] is before


def test_the_recipe_adds_what_is_missing(lesson, tmp_path, monkeypatch):
    file = tmp_path / "experts.json"
    monkeypatch.setattr(recipe, "notebook", lambda: lesson)
    how = ["--steps", "2", "--file", str(file)]
    found = []
    for students in (("mixture",), ("mixture", "fixed router")):
        plan = dict.fromkeys(students, ((0.04,), (0,)))
        monkeypatch.setattr(recipe, "PLAN", plan)
        monkeypatch.setattr(recipe, "BEST", {})
        recipe.main(how)
        found.append(json.loads(file.read_text(encoding="utf-8")))
    first, both = found
    assert first["about"] == both["about"] == dict(steps=2)
    assert both["runs"][0] == first["runs"][0]  # not a second time
    assert [run["student"] for run in both["runs"]] == list(students)


def test_students_in_every_block(lesson, monkeypatch):
    """Each block's student imitates its own network, and is in its place."""
    names = "ffn", "pieces", "inputs", "targets", "spread"
    before, seen = {name: lesson[name] for name in names}, []
    pocket = lesson["llama"]

    def exact(c, student, rate, seed, steps):  # w2 undoes the weights 1/8
        seen.append((c["ffn"], c["targets"], c["inputs"]))
        w1, w2, w3 = c["pieces"]
        return [torch.zeros(8, w1.shape[-1]), w1, 8 * w2, w3], 0.0

    monkeypatch.setattr(recipe, "trained", exact)
    monkeypatch.setitem(lesson, "k", 8)
    rows = lesson["rows"][:6]
    monkeypatch.setitem(lesson, "rows", rows)
    monkeypatch.setitem(lesson, "held", lesson["held"][: rows.numel()])
    some = lesson_C.asked_countries(pocket)[:12]
    monkeypatch.setattr(lesson_C, "asked_countries", lambda llama: some)
    found = recipe.run_everywhere(lesson, "mixture", 0)
    assert found["student"] == "mixture in every block"
    assert found["capitals"] == 12
    for i, (name, targets, inputs) in enumerate(seen):
        assert name == f"layers.{i}.feed_forward"
        found = pocket.layers[i].feed_forward(inputs)
        assert torch.equal(found, targets)
    assert len(seen) == len(pocket.layers)
    assert all(lesson[name] is before[name] for name in names)


def test_a_balanced_student_is_trained_with_the_loss(lesson, monkeypatch):
    seen = []

    def noting(logits, chosen):
        seen.append(logits.shape)
        return balance_loss(logits, chosen)

    monkeypatch.setitem(lesson, "balance_loss", noting)
    for student in ("mixture", "balanced mixture"):
        recipe.run(lesson, student, 0.04, seed=0, steps=3)
    assert seen == [(256, 8)] * 3


# -- what the pictures and lines say of the runs ------------------------------


def test_idle_experts_are_counted():
    run = dict(shares=[0.5, 0.4902, 0.0098, 0.0])
    assert lesson_C.idle(run) == 2


def test_all_groups_of_neurons_are_the_network():
    llama, ids = random_llama(), torch.arange(9)
    before = llama(ids)

    def size(outs):
        return outs.norm(dim=-1)

    def first(outs):  # the largest is the first group
        return -torch.arange(outs.shape[-2]).expand(outs.shape[:-1])

    every = lesson_C.some_groups(8, 8, size)
    with replaced(**{"FeedForward.forward": every}):
        assert torch.allclose(llama(ids), before, atol=1e-3)
    network = llama.layers[0].feed_forward
    x = draw(5, llama.config.dim)
    matrices = network.w1.weight, network.w2.weight, network.w3.weight
    pieces = split_experts(*matrices, 8)
    alone = feed_forward(x, *(each[0] for each in pieces))
    found = lesson_C.some_groups(8, 1, first)(network, x)
    assert torch.allclose(found, alone, atol=1e-4)
    found = lesson_C.some_groups(8, 1, first, 4)(network, x)
    assert torch.allclose(found, 4 * alone, atol=1e-4)


# -- groups of neurons that a matrix chooses ----------------------------------


def lengths_of(network, x, n):
    """Return the lengths of what n groups compute for x (T, D), (T, n)."""
    matrices = network.w1.weight, network.w2.weight, network.w3.weight
    pieces = split_experts(*matrices, n)
    outs = [feed_forward(x, *each) for each in zip(*pieces)]
    return torch.stack([out.norm(dim=-1) for out in outs], dim=-1)


def test_lengths_are_fitted_by_least_squares():
    """No other matrix has smaller errors: they are orthogonal to inputs."""
    llama = random_llama()
    rows = torch.randint(llama.config.vocab_size, (6, 40))
    fits, seen = lesson_C.fit_lengths(llama, rows, 4), record(llama, rows)
    assert list(fits) == [layer.feed_forward for layer in llama.layers]
    for i, (network, (matrix, means)) in enumerate(fits.items()):
        x = seen[f"layers.{i}.feed_forward.in"].flatten(0, 1)  # (240, D)
        lengths = lengths_of(network, x, 4)  # (240, 4)
        left = x.T @ (x @ matrix - lengths)  # (D, 4)
        assert left.norm() < 1e-3 * (x.T @ lengths).norm()
        assert torch.allclose(means, lengths.mean(0), rtol=1e-3)


def test_a_guess_of_all_groups_is_the_model(pocket, monkeypatch, capsys):
    """Then with two groups each way chooses what its name says."""
    some = lesson_C.asked_countries(pocket)[:12]
    monkeypatch.setattr(lesson_C, "asked_countries", lambda llama: some)
    rows = torch.randint(pocket.config.vocab_size, (4, 16))
    monkeypatch.setattr(lesson_C, "TIMES", dict.fromkeys(lesson_C.TIMES, 1))
    lesson_C.print_guessed(pocket, rows, 8, 8)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[-3:] for line in said] == 2 * [["12", "of", "12"]]

    n, fits = 8, {}
    for layer in pocket.layers:  # the matrix takes 0 and 1, the means 6 and 7
        matrix = torch.zeros(pocket.config.dim, n)
        matrix[0, 0], matrix[0, 1] = 1, 1
        fits[layer.feed_forward] = matrix, torch.arange(n).float()
    seen = []

    def noting(n, k, score, times):
        def forward(self, x):
            seen.append(score(torch.zeros(*x.shape[:-1], n, 1)).topk(k)[1])
            return x

        return forward

    monkeypatch.setattr(lesson_C, "fit_lengths", lambda *_: fits)
    monkeypatch.setattr(lesson_C, "some_groups", noting)
    lesson_C.print_guessed(pocket, rows, n, 2)
    guessed, same = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert all(set(each.unique().tolist()) <= {6, 7} for each in same)
    assert not any(set(each.unique().tolist()) <= {6, 7} for each in guessed)


def test_a_large_model_is_asked_about_few_countries():
    large = torch.nn.Linear(10**4, 10**4 + 1, device="meta")
    assert {c["country"][0] for c in lesson_C.asked_countries(large)} == {"F"}
    assert len(lesson_C.asked_countries(torch.nn.Linear(2, 2))) == 172
