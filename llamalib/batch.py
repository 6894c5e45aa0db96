r"""Several texts at once: left padding, a cache that hides it, a loop.

Shapes: `B` batch, `T` query positions, `S` key positions, `V` vocabulary.
"""

from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, closing, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from .cache import KVCache
from .checks import check_generate
from .generate import decode_one, prefill
from .model import Llama, ModelArgs, causal_mask
from .sampling import make_sampler


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


class PaddedCache(KVCache):
    r"""A KVCache for rows of different lengths, which end together.

    padding: (B,) int64, columns of padding at the left of each row. Row b
    stores position p in column p + padding[b].
    The other arguments are those of `KVCache`.
    """

    def __init__(
        self,
        config: ModelArgs,
        max_seq_len: int,
        padding: Tensor,
        *,
        device=None,
        dtype=None,
    ):
        B = len(padding)
        super().__init__(config, max_seq_len, B, device=device, dtype=dtype)
        self.padding = padding

    def positions(self, T: int) -> Tensor:
        """Return the positions of the next T columns of each row, (B, T)."""
        columns = super().positions(T)  # (T,)
        # padding itself gets position 0
        return (columns - self.padding[:, None]).clamp(min=0)

    def mask(self, T: int) -> Tensor:
        """Return the causal mask that hides padding, (B, 1, T, length + T)."""
        end, device = self.length + T, self.freqs_cis.device
        columns = torch.arange(end, device=device)
        is_padding = columns < self.padding[:, None, None, None]
        mask = causal_mask(T, end, device)  # (T, end)
        mask = mask.masked_fill(is_padding, -torch.inf)  # (B, 1, T, end)
        # Padding attends to itself: softmax over a row of -inf is NaN, and
        # in the next layer 0 times NaN would reach the other tokens.
        mask[..., self.length :].diagonal(dim1=-2, dim2=-1).zero_()
        return mask


def make_cache(
    llama: Llama, tokens: Tensor, max_new_tokens: int, padding: Tensor | None
) -> KVCache:
    """Return an empty cache for prompts (B, T) and their new tokens."""
    B, T = tokens.shape
    S = T + max_new_tokens - 1  # the last new token is never run
    c, device, dtype = llama.config, llama.device, llama.dtype
    if padding is None:
        return KVCache(c, S, B, device=device, dtype=dtype)
    return PaddedCache(c, S, padding, device=device, dtype=dtype)


def sampler_by_row(
    device, B: int, seed: int | None = None, **sampling
) -> Callable[[Tensor], Tensor]:
    r"""Return a function that chooses ids (B,) from logits (B, V).

    seed: row b draws the random numbers that it would draw alone with
    seed + b.  sampling: see `make_sampler`.
    """
    if seed is None:
        return make_sampler(device, **sampling)
    samplers = [make_sampler(device, seed + b, **sampling) for b in range(B)]

    def choose(logits):
        rows = zip(samplers, logits, strict=True)
        return torch.stack([draw(row) for draw, row in rows])

    return choose


@torch.inference_mode()
def decode_rows(
    llama: Llama,
    tokens: Tensor,
    cache: KVCache,
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor],
) -> Generator[list[int], None, None]:
    """Run prompts (B, T), then yield the next id of each row, step by step."""
    logits = prefill(llama, tokens, cache)  # (B, V)
    for n in range(1, max_new_tokens + 1):
        token = choose(logits)  # (B,)
        yield token.tolist()
        if n < max_new_tokens:
            logits = decode_one(llama, token, cache)


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

    A decode step reads the weights once for all rows. Row b's ids are those
    of `generate` for prompt b alone (with seed + b, if there is a seed), up
    to floating-point rounding, which can decide near-ties differently. A row
    that has ended runs on, unseen, until all rows have ended.

    prompts: a list of prompts; the other arguments are those of `generate`.
    Returns a list of new ids for each prompt, up to its own stop.
    """
    prompts, seed, stop = check_generate(
        llama,
        prompts,
        max_new_tokens,
        seed=seed,
        stop=stop,
        compile=compile,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    rows = [torch.tensor(ids, device=llama.device) for ids in prompts]
    tokens, padding = pad_left(rows)  # (B, T), (B,)
    cache = make_cache(llama, tokens, max_new_tokens, padding)
    choose = sampler_by_row(
        llama.device,
        len(rows),
        seed,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    decode = decode_rows
    checked: AbstractContextManager = nullcontext()
    if compile:  # imported only now: it brings PyTorch's compiler
        from llamalib.compiled import decode_compiled, unchanged

        decode, checked = decode_compiled, unchanged(llama)
    steps = decode(llama, tokens, cache, max_new_tokens, choose)
    new_ids: list[list[int]] = [[] for _ in rows]
    unfinished = set(range(len(rows)))
    with checked, closing(steps):
        for ids in steps:
            unfinished -= {b for b in unfinished if ids[b] in stop}
            for b in unfinished:
                new_ids[b].append(ids[b])
            if not unfinished:
                break
    return new_ids
