r"""The libraries that are measured: one class per peer, with equal methods.

A peer opens its own format of one checkpoint (see `checkpoint.py`), starts
an empty cache, prefills a batch of prompts, and steps one token at a time.
Each step returns the most likely next id of every row. `worker.py` measures
the time.

Shapes: `B` batch, `T` positions, `V` vocabulary.
"""

import ctypes
from contextlib import contextmanager
from pathlib import Path

import torch

import llamalib
from llamalib.generate import compile_step


class NotMeasured(Exception):
    """A peer cannot be measured; the message says why."""


@contextmanager
def needed(package: str):
    """Raise NotMeasured if a package is not installed."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").split(".")[0] != package:
            raise
        raise NotMeasured(f"{package} is not installed") from None


class Peer:
    r"""The methods of each peer.

    Args:
        source: a folder of Meta's files.
        beside: what `checkpoint.write_for_peers` wrote of the same weights.
        dtype: "bfloat16", "float32", "q8_0", "int8" or "int4", of the
            weights.
        device: "cpu" or "cuda".
        threads: on the CPU.
    """

    def __init__(self, source, beside, dtype, device, threads):
        raise NotImplementedError

    @classmethod
    def package(cls):
        """Import its library, which is not timed."""
        return llamalib

    def start(self, rows: int, room: int) -> None:
        """Start an empty cache for `rows` rows of `room` positions."""
        raise NotImplementedError

    def prefill_logits(self, prompts):
        """Run prompts of equal length, (B, T) ids; return (B, V) logits."""
        raise NotImplementedError

    def step_logits(self, ids):
        """Run one more id per row, (B,); return (B, V) logits."""
        raise NotImplementedError

    def fill(self, positions: int) -> None:
        """Act as if the cache held this number of positions."""
        raise NotMeasured("only a prefill can fill its cache")

    def prefill(self, prompts):
        """Return the most likely next ids (B,), an array or a tensor."""
        return self.prefill_logits(prompts).argmax(-1)

    def step(self, ids):
        """Run the ids of the last step; return the next ids (B,)."""
        return self.step_logits(ids).argmax(-1)

    def generate(self, prompt, n: int):
        """Yield n greedy ids, each as soon as it is known."""
        self.start(1, len(prompt) + n)
        ids = self.prefill([prompt])
        yield ids.tolist()[0]
        for _ in range(n - 1):
            ids = self.step(ids)
            yield ids.tolist()[0]

    def cache_bytes(self) -> int:
        """Return the bytes of the started cache."""
        raise NotMeasured("it does not tell")


class TorchPeer(Peer):
    """The common part of the peers that run on PyTorch."""

    def __init__(self, source, beside, dtype, device, threads):
        if dtype not in ("bfloat16", "float32"):
            raise NotMeasured(f"it has no {dtype} weights")
        torch.set_num_threads(threads)
        self.device, self.dtype = device, getattr(torch, dtype)

    def tensor(self, prompts):
        return torch.tensor(prompts, device=self.device)  # (B, T)


class Ours(TorchPeer):
    """llamalib, through its public functions."""

    def __init__(self, source, beside, dtype, device, threads):
        quantize = dtype if dtype in ("int8", "int4") else None
        dtype = "bfloat16" if quantize else dtype
        super().__init__(source, beside, dtype, device, threads)
        self.llama = llamalib.load(
            source, device=device, dtype=self.dtype, quantize=quantize
        )

    def start(self, rows, room):
        llama = self.llama
        like = dict(device=llama.device, dtype=llama.dtype)
        self.cache = llamalib.KVCache(llama.config, room, rows, **like)

    def prefill_logits(self, prompts):
        return llamalib.prefill(self.llama, self.tensor(prompts), self.cache)

    def step_logits(self, ids):
        return llamalib.decode_one(self.llama, ids, self.cache)

    def fill(self, positions):
        for layer in self.cache.layers:
            layer.k.normal_()
            layer.v.normal_()
        self.cache.advance(positions)

    def generate(self, prompt, n):
        return llamalib.generate(self.llama, prompt, max_new_tokens=n, stop=())

    def cache_bytes(self):
        return self.cache.nbytes


class OursCompiled(Ours):
    """llamalib with its decode step compiled."""

    compiled = None

    def start(self, rows, room):
        self.compiled = self.cache = None  # the next step reuses its memory
        super().start(rows, room)

    def step_logits(self, ids):
        if self.compiled is None:  # it copies the cache, which is now filled
            self.compiled, self.cache = compile_step(self.llama, self.cache)
        return self.compiled(self.llama, ids, self.cache)

    def generate(self, prompt, n):
        self.compiled = self.cache = None
        return llamalib.generate(
            self.llama, prompt, max_new_tokens=n, stop=(), compile=True
        )


class Naive(Ours):
    """The loop of notebook 09 without a cache: it runs all positions."""

    def generate(self, prompt, n):
        ids = list(prompt)
        for _ in range(n):
            logits = self.llama(self.tensor(ids))  # (T, V)
            ids.append(logits[-1].argmax().item())
            yield ids[-1]

    def start(self, rows, room):
        raise NotMeasured("it has no cache")


class Transformers(TorchPeer):
    """The transformers library, eager, with its growing cache."""

    def __init__(self, source, beside, dtype, device, threads):
        super().__init__(source, beside, dtype, device, threads)
        self.lib = self.package()
        self.lib.utils.logging.disable_progress_bar()
        model = self.lib.LlamaForCausalLM.from_pretrained(
            Path(beside) / "transformers",
            dtype=self.dtype,
            local_files_only=True,
        )
        self.model = model.to(device).eval()
        self.run = self.model

    @classmethod
    def package(cls):
        with needed("transformers"):
            import transformers

            transformers.LlamaForCausalLM  # imported when it is named
        return transformers

    def start(self, rows, room):
        self.rows = rows
        self.cache = self.lib.DynamicCache(config=self.model.config)

    def logits(self, run, ids):
        out = run(ids, past_key_values=self.cache, logits_to_keep=1)
        return out.logits[:, -1]  # (B, V)

    def prefill_logits(self, prompts):
        return self.logits(self.model, self.tensor(prompts))

    def step_logits(self, ids):
        return self.logits(self.run, ids[:, None])

    def fill(self, positions):
        c = self.model.config
        shape = self.rows, c.num_key_value_heads, positions, c.head_dim
        for layer in range(c.num_hidden_layers):
            k, v = torch.randn(2, *shape, dtype=self.dtype, device=self.device)
            self.cache.update(k, v, layer)


class GptFast(Peer):
    """gpt-fast: a compiled step with a static cache."""

    @classmethod
    def package(cls):
        raise NotMeasured("it cannot be installed as a package")


class TransformersCompiled(Transformers):
    """The transformers library with its static cache, the step compiled.

    In mode "reduce-overhead" on a GPU: with CUDA graphs.
    """

    def __init__(self, source, beside, dtype, device, threads):
        super().__init__(source, beside, dtype, device, threads)
        self.shape = None
        mode = "reduce-overhead" if device == "cuda" else "default"
        torch._dynamo.config.recompile_limit = 64  # one a shape of cache
        self.run = torch.compile(
            self.model, mode=mode, fullgraph=True, dynamic=False
        )

    def start(self, rows, room):
        size = 256 if self.device == "cuda" else 64  # fewer shapes
        room = -(-room // size) * size
        # the compiled step belongs to a shape: reuse its cache
        if self.shape == (rows, room):
            self.cache.reset()
            return
        self.rows, self.shape = rows, (rows, room)
        self.cache = self.lib.StaticCache(
            config=self.model.config, max_cache_len=room
        )


class LlamaCpp(Peer):
    """llama.cpp, through the C functions that llama-cpp-python gives."""

    FILES = {
        "bfloat16": "bf16.gguf",
        "q8_0": "q8_0.gguf",
        "float32": "f32.gguf",
    }
    PIECE = 512  # its default n_ubatch: the most tokens it runs at once

    def __init__(self, source, beside, dtype, device, threads):
        llama_cpp = self.package()
        if device == "cuda" and not llama_cpp.llama_supports_gpu_offload():
            raise NotMeasured("this llama.cpp is built without a GPU")
        file = Path(beside) / self.FILES[dtype]
        if not file.is_file():
            raise NotMeasured("no GGUF file: gguf is not installed")
        self.lib, self.threads, self.context = llama_cpp, threads, None
        quiet = llama_cpp.llama_log_callback(lambda *_: None)
        self.quiet = quiet  # C keeps only the address
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 1000 if device == "cuda" else 0
        self.model = llama_cpp.llama_model_load_from_file(
            str(file).encode(), params
        )
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot open {file.name}")
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.V = llama_cpp.llama_vocab_n_tokens(vocab)
        self.shape = None

    @classmethod
    def package(cls):
        with needed("llama_cpp"):
            import llama_cpp
        return llama_cpp

    def start(self, rows, room):
        if self.shape != (rows, room):
            self.new_context(rows, room)
        memory = self.lib.llama_get_memory(self.context)
        self.lib.llama_memory_clear(memory, True)
        self.length = 0

    def new_context(self, rows, room):
        if self.context:
            self.lib.llama_free(self.context)
            self.lib.llama_batch_free(self.batch)
        params = self.lib.llama_context_default_params()
        params.n_ctx = rows * -(-room // 256) * 256
        params.n_seq_max = rows
        params.n_batch = params.n_ubatch = self.PIECE
        params.n_threads = params.n_threads_batch = self.threads
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp cannot make a context")
        self.batch = self.lib.llama_batch_init(self.PIECE, 0, 1)
        self.shape = rows, room

    def decode(self, tokens):
        """Run at most PIECE tokens (row, position, id, needed).

        Returns:
            logits (n, V) float32 of the n tokens that need them.
        """
        import numpy as np

        b = self.batch
        b.n_tokens = len(tokens)
        for i, (row, position, token, needed) in enumerate(tokens):
            b.token[i], b.pos[i], b.logits[i] = token, position, needed
            b.n_seq_id[i], b.seq_id[i][0] = 1, row
        code = self.lib.llama_decode(self.context, b)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        rows = [
            np.ctypeslib.as_array(
                self.lib.llama_get_logits_ith(self.context, i),
                shape=(self.V,),
            )
            for i, (*_, needed) in enumerate(tokens)
            if needed
        ]
        return np.stack(rows) if rows else np.empty((0, self.V), np.float32)

    def prefill_logits(self, prompts):
        import numpy as np

        T = len(prompts[0])
        tokens = [
            (row, self.length + i, token, i == T - 1)
            for row, prompt in enumerate(prompts)
            for i, token in enumerate(prompt)
        ]
        pieces = [
            self.decode(tokens[i : i + self.PIECE])
            for i in range(0, len(tokens), self.PIECE)
        ]
        self.length += T
        return np.concatenate(pieces)  # (B, V)

    def step_logits(self, ids):
        return self.prefill_logits(ids[:, None].tolist())

    def fill(self, positions):
        # only a prefill can fill it, and a long one takes too many seconds
        if positions > 4 * self.PIECE:
            super().fill(positions)
        self.prefill([[i % self.V for i in range(positions)]])


PEERS = {
    "ours": Ours,
    "ours compile=True": OursCompiled,
    "naive": Naive,
    "transformers": Transformers,
    "transformers compiled": TransformersCompiled,
    "gpt-fast": GptFast,
    "llama.cpp": LlamaCpp,
}
