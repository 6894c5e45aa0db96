"""A model on a GPU that is not here: tensors with a device, but no memory.

PyTorch's fake tensors tell what an operation would return on a GPU: shape,
dtype and device. They hold no numbers, so nothing can be read back. Streams,
graph capture and memory need a real GPU: see the tests marked cuda.
"""

import inspect
import sys
import textwrap

import pytest
import torch
from torch import Tensor
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import llamalib
from llamalib import model
from llamalib.quantize import QuantizedLinear
from tests.helpers import random_llama, small_config, write_checkpoint

generate = sys.modules["llamalib.generate"]  # the file, not the function
files = sys.modules["llamalib.load"]
GPU = torch.device("cuda:0")
ONE_LAYER = small_config(n_layers=1)
aten = torch.ops.aten
DRAWS = aten.multinomial.default, aten.exponential_.default
GENERATOR = torch.Generator
READS = {
    getattr(Tensor, name)
    for name in "cpu item tolist numpy nonzero __int__ __float__ __bool__ "
    "__index__ __array__ __repr__ __format__".split()
}
UNKNOWN = (  # what fake tensors raise for other operations that read
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
)


class Misplaced(Exception):
    """What fails on a GPU, or what makes Python wait for it."""


class OnGPU(TorchDispatchMode):
    r"""Run the GPU's operations on fake tensors, and the CPU's as always.

    Raises Misplaced for an operation on tensors of both devices, for reading
    a value, for a copy from the GPU, and for a copy to the GPU once
    `may_copy` is False: Python waits for both. Only a list of ids may be read,
    with `tolist`, if no operation follows. PyTorch lets a CPU tensor of
    no dimensions meet a GPU's, and passes its number to the kernel. That is
    refused, too: in a CUDA graph the number would be the first step's.
    """

    def __init__(self):
        super().__init__()
        self.fake, self.may_copy, self.read = FakeTensorMode(), True, []
        self.ran, self.waited = set(), False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        fakes = [isinstance(x, FakeTensor) for x in tensors]
        to = kwargs.get("device")
        if not any(fakes) and (to is None or to.type != "cuda"):
            with fake_tensor.unset_fake_temporarily():
                return function(*args, **kwargs)
        if function is torch.ops.prim.device.default:
            return function(*args)
        if function is aten._has_compatible_shallow_copy_type.default:
            return False  # a module's `to` makes a new parameter
        self.check(function, fakes, to)
        args, kwargs = tree_map_only(Tensor, self.faked, (args, kwargs))
        self.ran.add(function)
        try:
            return function(*args, **kwargs)
        except UNKNOWN as error:
            raise Misplaced(f"{function} reads a value") from error

    def check(self, function, fakes, to):
        """Raise Misplaced if the tensors and the result differ in place."""
        if self.waited:
            raise Misplaced(f"{function}: Python waited before it")
        # in inference mode PyTorch does not reduce `to` to a copy
        is_to = function is aten._to_copy.default
        is_to |= function.overloadpacket is aten.to
        up = is_to and not any(fakes)
        up |= function is aten.copy_.default and fakes == [True, False]
        if up and not self.may_copy:
            raise Misplaced(f"{function}: a copy to the GPU in the loop")
        if not up and not all(fakes):
            raise Misplaced(f"{function}: tensors on the CPU and on the GPU")
        if to is not None and to.type != "cuda":
            raise Misplaced(f"{function}: from the GPU to the {to}")

    def faked(self, tensor):
        return self.fake.from_tensor(tensor)


class InPython(TorchFunctionMode):
    """Do in Python what asks PyTorch's CUDA library before it dispatches."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        is_fake = bool(args) and isinstance(args[0], FakeTensor)
        if is_fake and function in READS:
            raise Misplaced(f"{function.__name__} reads a value")
        if is_fake and generator is not None:
            if getattr(generator, "claimed", generator.device) != GPU:
                raise Misplaced(f"{function.__name__}: another generator")
            kwargs = kwargs | {"generator": None}  # fake tensors take none
        if is_fake and function is Tensor.__getitem__:
            return part_of(*args)
        if is_fake and function is Tensor.__setitem__:
            part, value = part_of(*args[:2]), args[2]
            if not isinstance(value, Tensor):
                return part.fill_(value)
            return self.copy(part, value)
        if is_fake and function is Tensor.copy_:
            return self.copy(*args)
        if function is torch.tensor and "device" in kwargs:
            if self.gpu.may_copy:  # a prompt: a new generation
                self.gpu.waited = False
            return torch.tensor(*args).to(kwargs["device"])
        return function(*args, **kwargs)

    def copy(self, target, source):
        """Check a copy to the GPU or on it; there are no numbers to move."""
        fakes = [True, isinstance(source, FakeTensor)]
        self.gpu.check(aten.copy_.default, fakes, None)
        source.expand(target.shape)  # raises if it does not fit
        return target


def part_of(x, key):
    """Return x[key]."""
    key = list(key) if isinstance(key, tuple) else [key]
    if ... in [k for k in key if not isinstance(k, Tensor)]:
        at = next(i for i, k in enumerate(key) if k is ...)
        left = x.dim() - sum(k is not None for k in key) + 1
        key[at : at + 1] = [slice(None)] * left
    dim, tensors = 0, {}
    for k in key:
        if isinstance(k, int):
            x = x.select(dim, k)
            continue
        if k is None:
            x = x.unsqueeze(dim)
        elif isinstance(k, Tensor):
            if k.dtype == torch.bool:
                raise Misplaced("a mask's length is read")
            tensors[dim] = k
        else:
            x = aten.slice(x, dim, k.start, k.stop, k.step or 1)
        dim += 1
    if tensors:
        x = aten.index(x, [tensors.get(d) for d in range(max(tensors) + 1)])
    return x


class Generator(torch.Generator):
    """A generator that claims to be on the device that was asked for."""

    def __new__(cls, device="cpu"):
        self = super().__new__(cls, "cpu")
        self.claimed = torch.device(device)
        return self


@pytest.fixture
def gpu(monkeypatch):
    """One GPU that PyTorch believes in; the loop's only reading is noted."""
    found = OnGPU()

    def start_copy(token):
        assert token.is_cuda and token.dtype == torch.int64
        found.may_copy = False  # the loop has begun
        found.read.append(tuple(token.shape))
        return lambda: [7] * len(token)

    def tolist(token):
        assert token.dim() == 1 and token.dtype == torch.int64
        found.waited = True
        found.read.append(tuple(token.shape))
        return [7] * len(token)

    cuda = torch.cuda
    monkeypatch.setattr(cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(cuda, "mem_get_info", lambda d=None: 2 * [80e9])
    monkeypatch.setattr(cuda, "get_device_capability", lambda d=None: (9, 0))
    monkeypatch.setattr(torch, "Generator", Generator)
    monkeypatch.setattr(generate, "start_copy", start_copy)
    monkeypatch.setattr(FakeTensor, "tolist", tolist)
    # what is compiled and captured, run as it is written
    monkeypatch.setattr(generate, "compiled", lambda function, _: function)
    open_shard = files.open_shard

    def opened(*args):  # from the disk: with numbers
        with fake_tensor.unset_fake_temporarily():
            return open_shard(*args)

    monkeypatch.setattr(files, "open_shard", opened)
    with found.fake, found, InPython(found):
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(
        tmp_path_factory.mktemp("small"), random_llama(ONE_LAYER)
    )


@pytest.fixture
def llama(gpu, folder):
    return llamalib.load(folder, device=GPU)


PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8]]
SAMPLED = dict(temperature=0.8, top_k=20, top_p=0.9)
CHOICES = [{}, SAMPLED, SAMPLED | {"seed": 3}]


def new_cache(llama, *sizes, padding=None):
    """Return an empty cache of a model's device and dtype."""
    like = dict(device=llama.device, dtype=llama.dtype)
    return llamalib.KVCache(llama.config, *sizes, padding=padding, **like)


def test_load(gpu, llama):
    """Every weight is on the GPU, in the file's dtype or another."""
    found = {(w.device, w.dtype) for w in llama.parameters()}
    assert found == {(GPU, torch.bfloat16)}
    assert llama.device == GPU and llama.output is not None
    assert llama.output.weight is llama.tok_embeddings.weight
    for layer in new_cache(llama, 9).layers:
        for x in (layer.k, layer.v):
            assert (x.device, x.dtype) == (GPU, torch.bfloat16)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_load_in_another_dtype(gpu, tmp_path, shards, dtype):
    folder = write_checkpoint(tmp_path, random_llama(ONE_LAYER), shards=shards)
    llama = llamalib.load(folder, device=GPU, dtype=dtype)
    found = {(w.device, w.dtype) for w in llama.parameters()}
    assert found == {(GPU, dtype)}
    assert llama.layers[0].attention.wo.weight.shape == (64, 64)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_load_quantized(gpu, folder, kind):
    llama = llamalib.load(folder, device=GPU, quantize=kind)
    assert {w.device for w in llama.parameters()} == {GPU}
    assert isinstance(llama.output, QuantizedLinear)
    how = dict(max_new_tokens=3, stop=())
    for compile in (False, True):
        gpu.may_copy = True
        found = llamalib.generate(llama, [1, 2], compile=compile, **how)
        assert list(found) == 3 * [7]


@torch.inference_mode()
def test_prefill_and_decode(gpu, llama):
    """In pieces, and with padding; nothing waits, not even the prefill."""
    tokens = torch.ones(3, 520, dtype=torch.int64, device=GPU)
    padding = torch.zeros(3, dtype=torch.int64, device=GPU)
    for hidden in (None, padding):
        gpu.may_copy = True  # the angles of a new cache, once
        cache = new_cache(llama, 522, 3, padding=hidden)
        gpu.may_copy = False
        logits = llamalib.prefill(llama, tokens, cache)
        assert (logits.shape, logits.device) == ((3, 556), GPU)
        for _ in range(2):
            logits = llamalib.decode_one(llama, logits.argmax(-1), cache)
        assert (logits.shape, logits.device) == ((3, 556), GPU)
        assert cache.length == 522


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("options", CHOICES)
def test_generate(gpu, llama, compile, options):
    """Past 256 positions, where RoPE's table and a second step begin."""
    how = dict(max_new_tokens=5, stop=(), compile=compile)
    found = list(llamalib.generate(llama, 254 * [1], **how, **options))
    assert found == 5 * [7] and gpu.read == 5 * [(1,)]
    assert any(f in DRAWS for f in gpu.ran) == bool(options)
    assert (aten.index_copy_.default in gpu.ran) == compile


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("options", CHOICES)
def test_generate_batch(gpu, llama, compile, options):
    """With padding, and without."""
    for prompts in (PROMPTS, [[1, 2], [3, 4]]):
        gpu.read, gpu.may_copy = [], True
        how = dict(max_new_tokens=3, stop=(), compile=compile)
        found = llamalib.generate_batch(llama, prompts, **how, **options)
        assert found == len(prompts) * [3 * [7]]
        assert gpu.read == 3 * [(len(prompts),)]


def test_stops_are_compared_on_the_cpu(gpu, llama):
    how = dict(max_new_tokens=5, stop=[7])
    assert list(llamalib.generate(llama, [1], **how)) == []
    gpu.may_copy = True
    assert llamalib.generate_batch(llama, [[1], [2, 3]], **how) == [[], []]


@torch.inference_mode()
@pytest.mark.parametrize("B", [1, 3])
def test_static_cache(gpu, llama, B):
    """Nothing in it changes its place: a CUDA graph keeps addresses."""
    cache = new_cache(llama, 20, B)
    token = torch.ones(B, dtype=torch.int64, device=GPU)
    step, static = generate.compile_step(llama, cache)
    held = [static.column, static.padding, static.freqs_cis, static.columns]
    held += [x for each in static.layers for x in (each.k, each.v)]
    assert {x.device for x in held} == {GPU}
    assert static.layers[0].column is static.column
    gpu.may_copy = False
    logits = step(llama, token, static)
    assert (logits.shape, logits.dtype) == ((B, 556), torch.float32)
    after = [static.column, static.padding, static.freqs_cis, static.columns]
    after += [x for each in static.layers for x in (each.k, each.v)]
    assert all(x is y for x, y in zip(held, after, strict=True))


# What must not stand in the loop, each after a line of a function.
CHOSEN = generate, "decode_loop", "token = choose(logits)  # (B,)"
MUTANTS = {
    "to the CPU": (*CHOSEN, "token = token.to('cpu')"),
    "item": (*CHOSEN, "token[0].item()"),
    "if": (*CHOSEN, "token = token if token.any() else token"),
    "mask": (*CHOSEN, "logits[logits > 0]"),
    "CPU tensor": (*CHOSEN, "logits = logits + torch.zeros(556)"),
    "to the GPU": (*CHOSEN, "torch.tensor([7]).to(token.device)"),
    "in the cache": (
        generate.KVCache,
        "positions",
        "columns = torch.arange(self.length, end, device=device)",
        "columns = columns + torch.zeros(T, dtype=torch.int64)",
    ),
    "in the choice": (
        generate,
        "sample",
        "next_token_probs(logits, temperature, top_k, top_p)  # (..., V)",
        "probs = probs * probs.amax().item()",
    ),
    "in the model": (
        model.TransformerBlock,
        "forward",
        "h = self.attention_norm(x)  # (..., T, D)",
        "x = x * torch.ones(1)",
    ),
    "in the static cache": (
        generate.StaticCache,
        "advance",
        '"""Go to the next column."""',
        "T = torch.tensor(T)",
    ),
}


def with_line(function, after: str, line: str):
    """Return a function with one more line, behind the one that ends so."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    (at,) = [i for i, each in enumerate(lines) if each.endswith(after)]
    indent = " " * (len(lines[at]) - len(lines[at].lstrip()))
    if lines[at].startswith(")"):  # of its signature
        indent = 4 * " "
    lines.insert(at + 1, indent + line)
    names = dict(inspect.unwrap(function).__globals__)
    exec("\n".join(lines), names)
    return names[function.__name__]


def decode(llama, compile):
    how = dict(max_new_tokens=4, stop=(), compile=compile, **SAMPLED)
    return list(llamalib.generate(llama, [1, 2], **how))


@pytest.mark.parametrize("where", MUTANTS.values(), ids=MUTANTS)
def test_what_waits_is_found(gpu, llama, monkeypatch, where):
    """A value read, or a tensor on the CPU: in the loop and under it."""
    holder, name, after, line = where
    changed = with_line(getattr(holder, name), after, line)
    compile = holder is generate.StaticCache
    assert decode(llama, compile) == 4 * [7]
    gpu.may_copy = True
    # where it is used: other modules have imported it by name
    for user in {holder, generate, model}:
        if hasattr(user, name):
            monkeypatch.setattr(user, name, changed)
    with pytest.raises(Misplaced):
        decode(llama, compile)


def test_an_unchanged_function_passes(gpu, llama, monkeypatch):
    """It is the line that fails, not the way it is put in."""
    changed = with_line(generate.decode_loop, CHOSEN[2], "token = token + 0")
    monkeypatch.setattr(generate, "decode_loop", changed)
    assert decode(llama, False) == 4 * [7]


def test_a_generator_on_the_cpu_is_found(gpu):
    logits = torch.ones(1, 9, device=GPU)
    with pytest.raises(Misplaced, match="another generator"):
        generate.sample(logits, temperature=1, generator=GENERATOR())
