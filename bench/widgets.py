"""How long each widget takes to answer.

    python bench/widgets.py > bench/results/widgets.md

Moves every control of every widget to and fro, on the checkpoint that
`llamalib.find_checkpoint()` takes, and prints the median and the longest time
from a new value to a new picture, as a table in Markdown.
"""

import platform
import statistics
import time

import matplotlib
import torch

matplotlib.use("agg")

import llamalib  # noqa: E402
from llamalib import widgets  # noqa: E402
from llamalib.experiment import STORY  # noqa: E402

ROUNDS = 6


def values_of(control):
    """A few values that a reader might choose."""
    if hasattr(control, "options"):
        options = list(control.options)
        values = [o[1] if isinstance(o, tuple) else o for o in options]
        return [values[0], values[-1], values[len(values) // 2]]
    if hasattr(control, "base"):  # a slider over powers
        return [control.base**p for p in (control.min, control.max, 0)]
    if hasattr(control, "min"):
        middle = type(control.value)((control.min + control.max) / 2)
        return [control.min, control.max, middle]
    if isinstance(control.value, bool):
        return [True, False]
    return ["Once upon a time", " of", "The capital of France is"]


def answer_times(play):
    """Seconds from a changed value to the picture, for every control."""
    times, answered = [], []
    for answer in (play.picture, play.message):
        answer.observe(lambda _: answered.append(time.perf_counter()), "value")
    for control in play.controls.values():
        first = control.value
        for value in ROUNDS * [*values_of(control), first]:
            answered.clear()
            start = time.perf_counter()
            control.value = value
            if answered:  # a picture that is the same is not sent again
                times.append(answered[-1] - start)
    return times


def main():
    llama = llamalib.load(device="cpu", dtype=torch.float32)
    prompt = "The capital of France is"
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    plays = {
        "tensors": lambda: widgets.tensors(llama),
        "tokens": lambda: widgets.tokens(llama),
        "nearest": lambda: widgets.nearest(llama),
        "norm": lambda: widgets.norm(llama, ids),
        "rotation": lambda: widgets.rotation(llama, prompt),
        "heads": lambda: widgets.heads(llama, ids),
        "neurons": lambda: widgets.neurons(llama, STORY),
        "next_token": lambda: widgets.next_token(llama),
        "sampling": lambda: widgets.sampling(llama, prompt),
        "quantization": lambda: widgets.quantization(llama),
    }
    print("# How long each widget takes to answer\n")
    print(f"{llama.name}, {torch.get_num_threads()} threads, ", end="")
    print(f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}\n")
    print("| widget | opens in ms | answers in ms, median | longest |")
    print("| --- | --- | --- | --- |")
    for name, make in plays.items():
        start = time.perf_counter()
        play = make()
        opened = time.perf_counter() - start
        times = answer_times(play)
        ms = [
            f"{1000 * t:.0f}"
            for t in (opened, statistics.median(times), max(times))
        ]
        print(f"| `{name}` | {' | '.join(ms)} |")


if __name__ == "__main__":
    main()
