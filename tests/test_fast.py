import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import llamalib
from llamalib import attention, attention_weights, repeat_kv
from llamalib.fast import (
    FastWeight,
    has_instructions,
    prepare,
    quantized,
    release,
    weights,
)
from llamalib.fast.one_query import grouped_attention
from llamalib.fast.weight import WAYS
from tests.helpers import (
    random_ids,
    random_llama,
    small_config,
    write_checkpoint,
)

DTYPES = [torch.bfloat16, torch.float16]
SIZES = "1 row", "few rows", "more rows"


def large_llama(seed=0, tied=True):
    """bfloat16, with matrices that are large enough to be exchanged."""
    config = small_config(dim=1024, n_layers=1, vocab_size=900 + 256)
    return random_llama(config, seed, tied).to(torch.bfloat16)


def some(*shape, seed=0, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def in_way(w, way):
    """The matrix, multiplied in one way."""
    made = FastWeight.of(w, None, dict.fromkeys(SIZES, way))
    made.make_copy()
    return made


def can_pack():
    try:
        in_way(some(64, 64), "packed")
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return True


needs_packing = pytest.mark.skipif(
    not can_pack(), reason="this processor has no bfloat16 products"
)


def in_a_process(code, **environment):
    """What another process prints as JSON."""
    root = Path(llamalib.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)} | environment
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


# -- one matrix --------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", ["linear", "row blocks"])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_every_way_is_the_product(way, n, dtype):
    x, w = some(n, 96, dtype=dtype), some(700, 96, seed=1, dtype=dtype)
    found, expected = F.linear(x, in_way(w, way)), x.double() @ w.double().T
    assert found.shape == (n, 700) and found.dtype == dtype
    # half a unit in the last place of 8 or 11 bits, and some for the sum
    ulp = torch.finfo(dtype).eps * expected.abs().clamp(min=1)
    assert ((found.double() - expected).abs() < ulp).all()


def test_each_number_of_rows_has_its_way():
    """Ways that round differently tell which one was taken."""
    w, x = some(300, 2048), some(40, 2048, seed=1)
    ways = dict(zip(SIZES, ("row blocks", "linear", "row blocks")))
    fast = FastWeight.of(w, None, ways)
    assert not torch.equal(WAYS["linear"](x, fast), F.linear(x, fast))
    for n in (1, 17, 40):
        expected = WAYS["row blocks"](x[:n], fast)
        assert torch.equal(F.linear(x[:n], fast), expected)
    for n in (2, 16):
        assert torch.equal(F.linear(x[:n], fast), F.linear(x[:n], w))
    assert F.linear(x[:0], fast).shape == (0, 300)


def test_elsewhere_it_is_the_tensor():
    w = some(6, 4)
    fast = in_way(w, "row blocks")
    assert fast.data_ptr() == w.data_ptr() and fast.nbytes == w.nbytes
    assert torch.equal(F.embedding(torch.tensor([2]), fast)[0], w[2])
    assert type(fast.T) is type(fast + 1) is type(fast[1]) is torch.Tensor
    x, bias = some(3, 2, 4), some(6)
    assert torch.equal(F.linear(x, fast, bias), F.linear(x, w, bias))
    assert F.linear(x, fast).shape == (3, 2, 6)
    assert F.linear(fast, some(3, 4)).shape == (6, 3)
    assert torch.equal(torch.cat([fast, fast]), torch.cat([w, w]))
    fast[0] = 7.0
    fast[1:2].zero_()
    fast.mul_(2)
    assert w[0].tolist() == [14] * 4 and not w[1].any()


@needs_packing
@pytest.mark.parametrize("n", [1, 5, 40])
def test_packed_is_the_product(n):
    w, x = some(320, 128), some(n, 128, seed=1)
    expected = x.float() @ w.float().T
    error = (F.linear(x, in_way(w, "packed")).float() - expected).abs().max()
    assert error < 0.01 * expected.abs().max()


@needs_packing
@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.zero_(),
        lambda w: w.copy_(torch.zeros(64, 64)),
        lambda w: w.__setitem__(slice(None), 0),
        lambda w: w[:].zero_(),
        lambda w: w.view(-1).mul_(0),
    ],
)
def test_a_second_copy_is_never_stale(change):
    w = torch.nn.Parameter(in_way(some(64, 64), "packed"), False)
    w.make_copy()
    assert F.linear(some(1, 64), w).any()
    change(w)
    assert not F.linear(some(1, 64), w).any()


@pytest.mark.parametrize("way", ["row blocks", "packed"])
def test_copies(way):
    if way == "packed" and not can_pack():
        pytest.skip("this processor has no bfloat16 products")
    w = some(64, 64)
    parameter = torch.nn.Parameter(in_way(w, way), requires_grad=False)
    copies = [parameter.clone(), parameter.detach(), parameter.cpu()]
    copies += [copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))]
    for each in copies:
        assert type(each) is FastWeight and each.ways == parameter.ways
        assert torch.equal(each, w)
        F.linear(some(1, 64), each)
    copies[3].zero_()
    assert w.any()


def test_gradients():
    w = torch.nn.Parameter(in_way(some(6, 32), "row blocks"))
    x = some(2, 32, seed=1).requires_grad_()
    F.linear(x, w).sum().backward()
    assert torch.equal(w.grad, x.detach().sum(0).expand(6, -1))
    assert (x.grad - w.detach()[:].float().sum(0)).abs().max() < 0.1
    with torch.no_grad():
        w.sub_(w.grad)  # a step of an optimizer


# -- attention of one query --------------------------------------------------


def by_weights(xq, xk, xv, mask):
    """Average the values by `attention_weights`, in float64."""
    xq, xk, xv, mask = (x.double() for x in (xq, xk, xv, mask))
    w = attention_weights(xq, xk, mask)  # (..., H, T, S)
    xv = repeat_kv(xv, xq.shape[-2] // xv.shape[-2])  # (..., S, H, hd)
    return (w @ xv.transpose(-3, -2)).transpose(-3, -2).flatten(-2)


@pytest.mark.parametrize("dtype", [torch.float32, *DTYPES])
@pytest.mark.parametrize("S", [1, 300, 4097, 9000])
@pytest.mark.parametrize("masked", [False, True])
def test_grouped_attention_is_attention(dtype, S, masked):
    xq, xk = some(2, 1, 8, 16, dtype=dtype), some(2, S, 2, 16, dtype=dtype)
    xv = some(2, S, 2, 16, seed=1, dtype=dtype)
    mask = torch.zeros(2, 1, 1, S)
    if masked:
        mask[0, ..., : S // 3] = float("-inf")
    expected = by_weights(xq, xk, xv, mask)
    for attend in (grouped_attention, attention):
        found = attend(xq, xk, xv, mask if masked else None)
        assert found.dtype == dtype and found.shape == (2, 1, 128)
        assert (found - expected).abs().max() < 0.05


def test_scores_larger_than_float16_holds():
    xq = torch.full((1, 1, 4, 64), 60.0, dtype=torch.float16)
    xk = torch.full((1, 2000, 2, 64), 60.0, dtype=torch.float16)
    xv = some(1, 2000, 2, 64, dtype=torch.float16)
    expected = xv.double().mean(1).repeat_interleave(2, 1).flatten(1)
    for attend in (grouped_attention, attention):
        found = attend(xq, xk, xv)
        assert (found[:, 0] - expected).abs().max() < 0.01


# -- a model -----------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("repack", [False, True])
def test_prepared_is_the_model(tied, repack):
    llama, tokens = large_llama(tied=tied), random_ids(2, 20)
    expected = [llama(tokens), llama(tokens[0, :1]), llama(tokens[:, :3])]
    before = {n: w.clone() for n, w in llama.state_dict().items()}
    assert prepare(llama, repack=repack) is llama
    found = [llama(tokens), llama(tokens[0, :1]), llama(tokens[:, :3])]
    for a, b in zip(found, expected):
        assert (a - b).abs().max() < 0.1
    w = weights(llama)
    gains = {llama.ways[n] for n in SIZES} != {"linear"}
    for name, each in w.items():
        large = gains and each.dim() == 2 and each.numel() >= 2**20
        assert isinstance(each, FastWeight) == large, name
        assert torch.equal(each, before[name])
        if large and repack and has_instructions(torch.bfloat16):
            assert each.copy is not None
    same = w["output.weight"] is w["tok_embeddings.weight"]
    assert same == tied and list(llama.state_dict()) == list(before)
    llama.load_state_dict(large_llama(seed=1, tied=tied).state_dict())
    other = prepare(large_llama(seed=1, tied=tied))
    assert (llama(tokens) - other(tokens)).abs().max() < 0.1


def test_ways_are_plain_and_may_be_asked_for():
    llama = prepare(large_llama())
    assert json.loads(json.dumps(llama.ways)) == llama.ways
    assert llama.ways["weights"] == "bfloat16" and len(llama.ways) == 4
    ways = llama.ways | {"1 row": "row blocks"}
    other = prepare(large_llama(), ways=ways)
    assert other.ways == ways
    assert other.layers[0].attention.wq.weight.ways == ways
    eight = prepare(large_llama(), quantize="int8")
    again = prepare(large_llama(), ways=eight.ways)
    assert quantized(again) == "int8" and again.ways == eight.ways
    tokens = random_ids(1, 1)
    assert torch.equal(again(tokens), eight(tokens))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"1 row": "magic"}, "'1 row'.*'magic'.*'row blocks'"),
        ({"attention": "linear"}, "'attention'.*no such key"),
        ({"weights": "float16"}, "'weights'.*'float16'.*'bfloat16'"),
        ({"two rows": "linear"}, "'two rows'.*no such key"),
        ({"1 row": None}, "'1 row'.*None"),
    ],
)
def test_unknown_ways(change, message):
    llama = large_llama()
    ways = prepare(llama).ways | change
    with pytest.raises(ValueError, match=message):
        prepare(llama, ways=ways)


def test_weights_cannot_be_quantized_twice():
    llama = prepare(large_llama(), quantize="int8")
    prepare(llama, quantize="int8")
    with pytest.raises(
        ValueError, match="'int4'; expected int8.*load them again"
    ):
        prepare(llama, quantize="int4")
    with pytest.raises(ValueError, match="'int5'; expected 'int8' or"):
        prepare(large_llama(), quantize="int5")


def test_float32_is_left_alone():
    llama = prepare(random_llama(), repack=True)
    assert set(llama.ways.values()) == {"float32", "linear"}
    assert not any(isinstance(w, FastWeight) for w in llama.parameters())


def test_load_prepares_without_a_copy(tmp_path):
    folder = write_checkpoint(tmp_path / "large", large_llama())
    llama = llamalib.load(folder, device="cpu")
    w = llama.layers[0].attention.wq.weight
    assert getattr(w, "copy", None) is None and llama.ways
    maps = Path("/proc/self/maps")
    if maps.exists():  # mapped from the file, not copied
        spans = [
            [int(n, 16) for n in line.split()[0].split("-")]
            for line in maps.read_text().splitlines()
            if "consolidated" in line
        ]
        assert any(low <= w.data_ptr() < high for low, high in spans)
    llamalib.save(llama, tmp_path / "again")
    saved = torch.load(tmp_path / "again" / "consolidated.00.pth")
    assert {type(t) for t in saved.values()} == {torch.Tensor}
    again = llamalib.load(tmp_path / "again", device="cpu")
    assert torch.equal(again.layers[0].attention.wq.weight, w)


@torch.no_grad()
@pytest.mark.parametrize("kind", [None, "int8", "int4"])
def test_ordinary_modules_with_hooks(kind):
    """A hook on each nn.Linear, called once a pass with its product."""
    llama, products = prepare(large_llama(), quantize=kind), {}
    for name, module in llama.named_modules():
        if isinstance(module, torch.nn.Linear):

            def keep(module, args, out, name=name):
                assert name not in products
                products[name] = args[0], module.weight, out

            module.register_forward_hook(keep)
    llama(random_ids(1, 5))
    assert len(products) == 7 * llama.config.n_layers + 1
    for x, w, out in products.values():
        expected = x.float() @ w[:].float().T
        worst = (out.float() - expected).abs().max()
        assert worst < 0.05 * expected.abs().max()


def test_moved_and_trained():
    llama, tokens = prepare(large_llama(), repack=True), random_ids(9)
    llama.float()
    expected = large_llama().float()(tokens)
    assert (llama(tokens) - expected).abs().max() < 1e-3
    assert llama.output.weight is llama.tok_embeddings.weight
    llama = prepare(large_llama(), repack=True).requires_grad_()
    llama(tokens).square().mean().backward()
    assert all(w.grad is not None for w in llama.parameters())


@torch.no_grad()
def test_release():
    llama, tokens = prepare(large_llama(), repack=True), random_ids(9)
    llama.compiled = object()
    release(llama)
    assert llama.compiled is None and "packed" not in llama.ways.values()
    assert all(getattr(w, "copy", None) is None for w in llama.parameters())
    assert torch.equal(llama(tokens), prepare(large_llama())(tokens))


TEXT = """
import json, sys
import torch
sys.path[:0] = {paths}
import llamalib
from tests import test_fast
llama = llamalib.fast.prepare(test_fast.large_llama(), ways={ways})
ids = llamalib.generate(
    llama, [1, 2, 3], max_new_tokens=40, temperature=1.0, seed=7, stop=()
)
print(json.dumps([list(ids), llama.ways]))
"""


def test_a_seed_gives_the_same_text_in_two_processes():
    """With the ways that one process chose, or those of the machine."""
    ways = prepare(large_llama()).ways
    found = []
    for each in (None, ways):
        code = TEXT.format(paths=sys.path[:3], ways=each)
        done = in_a_process(code)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] and found[0][1] == ways


COMPILE = """
import sys
sys.path[:0] = {paths}
import torch, llamalib
from tests import helpers
llama = helpers.random_llama()
new = llamalib.generate(llama, [1, 2], max_new_tokens=3, compile={compile})
print("called")
list(new)
"""


def test_without_a_compiler_one_sentence_says_what_to_install():
    for compile in (False, True):
        code = COMPILE.format(paths=sys.path[:3], compile=compile)
        done = in_a_process(code, CXX="/nonexistent")
        assert (done.returncode == 0) == (not compile), done.stderr
        assert (done.stdout == "called\n") == (not compile)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: compile=True on a CPU needs a C++")
    assert "apt install g++" in last and "CXX" in last


def process_wide():
    from torch._inductor import config as inductor

    return (
        torch.backends.mkldnn.enabled,
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.get_default_dtype(),
        inductor.save_config_portable(),
        torch._dynamo.config.save_config_portable(),
    )


def test_nothing_is_switched_for_the_whole_process(tmp_path):
    folder = write_checkpoint(tmp_path / "large", large_llama())
    before, seen = process_wide(), []
    for options in ({}, {"quantize": "int8"}):
        llama = llamalib.load(folder, device="cpu", **options)

        def attend(*qkv):
            seen.append(torch.backends.mkldnn.enabled)
            return attention(*qkv)

        with llamalib.replaced(attention=attend):
            llama(random_ids(1, 5))
            llama(random_ids(1, 1))
        list(llamalib.generate(llama, [1, 2], max_new_tokens=3, stop=()))
        assert process_wide() == before
    assert set(seen) == {torch.backends.mkldnn.enabled}


def test_opening_and_answering_import_little():
    """PyTorch's first dispatch to a subclass imports torch.distributed.

    Its functions of torch.nn.init on the meta device import the compiler.
    """
    code = f"""
import sys
sys.path[:0] = {sys.path[:3]}
import torch, llamalib
from tests.test_fast import large_llama
ways = llamalib.fast.default_ways("cpu", torch.bfloat16)
ways["1 row"] = "row blocks"
llama = llamalib.fast.prepare(large_llama(), ways=ways)
assert type(llama.output.weight).__name__ == "FastWeight"
list(llamalib.generate(llama, [1, 2, 3], max_new_tokens=2))
list(llamalib.generate(llamalib.load(), [1, 2, 3], max_new_tokens=2))
slow = "torch.distributed.tensor", "torch._dynamo", "sympy"
print([name for name in slow if name in sys.modules])
"""
    done = in_a_process(code)
    assert done.stdout.split() == ["[]"], done.stderr
