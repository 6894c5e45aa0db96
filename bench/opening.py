r"""How long a checkpoint takes to open, and how much memory.

    python bench/opening.py

For the random checkpoint of Llama 3.2-1B's shapes that `generation.py` uses,
in both formats and in two shards, in each dtype, compared with the
transformers library. Each opening is a process of its own, after the files
have been read once. Also measures `import llamalib`. Writes
`bench/results/opening.md`.
"""

import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds `bench`
    sys.path[0] = str(ROOT)

import torch  # noqa: E402

import llamalib  # noqa: E402
from bench.checkpoint import BUILD  # noqa: E402
from tests import reference  # noqa: E402

RESULT = Path(__file__).resolve().parent / "results" / "opening.md"
ROUNDS = 3
DTYPES = ("bfloat16", "float16", "float32")
MOST_SECONDS, MOST_MEMORY, MOST_IMPORT = 1.0, 1.15, 1.15
PACKAGES = "torch, tiktoken"  # those that llamalib imports

# Run in a process of its own: the seconds that opening takes, and the growth
# of the process's peak memory after opening and after one pass.
OPEN = r"""
import json, re, sys, time
import torch, tiktoken, safetensors, llamalib

def peak():
    status = open("/proc/self/status").read()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])

who, folder, dtype = sys.argv[1:]
dtype = getattr(torch, dtype)
if who == "transformers":
    from transformers import LlamaForCausalLM
    from transformers.utils import logging
    logging.disable_progress_bar()
before, start = peak(), time.perf_counter()
if who == "transformers":
    model = LlamaForCausalLM.from_pretrained(folder, dtype=dtype)
else:
    model = llamalib.load(folder, device="cpu", dtype=dtype)
seconds, loaded = time.perf_counter() - start, peak() - before
tokens = torch.tensor([[128000, 791, 6864, 315, 9822, 374]])
with torch.no_grad():
    if who == "transformers":
        model(tokens, logits_to_keep=1)
    else:
        model(tokens, last_only=True)
weights = sum(p.nbytes for p in model.parameters())
print(json.dumps({
    "seconds": seconds, "weights": weights,
    "loaded": loaded / weights, "run": (peak() - before) / weights,
}))
"""


def opened(who: str, folder, dtype: str) -> dict:
    """Run OPEN in a process of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", OPEN, who, str(folder), dtype],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def import_seconds() -> tuple[float, float]:
    """Return the median seconds to import PACKAGES, and llamalib.

    They take turns, each time in a new process.
    """
    code = "import time; start = time.perf_counter(); import {}; "
    code += "print(time.perf_counter() - start)"
    times = {PACKAGES: [], "llamalib": []}
    for _ in range(3 * ROUNDS):
        for what, found in times.items():
            command = [sys.executable, "-c", code.format(what)]
            found.append(float(subprocess.check_output(command)))
    return tuple(map(statistics.median, times.values()))


def formats(build=BUILD / "1b") -> dict[str, tuple[str, Path]]:
    """Write the folders; by name, the library that opens each."""
    source = reference.write_1b(build)
    llama = llamalib.load(source, device="cpu")
    hugging_face = build / "transformers"
    reference.write_transformers(llama, hugging_face)
    tokenizer = hugging_face / "tokenizer.model"
    tokenizer.write_bytes((source / "tokenizer.model").read_bytes())
    shards = reference.write_shards(source, build / "two-shards", 2)
    return {
        "ours, Meta's files": ("ours", source),
        "ours, two shards": ("ours", shards),
        "ours, Hugging Face's files": ("ours", hugging_face),
        "transformers": ("transformers", hugging_face),
    }


def read_once(folder: Path) -> None:
    """Read the files of a folder into the page cache."""
    for file in folder.glob("*.*"):
        if file.is_file() and file.suffix != ".gguf":
            with open(file, "rb") as data:
                while data.read(2**24):
                    pass


def lines(places) -> list[str]:
    """Return the lines of the table, in Markdown."""
    found = [
        "|  | dtype | weights, GB | opened, s | memory, ÷ weights | and after "
        "a pass |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, (who, folder) in places.items():
        read_once(folder)
        for dtype in DTYPES:
            runs = [opened(who, folder, dtype) for _ in range(ROUNDS)]
            middle = {
                key: statistics.median(run[key] for run in runs)
                for key in runs[0]
            }
            found.append(
                f"| {name} | {dtype} | {middle['weights'] / 1e9:.2f} | "
                f"{middle['seconds']:.2f} | {middle['loaded']:.2f} | "
                f"{middle['run']:.2f} |"
            )
            print(found[-1], flush=True)
    return found


def main() -> None:
    if not Path("/proc/self/status").exists():
        why = "needs Linux, which shows a process's peak memory"
        return print(f"opening is not measured: it {why}", file=sys.stderr)
    where = f"{platform.system()} {platform.machine()}, "
    where += f"torch {torch.__version__}, "
    where += f"{torch.get_num_threads()} threads"
    packages, ours = import_seconds()
    text = [
        "# How a checkpoint of Llama 3.2-1B's shapes is opened\n",
        f"{where}. Medians of {ROUNDS}, with the files in the page cache. "
        "Memory: the growth of a process's peak, divided by the bytes of the "
        "weights in the requested dtype. In the file's own dtype, bfloat16, "
        "they are mapped, and read by the first pass. Limits: "
        f"{MOST_SECONDS:.0f} s for mapped files, {MOST_MEMORY} × the "
        "weights.\n",
        *lines(formats()),
        f"\n`import llamalib` takes {ours:.2f} s, {ours / packages:.2f} × "
        f"`import {PACKAGES}`. Limit: {MOST_IMPORT} ×.",
    ]
    RESULT.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
