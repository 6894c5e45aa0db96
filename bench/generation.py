r"""Measure how fast Llama 3.2-1B generates, compared with other libraries.

    python bench/generation.py                 # on the CPU, minutes
    python bench/generation.py --device cuda

Every peer runs the same random weights (`checkpoint.py`) in its own process
(`worker.py`), with the same number of threads. The peers take turns, so that a
machine that is slow for a while is slow for all. A decode step cannot be
faster than reading the weights, so the memory bandwidth is measured before
each turn. All peers must give the same answer before anything is timed. Writes
`bench/results/generation-DEVICE.json`, and the report that `report.py` makes
of it.
"""

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import queue
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds `bench`
    sys.path[0] = str(ROOT)

import torch  # noqa: E402

import llamalib  # noqa: E402
from bench import checkpoint, report  # noqa: E402
from bench.plan import PLANS, Row, Section, rehearsal  # noqa: E402
from bench.worker import vocabulary_ids  # noqa: E402
from llamalib.load import empty_llama  # noqa: E402
from llamalib.quantize import quantize_model  # noqa: E402

LONG = 24  # ids of the prompt whose answer is compared
# The largest accepted distance of logits from ours: the norm of the difference
# divided by the norm of ours. Rounding to bfloat16 gives about 0.01. Rounding
# to 8 bits gives less than 0.1, also where the activations are rounded.
# With 4 bits each matrix is off by a tenth, and random weights amplify that;
# unrelated numbers are 1.4 apart.
TOLERANCE = {
    "bfloat16": 0.05,
    "float32": 0.05,
    "q8_0": 0.15,
    "int8": 0.15,
    "int4": 1.0,
}
WEIGHT_BYTES = {"bfloat16": 2, "float32": 4, "q8_0": 34 / 32}
PATIENCE = 300  # seconds to wait for an answer; compiling may hang
LATE = "no time was left"


class Disagreement(Exception):
    """A peer computes something else, so its speed means nothing."""


class Worker:
    """The process of one peer, as its parent sees it.

    Attributes:
        missing: why the peer is not measured; None while it is.
        end: when to ask no more, by time.monotonic().
    """

    def __init__(self, row: Row, threads: int, verbose=False, end=math.inf):
        self.row, self.missing, self.lines = row, None, queue.Queue()
        self.end = end
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )
        self.reader = threading.Thread(target=self.read_lines, daemon=True)
        self.reader.start()

    def ask(self, do: str, patience=PATIENCE, **arguments):
        """Return the answer, or as a text why there is none."""
        if self.missing is not None:
            return self.missing
        patience = min(patience, self.end - time.monotonic())
        if patience <= 0:
            return LATE
        command = json.dumps({"do": do, **arguments}) + "\n"
        try:
            self.process.stdin.write(command.encode())
            self.process.stdin.flush()
            answer = json.loads(self.line(patience))
        except TimeoutError:  # an OSError too
            return self.give_up(f"no answer in {patience:.2g} s")
        except (OSError, EOFError):
            return self.give_up(f"its process ended ({self.process.wait()})")
        if "ok" in answer:
            return answer["ok"]
        return answer.get("missing") or answer["error"]

    def line(self, patience: float) -> bytes:
        """Return its next line; raise TimeoutError or EOFError."""
        try:
            line = self.lines.get(timeout=patience)
        except queue.Empty:
            raise TimeoutError from None
        if not line:
            raise EOFError
        return line

    def read_lines(self) -> None:
        """Queue its lines, and b"" at the end.

        In a thread: Windows cannot wait for a pipe with a limit of time.
        """
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")

    def give_up(self, why: str) -> str:
        """Stop the process, and note why."""
        self.missing = why
        self.stop()
        return why

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.reader.join(10)  # a process of its own may hold the pipe
        if not self.reader.is_alive():
            self.process.stdout.close()


def say(*words) -> None:
    """Print progress to stderr."""
    print(*words, file=sys.stderr, flush=True)


def read_once(source: Path, beside: Path) -> None:
    """Read all files once, so that no peer waits for the disk."""
    for file in [*Path(source).iterdir(), *Path(beside).rglob("*")]:
        if file.is_file():
            with file.open("rb", buffering=0) as f:
                while f.read(2**24):
                    pass


def load(worker, source, beside, device, threads, prompt) -> dict:
    """Load a peer, and return the beginning of its row."""
    row = worker.row
    found = {"name": row.name, "dtype": row.dtype}
    answer = worker.ask(
        "load",
        peer=row.peer,
        source=str(source),
        beside=str(beside),
        dtype=row.dtype,
        device=device,
        threads=threads,
    )
    if isinstance(answer, str):
        worker.give_up(answer)
        return found | {"missing": answer}
    say(f"  {row.name}: loaded in {answer['seconds']:.2f} s")
    found["load"] = answer["seconds"]
    prompt = vocabulary_ids(prompt)
    answer = worker.ask("generate", prompt=prompt, n=2, awake=False)
    note(found, "cold first", answer, "first")
    if isinstance(answer, str):
        found["missing"] = worker.give_up(answer)
    return found


def distance(found: list[float], expected: list[float]) -> float:
    """Return the norm of the difference over the norm of `expected`."""
    found, expected = torch.tensor(found), torch.tensor(expected)
    return ((found - expected).norm() / expected.norm()).item()


def check_agreement(answers: dict[str, dict], dtypes: dict[str, str]) -> dict:
    r"""Check that all peers give the answer of the first one.

    Args:
        answers: by name, {"logits": some (V,), "id": the first greedy id};
            a peer without a cache gives no logits.
        dtypes: by name, of the weights.

    Returns:
        by name, the largest distance of its logits from the first one's.

    Raises:
        Disagreement: naming the peer, and what differs.
    """
    first, reference = next(iter(answers.items()))
    expected = torch.tensor(reference["logits"])  # (n, V)
    rms = expected[0].square().mean().sqrt()
    far = {}
    for name, answer in answers.items():
        most = TOLERANCE[dtypes[name]]
        gap = expected[0].max() - expected[0, answer["id"]]
        if gap > 2 * most * rms:  # rounding cannot have swapped the two
            raise Disagreement(
                f"{name} chooses id {answer['id']}, whose logit is "
                f"{gap:.2f} below that of {first}'s id {reference['id']}"
            )
        if not answer["logits"]:
            continue
        pairs = zip(answer["logits"], reference["logits"])
        far[name] = max(distance(*pair) for pair in pairs)
        if not far[name] <= most:  # true of NaN too
            raise Disagreement(
                f"{name}: the relative distance of its logits from those of "
                f"{first} is {far[name]:.3f}; rounding explains {most}"
            )
    return far


def agree(workers, rows) -> None:
    """Ask all for an answer, and note its distance from the first one's."""
    answers = {}
    for worker, row in turns(workers, rows, 0):
        prompt, forced = vocabulary_ids(LONG), vocabulary_ids(2, start=50)
        answer = worker.ask("answer", prompt=prompt, forced=forced)
        if isinstance(answer, str):
            row["missing"] = worker.give_up(answer)
        else:
            answers[row["name"]] = answer
    if not answers:
        return
    far = check_agreement(answers, {r["name"]: r["dtype"] for r in rows})
    for row in rows:
        row["distance"] = far.get(row["name"])


def turns(workers, rows, n: int):
    """Return pairs of worker and row; each round n starts with another."""
    pairs = [p for p in zip(workers, rows) if p[0].missing is None]
    n %= max(1, len(pairs))
    return pairs[n:] + pairs[:n]


def note(row: dict, what: str, answer, key: str) -> None:
    """Add a round's figure to a row, or say why there is none."""
    if isinstance(answer, str):
        row[what] = answer
    elif not isinstance(row.get(what), str):
        row.setdefault(what, []).append(answer[key])
    say(f"  {row['name']}, {what}: {answer}")


def is_late(workers) -> bool:
    """Return whether the time to measure is over."""
    return time.monotonic() >= min(worker.end for worker in workers)


def pressure() -> float | None:
    """Return the seconds that programs have waited for a processor."""
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:
        return None
    some = text.splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6


def generate_rounds(section, workers, rows, clock):
    """Let all generate in turn.

    Returns:
        the bandwidth of each round, and the share of the time in which a
        program waited for a processor, or None where that is not known.
    """
    prompt = vocabulary_ids(section.prompt)
    bandwidth, start, waited = [], time.monotonic(), pressure()
    for n in range(section.rounds):
        if n and is_late(workers):
            break
        speeds = []
        for worker, row in turns(workers, rows, n):
            # before each, because other programs use the memory too
            speeds.append(clock())
            row.setdefault("bandwidth", []).append(speeds[-1])
            answer = worker.ask("generate", prompt=prompt, n=section.new)
            note(row, "first", answer, "first")
            note(row, "decode", answer, "decode")
        bandwidth += [statistics.median(speeds)] if speeds else []
    if waited is not None:
        waited = (pressure() - waited) / (time.monotonic() - start)
    for worker, row in turns(workers, rows, 0):
        note(row, "peak", worker.ask("peak"), "bytes")
    return bandwidth, waited


def other_rounds(task, do, values, key, workers, rows, rounds, clock, **more):
    """Run the rounds of one task for each value, e.g. each position."""
    bandwidth = {}
    for value in values:
        # fewer rounds of what takes long
        times = rounds if task == "prefill" else min(rounds, 2)
        times = 1 if task == "prefill" and value > 1024 else times
        for n in range(times):
            if not is_late(workers):
                bandwidth.setdefault(str(value), []).append(clock())
            for worker, row in turns(workers, rows, n):
                what = f"{task} {value}"
                given_up = isinstance(row.get(what), str)
                if task in worker.row.tasks and not given_up:
                    answer = worker.ask(do[0], **{do[1]: value}, **more)
                    note(row, what, answer, key)
    return bandwidth


def step_bytes(llama, row: Row, length: int, rows: int = 1) -> float:
    r"""Return the bytes that a decode step reads, see `bytes_per_step`.

    The cache of llama.cpp always has 16 bits per number.
    """
    if row.dtype in ("int8", "int4"):
        llama = as_quantized(llama, row.dtype)
        return float(llamalib.bytes_per_step(llama, length, rows))
    size = llama.dtype.itemsize
    weights = llamalib.bytes_per_step(llama, 0, rows) / size
    whole = llamalib.bytes_per_step(llama, length, rows) / size
    cache_size = 4 if row.dtype == "float32" else 2
    if row.peer == "llama.cpp":
        cache_size = 2
    cache = (whole - weights) * cache_size
    return weights * WEIGHT_BYTES[row.dtype] + cache


def as_quantized(llama, kind: str):
    """Return a model of the same shapes, quantized, without memory."""
    made = empty_llama(llama.config, llama.tied).to(torch.bfloat16)
    return quantize_model(made, kind)


def all_step_bytes(llama, section: Section, row: Row) -> dict[str, float]:
    """Return the bytes of one step, for each decode figure of a row."""
    middle = section.prompt + section.new // 2
    found = {"decode": step_bytes(llama, row, middle)}
    for position in section.positions:
        found[f"position {position}"] = step_bytes(llama, row, position)
    for B in section.batches:
        found[f"batch {B}"] = step_bytes(llama, row, middle, B)
    return found


def watch_memory(section, worker, llama) -> dict:
    """Measure the cache, and how memory grows over many generations."""
    found = {}
    if section.repeats:
        n = 16 if section.checkpoint == "pocket" else 2
        answer = worker.ask(
            "repeat",
            prompt=vocabulary_ids(section.prompt),
            n=n,
            times=section.repeats,
        )
        found["repeat"] = {"times": section.repeats, "new": n}
        kind = "missing" if isinstance(answer, str) else "grown"
        found["repeat"][kind] = answer if kind == "missing" else answer[kind]
    c = llama.config
    for length in section.caches:
        answer = worker.ask("cache", length=length)
        size = {"float32": 4}.get(worker.row.dtype, 2)
        formula = 2 * c.n_layers * c.n_kv_heads * c.head_dim * size * length
        measured = None if isinstance(answer, str) else answer["bytes"]
        found[f"cache {length}"] = {"bytes": measured, "formula": formula}
    return found


def measure(
    section,
    source,
    beside,
    device,
    threads,
    verbose=False,
    end=math.inf,
    keep=lambda found: None,
) -> dict:
    """Measure one section, from starting its peers to stopping them.

    end: when to measure no more.  keep: called with what there is so far.
    """
    llama = llamalib.load(source, device="cpu")
    read_once(source, beside)
    machine = Worker(Row("bandwidth", "float32"), threads, verbose)

    def clock():
        found = machine.ask("bandwidth", device=device, threads=threads)
        if isinstance(found, str):
            raise RuntimeError(f"no bandwidth: {found}")
        return found["bytes_per_s"]

    workers = [Worker(row, threads, verbose, end) for row in section.rows]
    where = source, beside, device, threads, section.prompt
    try:
        rows = [load(worker, *where) for worker in workers]
        for row, spec in zip(rows, section.rows):
            row["step bytes"] = all_step_bytes(llama, section, spec)
        agree(workers, rows)
        found = {"rows": rows, "prompt": section.prompt, "new": section.new}
        bandwidth = found["bandwidth"] = {}
        bandwidth["decode"], found["busy"] = generate_rounds(
            section, workers, rows, clock
        )
        keep(found)
        tasks = {
            "prefill": (("prefill", "length"), section.prefills, "seconds"),
            "position": (
                ("decode_at", "position"),
                section.positions,
                "decode",
            ),
            "batch": (("batch", "rows"), section.batches, "decode"),
        }
        more = {
            "position": {"n": 8},
            "batch": {"n": 16, "prompt_length": section.prompt},
        }
        for task, (do, values, key) in tasks.items():
            per_value = other_rounds(
                task,
                do,
                values,
                key,
                workers,
                rows,
                min(3, section.rounds),
                clock,
                **more.get(task, {}),
            )
            for value, figures in per_value.items():
                bandwidth[f"{task} {value}"] = figures
            keep(found)
        found |= watch_memory(section, workers[0], llama)
        return found
    finally:
        for worker in [machine, *workers]:
            worker.stop()


def version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(device: str, threads: int) -> dict:
    """Return what describes the machine that was measured."""
    found = {
        "day": datetime.date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": threads,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "llamalib": llamalib.__version__,
        "versions": {
            name: version(name)
            for name in ("torch", "transformers", "llama_cpp_python")
        },
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def prepare(name: str) -> tuple[Path, Path]:
    """Write a checkpoint; return Meta's files, and those of the peers."""
    beside = checkpoint.BUILD / name
    if name == "pocket":
        source, kinds = checkpoint.POCKET, ("f32",)
    else:
        source, kinds = checkpoint.write_1b(beside), ("bf16", "q8_0")
    return source, checkpoint.write_for_peers(source, beside, kinds)


def options_of(argv):
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--device", choices=PLANS, default="cpu")
    add("--threads", type=int, default=None)
    add("--only", nargs="*", help="only these sections")
    add("--add", action="store_true", help="keep the results that exist")
    add("--minutes", type=float, default=math.inf, help="the most to take")
    # on the CPU, with a tiny model in FOLDER/build and results in FOLDER
    add("--rehearse", type=Path, help=argparse.SUPPRESS)
    add("--verbose", action="store_true")
    return parser.parse_args(argv)


def main(argv=None) -> None:
    options, start = options_of(argv), time.monotonic()
    plan, device = PLANS[options.device], options.device
    if options.rehearse:
        plan, device = rehearsal(plan), "cpu"
        report.RESULTS = options.rehearse
        checkpoint.BUILD = options.rehearse / "build"
    elif device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA GPU here: nothing was measured, nothing written")
    threads = options.threads or torch.get_num_threads()
    result = report.read(plan.device) if options.add else {}
    result |= {"device": plan.device, "machine": describe(device, threads)}
    # what is missing there is "not measured"
    sections = result.setdefault("sections", {})
    for name, section in plan.sections.items():
        if options.only and name not in options.only:
            continue
        say(f"{name}, at {time.monotonic() - start:.0f} s")

        def keep(found, name=name):
            sections[name] = found
            report.write(result)

        sections[name] = measure(
            section,
            *prepare(section.checkpoint),
            device,
            threads,
            options.verbose,
            start + 60 * options.minutes,
            keep,
        )
    seconds = time.monotonic() - start
    result["machine"]["minutes"] = round(seconds / 60, 1)
    report.save(result)
    say(f"{seconds:.0f} s")


if __name__ == "__main__":
    main()
