"""Measure the explorer's page in headless Chromium, and write what was found.

    python bench/page.py [ROUNDS]

It needs chromium and chromedriver, and what `make test-browser` installs. Each
round opens the page on one core with an empty cache, fetches each model, and
generates with it; the medians are written to bench/results/page.md.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import browser  # noqa: E402
from tests.conftest import write_page  # noqa: E402

RESULT = ROOT / "bench" / "results" / "page.md"
# when the first map is drawn, in milliseconds since the page was asked for
DRAWN = """
new MutationObserver((_, observer) => {
  if (!document.querySelector(".llama-tile canvas")) return;
  observer.disconnect();
  requestAnimationFrame(() => { window.drawn = performance.now(); });
}).observe(document, { childList: true, subtree: true });
"""
# text: greedy, so that each round computes the same
GENERATE = """
const { llama: model } = window.llama.explorers[0].model;
const ids = window.llama.explorers[0].ids, times = [performance.now()];
const how = { max_new_tokens: 60, temperature: 0, stop: new Set() };
for await (const _ of model.generate(ids, how)) times.push(performance.now());
return [times[1] - times[0], 59000 / (times[60] - times[1])];
"""
FETCH = "const e = llama.explorers[0]; e.choose_model(e.chosen)"
READY = "return !!window.llama?.explorers?.[0]?.trace?.llama"


def tab_memory(driver) -> float:
    """Return the private memory of the page's process, in MB."""
    sizes = [0.0]
    for process in psutil.Process(driver.service.process.pid).children(True):
        if "--type=renderer" in " ".join(process.cmdline()):
            sizes.append(process.memory_full_info().uss / 1e6)
    return max(sizes)


def measure(folder: Path, model: str) -> dict[str, float]:
    """Return one round's figures of one model."""
    with (
        tempfile.TemporaryDirectory() as profile,
        browser.served(folder) as server,
        browser.chromium(profile) as driver,
    ):
        driver.set_script_timeout(600)
        family = psutil.Process(driver.service.process.pid)
        for process in [family, *family.children(True)]:
            process.cpu_affinity([0])
        add = "Page.addScriptToEvaluateOnNewDocument"
        driver.execute_cdp_cmd(add, {"source": DRAWN})
        driver.get(f"{server.address}/explorer.html?model={model}")
        first = browser.wait_for(
            "a picture", lambda: driver.execute_script("return window.drawn")
        )
        before = tab_memory(driver)
        begin = time.monotonic()
        driver.execute_script(FETCH)
        browser.wait_for("model", lambda: driver.execute_script(READY))
        loaded = time.monotonic() - begin
        prefill, speed = browser.call(driver, GENERATE)
        return {
            "first picture, s": first / 1000,
            "memory with the recorded run, MB": before,
            "model here after, s": loaded,
            "first token after, ms": prefill,
            "tokens a second": speed,
            "memory with the model, MB": tab_memory(driver),
        }


def main(rounds: int) -> None:
    """Let the models take turns; print and write the medians."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_page(folder)
        found = {"smollm2": [], "pocket": []}
        for _ in range(rounds):
            for model, figures in found.items():
                figures.append(measure(folder, model))
                print(model, figures[-1], flush=True)
    lines = [
        f"# The explorer's page\n\nHeadless Chromium on one core, an empty "
        f"cache, a server on the same machine: medians of {rounds} rounds, "
        f"{time.strftime('%Y-%m-%d')}. `python bench/page.py`\n",
        "| | SmolLM2-135M | pocket Llama |\n| --- | --- | --- |",
    ]
    for name in found["pocket"][0]:
        cells = [
            f"{statistics.median(each[name] for each in figures):.3g}"
            for figures in found.values()
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(RESULT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
