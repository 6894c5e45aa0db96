"""Weights of 8 and 4 bits: the nearest steps, and what they compute."""

import copy
import importlib
import json
import math
import re
from statistics import median

import pytest
import torch

import llamalib
from lessons import nB_quantization as lesson
from lessons import needs
from lessons.bandwidth import bytes_per_step
from lessons.texts import STORY, page
from llamalib.load import POCKET, ROOT, SMOL, describe
from llamalib.quantize import (
    FEW,
    GROUP,
    PART,
    QuantizedEmbedding,
    QuantizedLinear,
    pack_nibbles,
    quantize_groups,
    quantize_model,
    quantize_rows,
    unpack_nibbles,
)
from llamalib.tensors import tensor_shapes
from tests.helpers import random_llama, small_config, write_checkpoint
from tests.taught import taught
from tests.test_gqa import Sizes
from tools.notebooks import all_notebooks, models_of

dequantize_rows, dequantize_groups = taught(
    "B_quantization", "dequantize_rows", "dequantize_groups"
)
symmetric, largest, round_to, best_scale, nf4, ratios_of, gptq = taught(
    "B_quantization",
    "symmetric",
    "largest",
    "round_to",
    "best_scale",
    "nf4",
    "ratios_of",
    "gptq",
)
FLOATS = torch.float32, torch.bfloat16, torch.float16


def some(*shape, seed=0, dtype=torch.float32):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=chance).to(dtype)


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


CODES = {
    "int4": symmetric(4),
    "NF4": nf4(),
    "3 values": symmetric(2),
    "4 values": torch.linspace(-1, 1, 4),
}


@pytest.mark.parametrize("g", [None, 4])
@pytest.mark.parametrize("name", CODES)
def test_a_code_gives_the_nearest_of_its_values(name, g):
    """Each group has its own largest number, which is kept as it is."""
    w, code = some(5, 12), CODES[name]
    w[1] *= 100
    scale = largest(w, g)
    kept = round_to(w, code, scale)
    for row, found, s in zip(w, kept, scale):
        for start in range(0, 12, g or 12):
            part = slice(start, start + (g or 12))
            size = row[part].abs().max()
            assert torch.equal(s[part], size.expand(s[part].shape))
            gaps = (row[part, None] - code * size).abs()
            error = (row[part] - found[part]).abs()
            assert torch.allclose(error, gaps.amin(-1), atol=1e-6 * size)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_a_symmetric_code_rounds_as_the_library_does(bits):
    top, w = 2 ** (bits - 1) - 1, some(6, 64, seed=bits)
    scale = w.abs().amax(-1, keepdim=True) / top
    expected = (w / scale).round() * scale
    assert len(symmetric(bits)) == 2 * top + 1
    found = round_to(w, symmetric(bits), largest(w))
    assert torch.allclose(found, expected, atol=1e-5)


def test_nf4_has_the_published_values():
    """Source: Dettmers et al. 2023, arXiv 2305.14314, appendix E."""
    below = -1, -0.6961928, -0.5250731, -0.3949175, -0.2844414
    below += -0.1847734, -0.0910500, 0
    above = 0.0795803, 0.1609302, 0.2461123, 0.3379152
    above += 0.4407098, 0.5626170, 0.7229568, 1
    assert torch.allclose(nf4(), torch.tensor(below + above), atol=1e-6)


@pytest.mark.parametrize("name", CODES)
def test_a_searched_scale_is_the_best_of_ten(name):
    """Each input has its own importance; a group of zeros stays."""
    w, h, code = some(3, 12), torch.linspace(0.1, 5, 12), CODES[name]
    w[1, :4] = 0
    found = round_to(w, code, best_scale(w, code, 4, h))
    for row, kept in zip(w, found):
        for start in range(0, 12, 4):
            part = slice(start, start + 4)
            size = max(row[part].abs().max().item(), 1e-9)
            tried = []
            for tenth in range(1, 11):
                values = code * size * tenth / 10
                nearest = (row[part, None] - values).abs().argmin(-1)
                tried.append(values[nearest])
            errors = [(h[part] * (t - row[part]) ** 2).sum() for t in tried]
            error = (h[part] * (kept[part] - row[part]) ** 2).sum()
            assert error <= min(errors) * 1.0001 + 1e-9
    assert found[1, :4].abs().max() < 1e-9


def mixed(n, K, seed=5):
    """Return n inputs whose K numbers vary together."""
    return some(n, K, seed=seed) @ some(K, K, seed=seed + 1)


@pytest.mark.parametrize("name", CODES)
class TestGPTQ:
    def test_errs_less_than_the_nearest_values(self, name):
        w, x, code = some(20, 32), mixed(200, 32), CODES[name]
        scale = largest(w, 8)
        kept = gptq(w, code, scale, ratios_of(x.T @ x))
        nearest = round_to(w, code, scale)
        errors = [((each - w) @ x.T).norm() for each in (kept, nearest)]
        assert errors[0] < 0.9 * errors[1]
        values = (code * scale[..., None] - kept[..., None]).abs().amin(-1)
        assert values.max() < 1e-6  # each is one of the code's

    def test_is_the_nearest_values_if_no_inputs_vary_together(self, name):
        w, code = some(20, 32), CODES[name]
        scale, H = largest(w, 8), torch.linspace(1, 9, 32).diag()
        nearest = round_to(w, code, scale)
        assert torch.allclose(
            gptq(w, code, scale, ratios_of(H)), nearest, atol=1e-6
        )

    def test_changes_the_rest_as_the_formula_says(self, name):
        """Without Cholesky: the inverse for the columns that remain."""
        w, x, code = some(4, 10), mixed(50, 10), CODES[name]
        H, scale = (x.T @ x).double(), largest(w)
        damped = H + 0.1 * H.diagonal().mean() * torch.eye(10)
        left = w.double()
        for k in range(10):
            inverse = torch.linalg.inv(damped[k:, k:])
            value = round_to(left[:, k].float(), code, scale[:, k]).double()
            change = value - left[:, k]
            left[:, k:] += change[:, None] * inverse[0] / inverse[0, 0]
        found = gptq(w, code, scale, ratios_of(H.float()))
        assert torch.allclose(found, left.float(), atol=1e-4)


def test_gptq_moves_an_error_to_an_input_that_is_always_equal():
    """The two weights of the notebook's example, with whole numbers."""
    w, scale = torch.tensor([[0.4, 0.4]]), torch.full((1, 2), 2.0)
    code, H = torch.tensor([-1, -0.5, 0, 0.5, 1]), torch.ones(2, 2)
    assert gptq(w, code, scale, ratios_of(H, damp=0.001)).tolist() == [[0, 1]]


def test_nibbles_come_back():
    q = torch.arange(-8, 8, dtype=torch.int8).repeat(3, 1)
    packed = pack_nibbles(q)
    assert packed.shape == (3, 8) and packed.dtype == torch.uint8
    assert packed[0].tolist() == [
        low + 16 * (low + 1) for low in range(0, 16, 2)
    ]
    assert torch.equal(unpack_nibbles(packed), q)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", FLOATS)
class TestLinear:
    def test_stands_for_the_floats(self, bits, dtype):
        w = some(300, 64, dtype=dtype)
        layer = QuantizedLinear(w, bits)
        pair = quantize_rows(w) if bits == 8 else quantize_groups(w)
        back = dequantize_rows if bits == 8 else dequantize_groups
        found = layer.dequantize()
        assert (found.shape, found.dtype) == (w.shape, dtype)
        assert torch.equal(found, back(*pair).to(dtype))
        small, scales = (300 * 64, 300) if bits == 8 else (300 * 32, 600)
        stored = sum(each.nbytes for each in layer.parameters())
        assert stored == small + scales * dtype.itemsize

    @pytest.mark.parametrize("rows", [0, 1, 3, 20, 70])
    def test_multiplies(self, bits, dtype, rows):
        layer = QuantizedLinear(some(320, 128, dtype=dtype), bits)
        x = some(2, rows, 128, seed=1, dtype=dtype)
        expected = x.float() @ layer.dequantize().float().T
        found = layer(x)
        assert (found.shape, found.dtype) == ((2, rows, 320), dtype)
        if rows:
            error = (found.float() - expected).abs().max()
            assert error < 0.01 * expected.abs().max()

    def test_copies_and_moves(self, bits, dtype):
        layer = QuantizedLinear(some(64, 32, dtype=dtype), bits)
        x = some(1, 32, seed=1, dtype=dtype)
        expected = layer(x)
        assert torch.equal(copy.deepcopy(layer)(x), expected)
        layer.to(torch.float32)
        assert layer.numbers.dtype in (torch.int8, torch.uint8)
        error = (layer(x.float()) - expected.float()).abs().max()
        assert error < 0.02 * expected.abs().max()
        assert torch.equal(layer.to(dtype)(x), expected)

    def test_gradients_go_through(self, bits, dtype):
        layer = QuantizedLinear(some(16, 32, dtype=dtype), bits)
        x = some(2, 32, seed=2, dtype=dtype).requires_grad_()
        layer(x).sum().backward()
        expected = layer.dequantize().sum(0).expand(2, -1)
        error = (x.grad - expected).float().abs().max()
        assert error < 0.02 * expected.float().abs().max()


@pytest.mark.parametrize("bits", [8, 4])
def test_the_kernel_is_taken_for_few_rows(bits):
    """And only where no gradient is asked for: it has none."""
    layer = QuantizedLinear(some(320, 128, dtype=torch.bfloat16), bits)
    few = FEW[bits]
    x = some(few + 1, 128, dtype=torch.bfloat16)
    taken = [layer.has_kernel(x[:n]) for n in (0, 1, few, few + 1)]
    assert taken == [False, True, True, False]
    assert not layer.has_kernel(x[:1].clone().requires_grad_())


@pytest.mark.parametrize("bits", [8, 4])
def test_a_large_matrix_is_converted_in_parts(bits):
    part = PART[bits]
    layer = QuantizedLinear(some(2 * part + 50, 64), bits)
    x = some(3, 64, seed=1)
    with Sizes() as sizes:
        found = layer(x)
    assert max(sizes.found) == part * 64
    assert torch.allclose(found, x @ layer.dequantize().T, atol=1e-4)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("shape", [(64, 172), (300, 96), (33, 64), (16, 31)])
def test_shapes_that_no_kernel_takes(bits, shape):
    layer = QuantizedLinear(some(*shape, dtype=torch.bfloat16), bits)
    assert layer.bits == (8 if shape[1] % 32 else bits)
    x = some(1, shape[1], seed=1, dtype=torch.bfloat16)
    assert not layer.has_kernel(x)
    expected = x.float() @ layer.dequantize().float().T
    error = (layer(x).float() - expected).abs().max()
    assert error < 0.02 * expected.abs().max()


def test_a_number_that_is_none_stays_none():
    for bad in (float("nan"), float("inf")):
        w = some(4, 64)
        w[1, 3] = bad
        for bits in (8, 4):
            found = QuantizedLinear(w, bits).dequantize()
            assert not found[1, :32].isfinite().all()
            assert found[[0, 2, 3]].isfinite().all()


def test_the_embedding_looks_rows_up():
    linear = QuantizedLinear(some(50, 32, dtype=torch.bfloat16))
    ids = torch.tensor([[3, 49], [0, 3]])
    found = QuantizedEmbedding(linear)(ids)
    assert torch.equal(found, linear.dequantize()[ids])


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "not"])
def folder(request, tmp_path_factory):
    config = small_config(dim=64, multiple_of=16)
    folder = tmp_path_factory.mktemp("checkpoint") / "small"
    write_checkpoint(folder, random_llama(config, tied=request.param))
    return folder


@pytest.mark.parametrize("kind", ["int8", "int4"])
class TestModel:
    def test_which_matrices_have_how_many_bits(self, folder, kind, tmp_path):
        llama = llamalib.load(folder, device="cpu", quantize=kind)
        assert f"{kind} for torch" in describe(llama)
        linear, fired = {}, []
        for name, module in llama.named_modules():
            if isinstance(module, QuantizedLinear):
                linear[name] = module
                module.register_forward_hook(
                    lambda *args, name=name: fired.append(name)
                )
        assert len(linear) == 7 * llama.config.n_layers + 1
        for name, module in linear.items():
            small = kind == "int4" and name.startswith("layers.")
            assert module.bits == (4 if small else 8), name
        same = llama.output.numbers is llama.tok_embeddings.numbers
        assert same == llama.tied
        llama(torch.arange(5))  # a hook on each layer fires once
        assert sorted(fired) == sorted(linear)
        with pytest.raises(ValueError, match="quantized already"):
            quantize_model(llama, kind)
        with pytest.raises(ValueError, match="quantize"):
            llamalib.save(llama, tmp_path / "new")
        assert not (tmp_path / "new").exists()

    def test_logits_are_those_of_the_floats_it_stands_for(self, folder, kind):
        how = dict(device="cpu", dtype=torch.float32)
        whole = llamalib.load(folder, **how)
        llama = llamalib.load(folder, quantize=kind, **how)
        tokens = torch.arange(2 * 20).view(2, 20)
        found = llama(tokens)
        assert (found - whole(tokens)).abs().max() < 2.5
        with torch.no_grad():
            for name, module in llama.named_modules():
                if isinstance(module, QuantizedLinear):
                    to = whole.get_submodule(name).weight
                    to.copy_(module.dequantize())
            ids = torch.arange(llama.config.vocab_size)
            whole.tok_embeddings.weight.copy_(llama.tok_embeddings(ids))
        assert (found - whole(tokens)).abs().max() < 1e-3

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

    def test_bytes_of_a_step(self, folder, kind):
        llama = llamalib.load(folder, device="cpu", quantize=kind)
        kept, c = sum(w.nbytes for w in llama.parameters()), llama.config
        if not llama.tied:
            kept -= (c.vocab_size - 1) * (c.dim + 2)
        cache = 2 * c.n_layers * 10 * c.n_kv_heads * c.head_dim * 2
        assert bytes_per_step(llama, 10) == kept + cache


@pytest.mark.parametrize("assign", [False, True])
def test_loaded_numbers_are_computed_with(assign):
    """Also by the kernel for few rows, which packed the old ones."""
    one, two = (
        quantize_model(random_llama(seed=n).to(torch.bfloat16), "int4")
        for n in (1, 2)
    )
    tokens = torch.arange(5)
    assert not torch.equal(one(tokens), two(tokens))  # packs both
    assert one.layers[0].feed_forward.w2.packed is not None
    one.load_state_dict(two.state_dict(), assign=assign)
    assert torch.equal(one(tokens), two(tokens))


def test_on_the_pocket_eight_bits_change_nothing(pocket, pocket_folder):
    loss = llamalib.text_loss
    ids = pocket.tokenizer.encode(
        "The capital of France is", bos=True, eos=False
    )
    expected = list(llamalib.generate(pocket, ids, max_new_tokens=20))
    for kind, most in (("int8", 0.01), ("int4", 0.05)):
        llama = llamalib.load(
            pocket_folder, device="cpu", dtype=torch.float32, quantize=kind
        )
        assert abs(loss(llama, STORY) - loss(pocket, STORY)) < most
        found = list(llamalib.generate(llama, ids, max_new_tokens=20))
        assert found[:1] == expected[:1]
        if kind == "int8":
            assert found == expected


# -- what notebook B says ----------------------------------------------------


def test_inputs_are_those_that_record_sees():
    llama, texts = random_llama(), [torch.arange(5), torch.tensor([3, 1])]
    found = lesson.inputs_of(llama, iter(texts))
    matrices = dict(llama.layers.named_parameters(prefix="layers"))
    assert set(found) == {n for n, w in matrices.items() if w.dim() == 2}
    for name, inputs in found.items():
        assert inputs.shape == (7, matrices[name].shape[1]), name
    seen = [llamalib.record(llama, ids) for ids in texts]
    for part, names in {
        "attention": "wq wk wv",
        "feed_forward": "w1 w3",
    }.items():
        expected = torch.cat([each[f"layers.1.{part}.in"] for each in seen])
        for name in names.split():
            inputs = found[f"layers.1.{part}.{name}.weight"]
            assert torch.allclose(inputs, expected), name
    for part, name in {"attention": "wo", "feed_forward": "w2"}.items():
        name = f"layers.1.{part}.{name}.weight"
        expected = torch.cat([each[f"layers.1.{part}.out"] for each in seen])
        found_out = found[name] @ matrices[name].T
        assert torch.allclose(found_out, expected, atol=1e-5), name
    assert not any(each._forward_pre_hooks for each in llama.modules())


def test_a_comparison_weighs_all_texts_alike():
    texts = [torch.tensor([0, 1, 0]), torch.tensor([1, 1])]
    p = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]])
    p = torch.cat((p, torch.tensor([[0.5, 0.5], [0.5, 0.5]])))
    q = p.clone()
    q[3] = torch.tensor([0.25, 0.75])  # the second text's first token
    found = lesson.losses(p.log(), texts)
    expected = [(math.log(2) + math.log(4)) / 2, math.log(2)]
    assert found == pytest.approx(expected)
    added, error, far = lesson.compare(p.log(), q.log(), texts)
    change = math.log(2) - math.log(4 / 3)  # q gives it 3/4, not 1/2
    assert added == pytest.approx(-change / 2)
    assert error == pytest.approx(change / 2)  # of 0 and -change
    divergence = (math.log(2) + math.log(2 / 3)) / 2  # of that token
    assert far == pytest.approx(divergence / 2 / 2)


def test_the_file_that_b_reads(smollm2_file, monkeypatch, tmp_path):
    assert lesson.smollm2_file().samefile(smollm2_file)
    monkeypatch.setattr(needs, "ROOT", tmp_path)
    said = r"reads SmolLM2's own file: `python -m llamalib fetch (.+)` brings"
    with pytest.raises(FileNotFoundError, match=said) as error:
        lesson.smollm2_file()
    name = re.search(said, str(error.value))[1]
    assert smollm2_file.parent.name == name


def test_b_is_compared_only_where_smollm2_is(monkeypatch, tmp_path):
    """Without the model nbval skips it and gives the one reason."""
    (path,) = (p for p in all_notebooks() if p.stem == "B_quantization")
    pocket, smollm2 = models_of(path)
    assert (pocket.name, smollm2.name) == (POCKET.name, SMOL.name)
    monkeypatch.delenv("CI", raising=False)
    hooks = importlib.import_module("conftest")
    with pytest.raises(pytest.skip.Exception, match="fetch SmolLM2-135M"):
        hooks.skip_without([pocket, tmp_path / smollm2.name])
    monkeypatch.setenv("CI", "true")
    hooks.skip_without([tmp_path / smollm2.name])


@pytest.mark.slow  # test_real.py sees lost bits on another page
@pytest.mark.parametrize(
    "kind, least, most", [("int8", 0, 0.005), ("int4", 0.3, 0.4)]
)
def test_smollm2_loses_more(smollm2_file, kind, least, most):
    """On the page of 07: 0.002 and 0.34 nats."""
    how = dict(device="cpu", dtype=torch.float32)
    loss = llamalib.text_loss(llamalib.load(smollm2_file, **how), page())
    small = llamalib.load(smollm2_file, quantize=kind, **how)
    assert 2.75 < loss < 2.78
    assert least < llamalib.text_loss(small, page()) - loss < most


def test_bytes_of_the_1b():
    """With a scale of 16 bits for each row of 8 bits, or 32 of 4 bits."""
    expected = dict(bfloat16=2.47, int8=1.24, int4=0.81)
    for kind, gigabytes in expected.items():
        n_bits = 0
        for name, shape in tensor_shapes(llamalib.LLAMA_1B).items():
            bits = 16.0
            if len(shape) == 2 and kind != "bfloat16":
                small = kind == "int4" and name.startswith("layers.")
                bits = 4 + 16 / GROUP if small else 8 + 16 / shape[1]
            if name != "output.weight":  # it is the embedding
                n_bits += math.prod(shape) * bits
        assert round(n_bits / 8e9, 2) == gigabytes


def test_the_benchmark_s_speeds():
    """Compiled, on a CPU with two cores: one text, and a prefill."""
    file = ROOT / "bench" / "results" / "generation-cpu.json"
    rows = json.loads(file.read_text("utf-8"))["sections"]["1b"]["rows"]
    kinds = "bfloat16", "int8", "int4"
    names = [f"ours compile=True {kind}" for kind in kinds]
    by_name = {row["name"]: row for row in rows}
    decode, prefill = (
        [median(by_name[name][key]) for name in names]
        for key in ("decode", "prefill 512")
    )
    assert [round(x / decode[0], 1) for x in decode] == [1, 1.1, 1.7]
    assert prefill[0] < prefill[1] < prefill[2]
