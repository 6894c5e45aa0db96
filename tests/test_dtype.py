"""The dtype that a device has, float16's range, and RoPE in real numbers."""

import ast
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import llamalib
from lessons.texts import STORY
from llamalib import (
    apply_rotary_emb,
    attention,
    attention_weights,
    decode_one,
    prefill,
)
from llamalib.load import (
    ROOT,
    choose_device,
    choose_dtype,
    describe,
)
from tests.helpers import (
    code_cells,
    random_ids,
    random_llama,
    write_checkpoint,
)

module = sys.modules["llamalib.load"]  # the file, not the function
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
CUDA, MPS, CPU = map(torch.device, ("cuda", "mps", "cpu"))
PROMPTS = (
    "The capital of France is",
    "One summer day, Mira went to",
    "The days of the week are",
    "Two and two",
)


# -- the table --


@pytest.fixture
def cuda(monkeypatch):
    """Fake an NVIDIA GPU; returns what sets its compute capability."""

    def has(*capability):
        device = torch.cuda
        monkeypatch.setattr(device, "device_count", lambda: 1)
        # as of a T4: by emulation
        monkeypatch.setattr(device, "is_bf16_supported", lambda *_: True)
        monkeypatch.setattr(
            device, "get_device_capability", lambda _=None: capability
        )

    return has


@pytest.fixture
def mac(monkeypatch):
    """Fake an Apple GPU; returns what sets its name and macOS's version."""

    def has(name, macos=(15, 0)):
        mps = torch.backends.mps
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
        monkeypatch.setattr(mps, "is_available", lambda: True)
        monkeypatch.setattr(mps, "get_name", lambda: name)
        monkeypatch.setattr(
            mps, "is_macos_or_newer", lambda *asked: macos >= asked
        )

    return has


CAPABILITIES = {
    "V100": ((7, 0), F16),
    "T4": ((7, 5), F16),
    "A100": ((8, 0), BF16),
    "RTX 50": ((12, 0), BF16),
}


@pytest.mark.parametrize("gpu", CAPABILITIES)
def test_cuda(cuda, gpu):
    capability, expected = CAPABILITIES[gpu]
    cuda(*capability)
    device = choose_device()
    note = "" if expected == BF16 else "this GPU has no bfloat16"
    assert device == CUDA
    assert choose_dtype(device, BF16) == (expected, note)


CHIPS = {
    "Apple M2 Ultra": F16,
    "Apple M3": BF16,
    "Apple M10": BF16,
    "Intel(R) UHD Graphics 630": F16,
    "": F16,
}


@pytest.mark.parametrize("name", CHIPS)
def test_mps(mac, name):
    mac(name)
    device = choose_device()
    note = "" if CHIPS[name] == BF16 else "this GPU has no bfloat16"
    assert device == MPS
    assert choose_dtype(device, BF16) == (CHIPS[name], note)
    mac(name, macos=(13, 7))
    assert choose_dtype(device, BF16)[0] == F16


@pytest.mark.parametrize("stored", [F16, F32])
def test_a_gpu_keeps_what_it_can_multiply(cuda, mac, stored):
    """A float32 file is rounded only if the caller asks for it."""
    for capability in (7, 5), (9, 0):
        cuda(*capability)
        assert choose_dtype(CUDA, stored) == (stored, "")
    for name in "Apple M1", "Apple M4":
        mac(name)
        assert choose_dtype(MPS, stored) == (stored, "")


def test_an_explicit_dtype_wins(cuda, mac):
    cuda(7, 5)
    mac("Apple M1")
    for device in CUDA, MPS:
        for dtype in F16, F32:
            assert choose_dtype(device, BF16, dtype) == (dtype, "")
        assert choose_dtype(device, BF16, BF16) == (BF16, "")


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
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        for _, source in code_cells(path):
            for node in ast.walk(ast.parse(source)):
                if ast.unparse(getattr(node, "func", node)) == "llamalib.load":
                    calls.append((path.name, node))
    calls = [(n, call) for n, call in calls if isinstance(call, ast.Call)]
    assert len(calls) > 10
    for name, call in calls:
        assert "dtype" in {k.arg for k in call.keywords}, name


# -- float16: 65,504 at most --


def new_cache(llama, *sizes, padding=None):
    """Return an empty cache of a model's dtype."""
    like = dict(device=llama.device, dtype=llama.dtype)
    return llamalib.KVCache(llama.config, *sizes, padding=padding, **like)


def with_outlier(size: float):
    """Return a model whose stream gets one number of about `size`.

    Real Llamas have a few such channels, written by an early layer's w2.
    """
    llama, ids = random_llama(), random_ids(1, 40)
    w = llama.state_dict()
    with torch.no_grad():
        for name in "w1", "w3":
            w[f"layers.0.feed_forward.{name}.weight"][5] *= 30
        out = w["layers.0.feed_forward.w2.weight"]
        out[3, 5] = 1
        out[3, 5] = size / stream(llama, ids)
    return llama, ids


def stream(llama, ids) -> float:
    """Return the largest number of the residual stream."""
    seen = llamalib.record(llama, ids)
    return max(x.abs().max().item() for x in seen.values())


@pytest.mark.parametrize("size", [500, 5_000, 50_000])
def test_large_activations_in_float16(size):
    """The squares inside RMSNorm are far beyond 65,504, and in float32."""
    llama, ids = with_outlier(size)
    exact = llama(ids)
    assert 0.5 * size < stream(llama, ids) < 65_504
    half = llama.half()
    logits = half(ids)
    assert logits.isfinite().all()
    # near the outlier float16's steps are large: 32 at 50,000
    error = (logits - exact).norm() / exact.norm()
    assert error < 0.05
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
    for T, attend in (9, attention), (1, attention):
        some = parts[0][:, -T:], *parts[1:]
        exact = attention(*(x.float() for x in some))
        assert (attend(*some) - exact).norm() < 0.01 * exact.norm()


def test_a_file_beyond_float16(tmp_path):
    name = "layers.1.feed_forward.w2.weight"
    llama = random_llama()
    with torch.no_grad():
        llama.state_dict()[name][0, 0] = -70_000
    for shards in 1, 2:
        folder = write_checkpoint(tmp_path / f"{shards}", llama, shards=shards)
        said = rf"{name} has a number of 70144, and float16 ends at 65,504"
        with pytest.raises(ValueError, match=said):
            llamalib.load(folder, device="cpu", dtype=F16)
        assert llamalib.load(folder, device="cpu", dtype=F32).dtype == F32


# -- real numbers --
#
# PyTorch 2.10 can multiply, index and view complex64 on MPS, but not all
# around it works: index_add loses imaginary parts (issue 160845), addmm is
# wrong for large matrices (167727), gather, scatter and repeat came with 2.12
# (pull requests 177794 and 178198). Compilers want real numbers, too. float64
# is missing on MPS altogether.


class Refuse(TorchDispatchMode):
    """Fail on complex numbers and on float64."""

    seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves((args, kwargs, out)):
            if isinstance(x, torch.Tensor):
                self.seen += 1
                refused = x.is_complex() or x.dtype == torch.float64
                assert not refused, f"{func}: {x.dtype}"
        return out


def complex_rotary(xq, xk, freqs_cis):
    """Rotate as the documents write it: by complex products."""
    turn = torch.view_as_complex(freqs_cis).unsqueeze(-2)
    pairs = [x.float().unflatten(-1, (-1, 2)) for x in (xq, xk)]
    turned = [torch.view_as_complex(x) * turn for x in pairs]
    q, k = (torch.view_as_real(x).flatten(-2) for x in turned)
    return q.type_as(xq), k.type_as(xk)


@pytest.mark.parametrize("dtype", [F32, F16])
def test_no_complex_number(dtype):
    llama, ids = random_llama().to(dtype), random_ids(2, 21)
    tokens, padding = random_ids(2, 9), torch.tensor([0, 4])
    prompts = [[1, 2, 3], [4, 5]]

    def run():
        cache = new_cache(llama, 30, 2)
        padded = new_cache(llama, 30, 2, padding=padding)
        first = prefill(llama, ids, cache, chunk=8)
        last = prefill(llama, tokens, padded)
        then = decode_one(llama, ids[:, 0], padded)
        new = llamalib.generate_batch(llama, prompts, max_new_tokens=4)
        return torch.stack([llama(ids)[:, -1], first, last, then]), new

    with llamalib.replaced(apply_rotary_emb=complex_rotary):
        expected, texts = run()
        with pytest.raises(AssertionError, match="complex64"), Refuse():
            run()
    with Refuse() as refuse:
        found, same = run()
    assert refuse.seen > 1000 and same == texts
    scale = expected.abs().max() * torch.finfo(dtype).eps
    assert (found - expected).abs().max() < 8 * scale


@pytest.fixture
def on_mps(monkeypatch):
    """Let every model say that its device is MPS."""
    device = property(lambda llama: MPS)
    monkeypatch.setattr(llamalib.Llama, "device", device)


def test_no_compiled_step_on_mps(pocket, on_mps):
    words = "compile=True does not work on a Mac's GPU; use compile=False"
    with pytest.raises(ValueError, match=words):  # at the call
        llamalib.generate(pocket, [1], max_new_tokens=2, compile=True)


def test_break_it_gets_the_real_form(pocket):
    tokens = torch.arange(9)
    before = pocket(tokens)
    given = []

    def unrotated(xq, xk, freqs_cis):
        given.append((freqs_cis.dtype, freqs_cis.shape[1:]))
        return xq, xk

    unchanged, broken = llamalib.break_it(
        pocket, "", [STORY, STORY[:200]], apply_rotary_emb=unrotated
    )
    assert broken.loss > unchanged.loss + 0.1
    half = pocket.config.head_dim // 2
    assert set(given) == {(F32, (half, 2))}  # as the function is taught
    assert torch.equal(pocket(tokens), before)


# -- angles, whatever the model's dtype --


def test_angles_at_position_100_000(tmp_path):
    """bfloat16 would round the position to a multiple of 512."""
    folder = write_checkpoint(tmp_path / "model")
    llama = llamalib.load(folder, device="cpu", dtype=BF16)
    llama.to(F16).to(BF16)
    assert not any(w.is_meta for w in [*llama.parameters(), *llama.buffers()])
    assert list(llama.buffers()) == []  # which `to` would round
    c, position = llama.config, 100_000
    pair = torch.arange(0, c.head_dim, 2).double()
    angles = position / c.rope_theta ** (pair / c.head_dim)
    cache = new_cache(llama, position + 1)
    cos, sin = cache.freqs_cis[position].unbind(-1)
    assert cos.dtype == sin.dtype == F32
    # float32 rounds the angle itself, 100,000 radians, by up to 0.004
    assert (cos - angles.cos()).abs().max() < 0.01
    assert (sin - angles.sin()).abs().max() < 0.01
    given = []

    def rotate(xq, xk, freqs_cis):
        given.append(freqs_cis)
        return apply_rotary_emb(xq, xk, freqs_cis)

    cache.advance(position)
    with torch.no_grad(), llamalib.replaced(apply_rotary_emb=rotate):
        decode_one(llama, torch.tensor([1]), cache)
    for freqs_cis in given:  # what reaches each layer is what the cache made
        assert torch.equal(freqs_cis, cache.freqs_cis[position:])
    assert len(given) == c.n_layers
