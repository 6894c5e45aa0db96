r"""How fast Llama 3.2-1B generates: ours beside others, in turn.

    python bench/generation.py                 # on the CPU, minutes
    python bench/generation.py --device cuda

Every peer runs the same random weights (`checkpoint.py`) in a process of its
own (`worker.py`), with the same number of threads, and they take turns: a
machine that is slow for a while is slow for all. The memory's bandwidth is
measured before each of them, for a decode step can be no quicker than reading
the weights. Before anything is timed, all must give the same answer. Writes
`bench/results/generation-DEVICE.json`, and what `report.py` makes of it.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import selectors
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds `bench`
    sys.path[0] = str(ROOT)

import torch  # noqa: E402

import llamalib  # noqa: E402
from bench import checkpoint, report  # noqa: E402
from bench.plan import PLANS, PROMPT, Row, Section  # noqa: E402
from bench.worker import vocabulary_ids  # noqa: E402
from llamalib.fast import fast_weight  # noqa: E402

LONG = 24  # ids of the prompt whose answer is compared
# The most that logits may differ from ours: the norm of the difference over
# the norm of ours. Rounding to bfloat16 makes a hundredth, to 8 bits (of what
# the weights are multiplied by, too) less than a tenth.
# Of 4 bits a number there is more: each matrix is off by a tenth, and random
# weights let it grow; numbers that have nothing to do with ours are 1.4 away.
TOLERANCE = {
    "bfloat16": 0.05,
    "float32": 0.05,
    "q8_0": 0.15,
    "int8": 0.15,
    "int4": 1.0,
}
WEIGHT_BYTES = {"bfloat16": 2, "float32": 4, "q8_0": 34 / 32}
PATIENCE = 300  # seconds for any answer; compiling has no other end


class Disagreement(Exception):
    """A peer computes something else: its speed would say nothing."""


class Worker:
    """The parent's end of one peer's process.

    Attributes:
        missing: why the peer is not measured; None while it is.
    """

    def __init__(self, row: Row, threads: int, verbose=False):
        self.row, self.missing, self.data = row, None, bytearray()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )

    def ask(self, do: str, patience=PATIENCE, **arguments):
        """The answer, or why there is none, as a text."""
        if self.missing is not None:
            return self.missing
        command = json.dumps({"do": do, **arguments}) + "\n"
        try:
            self.process.stdin.write(command.encode())
            self.process.stdin.flush()
            answer = json.loads(self.line(patience))
        except TimeoutError:  # an OSError too
            return self.give_up(f"no answer in {patience} s")
        except (OSError, EOFError):
            return self.give_up(f"its process ended ({self.process.wait()})")
        if "ok" in answer:
            return answer["ok"]
        return answer.get("missing") or answer["error"]

    def line(self, patience: float) -> bytes:
        """The next line of the process, or TimeoutError, or EOFError."""
        until = time.monotonic() + patience
        pipe = self.process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self.data:
                if not selector.select(max(0, until - time.monotonic())):
                    raise TimeoutError
                piece = os.read(pipe, 2**16)
                if not piece:
                    raise EOFError
                self.data += piece
        line, _, self.data = self.data.partition(b"\n")
        return bytes(line)

    def give_up(self, why: str) -> str:
        """Measure it no more."""
        self.missing = why
        self.stop()
        return why

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def say(*words) -> None:
    """Progress, where it is no part of a result."""
    print(*words, file=sys.stderr, flush=True)


def read_once(source: Path, beside: Path) -> None:
    """All files once, so that no load waits for a disk more than another."""
    for file in [*Path(source).iterdir(), *Path(beside).rglob("*")]:
        if file.is_file():
            with file.open("rb", buffering=0) as f:
                while f.read(2**24):
                    pass


def load(worker, source, beside, device, threads) -> dict:
    """Start a peer; its row of the result, begun."""
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
    prompt = vocabulary_ids(PROMPT)
    answer = worker.ask("generate", prompt=prompt, n=2, awake=False)
    note(found, "cold first", answer, "first")
    if isinstance(answer, str):
        found["missing"] = worker.give_up(answer)
    return found


def distance(found: list[float], wanted: list[float]) -> float:
    """The norm of the difference over the norm of what is wanted."""
    found, wanted = torch.tensor(found), torch.tensor(wanted)
    return ((found - wanted).norm() / wanted.norm()).item()


def check_agreement(answers: dict[str, dict], dtypes: dict[str, str]) -> dict:
    r"""That all peers give the first one's answer.

    Args:
        answers: by name, {"logits": some (V,), "id": the first greedy id};
            of a peer without a cache the id alone.
        dtypes: by name, of the weights.

    Returns:
        by name, how far its logits are from the first one's, at the most.

    Raises:
        Disagreement: naming the peer, and what differs.
    """
    first, reference = next(iter(answers.items()))
    wanted = torch.tensor(reference["logits"])  # (n, V)
    rms = wanted[0].square().mean().sqrt()
    far = {}
    for name, answer in answers.items():
        most = TOLERANCE[dtypes[name]]
        less = wanted[0].max() - wanted[0, answer["id"]]
        if less > 2 * most * rms:  # less: rounding may exchange the two
            raise Disagreement(
                f"{name} goes on with id {answer['id']}, whose logit is "
                f"{less:.2f} under that of {first}'s {reference['id']}"
            )
        if not answer["logits"]:
            continue
        pairs = zip(answer["logits"], reference["logits"])
        far[name] = max(distance(*pair) for pair in pairs)
        if not far[name] <= most:  # not a number, too
            raise Disagreement(
                f"{name}: its logits are {far[name]:.3f} from those of "
                f"{first}, of {first}'s norm; at most {most} is rounding"
            )
    return far


def agree(workers, rows) -> None:
    """Ask all for their answer and note how far each is from the first's."""
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
    """Pairs of worker and row, another one first in every round n."""
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


def pressure() -> float | None:
    """Seconds in which some program waited for a processor, so far."""
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:
        return None
    some = text.splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6


def generate_rounds(section, workers, rows, clock):
    """Generation in turn. The bandwidth of each round, and the part of the
    time in which a program waited for a processor, or None."""
    prompt = vocabulary_ids(PROMPT)
    bandwidth, start, waited = [], time.monotonic(), pressure()
    for n in range(section.rounds):
        speeds = []
        for worker, row in turns(workers, rows, n):
            # before each: memory that others use too is not always as quick
            speeds.append(clock())
            row.setdefault("bandwidth", []).append(speeds[-1])
            answer = worker.ask("generate", prompt=prompt, n=section.new)
            note(row, "first", answer, "first")
            note(row, "decode", answer, "decode")
        bandwidth.append(statistics.median(speeds))
    if waited is not None:
        waited = (pressure() - waited) / (time.monotonic() - start)
    for worker, row in turns(workers, rows, 0):
        note(row, "peak", worker.ask("peak"), "bytes")
    return bandwidth, waited


def other_rounds(task, do, values, key, workers, rows, rounds, clock, **more):
    """The rounds of one task for each value, e.g. of each position."""
    bandwidth = {}
    for value in values:
        # what is slow less often
        times = rounds if task == "prefill" else min(rounds, 2)
        times = 1 if task == "prefill" and value > 1024 else times
        for n in range(times):
            bandwidth.setdefault(str(value), []).append(clock())
            for worker, row in turns(workers, rows, n):
                what = f"{task} {value}"
                given_up = isinstance(row.get(what), str)
                if task in worker.row.tasks and not given_up:
                    answer = worker.ask(do[0], **{do[1]: value}, **more)
                    note(row, what, answer, key)
    return bandwidth


def step_bytes(llama, row: Row, length: int, rows: int = 1) -> float:
    r"""Bytes that one decode step of a peer reads, see `bytes_per_step`.

    llama.cpp holds its cache in 16 bits, whatever the weights.
    """
    size = llama.dtype.itemsize
    weights = llamalib.bytes_per_step(llama, 0, rows) / size
    whole = llamalib.bytes_per_step(llama, length, rows) / size
    cache_size = 4 if row.dtype == "float32" else 2
    if row.peer == "llama.cpp":
        cache_size = 2
    cache = (whole - weights) * cache_size
    return weights * weight_bytes(llama, row.dtype) + cache


def weight_bytes(llama, dtype: str) -> float:
    """Bytes a number of the weights takes, with its part of the scales."""
    if dtype in WEIGHT_BYTES:
        return WEIGHT_BYTES[dtype]
    kept = 0
    for name, w in llama.named_parameters():
        shape = torch.empty(w.shape, dtype=torch.bfloat16, device="meta")
        kept += fast_weight(name, shape, dtype).nbytes
    return kept / sum(w.numel() for w in llama.parameters())


def all_step_bytes(llama, section: Section, row: Row) -> dict[str, float]:
    """For every decode figure of a row, the bytes of one of its steps."""
    middle = PROMPT + section.new // 2
    found = {"decode": step_bytes(llama, row, middle)}
    for position in section.positions:
        found[f"position {position}"] = step_bytes(llama, row, position)
    for B in section.batches:
        found[f"batch {B}"] = step_bytes(llama, row, middle, B)
    return found


def watch_memory(section, worker, llama) -> dict:
    """What the first peer's memory does: the cache, and many generations."""
    found = {}
    if section.repeats:
        n = 16 if section.checkpoint == "pocket" else 2
        answer = worker.ask(
            "repeat",
            prompt=vocabulary_ids(PROMPT),
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


def measure(section, source, beside, device, threads, verbose=False) -> dict:
    """One section, from starting its peers to ending them."""
    llama = llamalib.load(source, device="cpu")
    read_once(source, beside)
    machine = Worker(Row("bandwidth", "float32"), threads, verbose)

    def clock():
        found = machine.ask("bandwidth", device=device, threads=threads)
        if isinstance(found, str):
            raise RuntimeError(f"no bandwidth: {found}")
        return found["bytes_per_s"]

    workers = [Worker(row, threads, verbose) for row in section.rows]
    try:
        rows = [load(w, source, beside, device, threads) for w in workers]
        for row, spec in zip(rows, section.rows):
            row["step bytes"] = all_step_bytes(llama, section, spec)
        agree(workers, rows)
        found = {"rows": rows, "new": section.new, "bandwidth": {}}
        bandwidth = found["bandwidth"]
        bandwidth["decode"], found["busy"] = generate_rounds(
            section, workers, rows, clock
        )
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
            "batch": {"n": 16, "prompt_length": PROMPT},
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
        found |= watch_memory(section, workers[0], llama)
        return found
    finally:
        for worker in [machine, *workers]:
            worker.stop()


def version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(device: str, threads: int) -> dict:
    """The machine, as far as it explains figures."""
    found = {
        "day": datetime.date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": threads,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "versions": {
            name: version(name)
            for name in ("torch", "transformers", "llama_cpp_python")
        },
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def prepare(name: str) -> tuple[Path, Path]:
    """Meta's files of a checkpoint, and what the other peers open."""
    beside = checkpoint.BUILD / name
    if name == "pocket":
        source, kinds = checkpoint.POCKET, ("f32",)
    else:
        source, kinds = checkpoint.write_1b(beside), ("bf16", "q8_0")
    return source, checkpoint.write_for_peers(source, beside, kinds)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=PLANS, default="cpu")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--only", nargs="*", help="sections, not all")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA GPU here: nothing was measured, nothing written")
    threads = options.threads or torch.get_num_threads()
    plan = PLANS[options.device]
    result = {"device": plan.device, "sections": {}}
    result["machine"] = describe(plan.device, threads)
    start = time.monotonic()
    for name, section in plan.sections.items():
        if options.only and name not in options.only:
            continue
        say(f"{name}, at {time.monotonic() - start:.0f} s")
        result["sections"][name] = measure(
            section,
            *prepare(section.checkpoint),
            plan.device,
            threads,
            options.verbose,
        )
    seconds = time.monotonic() - start
    result["machine"]["minutes"] = round(seconds / 60, 1)
    report.save(result)
    speed = result["sections"]["1b"]["bandwidth"]["decode"]
    say(f"{statistics.median(speed) / 1e9:.1f} GB/s, {seconds:.0f} s")


if __name__ == "__main__":
    main()
