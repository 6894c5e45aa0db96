"""A model on a GPU that is not here: tensors of the device "meta".

They have a shape and a dtype, but no numbers, so nothing can be read back.
Streams, graphs and memory need a real GPU: see the tests marked cuda.
"""

import sys
from contextlib import nullcontext
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import llamalib
from llamalib import compiled
from llamalib.batch import PaddedCache
from llamalib.quantize import quantize_model
from tests.helpers import random_llama, small_config, write_checkpoint

generate = sys.modules["llamalib.generate"]  # the file, not the function
files = sys.modules["llamalib.load"]
GPU = torch.device("meta")
ONE_LAYER = small_config(n_layers=1)
SAMPLED = dict(temperature=0.8, top_k=20, top_p=0.9)
CHOICES = [{}, SAMPLED, SAMPLED | {"seed": 3}]
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8]]


class OnTheGPU(TorchDispatchMode):
    r"""Refuse every operation on a tensor of the CPU, once `in_loop`.

    On a GPU such an operation fails, or Python waits for a copy. PyTorch
    itself refuses to read a number of a tensor on "meta".
    """

    in_loop = True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for x in tree_leaves((args, kwargs)):
            on_cpu = isinstance(x, Tensor) and not x.is_meta
            assert not (on_cpu and self.in_loop), f"{function}: on the CPU"
        return function(*args, **kwargs)


@pytest.fixture
def llama():
    return random_llama(ONE_LAYER).to(GPU)


@pytest.fixture
def loop(monkeypatch):
    """Run the loop of a GPU, which may read its ids alone: each is 7."""
    found = OnTheGPU()
    found.in_loop, found.read, found.generators = False, [], []
    cpu = torch.Generator()

    def start_copy(token):
        assert token.is_meta and token.dtype == torch.int64
        found.in_loop = True
        found.read.append(len(token))
        return lambda: [7] * len(token)

    def make_generator(device):
        found.generators.append(device)
        return cpu

    monkeypatch.setattr(compiled, "start_copy", start_copy)
    monkeypatch.setattr(Tensor, "tolist", lambda token: start_copy(token)())
    monkeypatch.setattr(Tensor, "item", lambda token: start_copy(token)()[0])
    monkeypatch.setattr(Tensor, "is_cuda", property(lambda x: x.is_meta))
    monkeypatch.setattr(torch, "Generator", make_generator)
    # what is compiled, run as it is written; what is recorded, run once
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Mock)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    with found, torch.compiler.set_stance("force_eager"):
        yield found


@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.float32])
def test_load(tmp_path, monkeypatch, quantize, dtype):
    """Every weight is on the GPU, in the file's dtype or another."""
    monkeypatch.setattr(files, "choose_device", torch.device)
    monkeypatch.setattr(
        files, "choose_dtype", lambda _, stored, dtype: (dtype or stored, "")
    )
    folder = write_checkpoint(tmp_path, random_llama(ONE_LAYER), shards=2)
    how = dict(device=GPU, quantize=quantize, dtype=dtype)
    llama = llamalib.load(folder, **how)
    assert {w.device for w in llama.parameters()} == {GPU}
    floats = {w.dtype for w in llama.parameters() if w.is_floating_point()}
    assert floats == {dtype or torch.bfloat16} and llama.device == GPU
    assert quantize or llama.tied  # a move to "meta" unties, unlike others


@torch.inference_mode()
@pytest.mark.parametrize("kind", [None, "int8", "int4"])
@pytest.mark.parametrize("padded", [False, True])
def test_prefill_and_decode(kind, padded):
    """In pieces, and with padding; nothing waits, not even the prefill."""
    llama = random_llama(ONE_LAYER)
    if kind:
        quantize_model(llama, kind)
    llama.to(GPU)
    tokens = torch.ones(3, 520, dtype=torch.int64, device=GPU)
    padding = torch.zeros(3, dtype=torch.int64, device=GPU)
    # the angles of a new cache are copied, once
    cache = llamalib.KVCache(llama.config, 522, 3, device=GPU)
    if padded:
        cache = PaddedCache(llama.config, 522, padding, device=GPU)
    with OnTheGPU():
        logits = llamalib.prefill(llama, tokens, cache)
        for _ in range(2):
            assert (logits.shape, logits.device) == ((3, 556), GPU)
            logits = llamalib.decode_one(llama, logits.argmax(-1), cache)
    assert cache.length == 522


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("options", CHOICES)
def test_generate(llama, loop, compile, options):
    """A step uses nothing of the CPU, and each row's ids are read once."""
    how = dict(max_new_tokens=4, stop=(), compile=compile, **options)
    assert list(llamalib.generate(llama, [1, 2], **how)) == 4 * [7]
    assert loop.read == 4 * [1]
    loop.in_loop, loop.read = False, []
    found = llamalib.generate_batch(llama, PROMPTS, **how)
    assert found == 3 * [4 * [7]] and loop.read == 4 * [3]
    assert loop.generators == (4 * [GPU] if "seed" in options else [])
