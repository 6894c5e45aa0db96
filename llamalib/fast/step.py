r"""The decode step with every shape fixed, compiled by PyTorch.

A large GPU reads the 1B's weights in a millisecond; Python cannot start a
step's hundreds of operations in that time. PyTorch's compiler fuses them,
and a CUDA graph starts them with one call. The token and its column are in
memory that never moves. A step reads `S` columns of the cache.
"""

import math
import types
import weakref

import torch
import torch.nn.functional as F
from torch import Tensor

from ..model import apply_rotary_emb, rms_norm
from .one_query import grouped_attention

FEWEST = 256  # columns that a step reads
STEP = 1024  # granularity of columns in a long text
BLOCK = (  # the parameters of a block, in the order of `decode_block`
    "attention_norm.weight",
    "attention.wq.weight",
    "attention.wk.weight",
    "attention.wv.weight",
    "attention.wo.weight",
    "ffn_norm.weight",
    "feed_forward.w1.weight",
    "feed_forward.w2.weight",
    "feed_forward.w3.weight",
)


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


def step_weights(llama) -> tuple:
    """Return what a step reads: embedding, blocks, last norm, output, eps."""
    holders = llama.tok_embeddings, llama.norm, llama.output
    embedding, norm, output = (floats(each.weight) for each in holders)
    blocks = [
        [floats(layer.get_parameter(name)) for name in BLOCK]
        for layer in llama.layers
    ]
    return embedding, blocks, norm, output, llama.config.norm_eps


def start_step(token, column, padding, freqs_cis, embedding, S):
    """Compute the first block's input x (B, D), the mask and the angles.

    Takes token (B,), the column (1,) to write to, padding per row (B,), each
    pair's cosine and sine (positions, hd/2, 2), and the embedding (V, D).
    """
    columns = torch.arange(S, device=token.device)  # (S,)
    unseen = (columns > column) | (columns < padding[:, None])  # (B, S)
    mask = torch.where(unseen, float("-inf"), 0.0)[:, None, None]
    angles = freqs_cis[column - padding][:, None]  # (B, 1, hd/2, 2)
    return F.embedding(token, embedding), mask, angles


def decode_block(x, block, k, v, column, mask, angles, eps):
    """Run a `TransformerBlock` for one token per row, x (B, D).

    Its keys and values k and v, (B, KV, S, hd), are written to.
    """
    norm1, wq, wk, wv, wo, norm2, w1, w2, w3 = block
    hd = k.shape[3]
    h = rms_norm(x, norm1, eps)  # (B, D)
    xq = F.linear(h, wq).unflatten(-1, (1, -1, hd))  # (B, 1, H, hd)
    xk = F.linear(h, wk).unflatten(-1, (1, -1, hd))  # (B, 1, KV, hd)
    xv = F.linear(h, wv).unflatten(-1, (1, -1, hd))  # (B, 1, KV, hd)
    xq, xk = apply_rotary_emb(xq, xk, angles)
    k.index_copy_(2, column, xk.transpose(1, 2))  # (B, KV, 1, hd)
    v.index_copy_(2, column, xv.transpose(1, 2))
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # (B, S, KV, hd)
    a = grouped_attention(xq, keys, values, mask)  # (B, 1, H·hd)
    x = x + F.linear(a[:, 0], wo)  # (B, D)
    h = rms_norm(x, norm2, eps)  # (B, D)
    gate, up = F.linear(h, w1), F.linear(h, w3)  # (B, F)
    return x + F.linear(F.silu(gate) * up, w2)  # (B, D)


def finish_step(x, norm, output, eps):
    """Return the logits of the next token: (B, D) to (B, V) float32."""
    return F.linear(rms_norm(x, norm, eps), output).float()


def decode_step(token, column, padding, freqs_cis, cache, weights, parts):
    """Run `decode_one`; the cache: L keys and L values (B, KV, S, hd)."""
    start, run_block, finish = parts
    embedding, blocks, norm, output, eps = weights
    S = cache[0][0].shape[2]
    x, mask, angles = start(token, column, padding, freqs_cis, embedding, S)
    for block, k, v in zip(blocks, *cache):
        x = run_block(x, block, k, v, column, mask, angles, eps)  # (B, D)
    return finish(x, norm, output, eps)  # (B, V)


def compiled_step(llama, cache):
    r"""Return `decode_one`, compiled, for a cache that is still empty.

    The cache gets the memory that the compiled step reads. When nobody holds
    the returned function any more, the model keeps both for the next one.
    """
    decode = CompiledDecode.borrow(llama, cache)

    def step(llama, token, cache):
        try:
            return decode(token, cache)
        except BaseException:  # whose traceback may hold this for long
            give_back()
            raise

    give_back = weakref.finalize(step, decode.give_back, llama)
    give_back.atexit = False
    return step


class CompiledDecode:
    r"""A compiled decode step with its memory; on CUDA it is replayed.

    It compiles once for each number of columns (`columns_for`), in seconds.
    `keys` and `values` (L, B, KV, S, hd) have room for max_seq_len positions
    or more. `weights` are a model's, from `borrow` to `give_back`.
    """

    def __init__(self, llama, max_seq_len: int, batch_size: int = 1):
        c, S, B = llama.config, columns_for(max_seq_len - 1), batch_size
        like = dict(device=llama.device, dtype=llama.dtype)
        ids = dict(device=llama.device, dtype=torch.int64)
        shape = 2, c.n_layers, B, c.n_kv_heads, S, c.head_dim
        # not inference tensors, whoever calls: they are written to later
        with torch.inference_mode(False), torch.no_grad():
            self.keys, self.values = torch.zeros(shape, **like)
            self.freqs_cis = torch.zeros(
                S, c.head_dim // 2, 2, device=llama.device
            )
            self.token, self.padding = torch.zeros(2, B, **ids)
            self.column = torch.zeros(1, **ids)
        self.steps = {}  # by S: what runs a step that reads S columns
        self.on_cuda = llama.device.type == "cuda"
        self.finish = self.compile(finish_step)  # for any S
        self.addresses, self.weights = weight_addresses(llama), None

    @classmethod
    def borrow(cls, llama, cache):
        """Return the model's last one, if it fits the cache, or a new one."""
        # one operation, so that two threads never get the same one
        self = vars(llama).pop("compiled", None)
        B, S = len(cache.layers[0].k), cache.max_seq_len
        if not (
            self is not None
            and self.keys.shape[3] >= S
            and len(self.token) == B
            and self.addresses == weight_addresses(llama)
        ):
            self = None  # frees its memory before more is allocated
            self = cls(llama, S, B)
        self.keys.zero_()  # hidden columns weigh 0, but 0 times infinity
        self.values.zero_()  # is not 0
        self.freqs_cis[:S] = cache.freqs_cis
        self.padding[:] = 0 if cache.padding is None else cache.padding
        for layer, k, v in zip(cache.layers, self.keys, self.values):
            layer.k, layer.v = k, v
        self.weights = step_weights(llama)
        return self

    def give_back(self, llama) -> None:
        """Let the model keep this for the next `borrow`."""
        self.weights = None  # `llama.to(…)` must free them
        llama.compiled = self

    def __reduce__(self):
        return type(None), ()  # a copy of the model compiles its own

    def __call__(self, token: Tensor, cache) -> Tensor:
        """Run one token per row: ids (B,) in, logits (B, V) of the next."""
        column, most = cache.length, cache.max_seq_len
        if column >= most:
            raise ValueError(
                f"KVCache is full: {column + 1} tokens, capacity {most}; "
                "create it with a larger max_seq_len"
            )
        self.token.copy_(token)
        self.column.fill_(column)
        S = columns_for(column)
        if S not in self.steps:
            self.steps[S] = self.make_step(S)
        logits = self.steps[S](self.weights)
        cache.advance(1)
        return logits

    def make_step(self, S: int):
        """Return a function of the weights that runs a step."""
        parts = self.keys[..., :S, :], self.values[..., :S, :]
        cache = [part.unbind() for part in parts]
        memory = self.token, self.column, self.padding, self.freqs_cis, cache
        # a block is compiled once, not L times
        functions = self.compile(start_step), self.compile(decode_block)
        functions += (self.finish,)

        def step(weights):
            return decode_step(*memory, weights, functions)

        if not self.on_cuda:
            return step
        with torch.cuda.device(self.token.device):
            # its own: PyTorch's default is of the first GPU that captured
            return capture_cuda_graph(step, self.weights, torch.cuda.Stream())

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
    found = llama.named_parameters(remove_duplicate=False)
    return [(name, w.data_ptr(), w.dtype, w.device) for name, w in found]


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


def capture_cuda_graph(step, weights, stream):
    """Capture a step as a CUDA graph: all its kernels in one call."""
    with torch.inference_mode(False), torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiled and warm beforehand
            for _ in range(3):
                step(weights)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        options = dict(stream=stream, capture_error_mode="thread_local")
        with torch.cuda.graph(graph, **options):
            logits = step(weights)

    def replay(weights):  # at the addresses that the graph reads
        graph.replay()
        return logits.clone()  # the next replay writes over them

    replay.reads = step  # keeps its memory where the graph reads it
    return replay
