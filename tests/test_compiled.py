import copy
import gc
import shutil
import weakref
from functools import partial

import pytest
import torch

import llamalib
from llamalib.decoding import read_later
from llamalib.fast import prepare, release
from llamalib.fast.step import CompiledDecode, columns_for
from tests.helpers import needs_cuda, random_ids, random_llama
from tests.test_fast import large_llama, process_wide

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")),
    reason="torch.compile on a CPU needs a C++ compiler",
)


@pytest.fixture
def uncompiled():
    """The step as it is written: what is compiled, in no time."""
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("CompiledDecode asks for a C++ compiler")
    with torch.compiler.set_stance("force_eager"):
        yield


def greedy(llama, prompt, n, **options):
    return list(
        llamalib.generate(llama, prompt, max_new_tokens=n, stop=(), **options)
    )


@needs_compiler
def test_compiled_is_not_compiled(tmp_path, monkeypatch):
    """Past 256 columns, where a second step is compiled."""
    # the cache that all programs share may hold another processor's code
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    before = process_wide()
    llama, prompt = random_llama(), random_ids(6)
    expected = greedy(random_llama(), prompt, 300)
    assert greedy(llama, prompt, 300, compile=True) == expected
    assert list(llama.compiled.steps) == [256, 512]
    # another model, another batch: compiled on its own; and a block once
    # for all layers
    other, prompts = random_llama(seed=1, tied=False), [[1, 2, 3], [4]]
    options = dict(max_new_tokens=20, stop=())
    expected = llamalib.generate_batch(other, prompts, **options)
    with monkeypatch.context() as patch:
        patch.setattr(torch._dynamo.config, "error_on_recompile", True)
        found = llamalib.generate_batch(
            other, prompts, compile=True, **options
        )
    assert found == expected
    assert process_wide() == before


@needs_compiler
def test_compiled_in_16_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    llama = prepare(large_llama())
    where = [w.data_ptr() for w in llama.parameters()]
    with torch.inference_mode():
        step, cache = CompiledDecode(llama, 20), llama.new_cache(20)
        for c in (step.cache, cache):
            llamalib.prefill(llama, random_ids(1, 5), c)
        for token in random_ids(5, 1, seed=1):
            found = step(token)
            expected = llamalib.decode_one(llama, token, cache)
            assert (found - expected).abs().max() < 0.1
    # no second copy: the weights stay where they are on a CPU
    assert where == [w.data_ptr() for w in llama.parameters()]


@torch.inference_mode()
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("B", [1, 3])
def test_step_is_decode_one(uncompiled, tied, B):
    llama = random_llama(tied=tied)
    step = CompiledDecode(llama, 20, B)
    cache = llama.new_cache(20, B)
    prompt = random_ids(B, 5)
    first = llamalib.prefill(llama, prompt, step.cache)
    assert torch.equal(first, llamalib.prefill(llama, prompt, cache))
    for token in random_ids(15, B, seed=1):
        found = step(token)
        expected = llamalib.decode_one(llama, token, cache)
        assert (found - expected).abs().max() < 1e-5
    assert step.cache.length == 20
    assert (step.cache.k[:, :, :, :20] - cache.k).abs().max() < 1e-5
    assert (step.cache.v[:, :, :, :20] - cache.v).abs().max() < 1e-5


def test_columns_for():
    """More than the column, in few sizes, and not many more if many."""
    sizes = {column: columns_for(column) for column in range(2**17)}
    assert sizes[0] == sizes[255] == 256 and sizes[256] == sizes[511] == 512
    assert sizes[512] == sizes[1023] == 1024 and sizes[1024] == 2048
    assert sizes[2048] == 3072 and sizes[8192] == 10240
    assert all(S > column for column, S in sizes.items())
    long = range(4096, 2**17)
    assert all(sizes[column] <= 1.25 * (column + 1) for column in long)
    assert len(set(sizes.values())) < 30
    # a cache of so many columns has room for each of its steps
    assert all(columns_for(S - 1) == S for S in sizes.values())


@torch.inference_mode()
def test_looks_at_no_more_than_it_must(uncompiled):
    """More columns when those are full, and in what order ever."""
    llama = random_llama()
    step = CompiledDecode(llama, 1000)
    sizes = []
    for length in (0, 255, 256, 511, 512, 1000, 3):
        step.cache.length = length
        step(torch.tensor([1]))
        sizes.append(sorted(step.steps))
    assert sizes[1] == [256] and sizes[3] == [256, 512]
    assert sizes[-1] == [256, 512, 1024]
    step.cache.length = 1024
    with pytest.raises(ValueError, match="position is 1024; .* 1024; .* larger"):
        step(torch.tensor([1]))


@torch.inference_mode()
def test_behind_a_long_text(uncompiled):
    """Where the columns are no power of two."""
    llama, token = random_llama(), torch.tensor([7])
    step, cache = CompiledDecode(llama, 2200), llama.new_cache(2200)
    for c in (step.cache, cache):
        torch.manual_seed(0)
        for tensor in (c.k, c.v):
            tensor[..., :2100, :].normal_()
        c.length = 2100
    found = step(token)
    assert list(step.steps) == [3072] == [step.cache.max_seq_len]
    expected = llamalib.decode_one(llama, token, cache)
    assert (found - expected).abs().max() < 1e-4


def test_no_number_of_an_old_text_is_seen(uncompiled):
    """Weights that were no numbers, then others in their place."""
    llama = random_llama()
    expected = greedy(llama, [1, 2], 5, compile=True)
    idle = llama.compiled
    idle.cache.k.fill_(float("nan"))
    idle.cache.v.fill_(float("inf"))
    assert greedy(llama, [1, 2], 5, compile=True) == expected
    assert llama.compiled is idle


@torch.inference_mode()
def test_what_is_not_yet_written_is_not_seen(uncompiled):
    llama = random_llama()
    step = CompiledDecode(llama, 20)
    step.cache.k.fill_(1e4)
    step.cache.v.fill_(1e4)
    cache = llama.new_cache(20)
    llamalib.prefill(llama, random_ids(1, 5), step.cache)
    llamalib.prefill(llama, random_ids(1, 5), cache)
    token = torch.tensor([7])
    expected = llamalib.decode_one(llama, token, cache)
    assert (step(token) - expected).abs().max() < 1e-5


def test_weights_keep_names_and_values(uncompiled):
    llama = random_llama()
    before = {n: w.clone() for n, w in llama.state_dict().items()}
    where = [w.data_ptr() for w in llama.parameters()]
    greedy(llama, [1], 3, compile=True)
    after = llama.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[n], before[n]) for n in before)
    assert where == [w.data_ptr() for w in llama.parameters()]
    llama.requires_grad_()
    llama(torch.tensor([1, 2])).sum().backward()  # can still be trained


def test_the_last_one_is_borrowed_again(uncompiled):
    llama = random_llama()
    greedy(llama, [1], 3, compile=True)
    first = llama.compiled
    greedy(llama, [1, 2], 200, compile=True)
    assert llama.compiled is first
    greedy(llama, [1], 300, compile=True)  # does not fit
    assert llama.compiled is not first
    assert copy.deepcopy(llama).compiled is None


def test_two_at_a_time_do_not_mix(uncompiled):
    llama = random_llama()
    prompts = [[1, 2, 3], [4, 5]]
    expected = [greedy(llama, p, 30) for p in prompts]
    both = [
        llamalib.generate(llama, p, max_new_tokens=30, stop=(), compile=True)
        for p in prompts
    ]
    assert [list(ids) for ids in zip(*zip(*both))] == expected


def test_nothing_keeps_an_old_model(uncompiled):
    llama = random_llama()
    greedy(llama, [1], 3, compile=True)
    gone = weakref.ref(llama)
    gc.disable()
    try:
        del llama
        assert gone() is None
    finally:
        gc.enable()
    llama = random_llama()
    greedy(llama, [1], 3, compile=True)
    llama.double()
    assert llama.compiled is None
    greedy(llama, [1], 3, compile=True)
    release(llama)
    assert llama.compiled is None


def test_made_in_one_mode_used_in_another(uncompiled):
    llama = random_llama()
    expected = greedy(llama, [1, 2], 5)
    assert greedy(llama, [1, 2], 5, compile=True) == expected
    with torch.no_grad():  # generate made it in inference mode
        step = CompiledDecode.borrow(llama, 9, padding=torch.tensor([0]))
        logits = llamalib.prefill(llama, torch.tensor([[1, 2]]), step.cache)
        found = [logits.argmax(-1)]
        for _ in range(4):
            found.append(step(found[-1]).argmax(-1))
    assert [int(i) for i in found] == expected


def test_a_long_call_between_two_short_ones(uncompiled):
    """RoPE's table is made again: the old step still reads its own."""
    llama = random_llama()
    expected = greedy(llama, [1], 20, compile=True)
    llama.freqs_cis_for(0, 5000)
    assert greedy(llama, [1], 20, compile=True) == expected


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


def test_batches(uncompiled):
    llama = random_llama()
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8]]
    options = dict(max_new_tokens=30, stop=())
    expected = llamalib.generate_batch(llama, prompts, **options)
    for _ in range(2):  # the second is borrowed
        found = llamalib.generate_batch(llama, prompts, compile=True, **options)
        assert found == expected


class TestCuda:
    pytestmark = needs_cuda

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_replayed_is_decode_one(self, dtype):
        """Past 256 columns: a second graph."""
        llama = random_llama().cuda().to(dtype)
        torch.backends.cuda.matmul.allow_tf32 = False
        with torch.inference_mode():
            step, cache = CompiledDecode(llama, 300), llama.new_cache(300)
            for c in (step.cache, cache):
                llamalib.prefill(llama, random_ids(1, 5).cuda(), c)
            for token in random_ids(290, 1, seed=1).cuda():
                found = step(token)
                expected = llamalib.decode_one(llama, token, cache)
                bound = 1e-3 if dtype == torch.float32 else 0.1
                assert (found - expected).abs().max() < bound
        assert list(step.steps) == [256, 512]

    def test_greedy_ids_are_the_same(self):
        llama, prompt = random_llama().cuda(), random_ids(6)
        expected = greedy(random_llama(), prompt, 300)
        assert greedy(llama, prompt, 300) == expected
        for _ in range(2):  # the second borrows
            assert greedy(llama, prompt, 300, compile=True) == expected

    def test_batches(self):
        llama = random_llama().cuda()
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
        choose = partial(llamalib.pick, temperature=temperature)
        token = torch.tensor([3]).cuda()
        if compile:
            step = CompiledDecode(llama, 50)
        else:
            cache = llama.new_cache(50)
            step = partial(llamalib.decode_one, llama, cache=cache)
        token = choose(step(token))
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(5):
                token = choose(step(token))
                ids = read_later(token)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert ids() == token.tolist()

    def test_a_long_call_between_two_short_ones(self):
        llama = random_llama().cuda()
        expected = greedy(llama, [1], 20, compile=True)
        greedy(llama, random_ids(3000), 2)  # RoPE's table is made again
        full = [torch.randn(1000, device="cuda") for _ in range(100)]
        assert greedy(llama, [1], 20, compile=True) == expected and full

    @torch.inference_mode()
    def test_logits_are_not_written_over(self):
        llama = random_llama().cuda()
        step = CompiledDecode(llama, 20)
        first = step(torch.tensor([1]).cuda())
        kept = first.clone()
        step(torch.tensor([2]).cuda())
        assert torch.equal(first, kept)

    def test_many_generations_keep_no_memory(self):
        llama = random_llama().cuda()
        for _ in range(3):
            greedy(llama, [1], 20, compile=True)
        before = torch.cuda.memory_allocated()
        for _ in range(50):
            greedy(llama, [1], 20, compile=True)
        assert torch.cuda.memory_allocated() == before
