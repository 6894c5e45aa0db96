"""The whole model compared with transformers', on the same weights."""

import copy
import json
import subprocess
import sys
from itertools import product

import pytest
import torch
from torch import nn

import llamalib
from llamalib import LLAMA_1B, KVCache
from llamalib.load import ROOT
from llamalib.tensors import tensor_shapes
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
    assert config.scaling_factor == FACTORS[rope]  # theirs is made from it
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
@pytest.mark.parametrize("kv, rope", [(2, "x32"), (8, "plain")])
def test_logits_beyond_position_8192(kv, rope):
    ours, theirs = both(kv, rope, True, n_layers=1)  # long enough as it is
    T = 8192 + 40
    tokens = random_ids(1, T)
    expected = theirs(tokens, logits_to_keep=40).logits
    cache = KVCache(ours.config, T)
    llamalib.prefill(ours, tokens[:, :-40], cache)
    assert_same_logits(ours(tokens[:, -40:], cache), expected)


@torch.no_grad()
@pytest.mark.parametrize("rope", ["x8", "x32"])
def test_the_factor_changes_logits(rope):
    """With a cache and without; so a factor that is ignored cannot pass."""
    (plain, _), (ours, theirs) = both(2, "plain", True), both(2, rope, True)
    tokens = random_ids(1, 1500)
    expected = theirs(tokens, logits_to_keep=1).logits
    found = ours(tokens, last_only=True)
    assert (plain(tokens, last_only=True) - found).abs().max() > 1e-3
    assert_same_logits(found, expected)


@torch.no_grad()
@pytest.mark.parametrize(
    "changes, hd, hidden",
    [
        (dict(head_width=24), 24, 256),
        (dict(multiple_of=10, ffn_dim_multiplier=None), 8, 170),
        (dict(dim=48, n_heads=6, n_kv_heads=3), 8, 192),
    ],
)
def test_other_proportions(changes, hd, hidden):
    ours = random_llama(small_config(**changes))
    assert (ours.config.head_dim, ours.config.hidden_dim) == (hd, hidden)
    tokens = random_ids(2, 17)
    assert_same_logits(ours(tokens), to_transformers(ours)(tokens).logits)


@torch.no_grad()
def test_the_pocket_is_the_one_of_transformers(pocket):
    """Its logits, and forty greedy ids, alone and in a batch."""
    ids = pocket.tokenizer.encode(
        "The capital of France is", bos=True, eos=False
    )
    tokens, theirs = torch.tensor([ids]), to_transformers(pocket)
    difference = (pocket(tokens) - theirs(tokens).logits).abs().max()
    assert difference <= 1e-4  # logits up to 30
    expected = theirs.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=40,
        do_sample=False,
    )[0, len(ids) :].tolist()
    how = dict(max_new_tokens=40, stop=())
    assert list(llamalib.generate(pocket, ids, **how)) == expected
    assert llamalib.generate_batch(pocket, [[1], ids], **how)[1] == expected


@torch.no_grad()
@pytest.mark.parametrize("shape", [(20,), (2, 20)])
@pytest.mark.parametrize("chunks", [(20,), (1,) * 20, (7, 1, 12), (19, 1)])
def test_in_chunks_with_a_cache_as_at_once(chunks, shape):
    llama, tokens = random_llama(), random_ids(*shape)
    cache = KVCache(llama.config, 20, batch_size=len(shape))
    found = [llama(part, cache) for part in tokens.split(chunks, dim=-1)]
    found = torch.cat(found, dim=-2)
    assert torch.allclose(found, llama(tokens), atol=1e-5)
    assert cache.length == 20


@torch.no_grad()
def test_one_row_and_a_batch_agree():
    llama, tokens = random_llama(), random_ids(3, 11)
    batch = llama(tokens)
    assert batch.shape == (3, 11, 556)
    for row, logits in zip(tokens, batch):
        assert llama(row).shape == logits.shape
        assert torch.allclose(llama(row), logits, atol=1e-5)
    last = llama(tokens, last_only=True)
    assert last.shape == (3, 1, 556)
    assert torch.allclose(last, batch[:, -1:], atol=1e-6)


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


# Nothing is special: PyTorch's own tools work on every part of the model.


def test_its_parts_are_pytorchs_own():
    llama = random_llama()
    assert type(llama.tok_embeddings) is nn.Embedding
    shown = repr(llama)
    assert "(0-1): 2 x TransformerBlock(" in shown
    assert "(wk): Linear(in_features=64, out_features=16, bias=False)" in shown


@torch.no_grad()
@pytest.mark.parametrize("tied", (True, False))
def test_a_hook_on_every_linear_fires_once_a_pass(tied):
    llama, fired = random_llama(tied=tied), []
    linears = {
        name: module
        for name, module in llama.named_modules()
        if type(module) is nn.Linear
    }
    assert len(linears) == 7 * 2 + 1
    for name, module in linears.items():
        module.register_forward_hook(
            lambda module, args, out, name=name: fired.append(name)
        )
    llama(random_ids(5))
    assert sorted(fired) == sorted(linears)
    fired.clear()
    list(llamalib.generate(llama, [1, 2, 3], max_new_tokens=4, stop=()))
    assert sorted(fired) == sorted(4 * list(linears))  # prefill, three steps


@torch.no_grad()
def test_a_hook_or_another_layer_changes_what_runs():
    llama, tokens, expected = random_llama(), random_ids(5), random_llama()
    before = llama(tokens)
    expected.layers[0].feed_forward.w2.weight.zero_()
    expected = expected(tokens)

    class Nothing(nn.Module):
        def forward(self, x):
            return torch.zeros_like(x)

    network = llama.layers[0].feed_forward
    hook = network.register_forward_hook(lambda module, args, out: out * 0)
    assert torch.equal(llama(tokens), expected)
    hook.remove()
    assert torch.equal(llama(tokens), before)
    llama.layers[0].feed_forward = Nothing()
    assert torch.equal(llama(tokens), expected)


ALONE = """
import json, sys, torch
from model import Llama, ModelArgs
folder = sys.argv[1]
params = json.load(open(folder + "/params.json"))
llama = Llama(ModelArgs(**params))
llama.load_state_dict(torch.load(folder + "/consolidated.00.pth"))
with torch.no_grad():
    logits = llama.float()(torch.tensor(json.loads(sys.argv[2])))
print(json.dumps(logits[-1].tolist()))
assert "llamalib" not in sys.modules
"""


def test_model_py_alone_runs_the_pocket(tmp_path, pocket_folder, pocket):
    """Copied into an empty folder, it needs torch and no other file."""
    code = (ROOT / "llamalib" / "model.py").read_bytes()
    (tmp_path / "model.py").write_bytes(code)
    ids = pocket.tokenizer.encode("The capital of", bos=True, eos=False)
    printed = subprocess.run(
        [sys.executable, "-c", ALONE, str(pocket_folder), str(ids)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = torch.tensor(json.loads(printed))
    assert torch.allclose(found, pocket(torch.tensor(ids))[-1], atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("kv", (1, 2, 8))
def test_attention_maps_are_what_the_model_averages_by(kv):
    """Values averaged by these weights are what `wo` gets."""
    llama, tokens = random_llama(small_config(n_kv_heads=kv)), random_ids(6)
    maps = llamalib.attention_maps(llama, tokens)
    assert maps.shape == (2, 8, 6, 6)
    seen = {}
    for i, layer in enumerate(llama.layers):
        layer.attention.wo.register_forward_hook(
            lambda module, args, out, i=i: seen.update({i: args[0][0]})
        )
    found = llamalib.record(llama, tokens)
    for i, layer in enumerate(llama.layers):
        x = found[f"layers.{i}.attention.in"]  # (T, D)
        xv = layer.attention.wv(x).unflatten(-1, (kv, -1))
        xv = llamalib.repeat_kv(xv, 8 // kv).transpose(0, 1)  # (H, T, hd)
        averaged = (maps[i] @ xv).transpose(0, 1).flatten(-2)  # (T, H·hd)
        assert torch.allclose(averaged, seen[i], atol=1e-5)


def test_names_shapes_and_counts():
    for tied in (True, False):
        llama = random_llama(tied=tied)
        shapes = tensor_shapes(llama.config)
        found = {n: tuple(t.shape) for n, t in llama.state_dict().items()}
        assert found == shapes
    tied, untied = random_llama(), random_llama(tied=False)
    assert tied.output.weight is tied.tok_embeddings.weight
    count = [sum(p.numel() for p in m.parameters()) for m in (tied, untied)]
    assert count[1] - count[0] == 556 * 64


@torch.no_grad()
@pytest.mark.parametrize("part", ["layers.1", "tok_embeddings", ""])
@pytest.mark.parametrize("tied", (True, False))
def test_what_the_module_holds_is_what_runs_and_what_is_saved(
    part, tied, tmp_path
):
    """Also after a part, or all weights, have been exchanged."""
    llama, tokens = random_llama(tied=tied), random_ids(7)
    before = llama(tokens)
    other = random_llama(seed=1, tied=tied)
    if part:
        llama.set_submodule(part, other.get_submodule(part))
    else:
        llama.load_state_dict(other.state_dict(), assign=True)
    found = llama(tokens)
    assert not torch.allclose(found, before)
    fresh = random_llama(tied=False)
    fresh.load_state_dict(llama.state_dict())
    assert torch.equal(found, fresh(tokens))
    llama.tokenizer = llamalib.Tokenizer(small_ranks())
    llamalib.save(llama, tmp_path)
    again = llamalib.load(tmp_path, device="cpu")
    assert torch.equal(again(tokens), found)


@torch.no_grad()
def test_it_can_be_exported():
    llama, tokens = random_llama(), random_ids(7)
    program = torch.export.export(llama, (tokens,), strict=False)
    assert torch.allclose(program.module()(tokens), llama(tokens), atol=1e-5)


@torch.no_grad()
def test_random_weights():
    """Matrices normal with deviation 0.02, norms 1, by the seed alone."""
    torch.manual_seed(5)
    llama = llamalib.Llama(small_config(), tied=False)
    torch.manual_seed(5)
    again = llamalib.Llama(small_config(), tied=False)
    for name, weight in llama.named_parameters():
        assert torch.equal(weight, again.get_parameter(name))
        if weight.dim() == 1:
            assert (weight == 1).all()
        else:
            assert weight.std().item() == pytest.approx(0.02, rel=0.1)
    torch.manual_seed(5)  # the embedding is the first that is drawn
    first = torch.empty(556, 64).normal_(0, 0.02)
    assert torch.equal(llama.tok_embeddings.weight, first)


@torch.no_grad()
def test_the_tie_survives_moves_loading_and_training():
    llama = random_llama()
    for change in (
        lambda: llama.to(torch.bfloat16),
        lambda: llama.to(torch.float32),
        lambda: llama.load_state_dict(random_llama(seed=1).state_dict()),
        lambda: copy.deepcopy(llama),
    ):
        assert (change() or llama) and llama.tied
        assert "output.weight" not in dict(llama.named_parameters())
    assert copy.deepcopy(llama).tied
    llama.requires_grad_(True)
    with torch.enable_grad():
        llama(random_ids(5)).sum().backward()
    torch.optim.SGD(llama.parameters(), lr=0.1).step()
    assert llama.tied and llama.output.weight is llama.tok_embeddings.weight


def test_the_1b_on_meta_draws_nothing():
    """It has its published number of parameters."""
    state = torch.get_rng_state()
    with torch.device("meta"):
        llama = llamalib.Llama(LLAMA_1B)
    assert torch.equal(torch.get_rng_state(), state)
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
    llama(tokens).sum().backward()
    assert all(p.grad is not None for p in llama.parameters())


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
