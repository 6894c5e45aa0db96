r"""Measure the Llama in the page: first token, tokens per second, memory.

    python bench/page.py

Headless Chromium runs `site/llama.js` on one core of this machine, in a new
browser each round; it needs chromium and chromedriver on the PATH and, for
the memory, Linux. Writes `bench/results/page.json`, and from it `page.md`.
"""

import functools
import http.server
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # so that a script finds `llamalib`
    sys.path[0] = str(ROOT)
sys.path.insert(1, str(ROOT / "site"))

from book.pocket import write_pocket  # noqa: E402
from selenium import webdriver  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results"
ROUNDS = 5
PAGE = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
SCRIPT = '<script defer src="llama.js"></script><section class="llama" '
SCRIPT += 'data-part="generate"></section>'
FLAGS = "headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"
SHORT, LONG = "The capital of France is", "Once upon a time there was a " * 100
FIRST = "first token of {tokens} tokens"
# What is measured, in which unit, and the bound: at most, or at least.
ROWS = {
    "load": ("files fetched from this machine and read", "ms", None),
    "first": (f"{FIRST}, first use", "ms", ("≤", 300)),
    "again": (f"{FIRST}, later", "ms", ("≤", 300)),
    "64": (FIRST, "ms", ("≤", 300)),
    "256": (FIRST, "ms", None),
    "512": (f"{FIRST}, the most that the page takes", "ms", None),
    "speed": ("new tokens a second, of 100", "tokens/s", ("≥", 30)),
    "kept": ("memory, more than an empty page", "MB", ("≤", 150)),
    "peak": ("memory at its peak, more than an empty page", "MB", ("≤", 150)),
}
RUN = """
const [text, n, length, done] = arguments;
(async () => {
  let start = performance.now(), first = 0;
  const m = await llama.load();
  const ids = m.tokenizer.encode(text, {bos: true}).slice(0, length);
  const how = {max_new_tokens: n, stop: new Set()};
  if (!n) return done({ms: performance.now() - start, tokens: ids.length});
  start = performance.now();
  for await (const id of m.generate(ids, how))
    first ||= performance.now() - start;
  const ms = n > 1 ? performance.now() - start - first : first;
  done({ms, tokens: ids.length});
})().catch(error => done({error: error.message}));
"""
# What to run, in this order: name, text, new tokens (0: only load), and how
# many tokens of the text at most.
RUNS = [("load", SHORT, 0, 9), ("first", SHORT, 1, 9), ("again", SHORT, 1, 9)]
RUNS += [("speed", SHORT, 100, 9)]
RUNS += [(str(length), LONG, 1, length) for length in (64, 256, 512)]


@contextmanager
def served():
    """Serve a page with the Llama, and an empty one; yield the address."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_pocket(folder / "pocket")
        shutil.copy(ROOT / "site" / "llama.js", folder)
        (folder / "empty.html").write_text(PAGE)
        (folder / "index.html").write_text(PAGE + SCRIPT)

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        handler = functools.partial(Quiet, directory=folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def renderers(parent: int) -> list[int]:
    """Return the ids of the browser's processes that run pages."""
    found, parents = [], {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            ppid = re.search(r"PPid:\s+(\d+)", status.read_text())[1]
            command = status.with_name("cmdline").read_text()
        except OSError:  # it has ended
            continue
        pid = int(status.parent.name)
        parents[pid] = int(ppid)
        if "--type=renderer" in command:
            found.append(pid)

    def is_ours(pid):
        return pid == parent or pid in parents and is_ours(parents[pid])

    return [pid for pid in found if is_ours(pid)]


def memory(parent: int, file: str, name: str) -> float:
    """Return a figure of all renderers in MB: `Pss` now, `VmHWM` the peak."""
    total = 0
    for pid in renderers(parent):
        with suppress(OSError):  # a spare one that has ended
            text = Path(f"/proc/{pid}/{file}").read_text()
            total += int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1])
    return total * 1024 / 1e6


def processor_ms(parent: int) -> float:
    """Return milliseconds that a processor has worked for the page so far."""
    total = 0
    for pid in renderers(parent):
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            total += int(task.read_text().split()[0])
    return total / 1e6


def measure(address: str) -> dict:
    """Return what one new browser needs, and which browser it is.

    A time has its name, and the processor's part of it "NAME, processor".
    """
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options, service)
    try:
        parent = service.process.pid
        driver.set_script_timeout(120)
        driver.get(f"{address}/empty.html")
        empty = memory(parent, "smaps_rollup", "Pss")
        resident = memory(parent, "status", "VmRSS")
        driver.get(f"{address}/index.html")
        found = {"tokens": {}}
        for name, *given in RUNS:
            before = processor_ms(parent)
            done = driver.execute_async_script(RUN, *given)
            if "error" in done:
                raise RuntimeError(done["error"])
            found[name], found["tokens"][name] = done["ms"], done["tokens"]
            spent = processor_ms(parent) - before
            found[f"{name}, processor"] = spent
        for speed in ("speed", "speed, processor"):  # after the first token
            first = found["again, processor"] if "," in speed else 0
            found[speed] = 99_000 / (found[speed] - first)
        found["peak"] = memory(parent, "status", "VmHWM") - resident
        found["kept"] = memory(parent, "smaps_rollup", "Pss") - empty
        found["browser"] = driver.capabilities["browserVersion"]
        return found
    finally:
        driver.quit()


def spread(values: list[float], unit: str) -> str:
    """Return the median, and the lowest and highest value."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"**{middle:.0f}** ({low:.0f} to {high:.0f}) {unit}"


def report(results: dict) -> str:
    """Return the results as Markdown, each next to its bound."""
    rounds = results["rounds"]
    lines = [
        "# The Llama in the page\n",
        f"{results['machine']}, Chromium {rounds[0]['browser']} without a "
        f"screen, on one core, {len(rounds)} rounds, a new browser each. "
        f"Medians (lowest to highest); {results['waited']:.0f} % of the time "
        "some program waited for a processor. Memory: of the process of the "
        "page. The second column is the same in time of the processor.\n",
        "|  | measured | of the processor | bound | met |",
        "| --- | --- | --- | --- | --- |",
    ]
    tokens = rounds[0]["tokens"]
    for key, (name, unit, bound) in ROWS.items():
        middle = statistics.median(found[key] for found in rounds)
        shown = spread([found[key] for found in rounds], unit)
        name, own = name.format(tokens=tokens.get(key)), "–"
        if f"{key}, processor" in rounds[0]:
            own = spread([f[f"{key}, processor"] for f in rounds], unit)
        sign, limit = bound or ("–", "")
        met = bound and (middle <= limit if sign == "≤" else middle >= limit)
        verdict = ("yes" if met else "**no**") if bound else "–"
        limit = f"{sign} {limit} {unit}" if bound else "–"
        lines.append(f"| {name} | {shown} | {own} | {limit} | {verdict} |")
    return "\n".join(lines) + "\n"


def waited() -> float:
    """Return the microseconds that some program waited for a processor."""
    text = Path("/proc/pressure/cpu").read_text()
    return float(re.search(r"some .*total=(\d+)", text)[1])


def main() -> None:
    if not Path("/proc/pressure/cpu").exists():
        why = "it needs Linux, which shows a process's memory"
        return print(f"the page is not measured: {why}", file=sys.stderr)
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # of all that this process starts, too
    start, before = os.times().elapsed, waited()
    with served() as address:
        rounds = [measure(address) for _ in range(ROUNDS)]
    share = (waited() - before) / 1e4 / (os.times().elapsed - start)
    machine = f"{platform.system()} {platform.machine()}"
    results = dict(machine=machine, waited=share, rounds=rounds)
    text = json.dumps(results, indent=1) + "\n"
    (RESULTS / "page.json").write_text(text, encoding="utf-8")
    (RESULTS / "page.md").write_text(report(results), encoding="utf-8")
    print(report(results))


if __name__ == "__main__":
    main()
