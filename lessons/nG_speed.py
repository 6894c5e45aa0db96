"""Pictures, widgets and checks of notebook G."""

from operator import add

import ipywidgets as ipw
import torch

from llamalib.model import LLAMA_1B, ModelArgs

from . import charts
from .bandwidth import bytes_per_step
from .judge import agree, exercise, vary
from .play import Play
from .pocket import strip  # noqa: F401
from .theme import COLOURS, canvas

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
    text = f"both limits, at {crossing:.1f} tokens"
    charts.note(ax, crossing, arithmetic, text, dx=-4, dy=8, ha="right")
    charts.log_axis(ax, "x", counts, base=2)
    charts.log_axis(ax, "y", text="{:,.0f}".format, subs=(1, 2, 5))
    low, high = min(*memory, *measured), max(arithmetic, *measured)
    ax.set_ylim(low / 1.5, 2 * high)
    title = "one block of the 1B"
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


def limit(case, cache=1, weights=1, ops=2, size=0, longer=max, made=0):
    """Return the answer of exercise 1, or what a mistake makes of it."""
    bandwidth, peak, P, c, B, n, own_size = case
    cache *= 2 * c.n_layers * c.n_kv_heads * c.head_dim * n * B
    reading = (size or own_size) * (weights * P + cache)
    return (made or B) / longer(reading / bandwidth, ops * B * P / peak)


@exercise(1, expects="a number")
def check_1(answer):
    """Judge my_limit: two memory-bound and two compute-bound batches."""
    up, KV, more = vary((1, 8, 0), (2, 4, 1), (3, 2, 5))
    c = ModelArgs(**vars(LLAMA_1B) | dict(n_layers=16 * up, n_kv_heads=KV))
    rows = (1, 1000, 2), (8 + more, 50_000, 1), (4000, 0, 2), (1000, 10, 4)
    cases = [(up * 10**12, 10**14, 10**9 + more, c, *row) for row in rows]
    wrong = {
        "a step makes a token for every text": lambda B: dict(made=1),
        "the cache is read too": lambda B: dict(cache=0),
        "every text has its own cache": lambda B: dict(cache=1 / B),
        "keys and values: twice as many": lambda B: dict(cache=1 / 2),
        "the weights are read once for all": lambda B: dict(weights=B),
        "the cache has KV heads, not H": lambda B: dict(
            cache=c.n_heads // c.n_kv_heads
        ),
        "a number takes more than one byte: see size": lambda B: dict(size=1),
        "every text has its own operations: see peak": lambda B: dict(ops=0),
        "two operations per weight and text": lambda B: dict(ops=1),
        "the longer time, not their sum": lambda B: dict(longer=add),
        "the longer time, not the shorter": lambda B: dict(longer=min),
    }
    for words, change in wrong.items():
        wrong[words] = [limit(c, **change(c[4])) for c in cases]
    agree([answer(*c) for c in cases], list(map(limit, cases)), wrong.items())


@exercise(2, expects="True and False, (B, T, T)")
def check_2(answer):
    """Judge my_mask, on rows with and without padding."""
    more = vary([], [1, 4], [0], [3, 1, 0])
    for padding, T in ([2, 0, 3, *more], 5 + len(more)), ([0], 2):
        p, s = torch.tensor(padding)[:, None, None], torch.arange(T)
        past, own = s <= s[:, None], s == s[:, None]  # (T, T)
        right = past & (s >= p) | own  # (B, T, T)
        mistakes = [
            ("a token must not see later ones", (s >= p) | own),
            ("padding is not hidden", past.expand_as(right)),
            ("a column of padding sees itself", past & (s >= p)),
            ("padding is on the left", past & (s < T - p) | own),
            ("column padding[b] is the first token", past & (s > p) | own),
            ("rows are queries t, columns are keys s", right.mT),
            ("True where it may see, False where not", ~right),
            ("True and False, not 0 and -inf", right.float().log()),
        ]
        agree(answer(torch.tensor(padding), T), right, mistakes)
