r"""The decode step with every shape fixed, compiled by PyTorch.

A large GPU reads the 1B's weights in a millisecond; Python cannot start a
step's hundreds of operations in that time. PyTorch's compiler fuses them,
and a CUDA graph starts them with one call. The token and its column are in
memory that never moves. A step reads `S` columns of the cache.
"""

import math
import types

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import expect
from ..model import BLOCK_WEIGHTS
from ..rmsnorm import rms_norm
from ..rope import turn_pairs
from .one_query import grouped_attention

FEWEST = 256  # columns that a step reads
STEP = 1024  # granularity of columns in a long text


def columns_for(column: int) -> int:
    """Return how many columns a step reads that writes to this one.

    Each number is compiled, so they are few: past 4096 at most a quarter more.
    """
    more = 2 ** column.bit_length()
    if more <= STEP:
        return max(FEWEST, more)
    step = max(STEP, more // 8)
    return (column // step + 1) * step


def floats(w: Tensor) -> Tensor:
    """Return the plain tensor that a 16-bit weight stores."""
    return getattr(w, "numbers", w.data)


def block_weights(llama) -> list[list[Tensor]]:
    """Return the tensors of every layer, in the order of BLOCK_WEIGHTS."""
    w = {name: floats(each) for name, each in llama.weights().items()}
    return [
        [w[f"layers.{layer}.{name}.weight"] for name in BLOCK_WEIGHTS]
        for layer in range(llama.config.n_layers)
    ]


def start_step(token, column, padding, turns, embedding, S):
    """Compute the first block's input x (B, D), the mask and the rotation.

    Takes token (B,), the column (1,) to write to, padding per row (B,), each
    pair's cosine and sine (positions, hd/2, 2), and the embedding (V, D).
    """
    columns = torch.arange(S, device=token.device)  # (S,)
    unseen = (columns > column) | (columns < padding[:, None])  # (B, S)
    mask = torch.where(unseen, float("-inf"), 0.0)[:, None, None]
    turn = turns[column - padding][:, None]  # (B, 1, hd/2, 2)
    return F.embedding(token, embedding), mask, turn


def decode_block(x, block, k, v, column, mask, turn, eps):
    """Run `transformer_block` for one token per row, x (B, D).

    Its keys and values k and v, (B, KV, S, hd), are written to.
    """
    norm1, wq, wk, wv, wo, norm2, w1, w2, w3 = block
    hd = k.shape[3]
    h = rms_norm(x, norm1, eps)  # (B, D)
    xq = F.linear(h, wq).unflatten(-1, (-1, hd))  # (B, H, hd)
    xk = F.linear(h, wk).unflatten(-1, (-1, hd))  # (B, KV, hd)
    xv = F.linear(h, wv).unflatten(-1, (-1, hd))  # (B, KV, hd)
    # in real numbers: compilers need that
    xq, xk = turn_pairs(xq, turn), turn_pairs(xk, turn)
    k.index_copy_(2, column, xk[:, :, None])  # (B, KV, 1, hd)
    v.index_copy_(2, column, xv[:, :, None])
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # (B, S, KV, hd)
    a = grouped_attention(xq[:, None], keys, values, mask)  # (B, 1, H·hd)
    x = x + F.linear(a[:, 0], wo)  # (B, D)
    h = rms_norm(x, norm2, eps)  # (B, D)
    gate, up = F.linear(h, w1), F.linear(h, w3)  # (B, F)
    return x + F.linear(F.silu(gate) * up, w2)  # (B, D)


def finish_step(x, norm, output, eps):
    """Return the logits of the next token: (B, D) to (B, V) float32."""
    return F.linear(rms_norm(x, norm, eps), output).float()


def decode_step(token, column, padding, cache, model, parts=None):
    """Run `decode_one`; the cache: L keys and L values (B, KV, S, hd)."""
    start, run_block, finish = parts or (start_step, decode_block, finish_step)
    turns, embedding, blocks, norm, output, eps = model
    S = cache[0][0].shape[2]
    x, mask, turn = start(token, column, padding, turns, embedding, S)
    for block, k, v in zip(blocks, *cache):
        x = run_block(x, block, k, v, column, mask, turn, eps)  # (B, D)
    return finish(x, norm, output, eps)  # (B, V)


class CompiledDecode:
    r"""`decode_one`, compiled; on CUDA captured and then replayed.

    It compiles once for each number of columns (`columns_for`), in seconds.
    `cache` has room for max_seq_len positions or more. Raises ValueError for
    quantized weights, RuntimeError on a CPU without a C++ compiler.
    """

    def __init__(self, llama, max_seq_len: int, batch_size: int = 1):
        expected = "None: what is compiled reads floats; load without quantize"
        kind = llama.quantized
        expect(kind is None, "llama.quantized", kind, expected)
        require_compiler(llama.device)
        self.llama = llama
        size = columns_for(max_seq_len - 1)
        # not inference tensors, whoever calls: they are written to later
        with torch.inference_mode(False), torch.no_grad():
            self.cache = llama.new_cache(size, batch_size)
            ids = dict(dtype=torch.int64, device=llama.device)
            self.token, self.padding = torch.zeros(2, batch_size, **ids)
            self.column = torch.zeros_like(self.token[:1])
        self.steps = {}  # by S: what runs a step that reads S columns
        self.on_cuda = llama.device.type == "cuda"
        self.finish = self.compile(finish_step)  # for any S
        holders = llama.tok_embeddings, llama.norm, llama.output
        first, norm, output = (floats(each.weight) for each in holders)
        last = norm, output, llama.config.norm_eps
        self.weights = first, block_weights(llama), *last
        self.addresses = weight_addresses(llama)

    @classmethod
    def borrow(cls, llama, max_seq_len, batch_size=1, padding=None):
        """Return one with an empty cache: the model's last, if it fits."""
        # one operation, so that two threads never get the same one
        self = vars(llama).pop("compiled", None)
        llama.compiled = None
        if not (
            self is not None
            and self.cache.max_seq_len >= max_seq_len
            and len(self.token) == batch_size
            and self.addresses == weight_addresses(llama)
        ):
            self = None  # frees its memory before more is allocated
            self = cls(llama, max_seq_len, batch_size)
        self.cache.k.zero_()  # hidden columns weigh 0, but 0 times infinity
        self.cache.v.zero_()  # is not 0
        self.llama = llama
        self.cache.reset(padding)
        self.padding[:] = 0 if padding is None else padding
        return self

    def give_back(self) -> None:
        """Keep it in the model for the next `borrow`."""
        llama, self.llama = self.llama, None  # no reference cycle
        llama.compiled = self

    def __reduce__(self):
        return type(None), ()  # a copy of the model compiles its own

    def __call__(self, token: Tensor) -> Tensor:
        """Run one token per row: ids (B,) in, logits (B, V) of the next."""
        column, most = self.cache.length, self.cache.max_seq_len
        expected = f"less than {most}; make it with a larger max_seq_len"
        expect(column < most, "position", column, expected)
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
        turns = self.llama.freqs_cis_for(0, self.cache.max_seq_len)
        parts = self.cache.k[..., :S, :], self.cache.v[..., :S, :]
        cache = [part.unbind() for part in parts]
        model = (torch.view_as_real(turns), *self.weights)
        where = self.token, self.column, self.padding, cache, model
        # a block is compiled once, not L times
        functions = self.compile(start_step), self.compile(decode_block)

        def step():
            return decode_step(*where, (*functions, self.finish))

        if not self.on_cuda:
            return step
        with torch.cuda.device(self.token.device):
            # its own: PyTorch's default is of the first GPU that captured
            return capture_cuda_graph(step, torch.cuda.Stream())

    def compile(self, function):
        """Compile one of the step's functions, for this model alone."""
        # A product with one row becomes a sum, fused with what is around it:
        # on a GPU by an option, on a CPU by other functions of these names.
        names, options = FOR_GPU if self.on_cuda else FOR_CPU
        # PyTorch keeps what it compiled by a function's code, and gives up
        # after eight variants; another model is not a variant of this one
        code = function.__code__.replace()
        copy = types.FunctionType(code, function.__globals__ | names)
        fixed = dict(fullgraph=True, dynamic=False)
        return torch.compile(copy, options=options, **fixed)


def weight_addresses(llama) -> list:
    """Return where the weights are, as a step was compiled for."""
    return [(w.data_ptr(), w.dtype) for w in llama.weights().values()]


def require_compiler(device) -> None:
    """Raise RuntimeError if this device needs a C++ compiler to compile."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        if device.type == "cpu":
            get_cpp_compiler()
    except RuntimeError:
        raise RuntimeError(
            "compile=True on a CPU needs a C++ compiler, and none was found: "
            "install g++ or clang++ (on Debian and Ubuntu by `apt install "
            "g++`, on macOS by `xcode-select --install`), or set CXX to one"
        ) from None


def linear_as_sums(x: Tensor, w: Tensor) -> Tensor:
    """Compute x @ w.T, (B, M); with one row as sums, for a CPU's compiler.

    PyTorch's own product reads 16-bit weights at half of the memory's speed.
    """
    if len(x) > 1 or w.dtype == torch.float32:
        return F.linear(x, w)
    x = x.as_strided(x.shape, x.stride())  # stored once, for all rows
    products = w.float() * x.float()  # (M, K), never stored
    piece = math.gcd(w.shape[1], 512)  # short sums run in parallel
    sums = products.unflatten(-1, (-1, piece)).sum(-1)
    return sums.sum(-1)[None].type_as(x)  # (1, M)


def attention_as_sums(xq, xk, xv, mask):
    """Compute `grouped_attention` as sums, for a CPU's compiler."""
    q = xq.squeeze(-3).float() / math.sqrt(xq.shape[-1])  # (B, H, hd)
    q = q.unflatten(-2, (xk.shape[-2], -1))  # (B, KV, G, hd)
    q = q.as_strided(q.shape, q.stride())  # stored, as above
    k, v = (x.transpose(-3, -2)[..., None, :, :].float() for x in (xk, xv))
    scores = (q[..., None, :] * k).sum(-1) + mask  # (B, KV, G, S)
    weights = torch.softmax(scores, dim=-1)
    weights = weights.as_strided(weights.shape, weights.stride())
    out = (weights[..., None] * v).sum(-2)  # (B, KV, G, hd)
    return out.type_as(xq).flatten(-3).unsqueeze(-2)  # (B, 1, H·hd)


CPU_F = types.SimpleNamespace(
    linear=linear_as_sums, embedding=F.embedding, silu=F.silu
)
CPU_OPTIONS = {
    "cpp.enable_floating_point_contract_flag": "fast",
    # shapes are fixed, and comparing nine tensors per block takes time
    "guard_filter_fn": lambda all: ["TENSOR" not in g.guard_type for g in all],
}
CPU_NAMES = {"F": CPU_F, "grouped_attention": attention_as_sums}
FOR_CPU = CPU_NAMES, CPU_OPTIONS
FOR_GPU = {}, {"coordinate_descent_tuning": True}


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
