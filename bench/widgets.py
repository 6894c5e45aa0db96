"""Measure how long each widget takes to answer.

    python bench/widgets.py > bench/results/widgets.md

Runs every notebook up to its widget, on the checkpoint that
`llamalib.find_checkpoint()` finds, and sets each control to several values.
Prints the median and the longest time from a new value to a new picture, as a
table in Markdown.
"""

import ast
import contextlib
import io
import json
import platform
import statistics
import time

import matplotlib
import torch
from matplotlib import pyplot as plt

matplotlib.use("agg")

import llamalib  # noqa: E402
from lessons.notebooks import all_notebooks  # noqa: E402

ROUNDS = 6


def values_of(control):
    """Return a few values that a reader might choose."""
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
    """Return seconds from a changed value to the picture, of every control."""
    times, answered = [], []
    for answer in (play.picture, play.message):
        answer.observe(lambda _: answered.append(time.perf_counter()), "value")
    for control in play.controls.values():
        first = control.value
        for value in ROUNDS * [*values_of(control), first]:
            answered.clear()
            start = time.perf_counter()
            control.value = value
            if answered:  # the same picture is not sent again
                times.append(answered[-1] - start)
    return times


def code_cells(path):
    """Return the sources of a notebook's code cells."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]


def widget_of(path):
    """Return a notebook's widget, and the seconds that it took to open.

    Its cells are run up to the one that ends in `lesson.…(…)`.
    """
    names = {"__name__": "__main__", "display": lambda *_: None}

    def run(source):
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            exec(source, names)
        plt.close("all")
        return time.perf_counter() - start

    for source in code_cells(path):
        lines = source.splitlines()
        last = ast.parse(source).body[-1].lineno - 1
        if lines[last].startswith("lesson."):
            run("\n".join(lines[:last]))
            seconds = run("shown = " + "\n".join(lines[last:]))
            return names["shown"], seconds
        run(source)
    raise ValueError(f"{path.name} shows no widget")


def main():
    llama = llamalib.load(device="cpu", dtype=torch.float32)
    print("# How long each widget takes to answer\n")
    print(f"{llama.name}, {torch.get_num_threads()} threads, ", end="")
    print(f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}\n")
    print("| notebook | opens in ms | answers in ms, median | longest |")
    print("| --- | --- | --- | --- |")
    for path in all_notebooks():
        play, opened = widget_of(path)
        if not hasattr(play, "picture"):
            continue  # it writes a text, token by token
        times = answer_times(play)
        ms = [
            f"{1000 * t:.0f}"
            for t in (opened, statistics.median(times), max(times))
        ]
        print(f"| {path.stem} | {' | '.join(ms)} |", flush=True)


if __name__ == "__main__":
    main()
