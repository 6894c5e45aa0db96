r"""The loop: prefill the prompt, decode one token at a time, stop.

`B` batch, `T` positions of the prompt, `V` vocabulary.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .cache import KVCache
from .checks import as_ids, expect, is_count
from .model import Llama
from .sampling import check_sampling, pick

PIECE = 512  # positions of a prompt per pass; a (T, S) mask grows with T


def prefill(
    llama: Llama, tokens: Tensor, cache: KVCache, piece: int = PIECE
) -> Tensor:
    r"""Run a prompt (B, T) through the model and fill the cache.

    piece: the most positions per pass; the result is the same for any number.
    Returns (B, V) float32, the logits of the token after the prompt.
    """
    for part in tokens.split(piece, dim=1):
        logits = llama(part, cache, last_only=True)  # (B, 1, V)
    return logits[:, -1]  # (B, V)


def decode_one(llama: Llama, token: Tensor, cache: KVCache) -> Tensor:
    r"""Run one token per row: ids (B,) in, logits (B, V) of the next out."""
    return llama(token[:, None], cache)[:, -1]


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

    prompt_ids: 1-D, a list or an int64 tensor; at least one id.
    temperature: 0 is greedy; see `next_token_probs` for top_k and top_p.
    seed: makes sampling reproducible; None: it is not.
    stop: ids that end the text, not returned themselves; None: the
    tokenizer's end tokens; (): continue to max_new_tokens.
    compile: run steps of fixed shapes, compiled by PyTorch (on a GPU as a
    CUDA graph); see `llamalib.fast`. The text is the same, up to rounding;
    quantized weights and parts of a model are not compiled.
    Returns an iterator of ids; each is computed when it is asked for (on a
    GPU one step ahead).  Raises ValueError at the call, naming the argument.
    """
    rows = [prompt_tensor(llama, prompt_ids)]
    options = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    options |= dict(seed=seed, stop=stop, compile=compile)
    steps, stop = start_loop(llama, rows, max_new_tokens, **options)
    return until_stop(steps, stop)


def generate_batch(
    llama: Llama, prompts, *, max_new_tokens: int, **options
) -> list[list[int]]:
    r"""Continue several prompts of any lengths at once.

    A decode step reads the weights once for all rows. Row b's ids are those
    of `generate` for prompt b alone (with seed + b, if there is a seed), up
    to rounding: equally likely tokens may change places.
    options: temperature, top_k, top_p, seed, stop, compile, as in `generate`.
    Returns a list of new ids for each prompt, up to its own stop.
    """
    rows, ok = [], isinstance(prompts, Iterable)
    for i, ids in enumerate(prompts if ok else ()):
        rows.append(prompt_tensor(llama, ids, f"prompts[{i}]: prompt_ids"))
    expect(len(rows) > 0, "prompts", prompts, "a list of prompts")
    steps, stop = start_loop(llama, rows, max_new_tokens, **options)
    texts, unfinished = [[] for _ in rows], set(range(len(rows)))
    for ids in steps:
        unfinished -= {b for b in unfinished if ids[b] in stop}
        for b in unfinished:
            texts[b].append(ids[b])
        if not unfinished:
            break
    return texts


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


def start_loop(
    llama, rows, max_new_tokens, seed=None, stop=None, compile=False, **how
):
    """Check `generate`'s arguments; return `token_loop` and the stops."""
    n, most = max_new_tokens, llama.config.max_seq_len
    if llama.processes:  # all must draw the same tokens, or fail alike
        how_long = dict(max_new_tokens=n, stop=repr(stop))
        seed = llama.processes.shared_seed(seed, **how_long, **how)
    expect(is_count(n), "max_new_tokens", n, "a whole number from 1")
    expect(type(compile) is bool, "compile", compile, "True or False")
    tokens, padding = pad_left(rows)
    T, left = tokens.shape[1], max(0, most - tokens.shape[1])
    room = f"at most {left}: the prompt has {T} tokens of {most} positions"
    expect(T + n <= most, "max_new_tokens", n, room)
    stop, how = check_stop(llama, stop), dict(temperature=0.0) | how
    choose = make_sampler(llama.device, len(rows), seed, **how)
    return token_loop(llama, tokens, padding, n, choose, compile), stop


def make_sampler(device, B, seed, **sampling) -> Callable[[Tensor], Tensor]:
    """Return the function from logits (B, V) to the next ids (B,)."""
    check_sampling(**sampling)
    ok = seed is None or type(seed) is int and 0 <= seed < 2**63
    expect(ok, "seed", seed, "a whole number from 0 to 2**63 - 1, or None")
    if sampling["temperature"] == 0 or seed is None:
        return partial(pick, **sampling)
    generators = [
        torch.Generator(device).manual_seed(seed + b) for b in range(B)
    ]

    def draw(logits):  # each row from its own generator, as if it were alone
        pairs = zip(logits, generators)
        drawn = [pick(row, generator=g, **sampling) for row, g in pairs]
        return torch.stack(drawn)  # (B,)

    return draw


@torch.inference_mode()
def token_loop(llama, tokens, padding, max_new_tokens, choose, compile):
    """Yield B new ids per step, a list[int]; every argument was checked."""
    # the last new token is returned but never goes into the cache
    B, size = len(tokens), tokens.shape[1] + max_new_tokens - 1
    step, cache, release = start_steps(llama, size, B, padding, compile)
    try:
        logits = prefill(llama, tokens, cache)  # (B, V)
        for left in reversed(range(max_new_tokens)):
            token = choose(logits)  # (B,)
            read_ids = read_later(token)
            # a GPU gets its next step first, so it never waits for Python
            if left and token.is_cuda:
                logits = step(token)  # (B, V)
            yield read_ids()
            if left and not token.is_cuda:
                logits = step(token)  # (B, V)
    finally:
        release()


def start_steps(llama, size, B, padding, compile):
    """Return the decode step, its cache, and what to call at the end."""
    whole = not llama.quantized and not llama.processes
    if compile and whole and llama.device.type != "mps":
        from .fast.step import CompiledDecode

        step = CompiledDecode.borrow(llama, size, B, padding)
        return step, step.cache, step.give_back
    cache = llama.new_cache(size, B, padding)
    return partial(decode_one, llama, cache=cache), cache, lambda: None


def read_later(token: Tensor) -> Callable[[], list[int]]:
    """Start to copy ids (B,) to the CPU; return a function to get them."""
    if not token.is_cuda:
        return token.tolist
    ids = torch.empty_like(token, device="cpu", pin_memory=True)
    ids.copy_(token, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(token.device))

    def wait():
        arrived.synchronize()
        return ids.tolist()

    return wait


def until_stop(steps: Iterator[list[int]], stop) -> Iterator[int]:
    """Yield the only row's ids, up to the first that is in stop."""
    for (token_id,) in steps:
        if token_id in stop:
            return
        yield token_id


def prompt_tensor(llama: Llama, prompt_ids, name="prompt_ids") -> Tensor:
    """Return the prompt as (T,) int64 on the model's device, checked."""
    expected = "(T,) ids, as from llama.tokenizer.encode(text, bos=True, …)"
    expect(hasattr(llama, "config"), "llama", llama, "a Llama, as from `load`")
    ok = isinstance(prompt_ids, Sequence) or hasattr(prompt_ids, "tolist")
    V = llama.config.vocab_size
    ids = as_ids(name, prompt_ids, V, expected) if ok else ()
    expect(len(ids) > 0, name, prompt_ids, expected)
    return torch.tensor(ids, device=llama.device)  # (T,)


def check_stop(llama: Llama, stop) -> frozenset[int]:
    """Return the ids to stop at, or raise ValueError."""
    if stop is None:
        stop = getattr(llama.tokenizer, "stop_tokens", ())
    expected = "a collection of ids, or () for none"
    return frozenset(as_ids("stop", stop, llama.config.vocab_size, expected))
