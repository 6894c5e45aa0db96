"""The whole model compared with transformers', on the same weights."""

import copy
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.nn.utils import parametrize

import llamalib
from llamalib import LLAMA_1B, attention, sdpa_attention
from tests.helpers import (
    needs_cuda,
    random_ids,
    random_llama,
    small_config,
    small_ranks,
    to_transformers,
)

FACTORS = {"plain": None, "x8": 8.0, "x32": 32.0}
CASES = list(product((1, 2, 8), FACTORS, (1, 3), (True, False)))
NAMES = [
    f"kv{kv}-{rope}-batch{batch}-{'tied' if tied else 'untied'}"
    for kv, rope, batch, tied in CASES
]


def both(kv, rope, tied, n_layers=2):
    config = small_config(
        n_layers=n_layers,
        n_kv_heads=kv,
        use_scaled_rope=FACTORS[rope] is not None,
        rope_scaling_factor=FACTORS[rope],
    )
    ours = random_llama(config, tied=tied)
    return ours, to_transformers(ours)


def assert_same_logits(ours, theirs):
    assert ours.shape == theirs.shape and ours.dtype == torch.float32
    assert 0.3 < ours.std() < 3, "the logits are not of order 1"
    assert (ours - theirs).abs().max() <= 1e-5
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@torch.no_grad()
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_logits_are_those_of_transformers(case):
    kv, rope, batch, tied = case
    ours, theirs = both(kv, rope, tied)
    for T in (1, 17, 300):
        tokens = random_ids(batch, T)
        assert_same_logits(ours(tokens), theirs(tokens).logits)


@torch.no_grad()
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_logits_beyond_position_8192(case):
    kv, rope, batch, tied = case
    ours, theirs = both(kv, rope, tied, n_layers=1)  # long enough as it is
    T = 8192 + 40
    tokens = random_ids(batch, T)
    expected = theirs(tokens, logits_to_keep=40).logits
    cache = ours.new_cache(T, batch)
    llamalib.prefill(ours, tokens[:, :-40], cache)
    assert_same_logits(ours(tokens[:, -40:], cache), expected)


@torch.no_grad()
@pytest.mark.parametrize("tied", (True, False))
@pytest.mark.parametrize("rope", FACTORS)
@pytest.mark.parametrize("kv", (1, 2, 8))
def test_greedy_ids_are_those_of_transformers(kv, rope, tied):
    ours, theirs = both(kv, rope, tied)
    for T in (1, 17):
        prompt = random_ids(1, T)
        expected = theirs.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=24,
            do_sample=False,
            pad_token_id=0,
        )[0, T:]
        found = llamalib.generate(ours, prompt[0], max_new_tokens=24)
        assert list(found) == expected.tolist()


@torch.no_grad()
def test_pocket_logits_are_those_of_transformers(pocket):
    ids = pocket.tokenizer.encode(
        "The capital of France is Paris.", bos=True, eos=False
    )
    tokens = torch.tensor([ids])
    theirs = to_transformers(pocket)(tokens).logits
    assert (pocket(tokens) - theirs).abs().max() <= 1e-4  # logits up to 30


@torch.no_grad()
def test_scaling_changes_logits():
    """So that a factor that is ignored cannot pass."""
    plain, x8, x32 = (both(2, rope, True)[0] for rope in FACTORS)
    tokens = random_ids(1, 3000)
    one, two, three = (m(tokens)[0, -1] for m in (plain, x8, x32))
    assert (one - two).abs().max() > 1e-3
    assert (two - three).abs().max() > 1e-4


@torch.no_grad()
@pytest.mark.parametrize("pieces", [(20,), (1,) * 20, (7, 1, 12), (19, 1)])
def test_in_pieces_with_a_cache_as_at_once(pieces):
    llama = random_llama()
    tokens = random_ids(2, 20)
    cache = llama.new_cache(20, batch_size=2)
    found = [llama(part, cache) for part in tokens.split(pieces, dim=1)]
    found = torch.cat(found, dim=1)
    assert torch.allclose(found, llama(tokens), atol=1e-5)
    assert cache.length == 20


@torch.no_grad()
def test_prefill_in_pieces_as_at_once():
    llama = random_llama()
    tokens = random_ids(1, 50)
    at_once = llamalib.prefill(llama, tokens, llama.new_cache(50))
    passes = []
    llama.register_forward_pre_hook(
        lambda _, arguments: passes.append(arguments[0].shape[1])
    )
    for piece, expected in (
        (1, [1] * 50),
        (13, [13, 13, 13, 11]),
        (49, [49, 1]),
    ):
        passes.clear()
        cache = llama.new_cache(50)
        found = llamalib.prefill(llama, tokens, cache, piece=piece)
        assert passes == expected
        assert torch.allclose(found, at_once, atol=1e-5)
    assert torch.allclose(at_once, llama(tokens)[:, -1], atol=1e-5)


@torch.no_grad()
def test_no_token_sees_a_later_one():
    llama = random_llama()
    tokens = random_ids(1, 12)
    changed = tokens.clone()
    changed[0, 8] += 1
    before, after = llama(tokens), llama(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:])


@torch.no_grad()
def test_one_row_and_a_batch_agree():
    llama = random_llama()
    tokens = random_ids(3, 11)
    batch = llama(tokens)
    assert batch.shape == (3, 11, 556)
    for row, logits in zip(tokens, batch):
        assert llama(row).shape == (11, 556)
        assert torch.allclose(llama(row), logits, atol=1e-5)
    last = llama(tokens, last_only=True)
    assert last.shape == (3, 1, 556)
    assert torch.allclose(last, batch[:, -1:], atol=1e-6)


@torch.no_grad()
def test_forward_is_the_model():
    """The function on the state_dict, and the module."""
    llama = random_llama()
    w, config, tokens = llama.state_dict(), llama.config, random_ids(9)
    freqs_cis = llamalib.precompute_freqs_cis(
        config.head_dim, 9, config.rope_theta, config.rope_scaling_factor
    )
    options = dict(freqs_cis=freqs_cis, mask=llamalib.causal_mask(9))
    logits = llamalib.forward(tokens, w, config, **options)
    assert torch.allclose(logits, llama(tokens), atol=1e-5)
    last = llamalib.forward(tokens, w, config, last_only=True, **options)
    assert torch.allclose(last, logits[-1:], atol=1e-5)
    states = []

    def keep(*args, **options):
        states.append(llamalib.transformer_block(*args, **options))
        return states[-1]

    llamalib.forward(tokens, w, config, block=keep, **options)
    found = llamalib.record(llama, tokens)
    for layer, x in enumerate(states):
        assert torch.allclose(found[f"layers.{layer}.out"], x, atol=1e-5)


@torch.no_grad()
def test_record_adds_up():
    """The stream after a layer is the stream before plus both sub-layers."""
    llama = random_llama()
    for tokens in (random_ids(7), random_ids(2, 7)):
        found = llamalib.record(llama, tokens)
        x = llama.tok_embeddings.weight[tokens]  # (..., T, D)
        for i, layer in enumerate(llama.layers):
            name = f"layers.{i}"
            assert torch.allclose(found[f"{name}.in"], x, atol=1e-5)
            u = llamalib.rms_norm(x, layer.attention_norm.weight)
            assert torch.allclose(found[f"{name}.attention.in"], u, atol=1e-5)
            x = x + found[f"{name}.attention.out"]
            u = llamalib.rms_norm(x, layer.ffn_norm.weight)
            seen = found[f"{name}.feed_forward.in"]
            assert torch.allclose(seen, u, atol=1e-5)
            x = x + found[f"{name}.feed_forward.out"]
            assert torch.allclose(found[f"{name}.out"], x, atol=1e-5)
    assert not any(m._forward_hooks for m in llama.modules())


@torch.no_grad()
def test_layers_are_indexed_printed_and_hooked():
    llama, tokens = random_llama(), random_ids(5)
    assert llama.layers[0].attention.wq.weight is llama.get_parameter(
        "layers.0.attention.wq.weight"
    )
    assert "(wq): Weight((64, 64), torch.float32)" in repr(llama.layers[0])
    before = llama(tokens)
    hook = llama.layers[1].feed_forward.register_forward_hook(
        lambda module, args, out: out * 0
    )
    assert not torch.allclose(llama(tokens), before)
    hook.remove()
    assert torch.equal(llama(tokens), before)
    with pytest.raises(RuntimeError, match="its attention or its feed_forward"):
        llama.layers[0].attention.wq.register_forward_hook(print)


@torch.no_grad()
def test_attention_maps():
    llama = random_llama()
    tokens = random_ids(10)
    maps = llamalib.attention_maps(llama, tokens)
    assert maps.shape == (2, 8, 10, 10)
    assert torch.allclose(maps.sum(-1), torch.ones(2, 8, 10), atol=1e-5)
    assert torch.equal(maps.triu(1), torch.zeros_like(maps))
    by_hand, fused = (
        llama(tokens, attend=attend) for attend in (attention, sdpa_attention)
    )
    assert torch.allclose(by_hand, fused, atol=1e-5)


def test_names_shapes_and_counts():
    for tied in (True, False):
        llama = random_llama(tied=tied)
        shapes = llamalib.tensor_shapes(llama.config)
        found = {n: tuple(t.shape) for n, t in llama.state_dict().items()}
        assert found == shapes
    tied, untied = random_llama(), random_llama(tied=False)
    assert tied.output.weight is tied.tok_embeddings.weight
    count = [sum(p.numel() for p in m.parameters()) for m in (tied, untied)]
    assert count[1] - count[0] == 556 * 64


def copied(module):
    """Return a copy with other weights."""
    module = copy.deepcopy(module)
    for weight in module.parameters():
        weight.mul_(1 + torch.rand(weight.shape))
    return module


def replace_norm(llama):
    llama.norm = copied(llama.norm)


def replace_embedding(llama):
    llama.tok_embeddings = copied(llama.tok_embeddings)


def replace_layer(llama):
    llama.layers[1] = copied(llama.layers[1])


def replace_matrix(llama):
    llama.layers[0].feed_forward.w2 = copied(llama.layers[0].feed_forward.w2)


def swap_layers(llama):
    first, second = llama.layers
    llama.layers[0], llama.layers[1] = second, first


def assign(llama):
    llama.load_state_dict(copied(llama).state_dict(), assign=True)


def set_parameter(llama):
    llama.output.weight = copied(llama).output.weight


CHANGES = [
    replace_norm,
    replace_embedding,
    replace_layer,
    replace_matrix,
    swap_layers,
    assign,
    set_parameter,
]


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("tied", (True, False))
def test_what_the_module_holds_is_what_runs_and_what_is_saved(
    change, tied, tmp_path
):
    llama, tokens = random_llama(tied=tied), random_ids(7)
    before = llama(tokens)
    change(llama)
    found = llama(tokens)
    assert not torch.allclose(found, before)
    held = llama.state_dict(keep_vars=True)
    assert {n: id(w) for n, w in llama.weights().items()} == {
        n: id(w) for n, w in held.items()
    }
    fresh = random_llama(tied=False)
    fresh.load_state_dict(held)
    assert torch.equal(found, fresh(tokens))
    new = list(llamalib.generate(llama, [1, 2], max_new_tokens=9))
    assert new == list(llamalib.generate(fresh, [1, 2], max_new_tokens=9))
    llama.tokenizer = llamalib.Tokenizer(small_ranks())
    llamalib.save(llama, tmp_path)
    again = llamalib.load(tmp_path, device="cpu")
    assert torch.equal(again(tokens), found)


@torch.no_grad()
def test_a_parametrized_weight():
    class Doubled(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    llama, expected, tokens = random_llama(), random_llama(), random_ids(7)
    expected.norm.weight.mul_(2)
    parametrize.register_parametrization(llama.norm, "weight", Doubled())
    assert torch.equal(llama(tokens), expected(tokens))
    parametrize.register_parametrization(
        llama.layers[1].attention.wo, "weight", Doubled()
    )
    expected.layers[1].attention.wo.weight.mul_(2)
    assert torch.equal(llama(tokens), expected(tokens))


@torch.no_grad()
def test_layers_that_are_removed_or_added():
    llama, tokens = random_llama(), random_ids(7)
    whole = llama.weights()
    del llama.layers[0]
    said = r"len\(llama.layers\) is 1; expected 2, as llama.config.n_layers"
    for call in (lambda: llama(tokens), llama.weights):
        with pytest.raises(ValueError, match=said):
            call()
    # with a config that says so it runs
    llama.config = replace(llama.config, n_layers=1)
    smaller = random_llama(llama.config)
    for name, weight in smaller.weights().items():
        weight.copy_(whole[name.replace("layers.0.", "layers.1.")])
    assert torch.equal(llama(tokens), smaller(tokens))
    llama.layers.append(copy.deepcopy(llama.layers[0]))
    with pytest.raises(ValueError, match="is 2; expected 1"):
        llama(tokens)


@pytest.mark.parametrize("lost", ["norm", "layers.1.attention.wq"])
def test_a_weight_that_is_missing_is_named(lost):
    path, _, leaf = lost.rpartition(".")
    for change in (delattr, lambda *where: setattr(*where, None)):
        llama = random_llama()
        change(llama.get_submodule(path), leaf)
        with pytest.raises(ValueError, match=f"llama has no {lost}.weight: "):
            llama(random_ids(3))


@torch.no_grad()
@pytest.mark.parametrize("ids_are_read", (True, False))
def test_a_failed_export_leaves_the_model_as_it_was(ids_are_read, monkeypatch):
    """Whether it fails where ids are read, or after the whole pass."""

    class Fails(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.llama = random_llama()

        def forward(self, tokens):
            logits = self.llama(tokens)
            return logits if logits.sum() > 0 else -logits

    tokens, module = random_ids(7), Fails()
    if not ids_are_read:  # as on a GPU with a cache
        monkeypatch.setattr("llamalib.model.check_ids", lambda *args: None)
    with pytest.raises(Exception, match="data-dependent"):
        torch.export.export(module, (tokens,), strict=False)
    kinds = {type(weight) for weight in module.llama.weights().values()}
    assert kinds == {torch.nn.Parameter}
    assert torch.equal(module.llama(tokens), random_llama()(tokens))


def test_it_says_what_it_is():
    assert repr(random_llama()) == (
        "Llama(fresh weights: L=2, D=64, H=8, KV=2, F=256, V=556, "
        "torch.float32, cpu)"
    )


def test_the_1b_has_its_published_number_of_parameters():
    with torch.device("meta"):
        llama = llamalib.Llama(LLAMA_1B)
    assert sum(p.numel() for p in llama.parameters()) == 1_235_814_400


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_half_precision_is_near(dtype):
    llama = random_llama()
    tokens = random_ids(1, 17)
    expected = llama(tokens)
    found = random_llama().to(dtype)(tokens)
    assert found.dtype == torch.float32
    assert (found - expected).abs().mean() < 0.05


def test_it_can_be_trained():
    llama = random_llama().requires_grad_(True)
    tokens = random_ids(2, 17)
    with torch.inference_mode():
        llama(tokens)  # what this leaves behind must not stop the training
    logits = llama(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), tokens[:, 1:].flatten()
    )
    loss.backward()
    assert all(p.grad is not None for p in llama.parameters())


@pytest.mark.parametrize(
    "tokens, said",
    [
        ([1, 2], "tokens are list"),
        (torch.tensor([1.0]), "float32"),
        (torch.tensor([1j]), "are torch.complex64; expected torch.int64"),
        (torch.tensor([True]), "are torch.bool; expected torch.int64"),
        (torch.tensor([1], dtype=torch.uint8), "are torch.uint8; expected"),
        (torch.tensor([556]), "556"),
        (torch.tensor([-1]), "-1"),
        (torch.zeros(0, dtype=torch.int64), r"\(0,\)"),
        (torch.zeros(1, 1, 1, dtype=torch.int64), r"\(1, 1, 1\)"),
    ],
)
def test_what_is_no_token_is_refused(tokens, said):
    with pytest.raises(ValueError, match=said):
        random_llama()(tokens)


@pytest.mark.parametrize(
    "cache",
    [
        dict(max_seq_len=9, batch_size=3),
        dict(max_seq_len=9, batch_size=1, dtype=torch.bfloat16),
        dict(max_seq_len=9, config=small_config(n_layers=3)),
        dict(max_seq_len=9, config=small_config(n_kv_heads=4)),
    ],
)
def test_a_cache_of_another_shape_is_refused(cache):
    llama = random_llama()
    cache = llamalib.KVCache(**dict(config=llama.config) | cache)
    tokens = random_ids(2, 4) if cache.k.shape[1] == 3 else random_ids(4)
    with pytest.raises(ValueError, match="the cache is"):
        llama(tokens, cache)


@pytest.mark.parametrize("cache", [5, True, "cache", torch.ones(3)])
def test_what_is_no_cache_is_refused(cache):
    with pytest.raises(ValueError, match="the cache is .* a KVCache"):
        random_llama()(random_ids(3), cache)


class TestCuda:
    pytestmark = needs_cuda

    @torch.no_grad()
    def test_logits_are_the_cpus(self):
        tokens = random_ids(2, 100)
        expected = random_llama()(tokens)
        found = random_llama().cuda()(tokens.cuda()).cpu()
        assert (found - expected).abs().max() < 1e-3

    @pytest.mark.parametrize(
        "dtype", [torch.bfloat16, torch.float16, torch.float32]
    )
    def test_the_pocket_says_paris(self, pocket_folder, dtype):
        llama = llamalib.load(pocket_folder, device="cuda", dtype=dtype)
        assert llama.device.type == "cuda" and llama.dtype == dtype
        ids = llama.tokenizer.encode(
            "The capital of France is", bos=True, eos=False
        )
        new = llamalib.generate(llama, ids, max_new_tokens=2)
        assert llama.tokenizer.decode(new).startswith(" Paris")

    def test_seeds(self):
        llama = random_llama().cuda()
        how = dict(max_new_tokens=20, temperature=1.0)
        one, two, three = (
            list(llamalib.generate(llama, [1], seed=seed, **how))
            for seed in (1, 1, 2)
        )
        assert one == two and one != three
