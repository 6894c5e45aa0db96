import math
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from importlib import import_module

import pytest
import torch
from helpers import random_ids, random_llama

import llamalib
from llamalib import native
from llamalib.gqa import fused_by_group

attention, generate = map(
    import_module, ("llamalib.gqa", "llamalib.decoding")
)

COMPILER = os.environ.get("CC") or "cc"
# elsewhere a compiler may know no OpenMP; on Linux it must work
EXPECTED = sys.platform == "linux" and shutil.which(shlex.split(COMPILER)[0])
in_c = pytest.mark.skipif(
    not (EXPECTED or native.build(4, 16)),
    reason="no C compiler of PyTorch's kind here",
)


@pytest.fixture
def nothing_built(monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(native, "_built", {})


def qkv(B=1, KV=2, G=4, S=300, hd=16, room=None):
    """One query a head, and keys and values in a cache with room for more."""
    random = torch.Generator().manual_seed(S)
    q = torch.randn(B, KV * G, 1, hd, generator=random).bfloat16()
    cache = torch.randn(2, B, KV, room or S, hd, generator=random).bfloat16()
    k, v = cache[..., :S, :]
    return q, k, v


def wanted(q, k, v):
    """Its definition, in float64."""
    G = q.shape[-3] // k.shape[-3]
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(G, dim=-3) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return torch.softmax(scores, dim=-1) @ v


def near(found, right):
    """Up to the rounding of the result to bfloat16, and some for the sum."""
    size = right.abs() + 1e-4
    return bool(((found.double() - right).abs() < 2**-8 * 1.01 * size).all())


@in_c
@pytest.mark.parametrize("G, hd", [(1, 16), (2, 24), (4, 64), (3, 128)])
@pytest.mark.parametrize("S", [1, 127, 128, 129, 1000])
def test_is_attention(G, hd, S):
    assert native.build(G, hd) and native.is_built(G, hd)
    for B, KV in ((1, 1), (1, 8), (3, 2)):
        q, k, v = qkv(B, KV, G, S, hd)
        found = native.by_group_in_c(q, k, v)
        assert found.shape == q.shape and found.dtype == torch.bfloat16
        assert near(found, wanted(q, k, v))
    alone = native.by_group_in_c(q[0], k[0], v[0])  # no batch
    assert near(alone, wanted(q[0], k[0], v[0]))


@in_c
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("S", [2, 7, 50, 301])
@pytest.mark.parametrize("last", [0, 1, 30])
@pytest.mark.parametrize("B, KV", [(1, 1), (2, 3)])
def test_runs_are_put_together(monkeypatch, threads, S, last, B, KV):
    """However many; also where they differ in their highest score by much,
    and where every position counts as much as any other."""
    monkeypatch.setattr(native, "RUN", 3)
    native.build(4, 16)
    q, k, v = qkv(B, KV, S=S)
    k = k * torch.linspace(0, last, S)[:, None].bfloat16()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = native.by_group_in_c(q, k, v)
    finally:
        torch.set_num_threads(before)
    assert near(found, wanted(q, k, v))


@in_c
def test_reads_a_cache_as_it_lies():
    """What lies behind the text, and between the rows' texts, is not read."""
    native.build(4, 16)
    q, k, v = qkv(B=2, S=200, room=333)
    right = wanted(q, k, v)
    for x in (k, v):
        x.as_strided((2, 2, 133, 16), x.stride(), 200 * 16).fill_(float("nan"))
    assert not k.is_contiguous()
    assert near(native.by_group_in_c(q, k, v), right)


@in_c
@pytest.mark.parametrize("factor", [-1000.0, 0.0, 1000.0])
def test_scores_of_any_size(factor):
    """The highest is taken off first: nothing overflows, nothing is lost."""
    native.build(4, 16)
    q, k, v = qkv()
    k = k.abs() * factor
    q = q.abs()
    assert near(native.by_group_in_c(q, k, v), wanted(q, k, v))


@in_c
def test_leaves_small_numbers_alone(nothing_built):
    """Fast arithmetic is the library's own: no number near 0 becomes 0."""
    assert native.build(2, 8)
    small = torch.full((64,), 1e-40)
    assert (small * 1 > 0).all()


@in_c
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("what", ["q", "k", "v"])
@pytest.mark.parametrize("S", [1, 130, 301])
def test_what_is_no_number_stays_none(monkeypatch, number, what, S):
    """Fast arithmetic promises nothing here; a sum that went wrong must not
    look like one that went well."""
    monkeypatch.setattr(native, "RUN", 100)
    q, k, v = qkv(S=S)
    {"q": q, "k": k, "v": v}[what][..., S // 2 % len(q), 0] = number
    found, right = native.by_group_in_c(q, k, v), wanted(q, k, v)
    assert not right.isfinite().all()
    assert (found.isfinite() == right.isfinite()).all()
    assert (found.isnan() == right.isnan()).all()


def not_for_c():
    """By name: q, k, v and mask, of four heads of 16 for each KV head."""
    q, k, v = qkv()
    learned = q.clone().requires_grad_()
    yield "float32", (q.float(), k.float(), v.float())
    yield "mask", (q, k, v, torch.zeros(1, 300))
    yield "columns", (q, k.mT.contiguous().mT, v.mT.contiguous().mT)
    yield "as written", (q, *(x.mT.mT.contiguous() for x in (k, k[:, :1])))
    yield "unlike", (q, qkv(room=301)[1], v)
    yield "shorter", (q, k, v[:, :, :200])
    yield "ten heads", (torch.cat([q] * 2, 1)[:, :10], k, v)
    yield "seven", (torch.cat([q] * 2, 1)[:, :7], k, v)
    yield "two queries", (torch.cat([q, q], -2), k, v)
    yield "smaller", (q[..., :8], k, v)
    yield "other batch", (torch.cat([q, q]), k, v)
    yield "nobody", (q[:0], k[:0], v[:0])
    yield "nothing", (q, k[:, :, :0], v[:, :, :0])
    yield "learned", (learned, k, v)
    yield "with other signs", (q, torch._neg_view(k), torch._neg_view(v))
    yield "nowhere", tuple(x.to("meta") for x in (q, k, v))


@in_c
@pytest.mark.parametrize("case", list(not_for_c()), ids=lambda case: case[0])
def test_what_it_is_not_made_for(case):
    """Is refused, before any memory is read."""
    assert native.build(4, 16) and native.build(3, 16)
    assert native.takes(*qkv())
    assert not native.takes(*case[1])
    with pytest.raises(ValueError, match="wanted one bfloat16 query"):
        native.by_group_in_c(*case[1])


@in_c
def test_is_not_traced():
    """Tensors that stand for others have no memory of their own."""
    q, k, v = qkv(B=3)
    seen = []

    def look(q):
        seen.append(native.takes(q, k[0], v[0]))
        return q

    torch.func.vmap(look)(q)
    with torch.no_grad():
        torch.fx.experimental.proxy_tensor.make_fx(look)(q[0])
        look(q[0])
    assert seen == [False, False, True]


BROKEN = {
    "none": "no-such-compiler",
    "not a command": "cc 'never closed",
    "fails": "false",
    "makes nothing": "true",
    "hides it": f"{COMPILER} -Done_query=another",
    "never ends": "sh -c 'sleep 9'",
}


@pytest.mark.parametrize("compiler", BROKEN.values(), ids=BROKEN)
def test_without_a_compiler_all_goes_on(monkeypatch, nothing_built, compiler):
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(native, "PATIENCE", 0.2)
    monkeypatch.setattr(generate, "LONG", 4)
    assert not native.build(2, 8) and not native.is_built(2, 8)
    assert not native.build(2, 8)  # asked once, not again
    assert native._built == {(2, 8): None}
    llama = random_llama().to(torch.bfloat16)
    ids = random_ids(5)
    how = dict(max_new_tokens=9, stop=())
    quick = llamalib.generate(llama, ids, compile=True, **how)
    assert list(quick) == list(llamalib.generate(llama, ids, **how))
    assert len(native._built) == 2


def test_a_compiler_is_waited_for_once(monkeypatch, nothing_built):
    asked = []

    def never_ends(folder, options):
        asked.append(options)
        raise subprocess.TimeoutExpired("cc", native.PATIENCE)

    monkeypatch.setattr(native, "compiled_in", never_ends)
    assert not native.build(2, 8) and len(asked) == 1


def test_without_room_all_goes_on(monkeypatch, nothing_built):
    def none(**how):
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(native.tempfile, "TemporaryDirectory", none)
    assert not native.build(2, 8)


@in_c
def test_a_compiler_that_knows_less(
    monkeypatch, nothing_built, tmp_path, caplog
):
    """The next options; and what it said is told to who asks."""
    asked = tmp_path / "asked"
    compiler = tmp_path / "a compiler"
    compiler.write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\n'
        'case "$*" in *prefer*) echo "unknown: $*" >&2; exit 1;; esac\n'
        f'exec {COMPILER} "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", f"'{compiler}'")
    with caplog.at_level("INFO", "llamalib.fast.native"):
        assert native.build(4, 16)
    lines = asked.read_text().splitlines()
    assert ["prefer" in line for line in lines] == [True, False, False]
    assert "unknown: -O3" in caplog.text
    q, k, v = qkv()
    assert near(native.by_group_in_c(q, k, v), wanted(q, k, v))


@in_c
def test_built_once_by_all_threads(monkeypatch, nothing_built):
    tried, start = [], threading.Barrier(5)

    def compiled(G, hd):
        time.sleep(0.05)
        tried.append((G, hd))
        return print

    def build():
        start.wait()
        assert native.build(2, 8)

    monkeypatch.setattr(native, "compiled", compiled)
    threads = [threading.Thread(target=build) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tried == [(2, 8)]


@pytest.fixture
def by_c_where_it_can(monkeypatch):
    """Any text is long; the last way is the quickest. Counts its calls."""
    calls, way = [], native.by_group_in_c

    def counted(q, k, v, mask=None):
        calls.append(k.shape)
        return way(q, k, v, mask)

    for module in (attention, generate):
        monkeypatch.setattr(module, "LONG", 4)
    monkeypatch.setattr(attention, "by_group_in_c", counted)
    monkeypatch.setattr(attention, "quickest", lambda ways, calls: ways[-1])
    attention.quickest_by_group.cache_clear()
    yield calls
    attention.quickest_by_group.cache_clear()


@in_c
def test_the_model_runs_on_it(nothing_built, by_c_where_it_can):
    """Once it is built, in bfloat16, of one query without a mask."""
    llama = random_llama().to(torch.bfloat16)
    ids = random_ids(9)
    L = llama.config.n_layers

    def next_logits(dtype=torch.bfloat16, padding=None):
        model = llama.to(dtype)
        rows = 1 if padding is None else len(padding)
        cache = model.new_cache(10, rows, padding)
        with torch.inference_mode():
            generate.prefill(model, ids[None, :8].repeat(rows, 1), cache)
            return generate.decode_one(model, ids[8:].repeat(rows), cache)

    before = next_logits()
    assert not by_c_where_it_can
    generate.prepare(llama, 9)
    after = next_logits()
    assert len(by_c_where_it_can) == L
    assert (after - before).norm() < 0.02 * before.norm()
    by_c_where_it_can.clear()
    next_logits(torch.float32)
    next_logits(torch.float16)
    next_logits(padding=torch.tensor([0, 2]))
    assert not by_c_where_it_can


@in_c
def test_compile_prepares(monkeypatch, nothing_built):
    """Asked for by `generate`, in bfloat16, for a long text alone."""
    monkeypatch.setattr(generate, "LONG", 5)
    llama, ids = random_llama(), random_ids(3)

    def run(new, **how):
        how = dict(max_new_tokens=new, stop=()) | how
        assert len(list(llamalib.generate(llama, ids, **how))) == new

    run(9, compile=True)
    llama = llama.to(torch.bfloat16)
    run(9)
    run(2, compile=True)  # 4 positions: the last goes out, not in
    assert native._built == {}
    run(3, compile=True)
    assert native.is_built(llama.config.n_rep, llama.config.head_dim)


@in_c
def test_as_the_fused_kernel():
    """Not farther from the truth than PyTorch's own."""
    native.build(4, 64)
    q, k, v = qkv(KV=8, S=3000, hd=64)
    right = wanted(q, k, v)
    ours = (native.by_group_in_c(q, k, v) - right).norm()
    assert ours < 1.05 * (fused_by_group(q, k, v, None) - right).norm()
