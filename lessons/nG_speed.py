"""Pictures, widgets and checks of notebook G."""

import ipywidgets as ipw
import torch

from llamalib.model import LLAMA_1B, ModelArgs

from . import charts
from .bandwidth import bytes_per_step
from .judge import alike, exercise, vary
from .map import strip  # noqa: F401
from .play import Play
from .theme import COLOURS, canvas

STEM = "G_speed"
SIZES = {"4, float32": 4, "2, bfloat16": 2, "1, int8": 1}
SIZES["0.5, no scales"] = 0.5
SPEEDS = 10, 20, 50, 100, 200, 500, 1000, 2000, 3350, 4800, 8000  # GB/s
TEXTS = [2**p for p in range(10)]
CONTEXTS = 0, *(2**p for p in range(8, 18))


def roofline(counts, measured, memory, arithmetic):
    r"""Draw tokens per second by tokens in a pass, and the limits.

    measured, memory: tokens per second of each of `counts`; memory grows in
    proportion.  arithmetic: the same limit for all.
    """
    fig, ax = canvas(3.6)
    crossing = counts[0] * arithmetic / memory[0]  # tokens
    roof = [min(line, arithmetic) for line in memory]
    corner = sorted([*zip(counts, roof, strict=True), (crossing, arithmetic)])
    limits = {"limit of the memory": memory}
    limits["limit of the arithmetic"] = [arithmetic] * len(counts)
    wide = dict(lw=7, alpha=0.6)
    shape = {"the roof": zip(*corner, strict=True)}
    charts.lines(ax, shape, [("other", "-", wide)])
    looks = ("residual", "-"), ("token", "--"), ("plain", "o-", dict(lw=1))
    charts.lines(ax, limits | {"measured": measured}, looks, counts)
    text = f"they meet at {crossing:.1f} tokens"
    charts.note(ax, crossing, arithmetic, text, dx=-4, dy=8, ha="right")
    charts.log_axis(ax, "x", counts, base=2)
    charts.log_axis(ax, "y", text="{:,.0f}".format, subs=(1, 2, 5))
    low, high = min(*memory, *measured), max(arithmetic, *measured)
    ax.set_ylim(low / 1.5, 2 * high)
    title = "Tokens per second, and the roof"
    x, y = "tokens in a pass", "tokens per second"
    return charts.finish(ax, title, x, y, legend="lower right")


def bound(llama):
    """Return a widget: tokens per second at most, of a model in bfloat16."""
    numbers = bytes_per_step(llama, 0) // 2
    position = bytes_per_step(llama, 1) - 2 * numbers  # bytes

    def draw(size, bandwidth, batch, context):
        weights, cache = size * numbers, context * position  # bytes
        speed = 1e9 * bandwidth
        most = {n: n * speed / (weights + n * cache) for n in TEXTS}
        series = {"without caches": [n * speed / weights for n in TEXTS]}
        series["at most"] = list(most.values())
        fig, ax = canvas(3.3)
        charts.lines(ax, series, [("other", "--"), ("plain", "-")], TEXTS)
        ax.plot(batch, most[batch], "o", ms=9, color=COLOURS["probability"])
        charts.log_axis(ax, "x", TEXTS, base=2)
        charts.log_axis(ax, "y", text="{:,.0f}".format)
        # the same for all other values: their sliders move the lines
        ax.set_ylim(0.1 * bandwidth, 1000 * bandwidth)
        read = f"{weights / 1e9:.2f} + {batch * cache / 1e9:,.2f} GB per step"
        title = f"{read}: at most {most[batch]:,.0f} tokens per second"
        x, y = "texts per step", "tokens per second, all texts"
        return charts.finish(ax, title, x, y, legend="upper left")

    def choose(options, value, text):
        style = dict(options=options, value=value, description=text)
        return ipw.SelectionSlider(**style)

    return Play(
        draw,
        size=choose(SIZES.items(), 2, "bytes per weight"),
        bandwidth=choose(SPEEDS, 100, "GB/s of the memory"),
        batch=choose(TEXTS, 8, "texts"),
        context=choose(CONTEXTS, 4096, "positions each"),
    )


# -- the checks of the exercises --


@exercise(1, expects="a number")
def check_1(answer):
    """Judge my_limit: two memory-bound batches, two others, a small model.

    In the last call even one text's operations take longer than reading.
    """
    up, KV, more = vary((1, 8, 0), (2, 4, 1), (3, 2, 5))
    c = ModelArgs(**vars(LLAMA_1B) | dict(n_layers=16 * up, n_kv_heads=KV))
    rows = (1, 1000, 2), (8 + more, 50_000, 1), (4000, 0, 2), (1000, 10, 4)
    cases = [(10**9 + more, c, *row) for row in rows]
    cases += [(10**6, c, 1, 3, 2)]  # where one position more or less counts
    calls = [(up * 10**12, 10**14, *each) for each in cases]
    calls += [(10**16, 10**14, 10**9, c, 1, 1, 2)]  # operations take longer
    alike(answer, STEM, 1, calls)


@exercise(2, expects="True and False, (B, T, T)")
def check_2(answer):
    """Judge my_mask, on rows with and without padding."""
    more = vary([], [1, 4], [0], [3, 1, 0])
    cases = ([2, 0, 3, *more], 5 + len(more)), ([0], 2)
    alike(answer, STEM, 2, [(torch.tensor(rows), T) for rows, T in cases])
