import copy
import gc
import shutil
import weakref
from functools import partial

import pytest
import torch

import llamalib
from llamalib.fast import prepare, release
from llamalib.fast.step import CompiledDecode, columns_for, compiled_step
from llamalib.generate import start_copy
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


def new_cache(llama, *sizes, padding=None):
    """Return an empty cache of a model's device and dtype."""
    like = dict(device=llama.device, dtype=llama.dtype)
    return llamalib.KVCache(llama.config, *sizes, padding=padding, **like)


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
        caches = mine, cache = [new_cache(llama, 20) for _ in range(2)]
        step = compiled_step(llama, mine)
        for c in caches:
            llamalib.prefill(llama, random_ids(1, 5), c)
        for token in random_ids(5, 1, seed=1):
            found = step(llama, token, mine)
            expected = llamalib.decode_one(llama, token, cache)
            assert (found - expected).abs().max() < 0.1
    # no second copy: the weights stay where they are on a CPU
    assert where == [w.data_ptr() for w in llama.parameters()]


@torch.inference_mode()
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("B", [1, 3])
def test_step_is_decode_one(uncompiled, tied, B):
    llama = random_llama(tied=tied)
    mine, cache = new_cache(llama, 20, B), new_cache(llama, 20, B)
    step = compiled_step(llama, mine)
    prompt = random_ids(B, 5)
    first = llamalib.prefill(llama, prompt, mine)
    assert torch.equal(first, llamalib.prefill(llama, prompt, cache))
    for token in random_ids(15, B, seed=1):
        found = step(llama, token, mine)
        expected = llamalib.decode_one(llama, token, cache)
        assert (found - expected).abs().max() < 1e-5
    assert mine.length == mine.layers[0].length == 20
    for a, b in zip(mine.layers, cache.layers):
        assert (a.k[:, :, :20] - b.k).abs().max() < 1e-5
        assert (a.v[:, :, :20] - b.v).abs().max() < 1e-5


@torch.inference_mode()
def test_plain_steps_may_follow(uncompiled):
    """Both kinds of step read and write the same cache."""
    llama = random_llama()
    mine, cache = new_cache(llama, 9), new_cache(llama, 9)
    step = compiled_step(llama, mine)
    for i, token in enumerate(random_ids(9, 1)):
        run = llamalib.decode_one if i % 2 else step
        found = run(llama, token, mine)
        expected = llamalib.decode_one(llama, token, cache)
        assert (found - expected).abs().max() < 1e-5


@torch.inference_mode()
def test_angles_are_the_caches(uncompiled):
    """As for a text whose positions are interpolated."""
    llama = random_llama()
    caches = mine, cache = [new_cache(llama, 20) for _ in range(2)]
    for c in caches:
        c.freqs_cis = llamalib.precompute_freqs_cis(8, 20, 10000.0)
    step = compiled_step(llama, mine)
    for token in random_ids(9, 1):
        found = step(llama, token, mine)
        expected = llamalib.decode_one(llama, token, cache)
        assert (found - expected).abs().max() < 1e-5


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


def at_column(cache, column):
    """Return the cache as if this number of columns were filled."""
    cache.advance(column - cache.length)
    return cache


@torch.inference_mode()
def test_looks_at_no_more_than_it_must(uncompiled):
    """More columns when those are full, and in what order ever."""
    llama = random_llama()
    cache = new_cache(llama, 1024)
    step = CompiledDecode.borrow(llama, cache)
    sizes = []
    for length in (0, 255, 256, 511, 512, 1000, 3):
        step(torch.tensor([1]), at_column(cache, length))
        sizes.append(sorted(step.steps))
    assert sizes[1] == [256] and sizes[3] == [256, 512]
    assert sizes[-1] == [256, 512, 1024]
    for run in (step, lambda *a: llamalib.decode_one(llama, *a)):
        words = "full: 1025 tokens, capacity 1024; .* larger"
        with pytest.raises(ValueError, match=words):
            run(torch.tensor([1]), at_column(cache, 1024))


@torch.inference_mode()
def test_behind_a_long_text(uncompiled):
    """Where the columns are no power of two."""
    llama, token = random_llama(), torch.tensor([7])
    caches = mine, cache = [new_cache(llama, 2200) for _ in range(2)]
    step = CompiledDecode.borrow(llama, mine)
    for c in caches:
        torch.manual_seed(0)
        for layer in c.layers:
            for tensor in (layer.k, layer.v):
                tensor[:, :, :2100].normal_()
        c.advance(2100)
    found = step(token, mine)
    assert list(step.steps) == [3072] == [step.keys.shape[3]]
    expected = llamalib.decode_one(llama, token, cache)
    assert (found - expected).abs().max() < 1e-4


def test_no_number_of_an_old_text_is_seen(uncompiled):
    """Weights that were no numbers, then others in their place."""
    llama = random_llama()
    expected = greedy(llama, [1, 2], 5, compile=True)
    idle = llama.compiled
    idle.keys.fill_(float("nan"))
    idle.values.fill_(float("inf"))
    assert greedy(llama, [1, 2], 5, compile=True) == expected
    assert llama.compiled is idle


@torch.inference_mode()
def test_what_is_not_yet_written_is_not_seen(uncompiled):
    llama = random_llama()
    mine, cache = new_cache(llama, 20), new_cache(llama, 20)
    step = CompiledDecode.borrow(llama, mine)
    step.keys.fill_(1e4)
    step.values.fill_(1e4)
    llamalib.prefill(llama, random_ids(1, 5), mine)
    llamalib.prefill(llama, random_ids(1, 5), cache)
    token = torch.tensor([7])
    expected = llamalib.decode_one(llama, token, cache)
    assert (step(token, mine) - expected).abs().max() < 1e-5


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
    other = copy.deepcopy(llama)
    assert other.compiled is None
    expected = greedy(llama, [1], 20)
    assert greedy(other, [1], 20, compile=True) == expected
    assert other.compiled is not llama.compiled


@pytest.mark.parametrize("how", ["all", "closed", "dropped", "stopped"])
def test_it_comes_back_however_a_generation_ends(uncompiled, how):
    llama = random_llama()
    options = dict(max_new_tokens=9, stop=(), compile=True)
    if how == "stopped":
        new = greedy(llama, [1], 9)
        options["stop"] = [next(i for i in new if i not in new[:2])]
    ids = llamalib.generate(llama, [1], **options)
    for _ in range(2):
        next(ids)
    assert getattr(llama, "compiled", None) is None  # it is in use
    if how in ("all", "stopped"):
        list(ids)
    elif how == "closed":
        ids.close()
    del ids
    idle = llama.compiled
    assert idle is not None and idle.weights is None
    greedy(llama, [1, 2], 20, compile=True)
    assert llama.compiled is idle


def test_it_comes_back_after_an_interruption(uncompiled, monkeypatch):
    """At once: a notebook keeps the traceback, and so the generation."""
    llama = random_llama()
    expected = greedy(llama, [1], 9)
    ids = llamalib.generate(
        llama, [1], max_new_tokens=9, stop=(), compile=True
    )
    next(ids)

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CompiledDecode, "make_step", interrupt)
        with pytest.raises(KeyboardInterrupt) as kept:
            next(ids)
    idle = llama.compiled
    assert idle is not None and kept.tb
    assert greedy(llama, [1], 9, compile=True) == expected
    assert llama.compiled is idle


def test_one_new_token_compiles_nothing(uncompiled):
    llama = random_llama()
    assert greedy(llama, [1], 1, compile=True) == greedy(llama, [1], 1)
    assert llama.compiled.steps == {}


def test_hooks_and_other_modules_are_not_ignored():
    """The compiled step reads the weights itself."""
    words = "compile=True does not work with hooks or exchanged modules yet"

    def refused(llama):
        with pytest.raises(ValueError, match=words):
            llamalib.generate(llama, [1], max_new_tokens=2, compile=True)

    llama = random_llama()
    wo = llama.layers[1].attention.wo
    for register in (wo.register_forward_hook, wo.register_forward_pre_hook):
        hook = register(lambda *args: None)
        refused(llama)
        hook.remove()

    class Scaled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    llama.layers[0].feed_forward.w1 = Scaled(64, 256, bias=False)
    refused(llama)


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


def test_nothing_keeps_old_weights(uncompiled):
    """Each matrix is an array's memory, so that one can see it go."""
    llama, arrays = random_llama(), []
    for w in llama.parameters():
        array = w.detach().numpy().copy()
        w.data = torch.from_numpy(array)
        arrays.append(weakref.ref(array))
    del array
    greedy(llama, [1], 3, compile=True)
    assert all(array() is not None for array in arrays)
    gc.disable()
    try:
        llama.double()
        assert [array for array in arrays if array() is not None] == []
    finally:
        gc.enable()
    greedy(llama, [1], 3, compile=True)
    release(llama)
    assert llama.compiled is None


def test_made_in_one_mode_used_in_another(uncompiled):
    llama = random_llama()
    expected = greedy(llama, [1, 2], 5)
    assert greedy(llama, [1, 2], 5, compile=True) == expected
    idle = llama.compiled
    with torch.no_grad():  # generate made it in inference mode
        cache = new_cache(llama, 9, 1, padding=torch.tensor([0]))
        step = compiled_step(llama, cache)
        logits = llamalib.prefill(llama, torch.tensor([[1, 2]]), cache)
        found = [logits.argmax(-1)]
        for _ in range(4):
            found.append(step(llama, found[-1], cache).argmax(-1))
    assert [int(i) for i in found] == expected
    del step
    assert llama.compiled is idle


def test_a_long_call_between_two_short_ones(uncompiled):
    """In other memory: the old step still reads its own."""
    llama = random_llama()
    expected = greedy(llama, [1], 20, compile=True)
    short = llama.compiled
    with torch.inference_mode():
        step = compiled_step(llama, new_cache(llama, 3000))
        assert greedy(llama, [1], 20, compile=True) == expected
        del step
    assert llama.compiled is not short
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
        found = llamalib.generate_batch(
            llama, prompts, compile=True, **options
        )
        assert found == expected


class TestCuda:
    pytestmark = needs_cuda

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_replayed_is_decode_one(self, dtype):
        """Past 256 columns: a second graph."""
        llama = random_llama().cuda().to(dtype)
        torch.backends.cuda.matmul.allow_tf32 = False
        with torch.inference_mode():
            caches = mine, cache = [new_cache(llama, 300) for _ in range(2)]
            step = CompiledDecode.borrow(llama, mine)
            for c in caches:
                llamalib.prefill(llama, random_ids(1, 5).cuda(), c)
            for token in random_ids(290, 1, seed=1).cuda():
                found = step(token, mine)
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
        choose = partial(llamalib.sample, temperature=temperature)
        token = torch.tensor([3]).cuda()
        cache = new_cache(llama, 50)
        step = compiled_step(llama, cache) if compile else llamalib.decode_one
        token = choose(step(llama, token, cache))
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(5):
                token = choose(step(llama, token, cache))
                ids = start_copy(token)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert ids() == token.tolist()

    def test_a_long_call_between_two_short_ones(self):
        llama = random_llama().cuda()
        expected = greedy(llama, [1], 20, compile=True)
        greedy(llama, random_ids(3000), 2)
        full = [torch.randn(1000, device="cuda") for _ in range(100)]
        assert greedy(llama, [1], 20, compile=True) == expected and full

    @torch.inference_mode()
    def test_logits_are_not_written_over(self):
        llama = random_llama().cuda()
        cache = new_cache(llama, 20)
        step = compiled_step(llama, cache)
        first = step(llama, torch.tensor([1]).cuda(), cache)
        kept = first.clone()
        step(llama, torch.tensor([2]).cuda(), cache)
        assert torch.equal(first, kept)

    def test_many_generations_keep_no_memory(self):
        llama = random_llama().cuda()
        for _ in range(3):
            greedy(llama, [1], 20, compile=True)
        before = torch.cuda.memory_allocated()
        for _ in range(50):
            greedy(llama, [1], 20, compile=True)
        assert torch.cuda.memory_allocated() == before
