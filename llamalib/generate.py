r"""The loop: prefill the prompt, decode a token at a time, stop.

Shapes: `B` batch, `T` positions, `V` vocabulary.
"""

import operator
from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from .cache import KVCache
from .model import Llama
from .sampling import check_sampling, pick

PIECE = 2048  # the most positions of a prompt at once: bounds the mask


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
) -> Iterator[int]:
    r"""Continue a prompt, one token id at a time.

    Args:
        prompt_ids: 1-D, a list or an int64 tensor; at least one id.
        max_new_tokens: give at most so many.
        temperature: 0 is greedy; see `next_token_probs` for the rest.
        seed: makes what is drawn the same again; None: by chance.
        stop: ids that end the text, not given themselves; None: the
            tokenizer's end tokens; (): go on to max_new_tokens.

    Returns:
        an iterator of ids; each is computed when it is asked for.

    Raises:
        ValueError: at the call, naming the argument, what was found and
            what is wanted.
    """
    tokens = prompt_tensor(llama, prompt_ids)  # (1, T)
    check_count(max_new_tokens)
    check_sampling(temperature, top_k, top_p)
    room = llama.config.max_seq_len - tokens.shape[1]
    if max_new_tokens > room:
        raise ValueError(
            f"the prompt has {tokens.shape[1]} tokens and max_new_tokens is "
            f"{max_new_tokens}; this model is made for "
            f"{llama.config.max_seq_len} positions, so at most {room} more"
        )
    if stop is None:
        known = llama.tokenizer
        stop = known.stop_tokens if known is not None else ()
    stop = check_stop(stop, llama.config.vocab_size)
    check_seed(seed)
    generator = None
    if temperature > 0 and seed is not None:
        generator = torch.Generator(llama.device).manual_seed(seed)
    how = dict(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        generator=generator,
    )
    return token_loop(llama, tokens, max_new_tokens, stop, how)


@torch.inference_mode()
def token_loop(llama, tokens, max_new_tokens, stop, how) -> Iterator[int]:
    """The loop itself; everything was checked."""
    # the last new token is given out and never goes in
    cache = llama.new_cache(tokens.shape[1] + max_new_tokens - 1)
    logits = prefill(llama, tokens, cache)  # (1, V)
    for left in reversed(range(max_new_tokens)):
        token = pick(logits, **how)  # (1,)
        token_id = token.item()
        if token_id in stop:
            return
        yield token_id
        if left:
            logits = decode_one(llama, token, cache)  # (1, V)


def prompt_tensor(llama: Llama, prompt_ids) -> Tensor:
    """The prompt as (1, T) int64 on the model's device, or ValueError."""
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
    return tokens[None].to(llama.device)  # (1, T)


def check_count(max_new_tokens) -> None:
    """ValueError unless it is a whole number from 1."""
    if type(max_new_tokens) is not int or max_new_tokens < 1:
        raise ValueError(
            f"max_new_tokens is {max_new_tokens!r}; wanted a whole number "
            "from 1"
        )


def check_stop(stop, vocab_size: int) -> frozenset[int]:
    """The ids to stop at, or ValueError."""
    try:  # a tensor's elements are no ints, and would equal no id
        ids = [operator.index(i) for i in stop]
    except TypeError:
        ids = [-1]
    if not all(0 <= i < vocab_size for i in ids):
        raise ValueError(
            f"stop is {str(stop)[:60]}; wanted a collection of ids from 0 to "
            f"{vocab_size - 1}, like llama.tokenizer.encode('.', bos=False, "
            "eos=False), or () for none"
        )
    return frozenset(ids)


def check_seed(seed) -> None:
    """ValueError unless it is None or fits a generator."""
    if seed is not None and not (type(seed) is int and 0 <= seed < 2**63):
        raise ValueError(
            f"seed is {seed!r}; wanted a whole number from 0, or None"
        )
