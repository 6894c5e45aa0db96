import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

import llamalib
from llamalib.course.text import STORY
from llamalib.fast import quantized, weights
from llamalib.fast.weight import WAYS, FastWeight, fits_kernel
from llamalib.loading import describe
from llamalib.quantize import (
    pack_nibbles,
    quantize_groups,
    quantize_rows,
    unpack_nibbles,
)
from tests.helpers import random_llama, small_config, write_checkpoint
from tests.taught import taught

dequantize_rows, dequantize_groups, best_scales = taught(
    "B_quantization", "dequantize_rows", "dequantize_groups", "best_scales"
)
FLOATS = torch.float32, torch.bfloat16, torch.float16


def some(*shape, seed=0, dtype=torch.float32):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=chance).to(dtype)


def by_kernel(w):
    """The same, multiplied by PyTorch's kernel where there is one."""
    ways = dict.fromkeys(("1 row", "few rows", "more rows"), "kernel")
    made = FastWeight(w.numbers, w.scale, ways)
    made.make_copy()
    return made


def nearest(numbers, step, top):
    """Of the steps -top … top the one that is nearest to each number."""
    steps = step.double()[..., None] * torch.arange(-top, top + 1)
    gaps = (numbers.double()[..., None] - steps).abs()
    return steps.gather(-1, gaps.argmin(-1, keepdim=True))[..., 0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_row_stands_on_the_nearest_steps(dtype):
    w = some(7, 50, dtype=dtype)
    q, scale = quantize_rows(w)
    assert (q.dtype, scale.dtype, scale.shape) == (torch.int8, dtype, (7,))
    assert (q.abs().amax(1) >= 126).all() and q.min() >= -127
    expected = nearest(w, scale[:, None].expand(w.shape), 127)
    assert (dequantize_rows(q, scale) - expected).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", FLOATS)
def test_so_does_a_group(dtype):
    w = some(5, 96, dtype=dtype)
    w[:, :32] *= 100  # its neighbours must not feel it
    q, scale = quantize_groups(w)
    assert (q.shape, scale.shape) == ((5, 96), (5, 3))
    assert q.abs().max() == 7
    expected = nearest(w, scale.repeat_interleave(32, 1), 7)
    error = (dequantize_groups(q, scale) - expected).abs().max()
    assert error < 1e-6 * expected.abs().max()


def test_zeros_stay_zeros():
    w = torch.zeros(2, 32)
    w[1, 0] = 3
    assert torch.equal(dequantize_rows(*quantize_rows(w)), w)
    assert torch.equal(dequantize_groups(*quantize_groups(w, 8)), w)


@pytest.mark.parametrize("bits", [2, 4])
def test_a_searched_scale_is_the_best_of_seven(bits):
    """Each input has its own importance; a group of zeros stays."""
    w, h = some(3, 12), torch.linspace(0.1, 5, 12)
    w[1, :4] = 0
    found, top = best_scales(w, bits, 4, h), 2 ** (bits - 1) - 1
    for row, kept in zip(w, found):
        for start in range(0, 12, 4):
            part = slice(start, start + 4)
            tried = []
            for tenth in range(4, 11):
                s = max(row[part].abs().max().item(), 1e-9) * tenth / 10 / top
                q = (row[part] / s).round().clamp(-top, top)
                tried.append(q * s)
            errors = [(h[part] * (t - row[part]) ** 2).sum() for t in tried]
            error = (h[part] * (kept[part] - row[part]) ** 2).sum()
            assert error <= min(errors) * 1.0001 + 1e-9
    assert torch.equal(found[1, :4], w[1, :4])


def test_a_row_that_no_group_fits():
    with pytest.raises(ValueError, match="50 numbers; expected a multiple of"):
        quantize_groups(some(2, 50))


def test_nibbles_come_back():
    q = torch.arange(-8, 8, dtype=torch.int8).repeat(3, 1)
    packed = pack_nibbles(q)
    assert packed.shape == (3, 8) and packed.dtype == torch.uint8
    assert packed[0].tolist() == [
        low + 16 * (low + 1) for low in range(0, 16, 2)
    ]
    assert torch.equal(unpack_nibbles(packed), q)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("dtype", FLOATS)
class TestWeight:
    def test_stands_for_the_floats(self, kind, dtype):
        w = some(300, 64, dtype=dtype)
        kept = FastWeight.of(w, kind)
        assert (kept.shape, kept.dtype, kept.kind) == (w.shape, dtype, kind)
        pair = quantize_rows(w) if kind == "int8" else quantize_groups(w)
        back = dequantize_rows if kind == "int8" else dequantize_groups
        assert torch.equal(kept.rows(), back(*pair).to(dtype))
        assert torch.equal(kept[3:5], kept.rows()[3:5])
        assert torch.equal(kept + 1, kept.rows() + 1)
        assert type(kept + 1) is torch.Tensor
        small = 300 * 64 // (1 if kind == "int8" else 2)
        scales = 300 * (1 if kind == "int8" else 2)
        assert kept.nbytes == small + scales * dtype.itemsize

    @pytest.mark.parametrize("rows", [1, 3, 20, 70])
    def test_multiplies(self, kind, dtype, rows):
        w = FastWeight.of(some(320, 128, dtype=dtype), kind)
        x = some(2, rows, 128, seed=1, dtype=dtype)
        expected = x.float() @ w.rows().float().T
        error = (F.linear(x, w).float() - expected).abs().max()
        assert error < 0.01 * expected.abs().max()
        assert F.linear(x, w).dtype == dtype

    def test_looks_rows_up(self, kind, dtype):
        w = FastWeight.of(some(50, 32, dtype=dtype), kind)
        ids = torch.tensor([[3, 49], [0, 3]])
        assert torch.equal(F.embedding(ids, w), w.rows()[ids])

    def test_copies_are_quantized_too(self, kind, dtype):
        w = FastWeight.of(some(50, 32, dtype=dtype), kind)
        parameter = torch.nn.Parameter(w, requires_grad=False)
        copies = [w.clone(), w.detach(), w.cpu(), parameter.data]
        copies += [copy.deepcopy(parameter), pickle.loads(pickle.dumps(w))]
        for each in copies:
            assert each.kind == kind
            assert torch.equal(each.rows(), w.rows())
        as_float = w.to(torch.float32)
        assert as_float.kind == kind and as_float.dtype == torch.float32
        assert (as_float.rows() - w.rows().float()).abs().max() < 0.02

    def test_gradients_go_through(self, kind, dtype):
        w = FastWeight.of(some(6, 32, dtype=dtype), kind)
        x = some(2, 32, seed=2, dtype=dtype).requires_grad_()
        F.linear(x, w).sum().backward()
        expected = w.rows().sum(0).expand(2, -1)
        assert (x.grad - expected).abs().max() < 0.05


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("way", ["linear", "row blocks", "kernel"])
def test_every_way_gives_the_product(kind, way):
    w = by_kernel(FastWeight.of(some(320, 128, dtype=torch.bfloat16), kind))
    x = some(3, 128, seed=1, dtype=torch.bfloat16)
    expected = x.float() @ w.rows().float().T
    error = (WAYS[way](x, w).float() - expected).abs().max()
    assert error < 0.01 * expected.abs().max()


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "not"])
def folder(request, tmp_path_factory):
    config = small_config(dim=64, multiple_of=16)
    folder = tmp_path_factory.mktemp("checkpoint") / "small"
    write_checkpoint(folder, random_llama(config, tied=request.param))
    return folder


class TestLoad:
    @pytest.mark.parametrize("kind", ["int8", "int4"])
    def test_which_matrices_have_how_many_bits(self, folder, kind):
        llama = llamalib.load(folder, device="cpu", quantize=kind)
        assert quantized(llama) == kind
        assert f"{kind} for torch" in describe(llama)
        for name, w in weights(llama).items():
            if w.dim() == 1:
                assert not isinstance(w, FastWeight)
            else:
                inside = name.startswith("layers.")
                assert w.kind == (kind if inside else "int8"), name

    @pytest.mark.parametrize("kind, most", [("int8", 0.3), ("int4", 2.5)])
    def test_logits_are_those_of_the_floats_it_stands_for(
        self, folder, kind, most
    ):
        whole = llamalib.load(folder, device="cpu", dtype=torch.float32)
        llama = llamalib.load(
            folder, device="cpu", dtype=torch.float32, quantize=kind
        )
        tokens = torch.arange(2 * 20).view(2, 20)
        found = llama(tokens)
        assert (found - whole(tokens)).abs().max() < most
        with torch.no_grad():
            for name, w in weights(whole).items():
                w.copy_(weights(llama)[name])
        assert (found - whole(tokens)).abs().max() < 1e-3

    @pytest.mark.parametrize("kind", ["int8", "int4"])
    def test_generates(self, folder, kind):
        llama = llamalib.load(
            folder, device="cpu", dtype=torch.float32, quantize=kind
        )
        ids, how = [5, 6, 7], dict(max_new_tokens=8, stop=())
        found = list(llamalib.generate(llama, ids, **how))
        expected = list(ids)
        for _ in range(8):
            expected.append(llama(torch.tensor(expected))[-1].argmax().item())
        assert found == expected[3:]
        together = llamalib.generate_batch(llama, [ids, ids[:2]], **how)
        assert together[0] == found

    def test_int4_is_ready_when_it_is_loaded(self, folder):
        llama = llamalib.load(
            folder, device="cpu", dtype=torch.bfloat16, quantize="int4"
        )
        for w in llama.parameters():
            if w.dim() == 2 and w.kind == "int4":
                ready = w.copy is not None
                assert ready == (llama.ways["1 row"] == "kernel")

    def test_bytes_of_a_step(self, folder):
        llama = llamalib.load(folder, device="cpu", quantize="int8")
        kept = sum(w.nbytes for w in llama.parameters())
        c = llama.config
        if not llama.tied:
            kept -= (c.vocab_size - 1) * (c.dim + 2)
        cache = 2 * c.n_layers * 10 * c.n_kv_heads * c.head_dim * 2
        assert llamalib.bytes_per_step(llama, 10) == kept + cache

    def test_to_another_dtype(self, folder):
        llama = llamalib.load(folder, device="cpu", quantize="int8")
        tokens = torch.arange(9)
        before = llama(tokens)
        moved = llama.to(torch.float32)
        assert moved.dtype == torch.float32 and quantized(moved) == "int8"
        w = moved.layers.get_submodule("0.attention.wq").weight
        assert w.scale.dtype == torch.float32
        assert (moved(tokens) - before).abs().max() < 0.2
        if moved.tied:
            assert moved.output.weight is moved.tok_embeddings.weight

    def test_cannot_be_compiled_or_saved(self, folder, tmp_path):
        llama = llamalib.load(folder, device="cpu", quantize="int4")
        words = "compile=True does not work with quantized .*compile=False"
        with pytest.raises(ValueError, match=words):  # at the call
            llamalib.generate(llama, [1], max_new_tokens=2, compile=True)
        with pytest.raises(ValueError, match=words):
            llamalib.generate_batch(
                llama, [[1]], max_new_tokens=2, compile=True
            )
        with pytest.raises(ValueError, match="int4.*without quantize"):
            llamalib.save(llama, tmp_path / "new")
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("kind", ["int5", 8, True, ""])
    def test_bad_kind(self, folder, kind):
        with pytest.raises(ValueError, match="expected 'int8' or 'int4'"):
            llamalib.load(folder, quantize=kind)


def test_rows_that_no_group_fits_have_eight_bits(tmp_path):
    config = small_config(dim=48, n_heads=6, n_kv_heads=3)
    write_checkpoint(tmp_path / "odd", random_llama(config))
    llama = llamalib.load(tmp_path / "odd", device="cpu", quantize="int4")
    w = weights(llama)
    assert w["layers.0.attention.wq.weight"].kind == "int8"
    assert llama(torch.arange(5)).isfinite().all()


def test_on_the_pocket_eight_bits_change_nothing(pocket, pocket_folder):
    loss = llamalib.text_loss
    ids = pocket.tokenizer.encode("The capital of France is", bos=True, eos=False)
    expected = list(llamalib.generate(pocket, ids, max_new_tokens=20))
    for kind, most in (("int8", 0.01), ("int4", 0.05)):
        llama = llamalib.load(
            pocket_folder,
            device="cpu",
            dtype=torch.float32,
            quantize=kind,
        )
        assert abs(loss(llama, STORY) - loss(pocket, STORY)) < most
        found = list(llamalib.generate(llama, ids, max_new_tokens=20))
        assert found[:1] == expected[:1]
        if kind == "int8":
            assert found == expected


def test_a_number_that_is_none_stays_none():
    for bad in (float("nan"), float("inf")):
        w = some(4, 64)
        w[1, 3] = bad
        for kind in ("int8", "int4"):
            found = FastWeight.of(w, kind).rows()
            assert not found[1, :32].isfinite().all()
            assert found[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("shape", [(64, 172), (300, 96), (33, 64), (16, 31)])
def test_shapes_that_no_kernel_takes(kind, shape):
    """They would end the process."""
    w = by_kernel(FastWeight.of(some(*shape, dtype=torch.bfloat16), kind))
    assert not fits_kernel(w)
    x = some(1, shape[1], seed=1, dtype=torch.bfloat16)
    expected = x.float() @ w.rows().float().T
    error = (F.linear(x, w).float() - expected).abs().max()
    assert error < 0.02 * expected.abs().max()


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_model_with_such_shapes(tmp_path, kind):
    config = small_config(multiple_of=4, ffn_dim_multiplier=1.0)
    assert config.hidden_dim % 16
    write_checkpoint(tmp_path / "odd", random_llama(config))
    llama = llamalib.load(
        tmp_path / "odd", device="cpu", dtype=torch.bfloat16, quantize=kind
    )
    how = dict(max_new_tokens=4, stop=())
    assert len(list(llamalib.generate(llama, [1, 2], **how))) == 4


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_nothing_is_written_and_lost(kind):
    w = FastWeight.of(some(32, 64), kind)
    other = FastWeight.of(some(32, 64, seed=1), kind)
    before = w.rows()
    writes = [
        lambda: w.zero_(),
        lambda: w.mul_(2),
        lambda: w.copy_(torch.zeros(32, 64)),
        lambda: w.__setitem__(0, 5.0),
        lambda: torch.nn.init.normal_(w),
    ]
    for each in writes:
        with pytest.raises(RuntimeError, match="FastWeight.of"):
            each()
    assert torch.equal(w.rows(), before)
    w.copy_(other)
    assert torch.equal(w.rows(), other.rows())


def test_a_state_of_floats_is_not_half_loaded(folder):
    llama = llamalib.load(folder, device="cpu", quantize="int8")
    floats = llamalib.load(folder, device="cpu").state_dict()
    with pytest.raises(RuntimeError, match="quantized weight"):
        llama.load_state_dict(floats)
    llama.load_state_dict(llama.state_dict())


def test_lists_of_it():
    w = FastWeight.of(some(4, 32), "int8")
    twice = w.rows().repeat(2, 1)
    assert torch.equal(torch.cat([w, w]), twice)
    assert torch.equal(torch.cat(tensors=[w, w]), twice)
    assert torch.stack([w, w]).shape == (2, 4, 32)


@pytest.mark.parametrize(
    "w, kind", [(some(4), "int8"), (some(2, 2).int(), "int8"), (some(2, 2), 8)]
)
def test_what_cannot_be_quantized(w, kind):
    with pytest.raises(ValueError, match="expected"):
        FastWeight.of(w, kind)


def test_room_on_a_gpu(monkeypatch):
    """Half of the bytes need half of the room."""
    from llamalib.formats.placing import check_gpu_memory

    free = [0, 0]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: free)
    gpu = torch.device("cuda")
    matrices = {
        str(i): [torch.empty(1000, 1000, device="meta")] for i in range(20)
    }
    free[0] = 25_000_000
    with pytest.raises(MemoryError, match="quantize='int8'"):
        check_gpu_memory(gpu, matrices, torch.bfloat16)
    check_gpu_memory(gpu, matrices, torch.bfloat16, "int8")
    free[0] = 20_000_000
    with pytest.raises(MemoryError):
        check_gpu_memory(gpu, matrices, torch.bfloat16, "int8")
