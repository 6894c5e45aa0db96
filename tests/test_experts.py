import math

import pytest
import torch
import torch.nn.functional as F
from helpers import random_llama, small_config

import llamalib.experts
from llamalib import ModelArgs
from llamalib.experiment import replaced
from llamalib.experts import (
    balance_loss,
    copy_experts,
    experts_read,
    mixture_feed_forward,
    mixture_parameters,
    route,
    split_experts,
    within_capacity,
)
from llamalib.swiglu import feed_forward

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


def test_route_by_hand():
    router = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    x = torch.tensor([[2.0, 1.0], [-1.0, 3.0]])
    weights, chosen, logits = route(x, router, 2)
    assert logits.tolist() == [[2, 1, 3], [-1, 3, 2]]
    assert chosen.tolist() == [[2, 0], [1, 2]]
    sure = 1 / (1 + math.exp(-1))  # softmax of two logits 1 apart
    assert weights[0].tolist() == pytest.approx([sure, 1 - sure])
    assert weights[1].tolist() == pytest.approx([sure, 1 - sure])


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


@pytest.mark.parametrize("k", [0, E + 1, -1])
def test_a_wrong_top_k_is_named(k):
    said = f"top_k is {k}; wanted 1 to {E}"
    with pytest.raises(ValueError, match=said):
        route(draw(3, D), draw(E, D), k)
    with pytest.raises(ValueError, match=said):
        mixture_feed_forward(draw(3, D), draw(E, D), *experts(), k)
    with pytest.raises(ValueError, match=said):
        mixture_parameters(small_config(), E, k)
    with pytest.raises(ValueError, match=said):
        experts_read(E, k, 1)


# -- the mixture --------------------------------------------------------------


def naive(x, router, w1, w2, w3, k):
    y = torch.zeros_like(x)
    for t, u in enumerate(x):
        logits = router @ u
        best = logits.topk(k).indices
        for g, e in zip(logits[best].softmax(-1), best):
            gate = F.silu(w1[e] @ u)
            y[t] += g * (w2[e] @ (gate * (w3[e] @ u)))
    return y


@pytest.mark.parametrize("k", [1, 2, 3, E])
def test_mixture_is_the_naive_one(k):
    x, router = draw(7, D), draw(E, D, seed=5)
    y = mixture_feed_forward(x, router, *experts(), k)
    assert torch.allclose(y, naive(x, router, *experts(), k), atol=1e-4)


def test_mixture_of_any_leading_dimensions():
    x, router = draw(2, 3, 5, D), draw(E, D, seed=5)
    y = mixture_feed_forward(x, router, *experts(), 2)
    flat = mixture_feed_forward(x.view(30, D), router, *experts(), 2)
    assert y.shape == x.shape and torch.equal(y.view(30, D), flat)
    alone = mixture_feed_forward(x[0, 0, 0], router, *experts(), 2)
    assert torch.allclose(alone, y[0, 0, 0], atol=1e-5)


def test_each_expert_is_run_once_on_its_tokens_alone(monkeypatch):
    runs = []

    def noting(x, w1, w2, w3):
        runs.append(len(x))
        return feed_forward(x, w1, w2, w3)

    monkeypatch.setattr(llamalib.experts, "swiglu", noting)
    x, router = draw(3, D), draw(E, D, seed=5)
    _, chosen, _ = route(x, router, 1)
    mixture_feed_forward(x, router, *experts(), 1)
    counts = torch.bincount(chosen.flatten(), minlength=E)
    assert runs == [n for n in counts.tolist() if n] and len(runs) < E


def test_weights_of_experts_that_nobody_chose_do_not_matter():
    w1, w2, w3 = experts()
    router = draw(E, D, seed=5)
    router[3] = 0
    x = draw(1, D)
    first = route(x, router, 1)[1].item()
    for weight in (w1, w2, w3):
        weight[[e for e in range(E) if e != first]] = torch.nan
    assert mixture_feed_forward(x, router, w1, w2, w3, 1).isfinite().all()


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


@pytest.mark.parametrize("k", [1, 2, E])
def test_copies_change_nothing(k):
    x, whole = draw(9, D), network()
    copies = copy_experts(*whole, E)
    assert [c.shape[0] for c in copies] == [E] * 3
    for seed in range(3):
        y = mixture_feed_forward(x, draw(E, D, seed=seed), *copies, k)
        assert torch.allclose(y, feed_forward(x, *whole), rtol=1e-3, atol=1e-3)


def test_copies_take_no_memory():
    whole = network()
    for copy, weight in zip(copy_experts(*whole, E), whole):
        assert copy.data_ptr() == weight.data_ptr()
        assert copy.stride(0) == 0


def test_pieces_sum_to_the_network():
    x, whole = draw(9, D), network()
    pieces = split_experts(*whole, E)
    assert [tuple(p.shape) for p in pieces] == [
        (E, HIDDEN // E, D),
        (E, D, HIDDEN // E),
        (E, HIDDEN // E, D),
    ]
    total = sum(feed_forward(x, *each) for each in zip(*pieces))
    wanted = feed_forward(x, *whole)
    assert torch.allclose(total, wanted, rtol=1e-3, atol=1e-3)
    w1, w2, w3 = pieces  # equal weights 1/E undo the E
    y = mixture_feed_forward(x, torch.zeros(E, D), w1, E * w2, w3, E)
    assert torch.allclose(y, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [5, 0, 7])
def test_neurons_that_cannot_be_shared_out(n):
    with pytest.raises(ValueError, match=f"{n} experts of 24 neurons"):
        split_experts(*network(), n)


def test_in_the_place_of_feed_forward():
    """It does not call itself, though feed_forward is replaced everywhere."""
    llama, ids = random_llama(), torch.arange(9)
    router = draw(E, llama.config.dim)

    def upcycled(x, w1, w2, w3):
        copies = copy_experts(w1, w2, w3, E)
        return mixture_feed_forward(x, router, *copies, 2)

    before = llama(ids)
    with replaced(feed_forward=upcycled):
        after = llama(ids)
    assert torch.allclose(before, after, atol=1e-3)


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


@pytest.mark.parametrize("tied", [True, False])
def test_one_expert_is_the_model_and_a_router(tied):
    config = small_config()
    llama = random_llama(config, tied=tied)
    own = sum(p.numel() for p in llama.parameters())
    total, active = mixture_parameters(config, 1, 1, tied=tied)
    assert total == active == own + config.n_layers * config.dim
    total, active = mixture_parameters(config, 8, 3, tied=tied)
    expert = 3 * config.dim * config.hidden_dim
    assert total - active == config.n_layers * 5 * expert


def test_experts_read():
    assert experts_read(8, 2, 1) == 2
    assert experts_read(8, 2, 2) == pytest.approx(8 * (1 - 0.75**2))
    assert experts_read(8, 2, 0) == 0 and experts_read(8, 8, 1) == 8
    assert experts_read(8, 2, 1000) == pytest.approx(8)


# -- balance ------------------------------------------------------------------


def test_balance_loss_by_hand():
    logits = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]]).log()
    chosen = torch.tensor([[0], [0], [1]])
    wanted = 2 * (2 / 3 * 1.3 / 3 + 1 / 3 * 1.7 / 3)
    assert balance_loss(logits, chosen).item() == pytest.approx(wanted)


def test_balance_loss_at_its_ends():
    even = torch.arange(E).view(-1, 2)  # (2, k): everyone once
    assert balance_loss(torch.zeros(2, E), even).item() == pytest.approx(1)
    alone = torch.zeros(6, 1, dtype=torch.long)
    sure = torch.zeros(6, E)
    sure[:, 0] = 50
    assert balance_loss(sure, alone).item() == pytest.approx(E)
    two = torch.tensor([[0, 1]]).expand(6, 2)
    assert balance_loss(sure, two).item() == pytest.approx(E / 2)
    hair = (1e-6 * sure).requires_grad_()  # every choice, P even
    low = balance_loss(hair, alone)
    low.backward()
    assert low.item() == pytest.approx(1, abs=1e-3)
    assert (hair.grad != 0).all()
    # of any leading dimensions
    assert balance_loss(sure.view(2, 3, E), alone.view(2, 3, 1)) == E


def test_descending_on_the_balance_loss_balances():
    x = draw(200, D) + 1  # inputs that share a mean
    router = draw(E, D, seed=2) * 0.05
    router[0] += 0.3  # a head start
    router.requires_grad_()
    taken = []
    for step in range(200):
        _, chosen, logits = route(x, router, 1)
        loads = F.one_hot(chosen, E).float().mean((0, 1))
        taken.append(loads.max().item())
        balance_loss(logits, chosen).backward()
        router.data -= 0.05 * router.grad
        router.grad = None
    assert taken[0] > 0.7 and taken[-1] < 0.4


# -- capacity -----------------------------------------------------------------


def test_within_capacity_by_hand():
    chosen = torch.tensor([[0, 1], [0, 2], [0, 1], [1, 0]])
    assert within_capacity(chosen, 3, 2).tolist() == [
        [True, True],
        [True, True],
        [False, True],
        [False, False],
    ]
    assert within_capacity(chosen, 3, 4).all()
    assert not within_capacity(chosen, 3, 0).any()


@pytest.mark.parametrize("capacity", [1, 3, 9])
def test_no_expert_serves_more_than_its_places(capacity):
    g = torch.Generator().manual_seed(0)
    chosen = torch.rand(50, E, generator=g).topk(2).indices
    kept = within_capacity(chosen, E, capacity)
    asked = torch.bincount(chosen.flatten(), minlength=E)
    served = torch.bincount(chosen[kept], minlength=E)
    assert torch.equal(served, asked.clamp(max=capacity))
