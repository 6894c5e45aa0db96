r"""The decode step with every shape fixed, compiled by PyTorch.

A large GPU reads the 1B's weights in a millisecond; Python cannot start a
step's hundreds of operations in that time. PyTorch's compiler fuses them,
and a CUDA graph starts them with one call. What changes from step to step,
the token and its column, is in memory that never moves. On a CPU the step
reads the weights where they are: there is no second copy.

Shapes: `B` batch, `S` columns of the cache that are read, `D` model dim,
`H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden dim, `V`
vocabulary, `L` layers.
"""

import math
import types
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..model import BLOCK_WEIGHTS
from ..rmsnorm import rms_norm
from .one_query import grouped_attention

FEWEST = 256  # columns that a step reads
STEP = 1024  # granularity of columns in a long text


def columns_for(column: int) -> int:
    r"""Return how many columns a step reads that writes to this one.

    Each size is compiled on its own, so there are few: powers of two while
    a text is short and its columns weigh little beside the weights; beyond
    4096, at most a quarter more than the text has.
    """
    more = 2 ** column.bit_length()
    if more <= STEP:
        return max(FEWEST, more)
    step = max(STEP, more // 8)
    return (column // step + 1) * step


class BlockWeights(NamedTuple):
    """One block's tensors; those that read the same input are joined."""

    attention_norm: Tensor  # (D,)
    wqkv: Tensor  # (H·hd + 2·KV·hd, D)
    wo: Tensor  # (D, H·hd)
    ffn_norm: Tensor  # (D,)
    w13: Tensor  # (2·F, D)
    w2: Tensor  # (D, F)


def side_by_side(weights: list[Tensor]) -> Tensor:
    r"""Join matrices (M_i, K) as one (ΣM_i, K), without a second copy.

    The parameters become views of the one matrix, and keep their names,
    shapes and values. If they are views of one already, nothing moves.
    """
    parts = [floats(w) for w in weights]
    first, rows, K = parts[0], sum(map(len, parts)), parts[0].shape[1]
    starts = [part.storage_offset() for part in parts]
    ends = [start + part.numel() for start, part in zip(starts, parts)]
    storages = {part.untyped_storage().data_ptr() for part in parts}
    if len(storages) == 1 and starts[1:] == ends[:-1]:
        return first.as_strided((rows, K), (K, 1))
    # in the weights' mode, not the caller's: they may be trained later
    with torch.inference_mode(first.is_inference()):
        joined = torch.cat(parts)
    for w, part in zip(weights, joined.split([len(p) for p in parts])):
        if hasattr(w, "numbers"):
            w.numbers = part
        else:
            w.data = part
    return joined


def floats(w: Tensor) -> Tensor:
    """Return the plain tensor that a 16-bit weight stores."""
    return getattr(w, "numbers", w.data)


def plain_tensors(weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the matrices where they are; `ForCpu.linear` joins products."""
    return tuple(map(floats, weights))


def block_weights(llama, join=side_by_side) -> list[BlockWeights]:
    """Return the weights of every layer; join gets those read together."""
    w, blocks = llama.weights(), []
    for layer in range(llama.config.n_layers):
        norm1, *qkv, wo, norm2, w1, w2, w3 = (
            w[f"layers.{layer}.{name}.weight"] for name in BLOCK_WEIGHTS
        )
        norm1, wo, norm2, w2 = map(floats, (norm1, wo, norm2, w2))
        wqkv, w13 = join(qkv), join([w1, w3])
        blocks.append(BlockWeights(norm1, wqkv, wo, norm2, w13, w2))
    return blocks


def turn_pairs(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate pairs of x (B, n, hd) in real numbers: compilers need that."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # (B, n, hd/2)
    cos, sin = turn.unbind(-1)  # (B, 1, hd/2)
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return turned.flatten(-2).type_as(x)


def start_step(
    token: Tensor,
    column: Tensor,
    padding: Tensor,
    turns: Tensor,
    embedding: Tensor,
    S: int,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute the first block's input x (B, D) and what all blocks need.

    Args:
        token: (B,).
        column: (1,), where the token's keys and values are written.
        padding: (B,), columns of padding per row.
        turns: (positions, hd/2, 2), cos and sin of each pair's angle.
        embedding: (V, D).
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
    """Run `transformer_block` for one token per row, x (B, D).

    Its keys and values k and v, (B, KV, S, hd), are written to.
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
    r"""Return the logits of the next token: (B, D) to (B, V) float32."""
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
    """Run `decode_one` with every shape fixed; return (B, V) float32.

    Keys and values are L tensors (B, KV, S, hd). parts are the step's three
    functions, as written or compiled.
    """
    start, run_block, finish = parts
    S = keys[0].shape[2]
    x, mask, turn = start(token, column, padding, turns, embedding, S)
    for block, k, v in zip(blocks, keys, values):
        x = run_block(x, block, k, v, column, mask, turn, eps)  # (B, D)
    return finish(x, norm, output, eps)  # (B, V)


class CompiledDecode:
    r"""`decode_one`, compiled; on CUDA captured and then replayed.

    It compiles once for each number of columns that it reads (see
    `columns_for`), which takes seconds. `borrow` hands the model's last one
    out again.

    Args:
        llama: on CUDA, matrices that are read together are joined in
            memory; names and values stay.
        max_seq_len: of its `cache`, at least; `prefill` fills that.
        batch_size: B.

    Raises:
        ValueError: if the weights are quantized.
        RuntimeError: on a CPU, if there is no C++ compiler.
    """

    def __init__(self, llama, max_seq_len: int, batch_size: int = 1):
        if llama.quantized:
            raise ValueError(
                f"the weights are {llama.quantized}, and the compiled step "
                "reads floats; load the model without quantize"
            )
        require_compiler(llama.device)
        self.llama = llama
        size = columns_for(max_seq_len - 1)
        # not inference tensors, whoever calls: they are written to later
        with torch.inference_mode(False), torch.no_grad():
            self.cache = llama.new_cache(size, batch_size)
            self.token = torch.zeros(
                batch_size, dtype=torch.int64, device=llama.device
            )
            self.column = torch.zeros_like(self.token[:1])
            self.padding = torch.zeros_like(self.token)
        self.steps = {}  # by S: what runs a step that reads S columns
        self.on_cuda = llama.device.type == "cuda"
        self.finish = self.compile(finish_step)  # for any S
        self.capture_stream = None
        join = side_by_side if self.on_cuda else plain_tensors
        self.blocks = block_weights(llama, join)
        self.addresses = weight_addresses(llama)

    @classmethod
    def borrow(cls, llama, max_seq_len, batch_size=1, padding=None):
        """Return one with an empty cache: the model's last, if it fits."""
        # one operation, so that two threads never get the same one
        self = vars(llama).pop("compiled", None)
        llama.compiled = None
        fits = (
            self is not None
            and self.cache.max_seq_len >= max_seq_len
            and len(self.token) == batch_size
            and self.addresses == weight_addresses(llama)
        )
        if not fits:
            self = None  # frees its memory before more is allocated
            self = cls(llama, max_seq_len, batch_size)
        else:  # hidden columns weigh 0, but 0 times infinity is not 0
            self.cache.k.zero_()
            self.cache.v.zero_()
        self.llama = llama
        self.cache.reset(padding)
        self.padding.zero_()
        if padding is not None:
            self.padding.copy_(padding)
        return self

    def give_back(self) -> None:
        """Keep it in the model for the next `borrow`."""
        llama, self.llama = self.llama, None  # no reference cycle
        llama.compiled = self

    def __reduce__(self):
        return type(None), ()  # a copy of the model compiles its own

    def __call__(self, token: Tensor) -> Tensor:
        """Run one token per row: ids (B,) in, logits (B, V) of the next."""
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
            self.steps[S] = self.make_step(S)
        logits = self.steps[S]()
        self.cache.advance(1)
        return logits

    def make_step(self, S: int):
        """Return a function without arguments that runs a step."""
        w = self.llama.weights()
        turns = self.llama.freqs_cis_for(0, self.cache.max_seq_len)
        arguments = (  # tensors that never move
            self.token,
            self.column,
            self.padding,
            list(self.cache.k[..., :S, :].unbind()),
            list(self.cache.v[..., :S, :].unbind()),
            torch.view_as_real(turns),
            floats(w["tok_embeddings.weight"]),
            self.blocks,
            floats(w["norm.weight"]),
            floats(w["output.weight"]),
            self.llama.config.norm_eps,
        )
        # a block is compiled once, not L times
        parts = self.compile(start_step), self.compile(decode_block)

        def step():
            return decode_step(*arguments, (*parts, self.finish))

        if not self.on_cuda:
            return step
        with torch.cuda.device(self.token.device):
            # its own: PyTorch's default is of the first GPU that captured
            self.capture_stream = self.capture_stream or torch.cuda.Stream()
            return capture_cuda_graph(step, self.capture_stream)

    def compile(self, function):
        """Compile one of the step's functions for this device."""
        if self.on_cuda:
            # a product with one row becomes a sum, which is fused with the
            # norm before it and with what follows
            return compile_private(function, coordinate_descent_tuning=True)
        # The same for a CPU: its products are written as sums. The first
        # option stores a norm's result, not computed again for each row.
        options = {
            "realize_opcount_threshold": 8,
            "cpp.enable_floating_point_contract_flag": "fast",
        }
        return compile_private(function, ForCpu, **options)


def weight_addresses(llama) -> list:
    """Return where the weights are, as a step was compiled for."""
    return [(w.data_ptr(), w.dtype) for w in llama.weights().values()]


def require_compiler(device) -> None:
    """Raise RuntimeError if this device needs a C++ compiler to compile."""
    if device.type != "cpu":
        return
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except RuntimeError:
        raise RuntimeError(
            "compile=True on a CPU needs a C++ compiler, and none was found: "
            "install g++ or clang++ (on Debian and Ubuntu by `apt install "
            "g++`, on macOS by `xcode-select --install`), or set CXX to one"
        ) from None


class ForCpu:
    """The functions of F that a step calls, as a CPU's compiler needs them."""

    embedding, silu = staticmethod(F.embedding), staticmethod(F.silu)

    @staticmethod
    def linear(x: Tensor, w) -> Tensor:
        """Compute x @ w.T, (B, M); the products of a tuple are joined.

        With one row it is a sum that the compiler vectorizes: PyTorch's own
        product reads 16-bit weights at half of the memory's speed.
        """
        if isinstance(w, tuple):
            return torch.cat([ForCpu.linear(x, p) for p in w], dim=-1)
        if len(x) > 1 or w.dtype == torch.float32:
            return F.linear(x, w)
        products = w.float() * x.float()  # (M, K), never stored
        piece = math.gcd(w.shape[1], 512)  # short sums run in parallel
        sums = products.unflatten(-1, (-1, piece)).sum(-1)
        return sums.sum(-1)[None].type_as(x)  # (1, M)


def compile_private(function, functional=F, **options):
    """Compile a function with its own F, for this model alone.

    PyTorch keeps what it compiled by a function's code, and gives up after
    eight variants; another model is not a variant of this one.
    """
    code, names = function.__code__.replace(), function.__globals__
    copy = types.FunctionType(code, names | {"F": functional})
    return torch.compile(copy, fullgraph=True, dynamic=False, options=options)


def capture_cuda_graph(step, stream):
    """Capture a step as a CUDA graph: all its kernels in one call."""
    with torch.inference_mode(False), torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiled and warm beforehand
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        options = dict(stream=stream, capture_error_mode="thread_local")
        with torch.cuda.graph(graph, **options):
            logits = step()

    def replay():
        graph.replay()
        return logits.clone()  # the next replay writes over them

    replay.reads = step  # keeps its arguments where the graph reads them
    return replay
