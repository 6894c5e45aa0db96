r"""The loop: prefill the prompt, decode a token at a time, stop.

Shapes: `B` batch, `T` positions of the prompt, `V` vocabulary.
"""

import operator
from collections.abc import Collection, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from . import native
from .attention import LONG
from .cache import KVCache
from .compiled import CompiledDecode
from .model import Llama
from .sampling import check_sampling, pick

COMPILED = ("cuda",)  # where a compiled step is quicker
PIECE = 512  # the most positions of a prompt at once: bounds the mask


def prefill(
    llama: Llama, tokens: Tensor, cache: KVCache, piece: int = PIECE
) -> Tensor:
    r"""Run a prompt through the model, filling the cache.

    Args:
        tokens: (B, T) int64.
        cache: with room for T more positions.
        piece: positions a pass; any gives the same result.

    Returns:
        (B, V) float32, the logits of the token after the prompt.
    """
    for part in tokens.split(piece, dim=1):
        logits = llama(part, cache, last_only=True)  # (B, 1, V)
    return logits[:, -1]  # (B, V)


def decode_one(llama: Llama, token: Tensor, cache: KVCache) -> Tensor:
    r"""One more token: (B,) int64 in, the next one's logits (B, V) out."""
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

    Args:
        prompt_ids: 1-D, a list or an int64 tensor; at least one id.
        max_new_tokens: give at most so many.
        temperature: 0 is greedy; see `next_token_probs` for the rest.
        seed: makes what is drawn the same again; None: by chance.
        stop: ids that end the text, not given themselves; None: the
            tokenizer's end tokens; (): go on to max_new_tokens.
        compile: take time before the first token, to be quicker after it:
            on a GPU by `CompiledDecode` (and again when a text outgrows 256,
            512, 1024, … positions), on a CPU by `prepare`. Quantized weights
            stay as they are. The text is the same, up to rounding.

    Returns:
        an iterator of ids; each is computed when it is asked for (on a GPU
        a step ahead).

    Raises:
        ValueError: at the call, naming the argument, what was found and
            what is wanted.
    """
    row = prompt_tensor(llama, prompt_ids)  # (T,)
    choose = chooser(llama, 1, temperature, top_k, top_p, seed)
    stop = check_stop(llama, stop)
    steps = checked_loop(llama, [row], max_new_tokens, choose, compile)
    return before_stop(steps, stop)


def generate_batch(
    llama: Llama,
    prompts,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop: Collection[int] | None = None,
    compile: bool = False,
) -> list[list[int]]:
    r"""Continue several prompts of any lengths at once.

    A decode step reads the weights once for all of them. Row b's ids are
    those of `generate` for prompt b alone (with seed + b, where there is a
    seed), up to rounding: equally likely tokens may change places.

    Args:
        prompts: B of what `generate` takes.
        others: as in `generate`, for every row.

    Returns:
        B lists of new ids, each up to its own stop.

    Raises:
        ValueError: naming the argument, what was found and what is wanted.
    """
    prompts = list(prompts)
    if not prompts:
        raise ValueError("prompts are empty; wanted at least one")
    rows = []
    for i, prompt_ids in enumerate(prompts):
        try:
            rows.append(prompt_tensor(llama, prompt_ids))
        except ValueError as error:
            raise ValueError(f"prompts[{i}]: {error}") from None
    choose = chooser(llama, len(rows), temperature, top_k, top_p, seed)
    stop = check_stop(llama, stop)
    steps = checked_loop(llama, rows, max_new_tokens, choose, compile)
    texts, going = [[] for _ in rows], set(range(len(rows)))
    for ids in steps:
        going -= {b for b in going if ids[b] in stop}
        for b in going:
            texts[b].append(ids[b])
        if not going:
            break
    return texts


def pad_left(rows: list[Tensor]) -> tuple[Tensor, Tensor | None]:
    r"""Prompts side by side, so that all end in the last column.

    Args:
        rows: B tensors (T_b,) int64.

    Returns:
        (B, T) int64, T the longest, id 0 where there is no text; and how
        many columns of each row that are, (B,) int64, or None if none.
    """
    T = max(map(len, rows))
    padding = torch.tensor([T - len(row) for row in rows])
    tokens = torch.stack([F.pad(row, (T - len(row), 0)) for row in rows])
    if not padding.any():
        return tokens, None
    return tokens, padding.to(tokens.device)


def chooser(llama, rows, temperature, top_k, top_p, seed):
    """The function from logits (B, V) to the next ids (B,)."""
    check_sampling(temperature, top_k, top_p)
    check_seed(seed)
    if temperature == 0:
        return partial(torch.argmax, dim=-1)
    how = dict(temperature=temperature, top_k=top_k, top_p=top_p)
    if seed is None:
        return partial(pick, **how)
    chances = [
        torch.Generator(llama.device).manual_seed(seed + b)
        for b in range(rows)
    ]

    def draw(logits):  # each row by its own chance, as if it were alone
        drawn = [
            pick(row, generator=chance, **how)
            for row, chance in zip(logits, chances)
        ]
        return torch.stack(drawn)  # (B,)

    return draw


def checked_loop(
    llama, rows, max_new_tokens, choose, compile
) -> Iterator[list[int]]:
    """`token_loop`, or ValueError if it is asked for too much."""
    check_count(max_new_tokens)
    check_room(llama, max(map(len, rows)), max_new_tokens)
    return token_loop(llama, *pad_left(rows), max_new_tokens, choose, compile)


@torch.inference_mode()
def token_loop(
    llama, tokens, padding, max_new_tokens, choose, compile
) -> Iterator[list[int]]:
    """The loop itself: B new ids a step. Everything was checked."""
    B, T = tokens.shape
    # the last new token is given out and never goes in
    size = T + max_new_tokens - 1
    if compile and llama.device.type == "cpu":
        prepare(llama, size)
    can = llama.device.type in COMPILED and not llama.quantized
    compile = compile and can
    if compile:
        step = CompiledDecode.borrow(llama, size, B, padding)
        cache = step.cache
    else:
        cache = llama.new_cache(size, B, padding)
        step = partial(decode_one, llama, cache=cache)
    # a GPU is given the next step before it is asked for the last one's ids:
    # it never waits for Python. A CPU would only give them later.
    ahead = llama.device.type == "cuda"
    try:
        logits = prefill(llama, tokens, cache)  # (B, V)
        for left in reversed(range(max_new_tokens)):
            token = choose(logits)  # (B,)
            ids = on_the_way(token)
            if left and ahead:
                logits = step(token)  # (B, V)
            yield ids()
            if left and not ahead:
                logits = step(token)  # (B, V)
    finally:
        if compile:
            step.give_back()


def prepare(llama: Llama, size: int) -> None:
    r"""What `compile=True` takes time for on a CPU, if it is not yet done.

    The weights in the order of the processor's own 16-bit products
    (`Llama.pack`), and attention behind a long text in C (`native`): each
    where the machine has what it needs.

    Args:
        size: the most positions that there will be.
    """
    if not llama._packed:
        llama.pack()
    if llama.dtype == torch.bfloat16 and size >= LONG:
        native.build(llama.config.n_rep, llama.config.head_dim)


def on_the_way(token: Tensor):
    """Start to copy ids (B,) to the CPU; a function that waits for them."""
    if token.device.type != "cuda":
        return token.tolist
    ids = torch.empty(
        token.shape, dtype=token.dtype, device="cpu", pin_memory=True
    )
    ids.copy_(token, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(token.device))

    def wait():
        arrived.synchronize()
        return ids.tolist()

    return wait


def before_stop(steps: Iterator[list[int]], stop) -> Iterator[int]:
    """The only row's ids, up to the first that is in stop."""
    for (token_id,) in steps:
        if token_id in stop:
            return
        yield token_id


def prompt_tensor(llama: Llama, prompt_ids) -> Tensor:
    """The prompt as (T,) int64 on the model's device, or ValueError."""
    try:
        tokens = torch.as_tensor(prompt_ids)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"prompt_ids are {str(prompt_ids)[:60]!r}; wanted ids, as from "
            "llama.tokenizer.encode(text, bos=True, eos=False)"
        ) from None
    if tokens.dim() != 1 or not len(tokens):
        raise ValueError(
            f"prompt_ids have shape {tuple(tokens.shape)}; wanted one "
            "dimension and at least one id, as from "
            "llama.tokenizer.encode(text, bos=True, eos=False)"
        )
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"prompt_ids are {tokens.dtype}; wanted whole ids")
    tokens = tokens.to(torch.int64)
    V = llama.config.vocab_size
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= V:
        raise ValueError(
            f"prompt_ids hold {low if low < 0 else high}; wanted 0 to "
            f"{V - 1}. Was the text encoded by this checkpoint's tokenizer?"
        )
    return tokens.to(llama.device)  # (T,)


def check_count(max_new_tokens) -> None:
    """ValueError unless it is a whole number from 1."""
    if type(max_new_tokens) is not int or max_new_tokens < 1:
        raise ValueError(
            f"max_new_tokens is {max_new_tokens!r}; wanted a whole number "
            "from 1"
        )


def check_room(llama: Llama, T: int, max_new_tokens: int) -> None:
    """ValueError if the model is not made for so many positions."""
    room = llama.config.max_seq_len - T
    if max_new_tokens > room:
        raise ValueError(
            f"the prompt has {T} tokens and max_new_tokens is "
            f"{max_new_tokens}; this model is made for "
            f"{llama.config.max_seq_len} positions, so at most {room} more"
        )


def check_stop(llama: Llama, stop) -> frozenset[int]:
    """The ids to stop at, or ValueError."""
    if stop is None:
        known = llama.tokenizer
        stop = known.stop_tokens if known is not None else ()
    V = llama.config.vocab_size
    try:  # a tensor's elements are no ints, and would equal no id
        ids = [operator.index(i) for i in stop]
    except TypeError:
        ids = [-1]
    if not all(0 <= i < V for i in ids):
        raise ValueError(
            f"stop is {str(stop)[:60]}; wanted a collection of ids from 0 to "
            f"{V - 1}, like llama.tokenizer.encode('.', bos=False, "
            "eos=False), or () for none"
        )
    return frozenset(ids)


def check_seed(seed) -> None:
    """ValueError unless it is None or fits a generator."""
    if seed is not None and not (type(seed) is int and 0 <= seed < 2**63):
        raise ValueError(
            f"seed is {seed!r}; wanted a whole number from 0, or None"
        )
