"""The compiled decode step: the same numbers, and nothing is left behind."""

import os
import shutil
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn

import llamalib
from llamalib.batch import PaddedCache
from llamalib.compiled import (
    StaticCache,
    compile_step,
    linear_as_sums,
    start_copy,
    static_size,
    with_compiled_blocks,
)
from llamalib.load import ROOT
from llamalib.quantize import quantize_model
from tests.helpers import (
    live_bytes,
    needs_cuda,
    random_ids,
    random_llama,
    small_config,
)

HAS_COMPILER = shutil.which("g++") or shutil.which("clang++")
HAS_COMPILER = HAS_COMPILER and " " not in torch.__file__
needs_compiler = pytest.mark.skipif(
    not HAS_COMPILER,
    reason="torch.compile on a CPU needs a C++ compiler, and no space in the "
    "name of torch's folder",
)
KINDS = None, "int8", "int4"


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """Compile anew: the cache of all programs may be another processor's."""
    folder = str(tmp_path_factory.mktemp("inductor"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", folder)
        yield


@pytest.fixture
def uncompiled():
    """The step as it is written: what is compiled, in no time."""
    if not HAS_COMPILER:
        pytest.skip("compile=True asks for a C++ compiler")
    with torch.compiler.set_stance("force_eager"):
        yield


def new_cache(llama, *sizes):
    """Return an empty cache of a model's device and dtype."""
    like = dict(device=llama.device, dtype=llama.dtype)
    return llamalib.KVCache(llama.config, *sizes, **like)


def greedy(llama, prompt, n, **options):
    return list(
        llamalib.generate(llama, prompt, max_new_tokens=n, stop=(), **options)
    )


def large_llama(kind=None):
    """bfloat16, with matrices that PyTorch's kernels take."""
    config = small_config(dim=128, n_layers=2, vocab_size=900 + 256)
    llama = random_llama(config).to(torch.bfloat16)
    return llama if kind is None else quantize_model(llama, kind)


@needs_compiler
def test_compiled_is_not_compiled(own_cache, capsys):
    """For two lengths; a block is compiled once for all layers."""
    llama, prompt = random_llama(), random_ids(6)
    expected = greedy(random_llama(), prompt, 300)

    def graphs():
        return torch._dynamo.utils.counters["stats"]["unique_graphs"]

    before = graphs()
    assert greedy(llama, prompt, 40, compile=True) == expected[:40]
    assert graphs() - before == 2  # a block and the LM head
    assert greedy(llama, prompt, 300, compile=True) == expected
    assert graphs() - before == 3  # a block for more columns
    assert greedy(llama, prompt[:2], 90, compile=True)
    assert graphs() - before == 3
    assert capsys.readouterr().out.count("compiling the decode step") == 2
    # another model of this shape: its weights are given, not compiled in
    other = random_llama(seed=1, tied=False)
    assert greedy(other, prompt, 20, compile=True) == greedy(other, prompt, 20)
    assert graphs() - before == 3


@needs_compiler
def test_more_than_eight_sizes_are_compiled(monkeypatch):
    """PyTorch itself gives up after eight variants of a function."""
    llama = random_llama(small_config(n_layers=1))
    monkeypatch.setattr("llamalib.compiled.static_size", lambda n: n)
    # traced, and run as it is
    monkeypatch.setattr(
        "llamalib.compiled.compile_fx", lambda graph, *_, **options: graph
    )
    for n in range(2, 12):
        assert greedy(llama, [1], n, compile=True) == greedy(llama, [1], n)


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_in_16_bits(own_cache, kind):
    """In a batch of two."""
    llama = large_llama(kind)
    with torch.inference_mode():
        cache = new_cache(llama, 20, 2)
        llamalib.prefill(llama, random_ids(2, 5), cache)
        step = compile_step(llama, cache)
        for token in random_ids(5, 2, seed=1):
            found = step(token)
            expected = llamalib.decode_one(llama, token, cache)
            assert (found - expected).abs().max() < 0.1


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("padding", [None, [0], [0, 3, 1]])
def test_step_is_decode_one(uncompiled, kind, tied, padding):
    """Its angles are the cache's, as for positions that are interpolated."""
    llama = random_llama(tied=tied)
    if kind:
        quantize_model(llama, kind)
    B = len(padding or [0])
    cache = new_cache(llama, 20, B)
    if padding:
        cache = PaddedCache(llama.config, 20, torch.tensor(padding))
    cache.freqs_cis = llamalib.precompute_freqs_cis(8, 20, 10000.0)
    llamalib.prefill(llama, random_ids(B, 5), cache)
    step = compile_step(llama, cache)
    for token in random_ids(15, B, seed=1):
        found = step(token)
        expected = llamalib.decode_one(llama, token, cache)
        assert (found - expected).abs().max() < 1e-5


def test_a_static_cache_is_a_copy():
    """Columns after the text are 0: infinity times a weight of 0 is NaN."""
    llama = random_llama()
    cache = new_cache(llama, 9)
    llamalib.prefill(llama, random_ids(1, 5), cache)
    cache.layers[0].v[:, :, 5:] = torch.inf
    static = StaticCache(cache, 32)
    assert static.positions().item() == static.column.item() == 5
    for mine, its in zip(static.layers, cache.layers, strict=True):
        assert mine.k.shape == (1, 2, 32, 8)
        assert torch.equal(mine.v[:, :, :5], its.v[:, :, :5])
        assert not mine.v[:, :, 5:].any()
        mine.k.zero_()
        assert its.k.any()
    assert (static.mask() == 0).sum() == 6


@torch.inference_mode()
@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_product_as_sums(B, dtype):
    x, linear = torch.randn(B, 1, 48), nn.Linear(48, 20, bias=False)
    x, linear = x.to(dtype), linear.to(dtype)
    found = linear_as_sums(x, linear.weight)
    assert found.dtype == dtype
    assert (found.float() - linear(x).float()).abs().max() < 0.02


@pytest.mark.parametrize("n", [1, 256, 257, 4096, 4097, 4200, 131072])
def test_sizes_are_few_and_fit(n):
    found = static_size(n)
    assert n <= found <= max(256, 2 * n) and found % 256 == 0
    assert static_size(found) == found


def test_the_model_stays_as_it_is(uncompiled):
    llama = random_llama()
    modules = {name: type(each) for name, each in llama.named_modules()}
    where = {n: w.data_ptr() for n, w in llama.state_dict().items()}
    greedy(llama, [1], 3, compile=True)
    assert where == {n: w.data_ptr() for n, w in llama.state_dict().items()}
    assert modules == {n: type(each) for n, each in llama.named_modules()}
    made = with_compiled_blocks(llama)  # shares its weights
    shared = zip(made.parameters(), llama.parameters(), strict=True)
    assert all(mine is its for mine, its in shared)
    llama.requires_grad_()
    llama(torch.tensor([1, 2])).sum().backward()  # can still be trained


def test_no_memory_is_kept_however_a_generation_ends(uncompiled):
    llama = random_llama()
    options = dict(max_new_tokens=9, stop=(), compile=True)
    greedy(llama, [1], 9, compile=True)
    before = live_bytes()
    for how in ("all", "closed", "dropped"):
        ids = llamalib.generate(llama, [1], **options)
        for _ in range(2):
            next(ids)
        if how == "all":
            assert live_bytes() > before
            list(ids)
        elif how == "closed":
            ids.close()
        del ids
        assert live_bytes() == before, how


def test_an_interruption_breaks_nothing(uncompiled, monkeypatch):
    """A notebook keeps the traceback, and so the generation."""
    llama = random_llama()
    expected = greedy(llama, [1], 9)
    ids = llamalib.generate(
        llama, [1], max_new_tokens=9, stop=(), compile=True
    )
    next(ids)

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StaticCache, "mask", interrupt)
        with pytest.raises(KeyboardInterrupt) as kept:
            next(ids)
    assert greedy(llama, [1], 9, compile=True) == expected and kept.tb


def test_exchanged_modules_are_compiled_too(uncompiled):
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    llama = random_llama()
    plain = greedy(llama, [1], 9)
    w1 = llama.layers[0].feed_forward.w1
    llama.layers[0].feed_forward.w1 = scaled = Scaled(64, 256, bias=False)
    scaled.weight = w1.weight
    expected = greedy(llama, [1], 9)
    assert expected != plain
    assert greedy(llama, [1], 9, compile=True) == expected


def test_replaced_functions_are_not_ignored(uncompiled):
    llama = random_llama()
    plain = greedy(llama, [1], 9, compile=True)

    def unscaled(x, weight, eps):
        return x

    with llamalib.replaced(rms_norm=unscaled):
        expected = greedy(llama, [1], 9)
        assert greedy(llama, [1], 9, compile=True) == expected != plain
    assert greedy(llama, [1], 9, compile=True) == plain


def test_hooks_are_refused():
    llama = random_llama()
    wo = llama.layers[1].attention.wo
    everywhere = nn.modules.module
    for register in (
        wo.register_forward_hook,
        wo.register_forward_pre_hook,
        everywhere.register_module_forward_hook,
        everywhere.register_module_forward_pre_hook,
    ):
        hook = register(lambda *args: None)
        with pytest.raises(ValueError, match="compile=True .* with hooks;"):
            llamalib.generate(llama, [1], max_new_tokens=2, compile=True)
        hook.remove()


@pytest.mark.parametrize("how", ["hook", "global hook", "weight"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("batch", [True, False])
def test_a_change_during_a_generation_is_named(
    uncompiled, monkeypatch, how, whole, batch
):
    """Also when a stop id ends it."""
    llama = random_llama()
    stop = () if whole else greedy(llama, [1], 9)[6:7]
    w1, mask = llama.layers[0].feed_forward.w1, StaticCache.mask
    hooks = []

    def change(*args):
        if how == "global hook":
            register = nn.modules.module.register_module_forward_hook
            hooks.append(register(lambda *args: None))
        elif how == "hook":
            w1.register_forward_hook(lambda *args: None)
        else:
            w1.weight = nn.Parameter(w1.weight.clone())
        return mask(*args)

    monkeypatch.setattr(StaticCache, "mask", change)
    options = dict(max_new_tokens=9, stop=stop, compile=True)
    try:
        with pytest.raises(RuntimeError, match="exchanged while it generate"):
            if batch:
                llamalib.generate_batch(llama, [[1]], **options)
            else:
                list(llamalib.generate(llama, [1], **options))
    finally:
        for hook in hooks:
            hook.remove()


def test_a_change_after_a_generation_is_none_of_its_business(uncompiled):
    """Its iterator may still exist, as after a loop that was left."""
    llama = random_llama()
    ids = llamalib.generate(llama, [1], max_new_tokens=9, compile=True)
    next(ids)
    w1 = llama.layers[0].feed_forward.w1
    w1.weight = nn.Parameter(w1.weight.clone())
    ids.close()  # raises nothing


@needs_compiler
def test_what_cannot_be_compiled_is_one_sentence():
    class Printing(nn.Linear):
        def forward(self, x):
            torch._dynamo.graph_break()
            return super().forward(x)

    llama = random_llama()
    llama.layers[0].feed_forward.w1 = Printing(64, 256, bias=False)
    words = "this model cannot be compiled, use compile=False"
    with pytest.raises(RuntimeError, match=words):
        greedy(llama, [1], 3, compile=True)


def test_two_at_a_time_do_not_mix(uncompiled):
    llama = random_llama()
    prompts = [[1, 2, 3], [4, 5]]
    expected = [greedy(llama, p, 30) for p in prompts]
    both = [
        llamalib.generate(llama, p, max_new_tokens=30, stop=(), compile=True)
        for p in prompts
    ]
    assert [list(ids) for ids in zip(*zip(*both))] == expected


def test_other_weights_are_seen(uncompiled):
    llama, other = random_llama(), random_llama(seed=1)
    greedy(llama, [1], 3, compile=True)
    llama.load_state_dict(other.state_dict())  # into the same memory
    expected = greedy(other, [1], 30)
    assert greedy(llama, [1], 30, compile=True) == expected
    third = random_llama(seed=2)
    llama.load_state_dict(third.state_dict(), assign=True)
    expected = greedy(third, [1], 30)
    assert greedy(llama, [1], 30, compile=True) == expected
    llama.double()
    assert greedy(llama, [1], 30, compile=True) == expected


PROGRAM = """
import llamalib
from tests import helpers
llama = helpers.random_llama()
new = llamalib.generate(llama, [1, 2], max_new_tokens=3, compile=True)
print("called")
"""


def test_without_a_compiler_one_sentence_says_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": str(ROOT), "CXX": "/nonexistent"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: compile=True on a CPU needs a C++")
    assert "apt install g++" in last and "CXX" in last


@needs_compiler
def test_a_space_in_torchs_folder_is_one_sentence(monkeypatch):
    """PyTorch's own call of the compiler breaks there."""
    monkeypatch.setattr(torch, "__file__", "/ll ama/torch/__init__.py")
    with pytest.raises(RuntimeError, match="a space in its name .*VENV="):
        llamalib.generate(random_llama(), [1], max_new_tokens=2, compile=True)


def decode_in(llama, cache, token):
    return llamalib.decode_one(llama, token, cache)


class TestCuda:
    pytestmark = needs_cuda

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_replayed_is_decode_one(self, dtype, kind):
        llama = random_llama().to(dtype)
        llama = quantize_model(llama, kind) if kind else llama
        llama.cuda()
        torch.backends.cuda.matmul.allow_tf32 = False
        with torch.inference_mode():
            cache = new_cache(llama, 200)
            llamalib.prefill(llama, random_ids(1, 5).cuda(), cache)
            step = compile_step(llama, cache)
            for token in random_ids(190, 1, seed=1).cuda():
                found = step(token)
                expected = llamalib.decode_one(llama, token, cache)
                bound = 1e-3 if dtype == torch.float32 else 0.1
                distance = (found - expected).norm() / expected.norm()
                assert distance < bound

    def test_it_is_one_graph(self, monkeypatch):
        """No launch of PyTorch's own between two replays."""
        llama, replays = random_llama().cuda(), []
        replay = torch.cuda.CUDAGraph.replay

        def counted(graph):
            replays.append(graph)
            replay(graph)

        monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
        greedy(llama, [1], 20, compile=True)
        assert len(replays) >= 15

    def test_greedy_ids_are_the_same(self):
        llama, prompt = random_llama().cuda(), random_ids(6)
        expected = greedy(random_llama(), prompt, 300)
        assert greedy(llama, prompt, 300) == expected
        for _ in range(2):
            assert greedy(llama, prompt, 300, compile=True) == expected
        prompts = [[1, 2, 3, 4, 5], [6], [7, 8]]
        expected = [greedy(llama, p, 40) for p in prompts]
        for compile in (False, True):
            found = llamalib.generate_batch(
                llama, prompts, max_new_tokens=40, stop=(), compile=compile
            )
            assert found == expected

    @torch.inference_mode()
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    @pytest.mark.parametrize("compile", [False, True])
    def test_a_step_never_waits_for_the_gpu(self, compile, temperature):
        llama = random_llama().cuda()
        choose = partial(llamalib.sample, temperature=temperature)
        token = torch.tensor([3]).cuda()
        cache = new_cache(llama, 50)
        step = partial(decode_in, llama, cache)
        if compile:
            step = compile_step(llama, cache)
        for _ in range(5):  # compiles and records
            token = choose(step(token))
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(5):
                token = choose(step(token))
                ids = start_copy(token)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert ids() == token.tolist()

    def test_many_generations_keep_no_memory(self):
        llama = random_llama().cuda()
        for _ in range(3):
            greedy(llama, [1], 20, compile=True)
        before = torch.cuda.memory_allocated()
        for _ in range(50):
            greedy(llama, [1], 20, compile=True)
        assert torch.cuda.memory_allocated() == before
