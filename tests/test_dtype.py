"""The dtype that a device has, float16's range, and RoPE in real numbers."""

import re

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import llamalib
from llamalib import (
    apply_rotary_emb,
    attention,
    attention_weights,
    decode_one,
    prefill,
)
from llamalib.load import ROOT, choose_device, choose_dtype, describe
from tests.helpers import (
    code_cells,
    random_ids,
    random_llama,
    write_checkpoint,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
CUDA, MPS = torch.device("cuda"), torch.device("mps")

# -- the table --


def fake_cuda(patch, capability):
    """Fake an NVIDIA GPU of a compute capability."""
    patch.setattr(torch.cuda, "device_count", lambda: 1)
    # as of a T4: by emulation
    patch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
    patch.setattr(torch.cuda, "get_device_capability", lambda _: capability)


def fake_mps(patch, name, macos=(15, 0)):
    """Fake an Apple GPU, by its name and macOS's version."""
    mps = torch.backends.mps
    patch.setattr(torch.cuda, "device_count", lambda: 0)
    patch.setattr(mps, "is_available", lambda: True)
    patch.setattr(mps, "get_name", lambda: name)
    patch.setattr(mps, "is_macos_or_newer", lambda *asked: macos >= asked)


@pytest.mark.parametrize(
    "fake, gpu, expected",
    [
        (fake_cuda, [(7, 0)], F16),  # V100
        (fake_cuda, [(7, 5)], F16),  # T4
        (fake_cuda, [(8, 0)], BF16),  # A100
        (fake_cuda, [(12, 0)], BF16),  # RTX 50
        (fake_mps, ["Apple M2 Ultra"], F16),
        (fake_mps, ["Apple M3"], BF16),
        (fake_mps, ["Apple M3", (13, 7)], F16),
        (fake_mps, ["Apple M10"], BF16),
        (fake_mps, ["Intel(R) UHD Graphics 630"], F16),
        (fake_mps, [""], F16),
    ],
)
def test_gpus(monkeypatch, fake, gpu, expected):
    """A float32 file is rounded only if the caller asks for it."""
    fake(monkeypatch, *gpu)
    device = choose_device()
    assert device == (CUDA if fake is fake_cuda else MPS)
    note = "" if expected == BF16 else "this GPU has no bfloat16"
    assert choose_dtype(device, BF16) == (expected, note)
    for dtype in F16, F32:
        assert choose_dtype(device, stored=dtype) == (dtype, "")
    for dtype in BF16, F16, F32:
        assert choose_dtype(device, BF16, dtype) == (dtype, "")


def test_a_cpu_keeps_the_files_dtype(tmp_path):
    for dtype in BF16, F16, F32:
        folder = write_checkpoint(tmp_path / f"{dtype}", dtype=dtype)
        llama = llamalib.load(folder, device="cpu")
        assert llama.dtype == dtype
        assert describe(llama).endswith(f", {dtype}, cpu")
    small = llamalib.load(tmp_path / f"{BF16}", device="cpu", quantize="int8")
    assert describe(small).endswith(f", int8 for {BF16}, cpu")


def test_notebooks_name_their_dtype():
    """So their answers are the same on every device."""
    calls = []
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        for _, source in code_cells(path):
            calls += re.findall(r"llamalib\.load\((.*)\)", source)
    assert len(calls) > 10
    assert [call for call in calls if "dtype=" not in call] == []


# -- float16: 65,504 at most --


def new_cache(llama, *sizes):
    """Return an empty cache of a model's dtype."""
    like = dict(device=llama.device, dtype=llama.dtype)
    return llamalib.KVCache(llama.config, *sizes, **like)


def stream(llama, ids) -> float:
    """Return the largest number of the residual stream."""
    seen = llamalib.record(llama, ids)
    return max(x.abs().max().item() for x in seen.values())


@pytest.mark.parametrize("size", [500, 50_000])
def test_large_activations_in_float16(size):
    """The squares inside RMSNorm are far beyond 65,504, and in float32.

    Real Llamas have a few such channels, written by an early layer's w2.
    """
    llama, ids = random_llama(), random_ids(1, 40)
    ffn = llama.layers[0].feed_forward
    with torch.no_grad():
        ffn.w1.weight[5] *= 30
        ffn.w3.weight[5] *= 30
        ffn.w2.weight[3, 5] = 1
        ffn.w2.weight[3, 5] = size / stream(llama, ids)
    exact = llama(ids)
    assert 0.5 * size < stream(llama, ids) < 65_504
    half = llama.half()
    logits = half(ids)
    # near the outlier float16's steps are large: 32 at 50,000
    assert (logits - exact).norm() < 0.05 * exact.norm()
    cache = new_cache(half, 41)
    last = prefill(half, ids, cache)
    assert (last - logits[:, -1]).norm() < 0.05 * last.norm()
    assert decode_one(half, ids[:, 0], cache).isfinite().all()


def test_large_scores_in_float16():
    """The model's own attention divides before it multiplies."""
    g = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 9, 4, 64, generator=g)
    parts = (100 * q).half(), (100 * k[:, :, :2]).half(), v[:, :, :2].half()
    # the formula as it is taught multiplies first
    assert not attention_weights(*parts[:2]).isfinite().all()
    for T in 9, 1:
        some = parts[0][:, -T:], *parts[1:]
        exact = attention(*(x.float() for x in some))
        assert (attention(*some) - exact).norm() < 0.01 * exact.norm()


@pytest.mark.parametrize("shards", [1, 2])
def test_a_file_beyond_float16(tmp_path, shards):
    name = "layers.1.feed_forward.w2.weight"
    llama = random_llama()
    with torch.no_grad():
        llama.state_dict()[name][0, 0] = -70_000
    folder = write_checkpoint(tmp_path, llama, shards=shards)
    said = rf"{name} has a number of 70144, and float16 ends at 65,504"
    with pytest.raises(ValueError, match=said):
        llamalib.load(folder, device="cpu", dtype=F16)
    assert llamalib.load(folder, device="cpu", dtype=F32).dtype == F32


# -- real numbers, and angles --


class Refuse(TorchDispatchMode):
    """Fail on complex numbers and on float64.

    PyTorch 2.10 has complex64 on MPS, but not all around it works: index_add
    loses imaginary parts (issue 160845), addmm is wrong for large matrices
    (167727). Compilers want real numbers, too. MPS has no float64.
    """

    seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves((args, kwargs, out)):
            if isinstance(x, torch.Tensor):
                self.seen += 1
                refused = x.is_complex() or x.dtype == torch.float64
                assert not refused, f"{func}: {x.dtype}"
        return out


@pytest.mark.parametrize("dtype", [F32, F16])
def test_no_complex_number(dtype):
    llama, how = random_llama().to(dtype), dict(max_new_tokens=4, seed=0)
    with Refuse() as refuse:
        llamalib.generate_batch(llama, [[1, 2, 3], [4, 5]], **how)
        list(llamalib.generate(llama, [1, 2], temperature=0.7, **how))
    assert refuse.seen > 1000
    with pytest.raises(AssertionError, match="complex64"), Refuse():
        torch.view_as_complex(torch.ones(3, 2))


def test_no_compiled_step_on_mps(pocket, monkeypatch):
    monkeypatch.setattr(llamalib.Llama, "device", MPS)
    words = "compile=True does not work on a Mac's GPU; use compile=False"
    with pytest.raises(ValueError, match=words):  # at the call
        llamalib.generate(pocket, [1], max_new_tokens=2, compile=True)


def test_angles_at_position_100_000(tmp_path):
    """bfloat16 would round the position to a multiple of 512."""
    folder = write_checkpoint(tmp_path / "model")
    llama = llamalib.load(folder, device="cpu", dtype=BF16)
    llama.to(F16).to(BF16)
    assert not any(weight.is_meta for weight in llama.parameters())
    assert list(llama.buffers()) == []  # which `to` would round
    c, position = llama.config, 100_000
    pair = torch.arange(0, c.head_dim, 2).double()
    angles = position / c.rope_theta ** (pair / c.head_dim)
    cache, given = new_cache(llama, position + 1), []

    def rotate(xq, xk, freqs_cis):
        given.append(freqs_cis[0])
        return apply_rotary_emb(xq, xk, freqs_cis)

    cache.advance(position)
    with torch.no_grad(), llamalib.replaced(apply_rotary_emb=rotate):
        decode_one(llama, torch.tensor([1]), cache)
    assert len(given) == c.n_layers
    for freqs_cis in given:
        assert freqs_cis.dtype == F32
        # float32 rounds the angle itself, 100,000 radians, by up to 0.004
        expected = torch.stack([angles.cos(), angles.sin()], dim=-1)
        assert (freqs_cis - expected).abs().max() < 0.01
