r"""One decode step with nothing left to decide, compiled and replayed.

A large GPU reads the weights of Llama 3.2-1B in about a millisecond; Python
cannot even start the hundreds of operations of a step in that time. So the
step is written once more, with every shape fixed: a compiler joins its small
operations, and a CUDA graph starts them all by one call. What changes from
step to step, the token and its column, lies in memory that stays where it is.

Shapes: `B` batch, `S` columns of the cache that are looked at, `D` model
dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden dim,
`V` vocabulary, `L` layers.
"""

import math
import threading
import types
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..rmsnorm import rms_norm

_handing_out = threading.Lock()
FEWEST = 256  # columns that a step looks at
STEP = 1024  # more columns at a time, behind a long text


def columns_for(column: int) -> int:
    r"""How many columns a step looks at that writes to this one.

    Not just so many as there are: for each number of them a step is compiled
    and recorded anew. Twice as many each time while a text is short, where
    they weigh little beside the weights; behind 4096, where they do not, at
    most a quarter more than the text has.
    """
    more = 2 ** column.bit_length()
    if more <= STEP:
        return max(FEWEST, more)
    step = max(STEP, more // 8)
    return (column // step + 1) * step


class BlockWeights(NamedTuple):
    """One block's tensors, those that read the same input as one."""

    attention_norm: Tensor  # (D,)
    wqkv: Tensor  # (H·hd + 2·KV·hd, D)
    wo: Tensor  # (D, H·hd)
    ffn_norm: Tensor  # (D,)
    w13: Tensor  # (2·F, D)
    w2: Tensor  # (D, F)


def side_by_side(parameters: list[Tensor]) -> Tensor:
    r"""Matrices (M_i, K) as one (ΣM_i, K), without a second copy.

    The parameters become views of the one matrix, and keep their names,
    shapes and values. Where they lie so already, nothing is moved.
    """
    first, K = parameters[0], parameters[0].shape[1]
    rows = sum(len(p) for p in parameters)
    place = first.data_ptr()
    for p in parameters:
        if p.data_ptr() != place or not p.is_contiguous():
            break
        place += p.nbytes
    else:
        start = first.storage_offset()
        size = (start + rows * K) * first.itemsize
        if first.untyped_storage().nbytes() >= size:
            return first.data.as_strided((rows, K), (K, 1))
    # not of this moment's kind but of the weights': they may be trained later
    with torch.inference_mode(first.is_inference()):
        together = torch.cat([p.data for p in parameters])
    start = 0
    for p in parameters:
        p.data = together[start : start + len(p)]
        start += len(p)
    return together


def block_weights(llama) -> list[BlockWeights]:
    """Of every layer."""
    w = llama.weights()
    blocks = []
    for layer in range(llama.config.n_layers):
        a, f = (
            f"layers.{layer}.{part}" for part in ("attention", "feed_forward")
        )
        qkv = [w[f"{a}.{name}.weight"] for name in ("wq", "wk", "wv")]
        w13 = [w[f"{f}.{name}.weight"] for name in ("w1", "w3")]
        blocks.append(
            BlockWeights(
                w[f"layers.{layer}.attention_norm.weight"].data,
                side_by_side(qkv),
                w[f"{a}.wo.weight"].data,
                w[f"layers.{layer}.ffn_norm.weight"].data,
                side_by_side(w13),
                w[f"{f}.w2.weight"].data,
            )
        )
    return blocks


def turn_pairs(x: Tensor, turn: Tensor) -> Tensor:
    r"""`apply_rotary_emb` in real numbers, for a compiler.

    PyTorch's makes no code for complex ones.

    Args:
        x: (B, n, hd), n heads.
        turn: (B, 1, hd/2, 2) float32, cos and sin of each pair's angle.

    Returns:
        (B, n, hd) in the dtype of x.
    """
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # (B, n, hd/2)
    cos, sin = turn.unbind(-1)  # (B, 1, hd/2)
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return turned.flatten(-2).type_as(x)


def grouped_attention(
    xq: Tensor, xk: Tensor, xv: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""`attention` of one query a head, no key or value repeated.

    The query heads of a group are so many queries of their one KV head:
    its keys and values are read once for all of them. In plain operations,
    for a compiler.

    Args:
        xq: (..., 1, H, hd).
        xk, xv: (..., S, KV, hd).
        mask: (1, S) or (..., 1, 1, S), added to the scores; None: no mask.

    Returns:
        (..., 1, H·hd).
    """
    k, v = xk.transpose(-3, -2), xv.transpose(-3, -2)  # (..., KV, S, hd)
    # G = H/KV queries a group: (..., KV, G, hd)
    q = xq.squeeze(-3).unflatten(-2, (k.shape[-3], -1))
    scores = q @ k.transpose(-2, -1)  # (..., KV, G, S)
    scores = scores.float() / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1).type_as(q)  # (..., KV, G, S)
    return (weights @ v).flatten(-3).unsqueeze(-2)  # (..., 1, H·hd)


def start_step(
    token: Tensor,
    column: Tensor,
    padding: Tensor,
    turns: Tensor,
    embedding: Tensor,
    S: int,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""What the first block is given, and what every block needs.

    Args:
        token: (B,) int64.
        column: (1,) int64, where the token's keys and values are written.
        padding: (B,) int64, each row's columns without text.
        turns: (positions, hd/2, 2) float32, cos and sin.
        embedding: (V, D).
        S: columns of the cache.

    Returns:
        x (B, D); mask (B, 1, 1, S) float32; turn (B, 1, hd/2, 2).
    """
    columns = torch.arange(S, device=token.device)  # (S,)
    unseen = (columns > column) | (columns < padding[:, None])  # (B, S)
    mask = torch.where(unseen, float("-inf"), 0.0)[:, None, None]
    turn = turns[column - padding][:, None]  # (B, 1, hd/2, 2)
    return F.embedding(token, embedding), mask, turn


def decode_block(
    x: Tensor,
    block: BlockWeights,
    k: Tensor,
    v: Tensor,
    column: Tensor,
    mask: Tensor,
    turn: Tensor,
    eps: float,
) -> Tensor:
    r"""`transformer_block` for one token a row.

    Args:
        x: (B, D).
        block: its weights.
        k, v: (B, KV, S, hd), its keys and values; written to.
        column, mask, turn: see `start_step`.
        eps: of its norms.

    Returns:
        (B, D).
    """
    KV, hd = k.shape[1], k.shape[3]
    h = rms_norm(x, block.attention_norm, eps)  # (B, D)
    heads = F.linear(h, block.wqkv).unflatten(-1, (-1, hd))
    xq, xk, xv = heads.split([heads.shape[1] - 2 * KV, KV, KV], dim=1)
    xq, xk = turn_pairs(xq, turn), turn_pairs(xk, turn)
    k.index_copy_(2, column, xk[:, :, None])  # (B, KV, 1, hd)
    v.index_copy_(2, column, xv[:, :, None])
    a = grouped_attention(
        xq[:, None], k.transpose(1, 2), v.transpose(1, 2), mask
    )  # (B, 1, H·hd)
    x = x + F.linear(a[:, 0], block.wo)  # (B, D)
    h = rms_norm(x, block.ffn_norm, eps)  # (B, D)
    gate, up = F.linear(h, block.w13).chunk(2, dim=-1)  # (B, F)
    return x + F.linear(F.silu(gate) * up, block.w2)  # (B, D)


def finish_step(x: Tensor, norm: Tensor, output: Tensor, eps: float) -> Tensor:
    r"""Scores of the next token: (B, D) to (B, V) float32."""
    return F.linear(rms_norm(x, norm, eps), output).float()


def decode_step(
    token: Tensor,
    column: Tensor,
    padding: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
    turns: Tensor,
    embedding: Tensor,
    blocks: list[BlockWeights],
    norm: Tensor,
    output: Tensor,
    eps: float,
    parts=(start_step, decode_block, finish_step),
) -> Tensor:
    r"""`decode_one` with nothing left to decide.

    Args:
        token, column, padding, turns, embedding: see `start_step`.
        keys, values: L tensors (B, KV, S, hd); written to.
        blocks, norm, output, eps: the model.
        parts: its three functions, or the same compiled.

    Returns:
        (B, V) float32.
    """
    start, run_block, finish = parts
    S = keys[0].shape[2]
    x, mask, turn = start(token, column, padding, turns, embedding, S)
    for block, k, v in zip(blocks, keys, values):
        x = run_block(x, block, k, v, column, mask, turn, eps)  # (B, D)
    return finish(x, norm, output, eps)  # (B, V)


class CompiledDecode:
    r"""`decode_one`, compiled; on CUDA recorded and then replayed.

    Once for each number of columns that it looks at (`columns_for`). It has a
    KV cache of its own, for `prefill` to fill. To compile takes seconds and
    more: `borrow` hands the last one out again.

    Args:
        llama: its q, k and v matrices, and its w1 and w3, are laid side by
            side in memory; their names and values stay.
        max_seq_len: of the cache, at least.
        batch_size: B.

    Attributes:
        cache: a KVCache.
    """

    def __init__(self, llama, max_seq_len: int, batch_size: int = 1):
        if llama.quantized:
            raise ValueError(
                f"the weights are {llama.quantized}, and what is compiled "
                "reads floats; load the model without quantize"
            )
        self.llama = llama
        size = columns_for(max_seq_len - 1)
        # not of inference mode alone, whoever calls: they are written to later
        with torch.inference_mode(False), torch.no_grad():
            self.cache = llama.new_cache(size, batch_size)
            self.token = torch.zeros(
                batch_size, dtype=torch.int64, device=llama.device
            )
            self.column = torch.zeros_like(self.token[:1])
            self.padding = torch.zeros_like(self.token)
        self.steps = {}  # S: what runs a step that looks at S columns
        self.finish = compiled_anew(finish_step)  # whatever S is
        self.aside = None  # a CUDA stream to record on
        self.blocks = block_weights(llama)  # this may move them
        self.places = places(llama)

    @classmethod
    def borrow(cls, llama, max_seq_len, batch_size=1, padding=None):
        r"""One with an empty cache: the model's last, if that fits.

        Args:
            llama, max_seq_len, batch_size: as above.
            padding: see KVCache.
        """
        with _handing_out:
            self, llama.compiled = llama.compiled, None
        fits = (
            self is not None
            and self.cache.max_seq_len >= max_seq_len
            and len(self.token) == batch_size
            and self.places == places(llama)
        )
        if not fits:
            self = None  # its memory is free before more is asked for
            self = cls(llama, max_seq_len, batch_size)
        else:  # what is not seen weighs 0, but 0 times infinity is no number
            self.cache.k.zero_()
            self.cache.v.zero_()
        self.llama = llama
        self.cache.reset(padding)
        self.padding.zero_()
        if padding is not None:
            self.padding.copy_(padding)
        return self

    def give_back(self) -> None:
        """To be borrowed again."""
        llama, self.llama = self.llama, None  # no circle that keeps both
        llama.compiled = self

    def __reduce__(self):
        return type(None), ()  # a copy of the model compiles its own

    def __call__(self, token: Tensor) -> Tensor:
        """One more token: (B,) int64 in, the next one's logits (B, V) out."""
        column = self.cache.length
        if column >= self.cache.max_seq_len:
            raise ValueError(
                f"position {column} does not fit a cache of "
                f"{self.cache.max_seq_len} positions; make it with a larger "
                "max_seq_len"
            )
        self.token.copy_(token)
        self.column.fill_(column)
        S = columns_for(column)
        if S not in self.steps:
            self.steps[S] = self.prepared(S)
        logits = self.steps[S]()
        self.cache.advance(1)
        return logits

    def prepared(self, S: int):
        """A function without arguments that runs the step on S columns."""
        arguments = self.arguments(S)
        # one for each S: what is compiled for any size is slower for this;
        # a block is compiled once, not L times
        parts = [compiled_anew(start_step), compiled_anew(decode_block)]
        parts.append(self.finish)

        def step():
            return decode_step(*arguments, parts)

        if self.token.device.type != "cuda":
            return step
        with torch.cuda.device(self.token.device):
            # its own, of this GPU: PyTorch's is of the first that recorded
            self.aside = self.aside or torch.cuda.Stream()
            return recorded(step, self.aside)

    def arguments(self, S: int) -> tuple:
        """Of `decode_step`: tensors that stay where they are."""
        w = self.llama.weights()
        k, v = self.cache.k[..., :S, :], self.cache.v[..., :S, :]
        turns = self.llama.freqs_cis_for(0, self.cache.max_seq_len)
        return (
            self.token,
            self.column,
            self.padding,
            list(k.unbind()),
            list(v.unbind()),
            torch.view_as_real(turns),
            w["tok_embeddings.weight"].data,
            self.blocks,
            w["norm.weight"].data,
            w["output.weight"].data,
            self.llama.config.norm_eps,
        )


def places(llama) -> list:
    """Where the weights lie, and where what is recorded reads them."""
    return [(w.data_ptr(), w.dtype) for w in llama.weights().values()]


def compiled_anew(function):
    r"""torch.compile, with a memory of its own.

    PyTorch keeps what it has compiled by a function's code, and gives up
    after eight variants of it: another model is no variant of this one.
    """
    code = function.__code__.replace()
    copy = types.FunctionType(code, function.__globals__, function.__name__)
    # the one row of a decode step is then no matrix product but a sum, which
    # the compiler joins with the norm before it and what comes after
    options = {"coordinate_descent_tuning": True}
    return torch.compile(copy, fullgraph=True, dynamic=False, options=options)


def recorded(step, aside):
    """A CUDA graph of the step: all its kernels by one call."""
    with torch.inference_mode(False), torch.no_grad():
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # compiled and warm beforehand
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        how = dict(stream=aside, capture_error_mode="thread_local")
        with torch.cuda.graph(graph, **how):
            logits = step()

    def replay():
        graph.replay()
        return logits.clone()  # the next replay writes over them

    replay.reads = step  # its arguments, where the recording reads them
    return replay
