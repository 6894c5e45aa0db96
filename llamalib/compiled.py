r"""The compiled decode step: a static cache, products as sums, a CUDA graph.

Shapes: `B` batch, `S` key positions, `KV` key/value heads, `hd` head dim, `V`
vocabulary. A matrix (M, K) maps x to x @ w.T.
"""

import copy
import math
import weakref
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor.compile_fx import compile_fx

from .cache import KVCache, LayerCache
from .checks import has_hooks
from .generate import decode_one, prefill
from .model import Llama
from .quantize import QuantizedLinear


class StaticLayer(LayerCache):
    """One layer of a `StaticCache`: all its S columns are read."""

    def __init__(self, k: Tensor, v: Tensor, column: Tensor):
        super().__init__(k, v)
        self.column = column

    def update(self, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        r"""Store the keys and values of one token; return all columns.

        xk, xv: (B, 1, KV, hd).  Returns two tensors (B, S, KV, hd).
        """
        self.k.index_copy_(2, self.column, xk.transpose(1, 2))
        self.v.index_copy_(2, self.column, xv.transpose(1, 2))
        return self.k.transpose(1, 2), self.v.transpose(1, 2)


class StaticCache:
    r"""A copy of a cache, for compiled steps: nothing in it moves or grows.

    A step writes to the column whose number is in `column` (1,), and reads
    all S columns under a mask.
    S: the number of columns, at least the cache's capacity.
    """

    def __init__(self, cache: KVCache, S: int):
        n, B = cache.length, len(cache.layers[0].k)
        device = cache.freqs_cis.device
        more = S - cache.max_seq_len
        self.freqs_cis = F.pad(cache.freqs_cis, (0, 0, 0, 0, 0, more))
        self.column = torch.full((1,), n, device=device)  # of the next token
        self.columns = torch.arange(S, device=device)  # (S,)
        nothing = torch.zeros(B, dtype=torch.int64, device=device)
        self.padding = getattr(cache, "padding", nothing)  # (B,)

        def widened(x):  # (B, KV, n of any S, hd) -> (B, KV, S, hd)
            # zeros: a weight of 0 times infinity is NaN
            return F.pad(x[:, :, :n], (0, 0, 0, S - n))

        self.layers = [
            StaticLayer(widened(layer.k), widened(layer.v), self.column)
            for layer in cache.layers
        ]

    def positions(self, T: int = 1) -> Tensor:
        """Return the position of the next token of each row, (B, 1)."""
        return self.column - self.padding[:, None]

    def mask(self, T: int = 1) -> Tensor:
        """Return the mask of the next token, (B, 1, 1, S)."""
        hidden = self.columns > self.column  # (S,)
        hidden = hidden | (self.columns < self.padding[:, None])  # (B, S)
        return torch.where(hidden, -torch.inf, 0.0)[:, None, None]

    def advance(self, T: int = 1) -> None:
        """Go to the next column."""
        self.column.add_(T)


def static_size(n: int) -> int:
    """Return the columns of a static cache for n positions: few sizes."""
    more = max(256, 2 ** (n - 1).bit_length())
    step = more // 8
    return more if more <= 4096 else -(-n // step) * step


def linear_as_sums(x: Tensor, w: Tensor, bias=None) -> Tensor:
    r"""Compute F.linear(x, w), for one row as sums that a compiler fuses.

    x: (..., K).  w: (M, K).  Returns (..., M) in the dtype of x.
    """
    many = x.numel() > x.shape[-1]
    if many or w.dtype == torch.float32 or bias is not None:
        return F.linear(x, w, bias)
    row = x.reshape(1, -1)
    row = row.as_strided(row.shape, row.stride())  # computed once
    products = w.float() * row.float()  # (M, K), never stored
    piece = math.gcd(w.shape[1], 512)  # short sums run in parallel
    sums = products.unflatten(-1, (-1, piece)).sum(-1)  # (M, K/piece)
    return sums.sum(-1).type_as(x).view(*x.shape[:-1], -1)


def products_as_sums(graph: torch.fx.GraphModule, inputs: list):
    """Compile a graph of operations for a CPU: a backend of torch.compile."""
    for node in graph.graph.nodes:
        if node.target is F.linear:
            node.target = linear_as_sums
    graph.recompile()
    # a product and a sum may be one operation
    options = {"cpp.enable_floating_point_contract_flag": "fast"}
    return compile_fx(graph, inputs, config_patches=options)


class Compiled(nn.Module):
    """A block or an LM head that runs compiled.

    PyTorch compiles `forward` once for all modules of the same sizes.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    @partial(
        torch.compile, fullgraph=True, dynamic=False, backend=products_as_sums
    )
    def forward(self, *args):
        """Call the module."""
        return self.module(*args)


def with_compiled_blocks(llama: Llama) -> Llama:
    """Return a model of the same parameters whose blocks are compiled."""
    for module in llama.modules():
        is_4_bits = isinstance(module, QuantizedLinear) and module.bits == 4
        if is_4_bits and module.packed is None:  # packs its numbers, once
            module(module.scale.new_zeros(1, module.in_features))
    made = copy.copy(llama)
    blocks = nn.ModuleList(map(Compiled, llama.layers))
    made._modules = dict(llama._modules)  # the copy's own
    made._modules |= {"layers": blocks, "output": Compiled(llama.output)}
    return made


class Replayed:
    r"""A step on a GPU whose operations a CUDA graph replays.

    The first call runs the step, which compiles it, and then records it. Each
    later call replays all its operations by one launch.
    """

    def __init__(self, step: Callable[[Tensor], Tensor]):
        self.step = step
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, token: Tensor) -> Tensor:
        """Return the logits (B, V) after tokens (B,).

        The next call overwrites them.
        """
        if self.graph is None:
            self.token = token.clone()
            logits, graph = self.step(self.token), torch.cuda.CUDAGraph()
            with torch.cuda.device(token.device), torch.cuda.graph(graph):
                self.logits = self.step(self.token)  # recorded, not run
            self.graph = graph
            return logits
        self.token.copy_(token)
        self.graph.replay()
        return self.logits


# By model, the sizes of caches whose compilation was announced
ANNOUNCED: weakref.WeakKeyDictionary[Llama, set] = weakref.WeakKeyDictionary()


def compile_step(llama: Llama, cache: KVCache) -> Callable[[Tensor], Tensor]:
    r"""Return a function from tokens (B,) to logits (B, V), after a cache.

    It goes on from a copy of the cache. Its first call with a size of cache
    compiles: seconds on a CPU, up to a minute on a GPU. It raises
    RuntimeError for a model that cannot be compiled.
    """
    static = StaticCache(cache, static_size(cache.max_seq_len))
    key = len(static.padding), len(static.columns), llama.device, llama.dtype
    if key not in ANNOUNCED.setdefault(llama, set()):
        print("compiling the decode step: up to a minute", flush=True)
        ANNOUNCED[llama].add(key)
    run: Callable[[Tensor], Tensor]
    if static.column.is_cuda:
        options: dict = {"coordinate_descent_tuning": True}
        whole = torch.compile(
            decode_one, fullgraph=True, dynamic=False, options=options
        )
        run = Replayed(partial(whole, llama, cache=static))
    else:
        made = with_compiled_blocks(llama)
        run = partial(decode_one, made, cache=static)

    # PyTorch compiles at most eight variants of a function, unless told
    raised_limit = torch._dynamo.config.patch(recompile_limit=256)

    def step(token):
        nonlocal raised_limit
        try:
            with raised_limit:
                raised_limit = nullcontext()  # from now on it only runs
                return run(token)
        except torch._dynamo.exc.TorchDynamoException as error:
            words = f"{type(error).__name__}: {error}".split("\n")[0]
            raise RuntimeError(
                f"this model cannot be compiled, use compile=False ({words})"
            ) from error

    return step


def start_copy(token: Tensor) -> Callable[[], list[int]]:
    r"""Start to copy ids (B,) from a GPU; return a function that gets them.

    The copy does not wait for what is launched after it.
    """
    ids = token.to("cpu", non_blocking=True)  # into pinned memory
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(token.device))

    def wait():
        copied.synchronize()
        return ids.tolist()

    return wait


def fixed_parts(llama: Llama) -> list:
    """Return what a compiled step takes as fixed: weights' addresses, hooks."""
    weights = [*llama.parameters(), *llama.buffers()]
    return [weight.data_ptr() for weight in weights] + [has_hooks(llama)]


@contextmanager
def unchanged(llama: Llama) -> Iterator[None]:
    """Raise RuntimeError at the end if weights or hooks were exchanged."""
    weights = [*llama.parameters(), *llama.buffers()]
    kept = [weight.detach() for weight in weights]  # no address is used again
    before = fixed_parts(llama)
    yield
    now = fixed_parts(llama)
    kept.clear()
    if now != before:
        raise RuntimeError(
            "weights or hooks of the model were exchanged while it generated "
            "with compile=True: generate again"
        )


@torch.inference_mode()
def decode_compiled(
    llama: Llama,
    tokens: Tensor,
    cache: KVCache,
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor],
) -> Generator[list[int], None, None]:
    r"""Yield what `batch.decode_rows` yields, by a compiled step.

    On a GPU the ids are read one step late, so that it need not wait.
    """
    logits = prefill(llama, tokens, cache)  # (B, V)
    if max_new_tokens > 1:
        step = compile_step(llama, cache)
    for _ in range(max_new_tokens - 1):
        token = choose(logits)  # (B,)
        if token.is_cuda:
            read_ids = start_copy(token)
            logits = step(token)
            yield read_ids()
        else:  # the next step runs only if its id is asked for
            yield token.tolist()
            logits = step(token)
    yield choose(logits).tolist()


def compiled_loop(
    llama: Llama,
    prompt_ids: list[int],
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor],
    stop: Collection[int] = (),
) -> Iterator[int]:
    """Yield the ids of `generate.decode_loop`, by a compiled step.

    Raises RuntimeError at the end if weights or hooks were exchanged.
    """
    S = len(prompt_ids) + max_new_tokens - 1
    cache = KVCache(llama.config, S, device=llama.device, dtype=llama.dtype)
    tokens = torch.tensor([prompt_ids], device=llama.device)  # (1, T)
    steps = decode_compiled(llama, tokens, cache, max_new_tokens, choose)
    with unchanged(llama), closing(steps):
        for (token_id,) in steps:
            if token_id in stop:
                return
            yield token_id
