r"""Measure how fast Llama 3.2-1B generates, beside other libraries.

    python bench/generation.py                  # on the CPU, minutes
    python bench/generation.py --device cuda
    python bench/generation.py --smollm2        # SmolLM2, from its GGUF
    python bench/generation.py --tables         # write the tables again

Every peer runs the same weights in a process of its own, with as many
threads: random ones of the 1B's shapes, or SmolLM2's. They take turns, so that
a machine that is slow for a while is slow for all. A decode step cannot be
faster than reading the weights, so the memory's bandwidth is measured before
each turn. All must give the first one's logits before anything is timed.
Writes `bench/results/generation-NAME.json`, a table of it, and three ratios
into README.md.
"""

import argparse
import datetime
import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import re
import shutil
import statistics
import sys
import time
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds llamalib and tests
    sys.path[0] = str(ROOT)

import torch  # noqa: E402

import llamalib  # noqa: E402
from lessons.bandwidth import bytes_per_step, memory_bandwidth  # noqa: E402
from llamalib.compiled import compile_step  # noqa: E402
from llamalib.load import empty_llama  # noqa: E402
from llamalib.quantize import quantize_model  # noqa: E402
from tests.reference import (  # noqa: E402
    save_under,
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
    "smollm2": [  # on the CPU
        "ours bfloat16",
        "ours compile=True bfloat16",
        "ours int4",
        "ours compile=True int4",
        "transformers bfloat16",
        "llama.cpp q4_1",
    ],
}
# Besides decoding one row: lengths of a prompt, and numbers of rows
TASKS = {"prefill": (512, 4096), "batch": (1, 8, 32)}
# Ids of the prompt, new ids, rounds; on a GPU the protocol of published figures
SIZES = {"cpu": (6, 32, 9), "cuda": (32, 128, 5), "smollm2": (6, 32, 9)}
# A rehearsal on the CPU: fields of ModelArgs, then as above
TINY = dict(dim=64, n_layers=2, n_heads=4, n_kv_heads=2)
TINY_TASKS = {"prefill": (20,), "batch": (3,)}
TINY_SIZES = 6, 3, 1
# The largest accepted distance of logits from the first row's: the norm of the
# difference over the norm. Rounding to bfloat16 gives 0.01, to 8 bits 0.1.
# With 4 bits a matrix is off by a tenth, and random weights amplify that;
# unrelated numbers are 1.4 apart. A file in q4_1 gives all the same weights;
# llama.cpp rounds activations to 8 bits.
TOLERANCE = {"bfloat16": 0.05, "q8_0": 0.15, "int8": 0.15, "int4": 1.0}
TOLERANCE["q4_1"] = 0.3
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


class Peer:
    """What is measured of a library; subclasses run it.

    They have `start(rows, room)`, which makes an empty cache for some rows of
    `room` positions, and `run(tokens)`, which runs ids (B, T) and returns the
    last position's logits (B, V).
    """

    device = "cpu"  # of the ids

    def generate(self, prompt: list[int], n: int):
        """Yield n greedy ids, each as soon as it is known."""
        self.start(1, len(prompt) + n)
        tokens = torch.tensor([prompt], device=self.device)  # (1, T)
        for _ in range(n):
            tokens = self.run(tokens).argmax(-1, keepdim=True)  # (1, 1)
            yield tokens.item()

    def tokens(self, rows: int, length: int) -> torch.Tensor:
        """Return prompts (B, T), each row with other ids."""
        made = [some_ids(length, start=10 + row) for row in range(rows)]
        return torch.tensor(made, device=self.device)

    def logits(self) -> list[list[float]]:
        """Return logits after a prompt and after two more ids, (3, V)."""
        self.start(1, 40)
        one = self.tokens(1, 1)
        parts = self.tokens(1, 24), one + 40, one + 47
        return [self.run(part)[0].tolist() for part in parts]

    def decode(self, prompt: int, n: int) -> tuple[float, float]:
        """Return the seconds to a first id, and tokens/s of the others."""
        list(self.generate(some_ids(2), 2))  # not timed: it may sleep
        start = time.perf_counter()
        ids = self.generate(some_ids(prompt), n)
        times = [time.perf_counter() for _ in ids]
        return times[0] - start, (n - 1) / (times[-1] - times[0])

    def prefill(self, length: int) -> float:
        """Return the seconds from a prompt to the next id."""
        list(self.generate(some_ids(2), 2))
        tokens = self.tokens(1, length)
        start = time.perf_counter()
        self.start(1, length + 1)
        self.run(tokens).argmax(-1).tolist()
        return time.perf_counter() - start

    def batch(self, rows: int, prompt: int) -> float:
        """Return tokens/s of all rows together, in the median of 16 steps."""
        self.start(rows, prompt + 20)
        tokens, times = self.tokens(rows, prompt), []
        for _ in range(19):
            tokens = self.run(tokens).argmax(-1, keepdim=True)
            tokens.tolist()
            times.append(time.perf_counter())
        # without the prompt and a first step, which may compile
        steps = [b - a for a, b in pairwise(times[2:])]
        return rows / statistics.median(steps)

    def peak(self) -> int:
        """Return the most bytes that this process held, on its device."""
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated()
        status = Path("/proc/self/status")
        if not status.exists():
            raise NotMeasured("memory is measured on Linux only")
        text = status.read_text("utf-8")
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", text)[1])


class Ours(Peer):
    """llamalib, through its public functions."""

    def __init__(self, folder: Path, dtype: str, device: str, compiled: bool):
        quantize = dtype if dtype in ("int8", "int4") else None
        dtype = torch.bfloat16 if quantize else getattr(torch, dtype)
        how = dict(device=device, dtype=dtype, quantize=quantize)
        self.llama = llamalib.load(folder, **how)
        self.device, self.compiled = device, compiled

    def start(self, rows, room):
        self.step = self.cache = None  # its memory is free for the next
        like = dict(device=self.llama.device, dtype=self.llama.dtype)
        self.cache = llamalib.KVCache(self.llama.config, room, rows, **like)

    def run(self, tokens):
        if tokens.shape[1] > 1:
            return llamalib.prefill(self.llama, tokens, self.cache)
        ids = tokens[:, 0]
        if not self.compiled:
            return llamalib.decode_one(self.llama, ids, self.cache)
        if self.step is None:  # it copies the cache, which has the prompt
            self.step = compile_step(self.llama, self.cache)
        return self.step(ids)

    def generate(self, prompt, n):
        self.step = self.cache = None
        how = dict(max_new_tokens=n, stop=(), compile=self.compiled)
        return llamalib.generate(self.llama, prompt, **how)


class Transformers(Peer):
    """The transformers library; compiled, with its static cache."""

    def __init__(self, folder: Path, dtype: str, device: str, compiled: bool):
        import transformers

        self.lib, self.device, self.compiled = transformers, device, compiled
        self.shape, load = None, transformers.LlamaForCausalLM.from_pretrained
        model = load(folder / "transformers", dtype=getattr(torch, dtype))
        self.model = model.to(device).eval()
        mode = "reduce-overhead" if device == "cuda" else "default"
        how = dict(mode=mode, fullgraph=True, dynamic=False)
        self.step = torch.compile(self.model, **how) if compiled else None

    def start(self, rows, room):
        config = self.model.config
        if not self.compiled:
            self.cache = self.lib.DynamicCache(config=config)
            return
        room = -(-room // 256) * 256  # a compiled step belongs to a shape
        if self.shape == (rows, room):
            self.cache.reset()
            return
        self.shape = rows, room
        self.cache = self.lib.StaticCache(config=config, max_cache_len=room)

    def run(self, tokens):
        one = self.compiled and tokens.shape[1] == 1
        run = self.step if one else self.model
        out = run(tokens, past_key_values=self.cache, logits_to_keep=1)
        return out.logits[:, -1]


class LlamaCpp(Peer):
    """llama.cpp, through the C functions that llama-cpp-python gives."""

    context = None

    def __init__(self, folder: Path, dtype: str, device: str, compiled: bool):
        import llama_cpp

        self.lib, self.on_gpu = llama_cpp, device == "cuda"
        if self.on_gpu and not llama_cpp.llama_supports_gpu_offload():
            raise NotMeasured("this llama.cpp is built without a GPU")
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 1000 if self.on_gpu else 0
        file = str(folder / f"{dtype}.gguf").encode()
        self.model = llama_cpp.llama_model_load_from_file(file, params)
        if not self.model:
            raise NotMeasured("it opens no GGUF file: is gguf installed?")
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.V = llama_cpp.llama_vocab_n_tokens(vocab)

    def start(self, rows, room):
        if self.context:
            self.lib.llama_free(self.context)
            self.lib.llama_batch_free(self.given)
        params = self.lib.llama_context_default_params()
        params.n_ctx = params.n_batch = rows * -(-room // 256) * 256
        params.n_seq_max = rows
        params.n_threads = params.n_threads_batch = torch.get_num_threads()
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise NotMeasured("llama.cpp cannot make a context")
        self.given = self.lib.llama_batch_init(rows * room, 0, 1)
        self.length = 0

    def run(self, tokens):
        import numpy as np

        (B, T), batch = tokens.shape, self.given
        batch.n_tokens = B * T
        for i, token in enumerate(tokens.flatten().tolist()):
            row, t = divmod(i, T)
            batch.token[i], batch.pos[i] = token, self.length + t
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, row
            batch.logits[i] = t == T - 1
        if code := self.lib.llama_decode(self.context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        self.length += T
        found = [
            self.lib.llama_get_logits_ith(self.context, row * T + T - 1)
            for row in range(B)
        ]
        rows = [np.ctypeslib.as_array(x, shape=(self.V,)) for x in found]
        return torch.tensor(np.array(rows))  # a copy

    def peak(self):
        if self.on_gpu:
            raise NotMeasured("PyTorch does not see its memory on a GPU")
        return super().peak()


PEERS = {"ours": Ours, "transformers": Transformers, "llama.cpp": LlamaCpp}


# -- the process of one peer -------------------------------------------------


def load_peer(name: str, folder: Path, device: str) -> Peer:
    """Return the peer of a row, such as "ours compile=True int8"."""
    peer, *compiled, dtype = name.split()
    return PEERS[peer](folder, dtype, device, bool(compiled))


def work(connection, threads: int) -> None:
    """Answer each question by a figure, or by a str: why there is none.

    The first question is `load`, the others are methods of its peer.
    """
    quiet = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(quiet, output)
    torch.set_num_threads(threads)
    peer = None
    while True:
        task, given = connection.recv()
        try:
            if task == "load":  # as a user loads it: no inference tensors
                start = time.perf_counter()
                peer = load_peer(*given)
                answer = time.perf_counter() - start
            else:
                with torch.inference_mode():
                    answer = getattr(peer, task)(*given)
        except ImportError as error:
            answer = f"{error.name} is not installed"
        except NotMeasured as why:
            answer = str(why)
        except Exception as error:  # one peer's failure is one row
            first = (str(error).strip().splitlines() or [""])[0]
            answer = f"{type(error).__name__}: {first[:200]}"
        connection.send(answer)


class Process:
    """The process of a row's peer, and the row: its figures by name."""

    def __init__(self, name: str, end: float = math.inf):
        self.row, self.dtype, self.end = {"name": name}, name.split()[-1], end
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        given = theirs, torch.get_num_threads()
        self.process = spawn.Process(target=work, args=given)
        self.process.start()
        theirs.close()  # so that only the process holds it

    def ask(self, task: str, *given):
        """Return the answer; raise NotMeasured with the reason."""
        patience = min(PATIENCE, self.end - time.monotonic())
        if patience <= 0:
            raise NotMeasured("no time was left")
        try:
            self.connection.send((task, given))
            if not self.connection.poll(patience):
                self.process.kill()
                raise NotMeasured(f"no answer in {patience:.3g} s")
            answer = self.connection.recv()
        except (OSError, EOFError):
            self.process.join(5)
            code = self.process.exitcode
            raise NotMeasured(f"its process ended ({code})") from None
        if isinstance(answer, str):
            raise NotMeasured(answer)
        return answer

    def note(self, what: str, *given) -> None:
        """Add a round's figure, such as "batch 8", or why there is none."""
        if isinstance(self.row.get(what), str):
            return
        try:
            answer = self.ask(what.split()[0], *given)
        except NotMeasured as why:
            self.row.setdefault(what, str(why))
            return
        if what == "decode":
            first, answer = answer
            self.row.setdefault("first", []).append(first)
        self.row.setdefault(what, []).append(answer)
        print(f"  {self.row['name']}, {what}: {answer:.4g}", file=sys.stderr)

    def stop(self) -> None:
        """End the process, and kill it if it does not end by itself."""
        self.connection.close()
        self.process.join(5)
        self.process.kill()
        self.process.join()


# -- the rounds --------------------------------------------------------------


def measure(names, folder, device, sizes, end=math.inf, tasks=TASKS):
    """Return the figures of all rows; they stop at `end`."""
    (prompt, new, rounds), speeds, every = sizes, [], []
    try:
        for name in names:
            every.append(Process(name, end))
        peers = agreeing(every, folder, device)
        for n in range(rounds):
            if n and time.monotonic() > end:
                break
            for each in peers:  # other programs use the memory, too
                speeds.append(memory_bandwidth(device))
                each.row.setdefault("bandwidth", []).append(speeds[-1])
                each.note("decode", prompt, new)
            peers = peers[1:] + peers[:1]  # each round begins with another
        for task, value in [(t, value) for t in tasks for value in tasks[t]]:
            given = (value, prompt) if task == "batch" else (value,)
            for _ in range(1 if value > 1024 else 3):
                for each in peers:
                    # compiled for one shape: another one takes minutes
                    if "transformers compiled" not in each.row["name"]:
                        each.note(f"{task} {value}", *given)
                peers = peers[1:] + peers[:1]
        llama = llamalib.load(folder, device="cpu")
        for each in peers:
            each.note("peak")
            given = each.dtype, prompt + new // 2, tasks["batch"]
            each.row["step bytes"] = step_bytes(llama, *given)
        rows, bandwidth = [each.row for each in every], {"decode": speeds}
        return dict(rows=rows, prompt=prompt, new=new, bandwidth=bandwidth)
    finally:
        for each in every:
            each.stop()


def agreeing(every: list[Process], folder: Path, device: str):
    """Load each peer; return those that can be measured.

    Raises Disagreement if one's logits are far from the first one's.
    """
    peers, expected = [], None
    for each in every:
        row = each.row
        try:
            row["open"] = each.ask("load", row["name"], folder, device)
            logits = torch.tensor(each.ask("logits"))  # (3, V)
        except NotMeasured as why:
            row["missing"] = str(why)
            each.stop()
            continue
        peers.append(each)
        expected = logits if expected is None else expected
        far = (logits - expected).norm(dim=1) / expected.norm(dim=1)
        row["distance"] = far.max().item()
        most = TOLERANCE[each.dtype]
        if not row["distance"] <= most:  # true of NaN, too
            raise Disagreement(
                f"{row['name']}: its logits are {far.max():.3f} away "
                f"from those of {peers[0].row['name']}; rounding gives {most}"
            )
    return peers


def step_bytes(llama, dtype: str, middle: int, batches) -> dict[str, float]:
    """Return the bytes that a row's decode steps read, also in a batch."""
    if dtype in ("int8", "int4"):
        llama = empty_llama(llama.config, llama.tied).to(torch.bfloat16)
        llama = quantize_model(llama, dtype)
    whole = stored = bytes_per_step(llama, 0)  # of the weights
    if dtype.startswith("q"):  # 32 numbers of q8_0 have 34 bytes
        stored = whole * 34 / 64
    if dtype == "q4_1":  # and 20 of q4_1, in all but the LM head
        head = llama.output.weight.nbytes
        stored -= (whole - head) * 14 / 64

    def read(rows):
        return bytes_per_step(llama, middle, rows) - whole + stored

    found = {f"batch {n}": read(n) for n in batches}
    return {"decode": read(1)} | found


# -- the same weights for all ------------------------------------------------


def write_all(folder: Path, **changes) -> Path:
    """Write random weights in each peer's format, 9 GB; return the folder.

    A format whose package is not installed is left out: its row says so.
    changes: fields of ModelArgs, for a smaller model.
    """
    llama = llamalib.load(write_1b(folder, **changes), device="cpu")
    with suppress(ImportError):
        write_transformers(llama, folder / "transformers")
    with suppress(ImportError):
        write_ggufs(llama, folder)
    return folder


def write_ggufs(llama, folder: Path) -> None:
    """Write the files of llama.cpp; it is given ids, and no tokenizer."""
    from tests.gguf_files import tokenizer_facts, write_gguf

    none = dict.fromkeys(tokenizer_facts(llama.tokenizer))
    none["tokenizer.ggml.model"] = "none"
    for dtype, kind in ("bfloat16", "BF16"), ("q8_0", "Q8_0"):
        file = folder / f"{dtype}.gguf"
        how = dict(llama=llama, kind=kind, more=none)
        if not file.is_file():
            save_under(file, partial(write_gguf, **how))


def smollm2_file() -> Path:
    """Return SmolLM2's file, downloaded if it is not there."""
    from llamalib.fetch import fetch  # a machine with a GPU may lack packages

    (file,) = fetch("SmolLM2-135M-Instruct").glob("*.gguf")
    return file


def copy_gguf(source: Path, folder: Path) -> Path:
    """Copy a file in Q4_1, and write it for transformers; return the folder.

    We open the copy, and so does llama.cpp.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "q4_1.gguf"
    if not file.is_file():
        save_under(file, partial(shutil.copyfile, source))
    llama = llamalib.load(file, device="cpu")
    with suppress(ImportError):
        write_transformers(llama, folder / "transformers")
    return folder


# -- the table ---------------------------------------------------------------

HF, CPP = "transformers bfloat16", "llama.cpp bfloat16"
CPP4 = "llama.cpp q4_1"
TITLES = {
    "cpu": "How fast Llama 3.2-1B's shapes run on a CPU",
    "cuda": "How fast Llama 3.2-1B's shapes run on a GPU",
    "smollm2": "How fast SmolLM2-135M-Instruct runs on a CPU",
}
OURS, COMPILED = "ours bfloat16", "ours compile=True bfloat16"
HEADLINES = (
    ("`generate(…, compile=True)` ÷ transformers, bfloat16", COMPILED, HF),
    ("`generate(…, compile=True)` ÷ llama.cpp, bfloat16", COMPILED, CPP),
    ('`load(quantize="int4")` ÷ our bfloat16', "ours int4", OURS),
)
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
COLUMNS = {  # heading: figure, factor, digits after the point
    "open, s": ("open", 1, 2),
    "first token, ms": ("first", 1e3, 0),
    "prefill 512, s": ("prefill 512", 1, 2),
    "prefill 4096, s": ("prefill 4096", 1, 1),
    "8 rows": ("batch 8", 1, 1),
    "32 rows": ("batch 32", 1, 1),
    "peak, GB": ("peak", 1e-9, 2),
    "logits differ by": ("distance", 1, 3),
}
HOW = """\
Greedy, one row, a prompt of {prompt} ids and {new} new ones. A figure is the \
median of the rounds, in which all take turns; a ratio is the median of the \
rounds' ratios. The limit: the memory's bandwidth, measured just before, over \
the bytes of the peer's weights and cache. Rows: tokens per second of all rows \
together. Peak: the memory of the process, mapped files and libraries \
included. Logits: the norm of the difference from the first row's, over its \
norm.
"""
OPEN = "Open: from a call to a model, the library's import included.\n"


def figures(row: dict, what: str) -> list[float]:
    """Return a row's figures of all rounds; [] if it has a reason instead."""
    found = row.get(what, [])
    if isinstance(found, float):
        return [found]
    return [] if isinstance(found, str) else found


def median(values, factor: float = 1, digits: int = 2) -> str:
    """Return the median in words of the table."""
    values = list(values)
    if not values:
        return NOT
    return f"{factor * statistics.median(values):,.{digits}f}"


def ratio(rows: dict[str, dict], name: str, other: str) -> str:
    """Return the median of the rounds' ratios of tokens per second."""
    # a row that has a reason instead of figures leaves no ratio
    both = (figures(rows.get(each, {}), "decode") for each in (name, other))
    return median(a / b for a, b in zip(*both, strict=False))


def of_limit(row: dict) -> str:
    """Return the share of the memory's bandwidth that decoding reaches."""
    found = figures(row, "decode"), figures(row, "bandwidth")
    speeds = zip(*found, strict=False)  # either may be empty
    shares = [a * row["step bytes"]["decode"] / b for a, b in speeds]
    return f"{median(shares, 100, 0)} %" if shares else NOT


def name_of(result: dict) -> str:
    """Return a result's name, a key of ROWS."""
    (model,) = result["sections"]
    return result["device"] if model == "1b" else model


def measured(result: dict) -> dict:
    """Return the figures of a result."""
    (section,) = result["sections"].values()
    return section


def rows_of(result: dict) -> dict[str, dict]:
    return {row["name"]: row for row in measured(result)["rows"]}


def table(rows: list[list[str]]) -> str:
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def document(result: dict) -> str:
    """Return the Markdown of a device's result: one table, and how."""
    rows, missing = rows_of(result), []
    cpp = CPP if CPP in ROWS[name_of(result)] else CPP4
    heads = ["", "tokens/s", "÷ transformers", "÷ llama.cpp", "of the limit"]
    columns = {
        head: how
        for head, how in COLUMNS.items()
        if any(how[0] in row for row in rows.values())
    }
    made = [[*heads, *columns]]
    may_lack = ["missing", "decode", *(what for what, *_ in columns.values())]
    for name, row in rows.items():
        cells = [name, median(figures(row, "decode"), 1, 1)]
        cells += [ratio(rows, name, HF), ratio(rows, name, cpp), of_limit(row)]
        for what, *how in columns.values():
            cells.append(median(figures(row, what), *how))
        made.append(cells)
        found = [row.get(what) for what in may_lack]
        reasons = {why for why in found if isinstance(why, str)}
        missing += [f"{name}: {why}" for why in sorted(reasons)]
    parts = [f"# {TITLES[name_of(result)]}\n"]
    parts += [machine_line(result), table(made)]
    parts.append(HOW.format(**measured(result)))
    if "open, s" in columns:
        parts.append(OPEN)
    if missing:
        parts.append(f"Not measured: {'; '.join(missing)}.\n")
    return "\n".join(parts)


def machine_line(result: dict) -> str:
    """Return where and when it was measured, and how fast memory is read."""
    m, speeds = result["machine"], measured(result)["bandwidth"]
    where = f"{m['cores']} cores, {m['threads']} threads, {m['capability']}"
    packages = [f"{k} {v or 'missing'}" for k, v in m["versions"].items()]
    gigabytes = [x / 1e9 for x in speeds["decode"]]
    return (
        f"{m['day']}, {m.get('gpu', m['system'])}, {where}, "
        f"{', '.join(packages)}. Memory is read at {median(gigabytes, 1, 1)} "
        f"GB/s ({min(gigabytes):.1f} to {max(gigabytes):.1f}). {age_of(m)}\n"
    )


def age_of(machine: dict) -> str:
    """Return a sentence if an older version was measured."""
    version = machine["llamalib"]
    if version == llamalib.__version__:
        return ""
    return f"Measured with version {version}; the code has changed since."


def readme_section(results: list[dict]) -> str:
    """Return the three ratios for the README, by device, and links."""
    heads, links = ["tokens per second, one row"], []
    lines = [[words] for words, *_ in HEADLINES]
    for result in results:
        m, name, rows = result["machine"], name_of(result), rows_of(result)
        said = m.get("gpu") or f"{m['cores']} cores, {m['capability']}"
        if name == "smollm2":
            said += f", SmolLM2 by `compile=True`: {ratio(rows, COMPILED, HF)}"
            said += f" × transformers, {ratio(rows, COMPILED, CPP4)} × "
            said += "llama.cpp on four bits"
        else:
            heads.append({"cpu": "on a CPU", "cuda": "on a GPU"}[name])
            for line, (_, *names) in zip(lines, HEADLINES, strict=True):
                line.append(ratio(rows, *names))
        link = f"[all figures](bench/results/generation-{name}.md)"
        links += [f"{m['day']}, {said}: {link}. {age_of(m)}".rstrip(), ""]
    return "\n".join([BEGIN, "", table([heads, *lines]), *links, END])


def read(folder: Path, name: str) -> dict:
    """Return the last result of a name in ROWS, or {}."""
    file = folder / f"generation-{name}.json"
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}


def read_all(folder: Path) -> list[dict]:
    """Return the results that have figures."""
    found = [read(folder, name) for name in ROWS]
    return [result for result in found if "sections" in result]


def write_tables(folder: Path) -> None:
    """Write the tables of all results, and README's ratios."""
    results = read_all(folder)
    for result in results:
        file = folder / f"generation-{name_of(result)}.md"
        file.write_text(document(result), encoding="utf-8")
    if folder == RESULTS:
        readme = ROOT / "README.md"
        text = readme.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        text = before + readme_section(results) + after
        readme.write_text(text, encoding="utf-8")


def describe(device: str) -> dict:
    """Return what describes the machine that is measured."""
    versions = dict.fromkeys(("torch", "transformers", "llama_cpp_python"))
    for name in versions:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    gpu = {"gpu": torch.cuda.get_device_name()} if device == "cuda" else {}
    return gpu | {
        "day": datetime.date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "llamalib": llamalib.__version__,
        "versions": versions,
    }


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--smollm2", action="store_true", help="SmolLM2 on the CPU")
    add("--only", nargs="*", help="only these rows")
    add("--minutes", type=float, default=math.inf, help="the most to take")
    add("--tables", action="store_true", help="only write the tables again")
    # on the CPU, with a tiny model and few figures, into this folder
    add("--rehearse", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    device, results = options.device, options.rehearse or RESULTS
    model = "smollm2" if options.smollm2 else "1b"
    name = model if options.smollm2 else device
    end = time.monotonic() + 60 * options.minutes
    if options.tables:
        return write_tables(results)
    if options.smollm2:
        folder = copy_gguf(smollm2_file(), BUILD / model)
    elif options.rehearse:
        device, folder = "cpu", write_all(results / "build" / "1b", **TINY)
    elif device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA GPU here: nothing was measured, nothing written")
    else:
        folder = write_all(BUILD / "1b")
    how = SIZES[name], end, TASKS
    if options.rehearse:
        how = TINY_SIZES, end, TINY_TASKS
    found = measure(options.only or ROWS[name], folder, device, *how)
    result = read(results, name) | {"sections": {model: found}}
    result |= {"device": options.device, "machine": describe(device)}
    results.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    file = results / f"generation-{name}.json"
    file.write_text(text, encoding="utf-8")
    write_tables(results)


if __name__ == "__main__":
    main()
