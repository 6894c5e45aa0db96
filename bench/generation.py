r"""Measure how fast Llama 3.2-1B generates, beside other libraries.

    python bench/generation.py                  # on the CPU, minutes
    python bench/generation.py --device cuda
    python bench/generation.py --tables         # write the tables again

Every peer runs the same random weights in a process of its own, with as many
threads. They take turns, so that a machine that is slow for a while is slow
for all. A decode step cannot be faster than reading the weights, so the
memory's bandwidth is measured before each turn. All must give the first one's
logits before anything is timed. Writes `bench/results/generation-DEVICE.json`,
a table of it, and three ratios into README.md.
"""

import argparse
import ctypes
import datetime
import importlib.metadata
import json
import math
import os
import platform
import queue
import re
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds llamalib and tests
    sys.path[0] = str(ROOT)

import torch  # noqa: E402

import llamalib  # noqa: E402
from llamalib.generate import compile_step  # noqa: E402
from llamalib.load import empty_llama  # noqa: E402
from llamalib.model import scale_frequencies  # noqa: E402
from llamalib.quantize import quantize_model  # noqa: E402
from tests.reference import (  # noqa: E402
    renamed,
    save_under,
    weights,
    write_1b,
    write_transformers,
)

RESULTS, BUILD = ROOT / "bench" / "results", ROOT / "data" / "build" / "bench"
# A row is a peer and the dtype of its weights; the first one is compared with.
ROWS = {
    "cpu": [
        "ours bfloat16",
        "ours compile=True bfloat16",
        "ours int8",
        "ours compile=True int8",
        "ours int4",
        "ours compile=True int4",
        "transformers bfloat16",
        "transformers compiled bfloat16",
        "llama.cpp bfloat16",
        "llama.cpp q8_0",
    ],
    "cuda": [
        "ours bfloat16",
        "ours compile=True bfloat16",
        "ours compile=True int8",
        "transformers bfloat16",
        "transformers compiled bfloat16",
        "llama.cpp bfloat16",
    ],
}
# Each task, the values that it is asked with, and what it measures.
TASKS = {
    "prefill": ((512, 4096), "seconds"),
    "position": ((128, 2048, 8192, 32768), "tokens/s"),
    "batch": ((1, 8, 32), "tokens/s"),
}
# Compiled for one shape: another one takes minutes.
DECODE_ONLY = "transformers compiled"
# Ids of the prompt, new ids, rounds; on a GPU the protocol of published figures
SIZES = {"cpu": (6, 32, 9), "cuda": (32, 128, 5)}
# The largest accepted distance of logits from the first row's: the norm of the
# difference over the norm. Rounding to bfloat16 gives 0.01, to 8 bits 0.1.
# With 4 bits a matrix is off by a tenth, and random weights amplify that;
# unrelated numbers are 1.4 apart.
TOLERANCE = {"bfloat16": 0.05, "q8_0": 0.15, "int8": 0.15, "int4": 1.0}
PATIENCE = 300  # seconds to wait for an answer: compiling may hang
NOT = "not measured"


class NotMeasured(Exception):
    """A peer cannot be measured; the message says why."""


class Disagreement(Exception):
    """A peer computes something else, so its speed means nothing."""


def some_ids(n: int, start: int = 10) -> list[int]:
    """Return n ids that each vocabulary has, different by start."""
    return [start + 7 * i % 239 for i in range(n)]


# -- the peers ---------------------------------------------------------------


class Ours:
    """llamalib, through its public functions."""

    def __init__(self, folder: Path, dtype: str, device: str, compiled: bool):
        quantize = dtype if dtype in ("int8", "int4") else None
        dtype = torch.bfloat16 if quantize else getattr(torch, dtype)
        how = dict(device=device, dtype=dtype, quantize=quantize)
        self.llama, self.compiled = llamalib.load(folder, **how), compiled

    def start(self, rows: int, room: int) -> None:
        """Start an empty cache for some rows of `room` positions."""
        self.step = self.cache = None  # the next one reuses its memory
        like = dict(device=self.llama.device, dtype=self.llama.dtype)
        self.cache = llamalib.KVCache(self.llama.config, room, rows, **like)

    def fill(self, positions: int) -> None:
        """Act as if the cache held this number of positions."""
        for layer in self.cache.layers:
            layer.k.normal_()
            layer.v.normal_()
        self.cache.advance(positions)

    def run(self, tokens: torch.Tensor):
        """Run ids (B, T); return the last position's logits (B, V)."""
        if tokens.shape[1] > 1:
            return llamalib.prefill(self.llama, tokens, self.cache)
        ids = tokens[:, 0]
        if not self.compiled:
            return llamalib.decode_one(self.llama, ids, self.cache)
        if self.step is None:  # it copies the cache, which is now filled
            self.step, self.cache = compile_step(self.llama, self.cache)
        return self.step(self.llama, ids, self.cache)

    def generate(self, prompt: list[int], n: int):
        """Yield n greedy ids, each as soon as it is known."""
        self.step = self.cache = None
        how = dict(max_new_tokens=n, stop=(), compile=self.compiled)
        return llamalib.generate(self.llama, prompt, **how)


class Transformers:
    """The transformers library; compiled, with its static cache."""

    def __init__(self, folder: Path, dtype: str, device: str, compiled: bool):
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self.lib, self.device, self.compiled = transformers, device, compiled
        self.dtype, self.shape = getattr(torch, dtype), None
        load = transformers.LlamaForCausalLM.from_pretrained
        self.model = load(folder / "transformers", dtype=self.dtype)
        self.model = self.model.to(device).eval()
        mode = "reduce-overhead" if device == "cuda" else "default"
        how = dict(mode=mode, fullgraph=True, dynamic=False)
        self.step = torch.compile(self.model, **how) if compiled else None

    def start(self, rows: int, room: int) -> None:
        config = self.model.config
        if not self.compiled:
            self.cache, self.rows = self.lib.DynamicCache(config=config), rows
            return
        room = -(-room // 256) * 256  # a compiled step belongs to a shape
        if self.shape == (rows, room):
            self.cache.reset()
            return
        self.shape = rows, room
        self.cache = self.lib.StaticCache(config=config, max_cache_len=room)

    def fill(self, positions: int) -> None:
        c = self.model.config
        shape = self.rows, c.num_key_value_heads, positions, c.head_dim
        for layer in range(c.num_hidden_layers):
            k, v = torch.randn(2, *shape, dtype=self.dtype, device=self.device)
            self.cache.update(k, v, layer)

    def run(self, tokens: torch.Tensor):
        one = self.step is not None and tokens.shape[1] == 1
        run = self.step if one else self.model
        out = run(tokens, past_key_values=self.cache, logits_to_keep=1)
        return out.logits[:, -1]

    def generate(self, prompt: list[int], n: int):
        self.start(1, len(prompt) + n)
        tokens = torch.tensor([prompt], device=self.device)  # (1, T)
        for _ in range(n):
            tokens = self.run(tokens).argmax(-1, keepdim=True)  # (1, 1)
            yield tokens.item()


class LlamaCpp:
    """llama.cpp, through the C functions that llama-cpp-python gives."""

    PIECE = 512  # its default n_ubatch: the most tokens it runs at once

    def __init__(self, folder: Path, dtype: str, device: str, compiled: bool):
        import llama_cpp

        if device == "cuda" and not llama_cpp.llama_supports_gpu_offload():
            raise NotMeasured("this llama.cpp is built without a GPU")
        self.lib, self.shape, self.context = llama_cpp, None, None
        self.quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 1000 if device == "cuda" else 0
        file = str(folder / f"{dtype}.gguf").encode()
        self.model = llama_cpp.llama_model_load_from_file(file, params)
        if not self.model:
            raise NotMeasured("it opens no GGUF file: is gguf installed?")
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.V = llama_cpp.llama_vocab_n_tokens(vocab)

    def start(self, rows: int, room: int) -> None:
        if self.shape != (rows, room):
            self.new_context(rows, room)
        memory = self.lib.llama_get_memory(self.context)
        self.lib.llama_memory_clear(memory, True)
        self.length = 0

    def new_context(self, rows: int, room: int) -> None:
        """Make llama.cpp's context: a cache, and a batch to fill."""
        if self.context:
            self.lib.llama_free(self.context)
            self.lib.llama_batch_free(self.batch)
        params = self.lib.llama_context_default_params()
        params.n_ctx = rows * -(-room // 256) * 256
        params.n_seq_max = rows
        params.n_batch = params.n_ubatch = self.PIECE
        params.n_threads = params.n_threads_batch = torch.get_num_threads()
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise NotMeasured("llama.cpp cannot make a context")
        self.batch = self.lib.llama_batch_init(self.PIECE, 0, 1)
        self.shape = rows, room

    def fill(self, positions: int) -> None:
        # a prefill alone can fill it, and a long one takes too many seconds
        if positions > 4 * self.PIECE:
            raise NotMeasured("only a prefill can fill its cache")
        self.run(torch.tensor([[i % self.V for i in range(positions)]]))

    def run(self, tokens: torch.Tensor):
        rows, T = tokens.shape
        every = [
            (row, self.length + i, token, i == T - 1)
            for row, ids in enumerate(tokens.tolist())
            for i, token in enumerate(ids)
        ]
        parts = range(0, len(every), self.PIECE)
        found = [self.decode(every[i : i + self.PIECE]) for i in parts]
        self.length += T
        return torch.cat(found)  # (B, V)

    def decode(self, tokens: list[tuple]) -> torch.Tensor:
        """Run (row, position, id, needed); return the needed logits."""
        import numpy as np

        batch, needed = self.batch, [i for i, t in enumerate(tokens) if t[3]]
        batch.n_tokens = len(tokens)
        for i, (row, position, token, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, row
            batch.logits[i] = wanted
        if code := self.lib.llama_decode(self.context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        logits = (
            self.lib.llama_get_logits_ith(self.context, i) for i in needed
        )
        rows = [np.ctypeslib.as_array(x, shape=(self.V,)) for x in logits]
        return torch.tensor(np.array(rows).reshape(-1, self.V))  # a copy

    generate = Transformers.generate
    device = "cpu"  # of the ids


LIBRARY = "transformers.models.llama.modeling_llama"
PEERS = {  # the class, whether it is compiled, the module that it needs
    "ours": (Ours, False, "llamalib"),
    "ours compile=True": (Ours, True, "llamalib"),
    "transformers": (Transformers, False, LIBRARY),
    "transformers compiled": (Transformers, True, LIBRARY),
    "llama.cpp": (LlamaCpp, False, "llama_cpp"),
}


# -- the process of one peer: a command a line, as JSON, and an answer a line --


class Worker:
    """What a peer's process is asked; each method returns the answer."""

    def load(self, folder, name, device, threads):
        """Open a peer; return the seconds, with its library imported."""
        torch.manual_seed(0)
        torch.set_num_threads(threads)
        self.device, (peer, dtype) = device, name.rsplit(" ", 1)
        make, compiled, module = PEERS[peer]
        importlib.import_module(module)
        start = time.perf_counter()
        self.peer = make(Path(folder), dtype, device, compiled)
        self.wait()
        return time.perf_counter() - start

    def wait(self):
        """Wait until a GPU has finished."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def tokens(self, rows, length):
        """Return prompts (B, T), each row with other ids."""
        made = [some_ids(length, start=10 + row) for row in range(rows)]
        where = getattr(self.peer, "device", self.device)
        return torch.tensor(made, device=where)

    def logits(self):
        """Return logits after a prompt and after two more ids, (3, V)."""
        self.peer.start(1, 40)
        found = [self.peer.run(self.tokens(1, 24))]
        for start in (50, 57):
            ids = self.tokens(1, 1) * 0 + start
            found.append(self.peer.run(ids))
        return [[round(x, 4) for x in z[0].tolist()] for z in found]

    def decode(self, prompt, n):
        """Return the seconds to a first id, and tokens/s of the others."""
        list(self.peer.generate(some_ids(2), 2))  # not timed: it may sleep
        start = time.perf_counter()
        ids = self.peer.generate(some_ids(prompt), n)
        times = [time.perf_counter() for _ in ids]
        return times[0] - start, (n - 1) / (times[-1] - times[0])

    def prefill(self, length):
        """Return the seconds from a prompt to the next id."""
        list(self.peer.generate(some_ids(2), 2))
        tokens = self.tokens(1, length)
        start = time.perf_counter()
        self.peer.start(1, length + 1)
        self.peer.run(tokens).argmax(-1).tolist()
        return time.perf_counter() - start

    def position(self, length):
        """Return tokens/s of one row after a text of this length."""
        self.peer.start(1, length + 12)
        self.peer.fill(length)
        return 1 / self.step_seconds(self.tokens(1, 1), 8)

    def batch(self, length, prompt):
        """Return tokens/s of so many rows together."""
        self.peer.start(length, prompt + 20)
        return length / self.step_seconds(self.tokens(length, prompt), 16)

    def step_seconds(self, tokens, n):
        """Return the median seconds of n steps, after a prompt and a step."""
        times = []
        for _ in range(n + 3):
            tokens = self.peer.run(tokens).argmax(-1, keepdim=True)
            tokens.tolist()
            times.append(time.perf_counter())
        return statistics.median(b - a for a, b in pairwise(times[2:]))

    def peak(self):
        """Return the most bytes that this process held, on its device."""
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated()
        status = Path("/proc/self/status")
        if not status.exists():
            raise NotMeasured("memory is measured on Linux only")
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1])

    def bandwidth(self, device, threads):
        """Return the bytes that this machine reads in a second."""
        torch.set_num_threads(threads)
        return llamalib.memory_bandwidth(device)


def work() -> None:
    """Answer the commands on stdin, until it is closed."""
    # a library's prints go to stderr, so that only answers are on stdout
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        do, given = json.loads(line)
        try:  # a model is loaded as its user loads it: no inference tensors
            with torch.inference_mode(do != "load"):
                answer = {"ok": getattr(worker, do)(**given)}
        except ImportError as error:
            answer = {"why": f"{error.name} is not installed"}
        except NotMeasured as why:
            answer = {"why": str(why)}
        except Exception as error:  # one peer's failure is one row
            first = (str(error).strip().splitlines() or [""])[0]
            answer = {"why": f"{type(error).__name__}: {first[:200]}"}
        print(json.dumps(answer), file=answers, flush=True)


class Process:
    """The process of one row, as its parent sees it.

    Attributes:
        row: its figures.
        why: why it is measured no more, or None.
    """

    def __init__(self, name: str, threads: int, end: float = math.inf):
        self.row, self.why, self.end = {"name": name}, None, end
        self.row["dtype"], self.lines = name.rsplit(" ", 1)[-1], queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )
        # in a thread: Windows cannot wait for a pipe with a limit of time
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Queue its lines, and an empty one at the end."""
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")

    def ask(self, do: str, **given):
        """Return the answer; raise NotMeasured with the reason."""
        patience = min(PATIENCE, self.end - time.monotonic())
        if self.why is None and patience <= 0:
            raise NotMeasured("no time was left")
        if self.why is None:
            try:
                line = json.dumps([do, given]) + "\n"
                self.process.stdin.write(line.encode())
                self.process.stdin.flush()
                answer = json.loads(self.lines.get(timeout=patience) or "{}")
            except (OSError, queue.Empty):
                answer = {}
            if not answer:  # it ended, or it hangs
                self.stop(f"no answer in {patience:.2g} s")
            elif "ok" not in answer:
                raise NotMeasured(answer["why"])
            else:
                return answer["ok"]
        raise NotMeasured(self.why)

    def note(self, what: str, do: str, **given) -> None:
        """Add a round's figure to the row, or say why there is none."""
        if isinstance(self.row.get(what), str):
            return
        try:
            answer = self.ask(do, **given)
        except NotMeasured as why:
            self.row.setdefault(what, str(why))
            return
        if do == "decode":
            first, answer = answer
            self.row.setdefault("first", []).append(first)
        self.row.setdefault(what, []).append(answer)
        print(f"  {self.row['name']}, {what}: {answer:.4g}", file=sys.stderr)

    def stop(self, why: str) -> None:
        """End the process, and note why."""
        self.why = why
        self.process.kill()
        self.process.wait()
        with suppress(OSError):  # what it was sent has no reader
            self.process.stdin.close()


# -- the rounds --------------------------------------------------------------


def measure(names, folder, device, threads, sizes, end=math.inf, tasks=TASKS):
    """Return the figures of all rows; they stop at `end`."""
    prompt, new, rounds = sizes
    llama = llamalib.load(folder, device="cpu")
    machine = Process("bandwidth", threads)
    every = [Process(name, threads, end) for name in names]
    where = dict(folder=str(folder), device=device, threads=threads)
    bandwidth = {"decode": []}
    try:
        for each in every:
            open_peer(each, **where)
        peers = [each for each in every if each.why is None]
        agree(peers)
        peers = [each for each in peers if each.why is None]
        for n in range(rounds):
            if n and time.monotonic() > end:
                break
            for each in turns(peers, n):  # other programs use the memory, too
                speed = machine.ask(
                    "bandwidth", device=device, threads=threads
                )
                each.row.setdefault("bandwidth", []).append(speed)
                bandwidth["decode"].append(speed)
                each.note("decode", "decode", prompt=prompt, n=new)
        for task, (values, _) in tasks.items():
            for value in values:
                for n in range(1 if value > 1024 else 3):
                    for each in turns(peers, n):
                        if DECODE_ONLY not in each.row["name"]:
                            more = (
                                {"prompt": prompt} if task == "batch" else {}
                            )
                            given = {"length": value} | more
                            each.note(f"{task} {value}", task, **given)
        for each in peers:
            each.note("peak", "peak")
            name, middle = each.row["name"], prompt + new // 2
            each.row["step bytes"] = step_bytes(llama, name, middle, tasks)
        found = dict(prompt=prompt, new=new, bandwidth=bandwidth)
        return {"rows": [each.row for each in every], **found}
    finally:
        for each in (machine, *every):
            each.stop("it has ended")


def turns(peers: list, n: int) -> list:
    """Return the peers; each round begins with another."""
    n %= max(1, len(peers))
    return peers[n:] + peers[:n]


def open_peer(each: Process, **where) -> None:
    """Load a peer, and note its seconds; or why it is not measured."""
    try:
        each.row["load"] = each.ask("load", name=each.row["name"], **where)
    except NotMeasured as why:
        each.row["missing"] = str(why)
        each.stop(str(why))


def agree(peers: list) -> None:
    """Note each one's distance from the first; raise Disagreement."""
    expected = None
    for each in peers:
        try:
            logits = torch.tensor(each.ask("logits"))  # (3, V)
        except NotMeasured as why:
            each.row["missing"] = str(why)
            each.stop(str(why))
            continue
        expected = logits if expected is None else expected
        far = (logits - expected).norm(dim=1) / expected.norm(dim=1)
        each.row["distance"] = far.max().item()
        most = TOLERANCE.get(each.row["dtype"], 0.05)
        if not each.row["distance"] <= most:  # true of NaN, too
            raise Disagreement(
                f"{each.row['name']}: its logits are {far.max():.3f} away "
                f"from those of {peers[0].row['name']}; rounding gives {most}"
            )


def step_bytes(llama, name: str, middle: int, tasks) -> dict[str, float]:
    """Return the bytes that a decode step of each task reads."""
    peer, dtype = name.rsplit(" ", 1)
    if dtype in ("int8", "int4"):
        llama = empty_llama(llama.config, llama.tied).to(torch.bfloat16)
        llama = quantize_model(llama, dtype)
    factor = 34 / 64 if dtype == "q8_0" else 1  # 32 numbers and a scale

    def read(length, rows=1):
        weights = llamalib.bytes_per_step(llama, 0, rows)
        whole = llamalib.bytes_per_step(llama, length, rows)
        return weights * factor + whole - weights

    found = {"decode": read(middle)}
    found |= {f"position {n}": read(n) for n in tasks["position"][0]}
    return found | {f"batch {n}": read(middle, n) for n in tasks["batch"][0]}


# -- the same weights for all ------------------------------------------------

GGUF_NAMES = {
    "tok_embeddings": "token_embd",
    "norm": "output_norm",
    "output": "output",
    "attention.wq": "attn_q",
    "attention.wk": "attn_k",
    "attention.wv": "attn_v",
    "attention.wo": "attn_output",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
    "attention_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
}


def write_all(folder: Path, **changes) -> Path:
    """Write random weights in each peer's format, 9 GB; return the folder.

    A format whose package is not installed is left out. changes: fields of
    ModelArgs, for a smaller model.
    """
    llama = llamalib.load(write_1b(folder, **changes), device="cpu")
    try:
        write_transformers(llama, folder / "transformers")
    except ImportError:
        pass  # its row says so
    for dtype in ("bfloat16", "q8_0"):
        file = folder / f"{dtype}.gguf"
        try:
            if not file.is_file():
                save_under(file, lambda part: write_gguf(llama, part, dtype))
        except ImportError:
            pass
    return folder


def write_gguf(llama, file: Path, dtype: str) -> None:
    """Write a GGUF file of llama.cpp; q and k stay in Meta's order."""
    import gguf

    c, writer = llama.config, gguf.GGUFWriter(file, "llama")
    writer.add_context_length(c.context_length)
    writer.add_embedding_length(c.dim)
    writer.add_block_count(c.n_layers)
    writer.add_feed_forward_length(c.hidden_dim)
    writer.add_head_count(c.n_heads)
    writer.add_head_count_kv(c.n_kv_heads)
    writer.add_layer_norm_rms_eps(c.norm_eps)
    writer.add_rope_freq_base(c.rope_theta)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_vocab_size(c.vocab_size)
    writer.add_tokenizer_model("none")  # it is given ids
    types = gguf.GGMLQuantizationType
    for name, weight in weights(llama).items():
        if name == "output.weight" and llama.tied:
            continue
        array, kind = weight.detach().float().numpy(), types.F32
        if weight.dim() > 1 and dtype == "q8_0":
            array, kind = gguf.quants.quantize(array, types.Q8_0), types.Q8_0
        elif weight.dim() > 1:  # numpy has no bfloat16: its bytes
            raw = weight.detach().bfloat16().contiguous().view(torch.uint8)
            array, kind = raw.numpy(), types.BF16
        their = renamed(name, GGUF_NAMES, "blk")
        writer.add_tensor(their, array, raw_dtype=kind)
    if c.scaling_factor is not None:  # the divisor of each frequency
        freqs = c.rope_theta ** -(torch.arange(0, c.head_dim, 2) / c.head_dim)
        divisors = freqs / scale_frequencies(freqs, c.scaling_factor)
        writer.add_tensor("rope_freqs.weight", divisors.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# -- the table ---------------------------------------------------------------

HF, CPP = "transformers bfloat16", "llama.cpp bfloat16"
OURS, COMPILED = "ours bfloat16", "ours compile=True bfloat16"
HEADLINES = (
    ("`generate(…, compile=True)` ÷ transformers, bfloat16", COMPILED, HF),
    ("`generate(…, compile=True)` ÷ llama.cpp, bfloat16", COMPILED, CPP),
    ('`load(quantize="int4")` ÷ our bfloat16', "ours int4", OURS),
)
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
COLUMNS = {  # heading: figure, factor, digits after the point
    "first token, ms": ("first", 1e3, 0),
    "prefill 512, s": ("prefill 512", 1, 2),
    "prefill 4096, s": ("prefill 4096", 1, 1),
    "tokens/s at 32,768": ("position 32768", 1, 2),
    "8 rows": ("batch 8", 1, 1),
    "32 rows": ("batch 32", 1, 1),
    "peak, GB": ("peak", 1e-9, 2),
}
HOW = """\
Greedy, one row, a prompt of {prompt} ids and {new} new ones. A figure is the \
median of the rounds, in which all take turns; a ratio is the median of the \
rounds' ratios. The limit: the memory's bandwidth, measured just before, over \
the bytes of the peer's weights and cache. Rows: tokens per second of all rows \
together. Peak: the memory of the process, mapped files and libraries \
included. Loaded: with the files read before. Logits: the norm of the \
difference from the first row's, over its norm.
"""


def figures(row: dict | None, what: str) -> list[float]:
    found = (row or {}).get(what)
    return found if isinstance(found, list) else []


def ratio(row: dict | None, other: dict | None, what="decode"):
    """Return the median of the rounds' ratios, or None."""
    pairs = list(zip(figures(row, what), figures(other, what)))
    return statistics.median(a / b for a, b in pairs) if pairs else None


def shown(value: float | None, digits: int = 2) -> str:
    return NOT if value is None else f"{value:,.{digits}f}"


def of_limit(row: dict) -> str:
    """Return the share of the memory's bandwidth that decoding reaches."""
    speeds = zip(figures(row, "decode"), figures(row, "bandwidth"))
    size = row.get("step bytes", {}).get("decode", 0)
    shares = [speed * size / bandwidth for speed, bandwidth in speeds]
    return f"{100 * statistics.median(shares):.0f} %" if shares else NOT


def table(rows: list[list[str]]) -> str:
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def document(result: dict) -> str:
    """Return the Markdown of a device's result: one table, and how."""
    device, section = result["device"], result["sections"]["1b"]
    by_name = {row["name"]: row for row in section["rows"]}
    heads = ["", "tokens/s", "÷ transformers", "÷ llama.cpp", "of the limit"]
    made = [[*heads, *COLUMNS, "loaded, s", "logits differ by"]]
    missing = []
    for name in ROWS[device]:
        if name not in by_name:  # `--only` left it out
            continue
        row = by_name[name]
        speeds = figures(row, "decode")
        cells = [name, shown(statistics.median(speeds) if speeds else None, 1)]
        cells += [shown(ratio(row, by_name.get(o))) for o in (HF, CPP)]
        cells.append(of_limit(row))
        for what, factor, digits in COLUMNS.values():
            found = figures(row, what)
            value = factor * statistics.median(found) if found else None
            cells.append(shown(value, digits))
        cells += [shown(row.get("load")), shown(row.get("distance"), 3)]
        made.append(cells)
        reasons = {v for k, v in row.items() if k in result_keys(v)}
        missing += [f"{name}: {why}" for why in sorted(reasons)]
    title = {"cpu": "on a CPU", "cuda": "on a GPU"}[device]
    parts = [f"# How fast Llama 3.2-1B's shapes run {title}\n"]
    parts += [
        machine_line(result),
        table(made),
        HOW.format(**{"prompt": 6} | section),
    ]
    if missing:
        parts.append(f"Not measured: {'; '.join(missing)}.\n")
    for name, found in result.get("parts", {}).items():
        counts = [f", {n} {how}" for how, n in found.get("tests", {}).items()]
        said = f"{found['outcome']}{''.join(counts)}, {found['seconds']} s"
        parts.append("\n".join([f"- {name}: {said}", *found.get("bad", ())]))
    return "\n".join(parts).rstrip() + "\n"


def result_keys(value) -> tuple[str, ...]:
    """Return under which keys a row holds a reason, if this is one."""
    tasks = [f"{t} {n}" for t, (values, _) in TASKS.items() for n in values]
    keys = ("missing", "decode", "peak", *tasks)
    return keys if isinstance(value, str) else ()


def machine_line(result: dict) -> str:
    """Return where and when it was measured, and how fast memory is read."""
    m, speeds = result["machine"], result["sections"]["1b"]["bandwidth"]
    where = f"{m['cores']} cores, {m['threads']} threads, {m['capability']}"
    packages = [f"{k} {v or 'missing'}" for k, v in m["versions"].items()]
    gigabytes = [x / 1e9 for x in speeds["decode"]]
    return (
        f"{m['day']}, {m.get('gpu', m['system'])}, {where}, "
        f"{', '.join(packages)}. Memory is read at "
        f"{statistics.median(gigabytes):.1f} GB/s "
        f"({min(gigabytes):.1f} to {max(gigabytes):.1f}). {age_of(m)}\n"
    )


def age_of(machine: dict) -> str:
    """Return a sentence if an older version was measured."""
    if machine.get("llamalib") == llamalib.__version__:
        return ""
    return (
        f"Measured with version {machine.get('llamalib', '0.2')}; the code "
        "has changed since."
    )


def readme_section() -> str:
    """Return the three ratios for the README, by device, and links."""
    results = [found for found in map(read, ROWS) if "sections" in found]
    heads, lines, links = ["tokens per second, one row"], [], []
    for words, name, other in HEADLINES:
        lines.append([words])
        for result in results:
            rows = {r["name"]: r for r in result["sections"]["1b"]["rows"]}
            lines[-1].append(shown(ratio(rows.get(name), rows.get(other))))
    for result in results:
        m, where = result["machine"], result["device"].upper()
        heads.append(f"on a {where.replace('CUDA', 'GPU')}")
        said = m.get("gpu") or f"{m['cores']} cores, {m['capability']}"
        file = f"bench/results/generation-{result['device']}.md"
        link = f"[all figures]({file})"
        links += [f"{m['day']}, {said}: {link}. {age_of(m)}".rstrip(), ""]
    return "\n".join([BEGIN, "", table([heads, *lines]), *links, END])


def file_of(device: str) -> Path:
    return RESULTS / f"generation-{device}.json"


def read(device: str) -> dict:
    """Return the last result of a device, or {}."""
    file = file_of(device)
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}


def write_tables() -> None:
    """Write the tables of all results, and README's ratios."""
    for result in map(read, ROWS):
        if "sections" in result:
            file = file_of(result["device"]).with_suffix(".md")
            file.write_text(document(result), encoding="utf-8")
    if RESULTS == ROOT / "bench" / "results":
        readme = ROOT / "README.md"
        text = readme.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        text = before + readme_section() + after
        readme.write_text(text, encoding="utf-8")


def describe(device: str, threads: int) -> dict:
    """Return what describes the machine that is measured."""
    versions = {}
    for name in ("torch", "transformers", "llama_cpp_python"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    gpu = {"gpu": torch.cuda.get_device_name()} if device == "cuda" else {}
    return gpu | {
        "day": datetime.date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": threads,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "llamalib": llamalib.__version__,
        "versions": versions,
    }


def main(argv=None) -> None:
    global RESULTS
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--device", choices=ROWS, default="cpu")
    add("--only", nargs="*", help="only these rows")
    add("--minutes", type=float, default=math.inf, help="the most to take")
    add("--tables", action="store_true", help="only write the tables again")
    add("--write", action="store_true", help="only write the weights")
    # on the CPU, with a tiny model and few figures, into this folder
    add("--rehearse", type=Path, help=argparse.SUPPRESS)
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    options, device = parser.parse_args(argv), "cpu"
    RESULTS = options.rehearse or RESULTS
    if options.worker or options.tables:
        return work() if options.worker else write_tables()
    if not options.rehearse:
        device = options.device
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA GPU here: nothing was measured, nothing written")
    end = time.monotonic() + 60 * options.minutes
    folder, tasks, shapes = BUILD / "1b", TASKS, {}
    if options.rehearse:
        folder, shapes = RESULTS / "build" / "1b", TINY
        tasks = {"prefill": ((20,), ""), "position": ((16,), "")}
        tasks["batch"] = (3,), ""
    write_all(folder, **shapes)
    if options.write:
        return print(folder)
    threads, names = torch.get_num_threads(), ROWS[options.device]
    sizes = (6, 3, 1) if options.rehearse else SIZES[options.device]
    how = device, threads, sizes, end, tasks
    found = measure(options.only or names, folder, *how)
    result = read(options.device) | {"device": options.device}
    result |= {"machine": describe(device, threads), "sections": {"1b": found}}
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    file_of(options.device).write_text(text, encoding="utf-8")
    write_tables()


TINY = dict(dim=64, n_layers=2, n_heads=4, n_kv_heads=2)

if __name__ == "__main__":
    main()
