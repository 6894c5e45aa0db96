"""Pictures, widgets and checks of notebook E."""

import ipywidgets as ipw
from matplotlib.patches import Rectangle
from torch import arange, as_tensor, randn

from llamalib.model import LLAMA_1B, ModelArgs
from llamalib.tensors import tensor_shapes

from . import charts
from .judge import Wrong, agree, close, draws, exercise, vary
from .play import Play
from .pocket import strip  # noqa: F401
from .theme import COLOURS, canvas, size_text

MEMORY = {"24 GB": 24e9, "80 GB": 80e9, "141 GB": 141e9}  # of a device
TONES = "query", "key", "value", "token"
MATRICES = [f"attention.w{name}" for name in "qkvo"]  # as they are used
MATRICES += [f"feed_forward.w{i}" for i in (1, 3, 2)]


def memory_by_devices(sizes, weights, caches):
    """Draw bytes on a device; weights, caches: model to bytes by size."""
    fig, ax = canvas(4.2)
    for i, name in enumerate(weights):
        tone = TONES[i]
        pairs = zip(weights[name], caches[name], strict=True)
        with_cache = [a + b for a, b in pairs]
        series = {name: weights[name], f"{name} and cache": with_cache}
        looks = [(tone, "o-"), (tone, "o:", dict(mfc="white"))]
        charts.lines(ax, series, looks, sizes, ms=4, lw=1.5)
    charts.log_axis(ax, "x", sizes, base=2)
    charts.log_axis(ax, "y", text=size_text)
    for text, size in MEMORY.items():
        charts.mark_y(ax, size, text, end=True, size=8, ls="-", lw=0.6)
    labels = "devices", "bytes on each device"
    charts.finish(ax, "Memory of one device, in bfloat16", *labels)
    return charts.add_legend(ax, "right", fontsize=8)


def block_parts(config, part, rank, n, title):
    """Draw the matrices of a block to scale, a rank's part of each filled.

    Where results are added over the processes, "sum" is written.
    part: from config, name, rank and n to (dimension cut, start, length).
    """
    fig, ax = canvas(3.6)
    shapes, x = tensor_shapes(config), 0
    gap, tall = config.dim * 0.35, config.hidden_dim
    for name in MATRICES:
        name = f"layers.0.{name}.weight"
        rows, columns = shapes[name]
        dim, start, length = part(config, name, rank, n)
        at, size = [x, 0], [columns, rows]
        at[1 - dim], size[1 - dim] = start + (0 if dim == 0 else x), length
        style = dict(fc="#eeeeee", ec=COLOURS["plain"], lw=0.8)
        ax.add_patch(Rectangle((x, 0), columns, rows, **style))
        ax.add_patch(Rectangle(at, *size, fc=COLOURS["probability"]))
        label = f"{name.split('.')[3]}\n{rows:,} × {columns:,}"
        charts.write(ax, x + columns / 2, -0.1 * tall, label, 7)
        x += columns + gap
        if dim == 1:  # what follows
            charts.write(ax, x, rows / 2, "sum", 10, fontweight="bold")
            x += 2 * gap
    ax.set(xlim=(-gap, x), ylim=(1.02 * tall, -0.2 * tall), aspect="equal")
    ax.axis("off")
    return charts.finish(ax, title)


def cuts(models, part) -> Play:
    """Return a widget: what a rank holds of a block of each model.

    models: name to config.  part: see `block_parts`.
    """

    def draw(model, n, rank):
        if rank >= n:
            raise ValueError(f"the last of {n} processes has rank {n - 1}")
        c = models[model]
        if c.n_heads % n:
            raise ValueError(f"{n} does not divide {c.n_heads} query heads")
        title = f"{model}, one block: the part of rank {rank} of {n}"
        return block_parts(c, part, rank, n, title)

    sizes = dict(options=[1, 2, 4, 8, 16], value=4, description="processes")
    return Play(
        draw,
        model=ipw.Dropdown(options=list(models), value=list(models)[-1]),
        n=ipw.SelectionSlider(**sizes),
        rank=ipw.IntSlider(1, 0, 15, description="rank"),
    )


# -- the checks of the exercises --


@exercise(1, expects="numbers (T, D)")
def check_1(partial_result):
    g, (T, F, D) = draws(1), vary((4, 12, 5), (3, 24, 7), (6, 18, 2))
    h, W = randn(T, F, generator=g), randn(D, F, generator=g)
    b, y, other = randn(D, generator=g), h @ W.T, h + (arange(F) < F // 2)
    every = {}
    for n in (1, 3, 2):
        every[n] = parts = [partial_result(h, W, b, r, n) for r in range(n)]
        mistakes = [
            ("b is missing", y),
            ("the sum has b n times: each process adds it", y + n * b),
            ("each process computes all of y", n * (y + b)),
            ("each process computes the whole product", n * y + b),
        ]
        same = all(as_tensor(part).shape == y.shape for part in parts)
        found = sum(map(as_tensor, parts if same else parts[:1]))
        agree(found, y + b, mistakes, what="the sum")
    what = "with other numbers in process 0's columns, process 1's result"
    agree(partial_result(other, W, b, 1, 2), parts[1], what=what)
    for n, parts in every.items():
        pairs = zip(h.chunk(n, 1), W.chunk(n, 1), strict=True)
        for r, (part, (x, w)) in enumerate(zip(parts, pairs, strict=True)):
            rest = as_tensor(part) - x @ w.T  # its share of b, in each row
            if not close(rest, rest[:1].expand_as(rest), 1e-4):
                what = f"process {r} of {n} must return its columns' product"
                raise Wrong(f"{what}, with a share of b or without")


@exercise(2, expects="a list of whole numbers")
def check_2(held_kv_heads):
    for n, H, KV in ((2, 8, 4), (8, 32, 8), (8, 8, 2), (2, 6, 3), (4, 12, 6)):
        n, H, KV = (vary(1, 3, 2, 5) * each for each in (n, H, KV))
        for r in reversed(range(n)):
            own, even = range(r * H // n, (r + 1) * H // n), r * KV // n
            read, some = [q * KV // H for q in own], max(1, KV // n)
            mistakes = [
                ("these are query heads", [*own]),
                ("q // (H // KV), not q % KV", sorted({q % KV for q in own})),
                ("each KV head once", read),
                ("KV // n may be 0: each process needs a KV head", []),
                ("a cut group's head is missing", [*range(even, even + some)]),
                ("a process holds heads in a row", [*range(r, KV, n)]),
            ]
            right, what = sorted({*read}), f"({r}, {n}, {H}, {KV}): the result"
            agree(held_kv_heads(r, n, H, KV), right, mistakes, 0, what)


@exercise(3, expects="a number of bytes")
def check_3(bytes_sent):
    sums, D = vary((33, 2048), (39, 1024), (21, 4096))
    c = ModelArgs(**vars(LLAMA_1B) | dict(n_layers=sums // 2, dim=D))
    for T, n, size in ((1, 8, 2), (5, 2, 4), (3, 1, 2)):
        a, b, ring = sums * T * D, T * 128256, (n - 1) / n * size
        right = ring * (2 * a + b)
        mistakes = [
            ("the embedding's sum is missing", right - 2 * ring * a / sums),
            ("two sums a block", ring * (a + a / sums + b)),
            ("the logits' gather is missing", ring * 2 * a),
            ("a ring's sum goes around twice: 2(n - 1)/n", ring * (a + b)),
            ("the gather goes around once: (n - 1)/n", ring * 2 * (a + b)),
            ("these are numbers: multiply by size", right / size),
            ("this is the sum over all processes", right * n),
            (
                "you gather the logits of one position: take all T",
                ring * (2 * a + 128256),
            ),
        ]
        agree(bytes_sent(c, T, n, size), right, mistakes, 1e-6)
