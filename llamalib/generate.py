r"""From logits to new ids: sampling, KV cache, generation.

Generated from the notebooks' cells by `python -m lessons export`: do not edit
this file, edit the notebook.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers; `...` any leading
dimensions. In code, `F` is torch.nn.functional. A matrix (out, in) maps x to
x @ w.T.
"""

import copy
import math
import types
import weakref
from collections.abc import Callable, Collection, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .checks import check_generate, check_sampling
from .model import Llama, ModelArgs, causal_mask, precompute_freqs_cis

__all__ = [
    "top_k_logits",
    "top_p_logits",
    "next_token_probs",
    "sample",
    "LayerCache",
    "KVCache",
    "CHUNK",
    "prefill",
    "decode_one",
    "make_sampler",
    "start_copy",
    "decode_loop",
    "until_stop",
    "generate",
    "pad_left",
    "generate_batch",
    "StaticLayer",
    "StaticCache",
    "linear_as_sums",
    "LinearAsSums",
    "FREE",
    "static_size",
    "static_cache",
    "COMPILED",
    "FOR_CUDA",
    "FOR_CPU",
    "call",
    "compiled",
    "Compiled",
    "compiled_copy",
    "compile_step",
]


def top_k_logits(logits: Tensor, k: int) -> Tensor:
    r"""Set all but the k largest logits to -inf.

    logits: (..., V); returns the same shape.
    k: at least 1; above V it keeps every token. Tokens tied with the k-th
    are kept.
    Source: Fan et al. 2018, arXiv:1805.04833.
    """
    k = min(k, logits.shape[-1])
    least = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < least, float("-inf"))


def top_p_logits(logits: Tensor, p: float) -> Tensor:
    r"""Keep the smallest set of tokens whose probabilities sum to at least p.

    All other logits become -inf.

    logits: (..., V); returns the same shape.
    p: in (0, 1]. The most probable token is always kept.
    Source: Holtzman et al. 2019, arXiv:1904.09751.
    """
    if p == 1:  # the sums below may round to 1 too early
        return logits
    ordered, ids = logits.sort(dim=-1, descending=True)  # (..., V)
    probs = torch.softmax(ordered.float(), dim=-1)
    before = probs.cumsum(dim=-1) - probs  # sum of more probable tokens
    ordered = ordered.masked_fill(before >= p, float("-inf"))
    return torch.empty_like(logits).scatter(-1, ids, ordered)


def next_token_probs(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Tensor:
    r"""Return the distribution that the next token is sampled from.

    The logits are divided by the temperature, then filtered by top-k, then
    by top-p.

    logits: (..., V).  Returns (..., V) float32, summing to 1.
    temperature: > 0; values below 1 sharpen the distribution, values above
    1 flatten it.
    top_k, top_p: None skips the step.
    Raises ValueError naming the argument that is out of range.
    """
    check_sampling(temperature, top_k, top_p, greedy=False)
    logits = logits.float() / temperature  # (..., V)
    if top_k is not None:
        logits = top_k_logits(logits, top_k)
    if top_p is not None:
        logits = top_p_logits(logits, top_p)
    return torch.softmax(logits, dim=-1)


def sample(
    logits: Tensor,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the next token: the argmax at temperature 0, otherwise a draw.

    logits: (..., V).  Returns (...) int64.
    temperature, top_k, top_p: see `next_token_probs`.
    generator: the source of random numbers, on the logits' device; None:
    PyTorch's default generator.
    """
    if temperature == 0:
        return logits.argmax(dim=-1)  # (...)
    probs = next_token_probs(logits, temperature, top_k, top_p)  # (..., V)
    flat = probs.reshape(-1, probs.shape[-1])  # multinomial takes (n, V)
    drawn = torch.multinomial(flat, 1, generator=generator)  # (n, 1)
    return drawn.reshape(probs.shape[:-1])  # (...)


class LayerCache:
    """Keys and values of one layer: `k` and `v`, each (B, KV, S, hd).

    S is the capacity. The first `length` columns are filled. `KVCache`
    updates `length` after all layers have stored the tokens of a pass.
    """

    def __init__(self, k: Tensor, v: Tensor):
        self.k, self.v, self.length = k, v, 0

    def update(self, xk: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        r"""Store keys and values of T tokens; return all keys and values.

        The new ones follow the first `length` tokens; `KVCache.advance`
        changes `length`.
        xk, xv: (B, T, KV, hd).
        Returns two tensors (B, length + T, KV, hd): views, not copies.
        """
        start, end = self.length, self.length + xk.shape[1]
        if len(xk) != len(self.k):
            raise ValueError(f"batch of {len(xk)}, cache of {len(self.k)}")
        self.k[:, :, start:end] = xk.transpose(1, 2)
        self.v[:, :, start:end] = xv.transpose(1, 2)
        k, v = self.k[:, :, :end], self.v[:, :, :end]  # (B, KV, end, hd)
        return k.transpose(1, 2), v.transpose(1, 2)  # (B, end, KV, hd)


class KVCache:
    r"""Keys and values of all tokens so far, in memory allocated once.

    max_seq_len: S, the capacity in tokens.  batch_size: B.
    padding: (B,) int64, the number of padding columns at the left of each
    row, for `generate_batch`; None: no padding. Row b stores position p in
    column p + padding[b].
    device, dtype: those of the model.
    `layers[i]` is layer i's `LayerCache`. Use it without gradients: its
    tensors are written in place.
    """

    def __init__(
        self,
        config: ModelArgs,
        max_seq_len: int,
        batch_size: int = 1,
        padding: Tensor | None = None,
        *,
        device=None,
        dtype=None,
    ):
        c, S = config, max_seq_len
        self.max_seq_len, self.padding = S, padding
        shape = batch_size, c.n_kv_heads, S, c.head_dim
        self.layers = []
        for _ in range(c.n_layers):
            k = torch.zeros(shape, device=device, dtype=dtype)
            self.layers.append(LayerCache(k, torch.zeros_like(k)))
        self.freqs_cis = precompute_freqs_cis(
            c.head_dim, S, c.rope_theta, c.scaling_factor
        ).to(k.device)

    def positions(self, T: int) -> Tensor:
        r"""Return the positions of the next T tokens, (T,) or (B, T).

        Raises ValueError if they exceed the capacity.
        """
        end, device = self.length + T, self.freqs_cis.device
        if end > self.max_seq_len:  # before any layer writes
            raise ValueError(
                f"KVCache is full: {end} tokens, capacity "
                f"{self.max_seq_len}; create it with a larger max_seq_len"
            )
        columns = torch.arange(self.length, end, device=device)
        if self.padding is None:
            return columns
        # padding itself gets position 0
        return (columns - self.padding[:, None]).clamp(min=0)

    def mask(self, T: int) -> Tensor | None:
        r"""Return the causal mask of the next T tokens, (T, length + T).

        With padding it is (B, 1, T, length + T) and hides the padding.
        Without padding a single token needs no mask: None.
        """
        end, device = self.length + T, self.freqs_cis.device
        if self.padding is None:
            return causal_mask(T, end, device) if T > 1 else None
        columns = torch.arange(end, device=device)
        is_padding = columns < self.padding[:, None, None, None]
        mask = causal_mask(T, end, device)  # (T, end)
        mask = mask.masked_fill(is_padding, -torch.inf)  # (B, 1, T, end)
        # Padding attends to itself: softmax over a row of -inf is NaN, and
        # in the next layer 0 times NaN would reach the other tokens.
        mask[..., self.length :].diagonal(dim1=-2, dim2=-1).zero_()
        return mask

    def advance(self, T: int) -> None:
        r"""Count T more columns as filled; a negative T goes back.

        `llama` calls it once a pass, after all layers have run.
        """
        length = self.length + T
        assert 0 <= length <= self.max_seq_len
        for layer in self.layers:
            layer.length = length

    @property
    def length(self) -> int:
        """The number of filled columns, the same in all layers."""
        return self.layers[0].length

    @property
    def nbytes(self) -> int:
        """The bytes of all keys and values."""
        return sum(layer.k.nbytes + layer.v.nbytes for layer in self.layers)


CHUNK = 512  # maximum tokens per pass; limits the mask to (512, S)


def prefill(
    llama: Llama, tokens: Tensor, cache: KVCache, chunk: int = CHUNK
) -> Tensor:
    r"""Run a prompt (B, T) through the model and fill the cache.

    chunk: maximum tokens per pass; the result is the same for any number
    from 1, up to floating-point rounding.
    Returns (B, V) float32, the logits of the token after the prompt.
    """
    for part in tokens.split(chunk, dim=1):
        logits = llama(part, cache, last_only=True)  # (B, 1, V)
    return logits[:, -1]  # (B, V)


def decode_one(llama: Llama, token: Tensor, cache: KVCache) -> Tensor:
    r"""Run one new token per row, (B,); return its logits, (B, V)."""
    return llama(token[:, None], cache)[:, -1]  # (B, 1, V) -> (B, V)


def make_sampler(
    device,
    B: int,
    seed: int | None = None,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Callable[[Tensor], Tensor]:
    r"""Return the function that chooses the next ids (B,) from logits (B, V).

    seed: row b has its own generator, with seed + b. So it draws the same
    random numbers as it would alone with that seed. None: PyTorch's default
    generator.
    temperature, top_k, top_p: see `sample`.
    """
    sampling = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    if seed is None or temperature == 0:
        return partial(sample, **sampling)
    generators = [
        torch.Generator(device).manual_seed(seed + b) for b in range(B)
    ]

    def draw(logits):
        rows = zip(logits, generators)
        return torch.stack(
            [sample(row, generator=g, **sampling) for row, g in rows]
        )

    return draw


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


@torch.inference_mode()
def decode_loop(
    llama: Llama,
    tokens: Tensor,
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor],
    *,
    padding: Tensor | None = None,
    compile: bool = False,
) -> Iterator[list[int]]:
    r"""Run the prompts, then yield the next id of each row, step by step.

    tokens: (B, T).  max_new_tokens: the number of steps, each a list of B
    ids.  choose: from `make_sampler`.  padding: see `KVCache`.
    compile: whether to compile `decode_one` (appendix G).
    """
    B, T = tokens.shape
    # the last new token is yielded, but never goes through the model
    capacity = T + max_new_tokens - 1
    like = dict(device=llama.device, dtype=llama.dtype)
    cache = KVCache(llama.config, capacity, B, padding, **like)
    logits, step = prefill(llama, tokens, cache), decode_one  # (B, V)
    if compile:
        from llamalib.generate import compile_step

        step, cache = compile_step(llama, cache)
    for _ in range(max_new_tokens - 1):
        token = choose(logits)  # (B,)
        if token.is_cuda:  # the GPU works on the next step while we wait
            read_ids = start_copy(token)
            logits = step(llama, token, cache)  # (B, V)
            yield read_ids()
        else:  # the next step runs only if its id is asked for
            yield token.tolist()
            logits = step(llama, token, cache)  # (B, V)
    yield choose(logits).tolist()


def until_stop(
    steps: Iterator[list[int]], stop: Collection[int]
) -> Iterator[int]:
    """Yield the ids of a batch of one row, up to a stop id, without it."""
    for (token_id,) in steps:
        if token_id in stop:
            return
        yield token_id


def generate(
    llama: Llama,
    prompt_ids,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop: Collection[int] | None = None,
    compile: bool = False,
) -> Iterator[int]:
    r"""Continue a prompt, one token id at a time.

    prompt_ids: a list of ids or a 1-D integer tensor; at least one id.
    temperature: 0 is greedy; see `next_token_probs` for top_k and top_p.
    seed: for reproducible sampling; None: each call draws other tokens.
    stop: ids that end the generation and are not returned. None: the
    tokenizer's stop tokens; (): none.
    compile: whether to compile the decode step (on a GPU as a CUDA graph).
    The ids are the same, up to floating-point rounding.
    Returns an iterator, which computes an id when the caller asks for it; on
    a GPU one step ahead.  Raises ValueError at the call, naming the argument.
    """
    sampling = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    options = dict(seed=seed, stop=stop, compile=compile, **sampling)
    prompts, seed, stop = check_generate(
        llama, [prompt_ids], max_new_tokens, **options
    )
    tokens = torch.tensor(prompts, device=llama.device)  # (1, T)
    choose = make_sampler(llama.device, 1, seed, **sampling)
    steps = decode_loop(llama, tokens, max_new_tokens, choose, compile=compile)
    return until_stop(steps, stop)


def pad_left(rows: list[Tensor]) -> tuple[Tensor, Tensor | None]:
    r"""Stack prompts with left padding, so that all end in the last column.

    rows: B tensors (T_b,) int64.
    Returns tokens (B, T) int64, T the longest, padded with id 0; and padding
    (B,) int64, columns of padding per row, or None if all are 0.
    """
    T = max(map(len, rows))
    padding = torch.tensor([T - len(row) for row in rows])
    tokens = torch.stack([F.pad(row, (T - len(row), 0)) for row in rows])
    if not padding.any():
        return tokens, None
    return tokens, padding.to(tokens.device)


def generate_batch(
    llama: Llama,
    prompts,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop=None,
    compile: bool = False,
) -> list[list[int]]:
    r"""Continue several prompts of any lengths at once.

    A decode step reads the weights once for all rows. Row b's ids are those
    of `generate` for prompt b alone (with seed + b, if there is a seed), up
    to floating-point rounding, which can decide near-ties differently. A row
    that has ended runs on, unseen, until all rows have ended.

    prompts: a list of prompts; the other arguments are those of `generate`.
    Returns a list of new ids for each prompt, up to its own stop.
    """
    sampling = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    options = dict(seed=seed, stop=stop, compile=compile, **sampling)
    prompts, seed, stop = check_generate(
        llama, prompts, max_new_tokens, **options
    )
    rows = [torch.tensor(ids, device=llama.device) for ids in prompts]
    tokens, padding = pad_left(rows)  # (B, T), (B,)
    choose = make_sampler(llama.device, len(rows), seed, **sampling)
    steps = decode_loop(
        llama, tokens, max_new_tokens, choose, padding=padding, compile=compile
    )
    new_ids, unfinished = [[] for _ in rows], set(range(len(rows)))
    for ids in steps:
        unfinished -= {b for b in unfinished if ids[b] in stop}
        for b in unfinished:
            new_ids[b].append(ids[b])
        if not unfinished:
            break
    return new_ids


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


class StaticCache(KVCache):
    r"""A KVCache for a compiled decode step: nothing in it moves or grows.

    A step writes to the column whose number is in `column` (1,), and reads
    all S columns under a mask. The other arguments are those of `KVCache`.
    """

    def __init__(
        self,
        config: ModelArgs,
        max_seq_len: int,
        batch_size: int = 1,
        *,
        device=None,
        dtype=None,
    ):
        ids = dict(dtype=torch.int64, device=device)
        padding = torch.zeros(batch_size, **ids)
        like = dict(device=device, dtype=dtype)
        super().__init__(config, max_seq_len, batch_size, padding, **like)
        self.column = torch.zeros(1, **ids)
        self.columns = torch.arange(max_seq_len, device=device)  # (S,)
        self.layers = [
            StaticLayer(each.k, each.v, self.column) for each in self.layers
        ]

    def fill(self, cache: KVCache) -> None:
        """Copy what a cache holds; clear the columns after it."""
        n = cache.length
        for mine, theirs in zip(self.layers, cache.layers):
            for to, of in ((mine.k, theirs.k), (mine.v, theirs.v)):
                to[:, :, :n] = of[:, :, :n]
                to[:, :, n:] = 0  # a weight of 0 times infinity is NaN
        self.freqs_cis[: cache.max_seq_len] = cache.freqs_cis
        self.padding[:] = 0 if cache.padding is None else cache.padding
        self.column.fill_(n)

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


def linear_as_sums(x: Tensor, w: Tensor) -> Tensor:
    r"""Compute F.linear(x, w), for one row as sums that a compiler fuses.

    x: (..., K).  w: (M, K).  Returns (..., M) in the dtype of x.
    """
    if x.numel() > x.shape[-1] or w.dtype == torch.float32:
        return F.linear(x, w)
    row = x.reshape(1, -1)
    row = row.as_strided(row.shape, row.stride())  # computed once
    products = w.float() * row.float()  # (M, K), never stored
    piece = math.gcd(w.shape[1], 512)  # short sums run in parallel
    sums = products.unflatten(-1, (-1, piece)).sum(-1)  # (M, K/piece)
    return sums.sum(-1).type_as(x).view(*x.shape[:-1], -1)


class LinearAsSums(nn.Linear):
    """An nn.Linear without bias for a compiled step on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by `linear_as_sums`."""
        return linear_as_sums(x, self.weight)


FREE = weakref.WeakKeyDictionary()  # by model: a cache that no text uses


def static_size(n: int) -> int:
    """Return the columns of a static cache for n positions: few sizes."""
    more = max(256, 2 ** (n - 1).bit_length())
    step = more // 8
    return more if more <= 4096 else -(-n // step) * step


def static_cache(llama: Llama, cache: KVCache) -> StaticCache:
    """Return a static copy of a cache, in the model's free memory if any."""
    B, S = len(cache.layers[0].k), static_size(cache.max_seq_len)
    size = S, B, llama.device, llama.dtype
    # one operation, so that two threads never get the same memory
    found = FREE.pop(llama, None)
    if found is None or found.size != size:
        found = None  # freed before more is allocated
        like = dict(device=llama.device, dtype=llama.dtype)
        # not inference tensors: a graph writes to them
        with torch.inference_mode(False), torch.no_grad():
            found = StaticCache(llama.config, S, B, **like)
        found.size = size
        layers = [x for each in found.layers for x in (each.k, each.v)]
        for x in (*layers, found.column, found.padding, found.freqs_cis):
            # otherwise PyTorch makes no graph that writes to its input
            torch._dynamo.mark_static_address(x)
    found.fill(cache)
    return found


COMPILED = weakref.WeakKeyDictionary()  # by model: functions by size
# Options of PyTorch's compiler: a CUDA graph, and products as sums
FOR_CUDA = {"triton.cudagraphs": True, "coordinate_descent_tuning": True}
# Options of PyTorch's compiler: a product and a sum may be one operation
FOR_CPU = {"cpp.enable_floating_point_contract_flag": "fast"}


def call(module: nn.Module, *args):
    """Call a module: the function that is compiled on a CPU."""
    return module(*args)


def compiled(function: Callable, options: dict) -> Callable:
    """Return a compiled function, with fixed shapes and one graph."""
    # PyTorch keeps what it compiled by a function's code, and gives up
    # after eight variants; another model or size is not a variant
    code = function.__code__.replace()
    own = types.FunctionType(code, function.__globals__)
    return torch.compile(own, fullgraph=True, dynamic=False, options=options)


class Compiled(nn.Module):
    """A module that is called by a compiled function."""

    def __init__(self, module: nn.Module, function: Callable):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *args):
        """Call the module."""
        return self.function(self.module, *args)


def compiled_copy(llama: Llama, block: Callable, output: Callable) -> Llama:
    """Return a model of the same parameters, with compiled modules."""
    for module in llama.modules():
        if getattr(module, "bits", 8) == 4:  # packs its numbers, once
            module(module.scale.new_zeros(1, module.in_features))
    shared = *llama.parameters(), *llama.buffers(), llama.tokenizer
    made = copy.deepcopy(llama, {id(each): each for each in shared})
    for module in made.modules():
        if type(module) is nn.Linear:
            module.__class__ = LinearAsSums
    made.layers = nn.ModuleList(Compiled(each, block) for each in made.layers)
    made.output = Compiled(made.output, output)
    return made


def compile_step(llama: Llama, cache: KVCache) -> tuple[Callable, StaticCache]:
    r"""Return a compiled `decode_one`, and a static copy of the cache.

    The first call with a size compiles: seconds on a CPU, up to a minute on
    a GPU. The model keeps the memory when the step is no longer used.
    """
    static, on_cuda = static_cache(llama, cache), llama.device.type == "cuda"
    made = COMPILED.setdefault(llama, {})
    if static.size not in made:
        print("compiling the decode step: up to a minute", flush=True)
        made[static.size] = (
            [compiled(decode_one, FOR_CUDA)]
            if on_cuda
            else [compiled(call, FOR_CPU) for _ in range(2)]
        )
    functions = made[static.size]
    model = llama if on_cuda else compiled_copy(llama, *functions)
    run = functions[0] if on_cuda else decode_one

    def step(llama, token, cache):
        try:
            return run(model, token, cache)
        except torch._dynamo.exc.TorchDynamoException as error:
            words = f"{type(error).__name__}: {error}".split("\n")[0]
            raise RuntimeError(
                f"this model cannot be compiled, use compile=False ({words})"
            ) from error

    back = weakref.finalize(step, FREE.__setitem__, llama, static)
    back.atexit = False
    return step, static
