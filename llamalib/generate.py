r"""From a prompt to new ids: prefill, decode, and the loop around them.

Shapes: `B` batch, `T` query positions, `S` key positions, `KV` key/value
heads, `hd` head dim, `V` vocabulary, `L` layers; `...` any leading dimensions.
"""

from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor

from .cache import KVCache
from .checks import check_generate
from .model import Llama
from .sampling import make_sampler

CHUNK = 1024  # maximum tokens per pass; limits the mask to (1024, S)


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


def decode_one(llama: Llama, token: Tensor, cache) -> Tensor:
    r"""Run one new token per row, (B,); return its logits, (B, V)."""
    return llama(token[:, None], cache)[:, -1]  # (B, 1, V) -> (B, V)


@torch.inference_mode()
def decode_loop(
    llama: Llama,
    prompt_ids: list[int],
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor],
    stop: Collection[int] = (),
) -> Iterator[int]:
    r"""Yield the ids that continue a prompt, up to a stop id, without it.

    max_new_tokens: the most ids to yield.  choose: see `make_sampler`.
    """
    S = len(prompt_ids) + max_new_tokens - 1  # the last token is never run
    cache = KVCache(llama.config, S, device=llama.device, dtype=llama.dtype)
    tokens = torch.tensor([prompt_ids], device=llama.device)  # (1, T)
    logits = prefill(llama, tokens, cache)  # (1, V)
    for n in range(1, max_new_tokens + 1):
        token = choose(logits)  # (1,)
        token_id = int(token.item())
        if token_id in stop:
            return
        yield token_id
        if n < max_new_tokens:
            logits = decode_one(llama, token, cache)  # (1, V)


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
    compile: whether to compile the decode step, see `compiled.compiled_loop`.
    The ids are the same, up to floating-point rounding.
    Returns an iterator, which computes an id when the caller asks for it.
    Raises ValueError at the call, naming the argument.
    """
    (prompt,), seed, stop = check_generate(
        llama,
        [prompt_ids],
        max_new_tokens,
        seed=seed,
        stop=stop,
        compile=compile,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    choose = make_sampler(
        llama.device, seed, temperature=temperature, top_k=top_k, top_p=top_p
    )
    if compile:  # imported only now: it brings PyTorch's compiler
        from llamalib.compiled import compiled_loop

        return compiled_loop(llama, prompt, max_new_tokens, choose, stop)
    return decode_loop(llama, prompt, max_new_tokens, choose, stop)
