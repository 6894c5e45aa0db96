import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from helpers import random_ids, random_llama

import llamalib
from llamalib import products
from llamalib.fast.products import QuickWeight, as_quick, in_strips, row_by_row
from llamalib.gqa import fused_attention

DTYPES = [torch.bfloat16, torch.float16]


@pytest.fixture
def small_counts(monkeypatch):
    """Every matrix of 16 bits is worth it, and what each way was given."""
    monkeypatch.setattr(products, "SMALL", 0)
    given = []

    def quickest_way(n, dtype, packed=False):
        given.append((n, dtype))
        return in_strips

    monkeypatch.setattr(products, "quickest_way", quickest_way)
    return given


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [in_strips, row_by_row])
@pytest.mark.parametrize("n", [1, 2, 7, 33])
def test_ways_are_the_product(way, n, dtype):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 96, generator=g).to(dtype)
    w = torch.randn(700, 96, generator=g).to(dtype)  # 2 strips and a part
    found, wanted = way(x, w), x.double() @ w.double().T
    assert found.shape == (n, 700) and found.dtype == dtype
    # half a unit in the last place of 8 or 11 bits, and some for the sum
    ulp = torch.finfo(dtype).eps * wanted.abs().clamp(min=1)
    assert ((found.double() - wanted).abs() < ulp).all()


def test_onednn_is_off_and_on_again(monkeypatch):
    onednn, seen, mv = torch.backends.mkldnn, [], torch.mv

    def watched(w, row):
        seen.append(onednn.enabled)
        return mv(w, row)

    monkeypatch.setattr(torch, "mv", watched)
    was = onednn.enabled
    x, w = torch.ones(2, 8).bfloat16(), torch.ones(4, 8).bfloat16()
    row_by_row(x, w)
    assert onednn.enabled == was and seen == [False, False]
    with pytest.raises(RuntimeError):
        row_by_row(x, torch.ones(4, 9).bfloat16())
    assert onednn.enabled == was


def test_takes_the_least_time(monkeypatch):
    """A way that is clearly quicker is taken, one as quick is not."""
    now, costs = [0.0], {}
    monkeypatch.setattr(products.time, "perf_counter", lambda: now[0])

    def slow(name, cost):
        costs[name] = cost

        def way(x, w):
            now[0] += costs[name]

        return way

    monkeypatch.setattr(products.F, "linear", slow("linear", 1.0))
    monkeypatch.setattr(products, "in_strips", slow("strips", 0.95))
    monkeypatch.setattr(products, "row_by_row", slow("rows", 0.5))
    quickest_way = products.quickest_way.__wrapped__
    assert quickest_way(1, torch.bfloat16) is products.row_by_row
    assert quickest_way(16, torch.bfloat16) is products.F.linear
    costs["strips"] = 0.4
    assert quickest_way(16, torch.bfloat16) is products.in_strips


def test_the_model_runs_on_it(small_counts):
    llama = random_llama().to(torch.bfloat16)
    tokens = random_ids(9)
    with torch.no_grad():
        found = llama(tokens)
        # 7 matrices in each of 2 layers, and the output
        assert small_counts == [(8, torch.bfloat16)] * 15
        wanted = random_llama()(tokens)
        llama(tokens[:1])
    assert small_counts[15] == (1, torch.bfloat16)  # is asked once for all
    assert small_counts[16:] == [(1, torch.bfloat16)] * 15
    assert (found - wanted).abs().max() < 0.1


@torch.no_grad()
def test_one_row_switches_once_and_back(monkeypatch):
    monkeypatch.setattr(products, "SMALL", 0)
    monkeypatch.setattr(products, "quickest_way", lambda *how: row_by_row)
    llama, onednn, seen = random_llama().bfloat16(), [], []

    def attend(*qkv):
        onednn.append(torch.backends.mkldnn.enabled)
        if seen:
            raise ValueError("mine")
        return fused_attention(*qkv)

    was = torch.backends.mkldnn.enabled
    found = llama(torch.tensor([3]), attend=attend)
    assert onednn == [False, False]
    assert torch.backends.mkldnn.enabled == was
    assert (found - random_llama()(torch.tensor([3]))).abs().max() < 0.1
    seen.append(1)
    with pytest.raises(ValueError, match="mine"):
        llama(torch.tensor([3]), attend=attend)
    assert torch.backends.mkldnn.enabled == was


def test_can_be_trained(small_counts):
    """Ways that write over their room keep nothing for a gradient."""
    llama = random_llama().bfloat16().requires_grad_()
    llama(random_ids(5)).square().mean().backward()
    assert small_counts == []
    assert all(w.grad is not None for w in llama.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_what_is_worth_it(dtype):
    weights = {
        "large": torch.ones(1024, 1024, dtype=dtype),
        "small": torch.ones(16, 16, dtype=dtype),
        "norm": torch.ones(1024 * 1024, dtype=dtype),
    }
    kinds = {name: type(w) for name, w in as_quick(weights, {}).items()}
    large = QuickWeight if dtype == torch.bfloat16 else torch.Tensor
    wanted = {"large": large, "small": torch.Tensor, "norm": torch.Tensor}
    assert kinds == wanted


def test_elsewhere_it_is_the_tensor(small_counts):
    w = torch.randn(6, 4).bfloat16()
    same = as_quick({"w": w}, {})["w"]
    assert same.data_ptr() == w.data_ptr()
    assert torch.equal(F.embedding(torch.tensor([2]), same)[0], w[2])
    assert type(same.T) is type(same + 1) is torch.Tensor
    x = torch.randn(3, 2, 4).bfloat16()
    bias = torch.ones(6).bfloat16()
    assert torch.equal(F.linear(x, same, bias), F.linear(x, w, bias))
    assert small_counts == []
    assert F.linear(x, same).shape == (3, 2, 6) and len(small_counts) == 1


# -- a second copy, in oneDNN's order ----------------------------------------

needs_blocks = pytest.mark.skipif(
    products.pack(torch.ones(64, 64).bfloat16()) is None,
    reason="this processor has no bfloat16 products of its own",
)


@pytest.fixture
def always_blocks(monkeypatch):
    """Blocks are taken wherever there are any; how often they were."""
    taken = []

    def in_blocks(x, w):
        taken.append(w.shape)
        return products.in_blocks(x, w)

    def quickest_way(n, dtype, packed=False):
        return in_blocks if packed else F.linear

    monkeypatch.setattr(products, "SMALL", 0)
    monkeypatch.setattr(products, "quickest_way", quickest_way)
    monkeypatch.setattr(products, "packing_pays", lambda dtype: True)
    return taken


@needs_blocks
@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
def test_packed_is_not_packed(always_blocks, tied):
    llama = random_llama(tied=tied).to(torch.bfloat16)
    tokens = random_ids(3, 9)
    wanted = llama(tokens)
    assert not always_blocks
    llama.pack()
    found = llama(tokens)
    assert len(always_blocks) == 15
    assert (found - wanted).abs().max() < 0.1
    assert (found - wanted).abs().mean() < 0.01


@needs_blocks
@torch.no_grad()
def test_other_weights_than_were_packed_are_seen(always_blocks):
    llama, tokens = random_llama().to(torch.bfloat16), random_ids(9)
    llama.pack()
    llama(tokens)
    assert len(always_blocks) == 15
    other = random_llama(seed=1).to(torch.bfloat16)
    for assign in (False, True):
        always_blocks.clear()
        llama.load_state_dict(other.state_dict(), assign=assign)
        assert torch.equal(llama(tokens), other(tokens))
        assert not always_blocks
    llama.pack()
    llama(tokens)
    assert len(always_blocks) == 15
    llama.float()
    assert torch.equal(llama(tokens), other.float()(tokens))


@needs_blocks
def test_generate_packs_when_it_may(always_blocks):
    llama = random_llama().to(torch.bfloat16)
    how = dict(max_new_tokens=5, stop=())
    list(llamalib.generate(llama, [1, 2, 3], **how))
    assert not always_blocks
    list(llamalib.generate(llama, [1, 2, 3], compile=True, **how))
    assert len(always_blocks) == 5 * 15
    # and anew, once other weights are in their place
    llama.load_state_dict(random_llama(seed=1).state_dict())
    list(llamalib.generate(llama, [1, 2, 3], **how))
    assert len(always_blocks) == 5 * 15
    list(llamalib.generate(llama, [1, 2, 3], compile=True, **how))
    assert len(always_blocks) == 10 * 15
    # a copy of the model packs its own
    assert not copy.deepcopy(llama)._packed


def test_a_processor_without_blocks_is_left_alone(monkeypatch):
    monkeypatch.setattr(products, "SMALL", 0)

    def unknown(w, rows):
        raise RuntimeError("needs the cpu support avx512bw")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", unknown)
    llama = random_llama().to(torch.bfloat16)
    llama.pack()
    assert llama._packed == {}
    assert len(list(llamalib.generate(llama, [1], max_new_tokens=3))) == 3


def test_float32_is_not_packed():
    llama = random_llama()
    llama.pack()
    assert llama._packed == {}


def test_two_threads_can_time_and_switch():
    """One in a step without oneDNN asks for a time while another times."""
    inside, asked = threading.Event(), threading.Event()

    def first():
        with products.own_kernels():
            inside.set()
            asked.wait(0.5)  # the other is waiting, or has begun
            products.quickest([lambda: 0], [()])

    def way():
        with products.own_kernels():
            return 0

    def second():
        inside.wait(5)
        asked.set()
        products.quickest([way], [()])

    threads = [
        threading.Thread(target=f, daemon=True) for f in (first, second)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


def test_timing_leaves_the_threads_as_they_were():
    threads = torch.get_num_threads()
    products.quickest_way.__wrapped__(1, torch.bfloat16)
    assert torch.get_num_threads() == threads


@needs_blocks
def test_weights_of_inference_mode_are_not_packed(always_blocks):
    """Nobody counts how often these are written to."""
    with torch.inference_mode():
        llama = random_llama().bfloat16()
        llama.pack()
        llama(random_ids(5))
    assert not llama._packed and not always_blocks


@needs_blocks
def test_a_packed_model_can_be_trained(always_blocks):
    llama = random_llama().bfloat16()
    llama.pack()
    llama.requires_grad_()
    llama(random_ids(5)).square().mean().backward()
    assert not always_blocks
    assert all(w.grad is not None for w in llama.parameters())


def test_a_product_the_other_way_round(small_counts):
    q = QuickWeight.of(torch.randn(6, 4).bfloat16())
    x = torch.randn(3, 4).bfloat16()
    assert F.linear(q, x).shape == (6, 3) and not small_counts
