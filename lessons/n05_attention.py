"""Pictures, widgets and checks of notebook 05."""

import gc
import math
import tracemalloc
from dataclasses import replace
from functools import lru_cache

import ipywidgets as ipw
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from llamalib.model import LLAMA_1B
from llamalib.probe import attention_maps

from . import charts
from .judge import Wrong, alike, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play, token_texts
from .theme import AMOUNT, GROUPS, array, canvas, colour, panels, spaced


def attention_map(ax, weights, labels, kv_head):
    """Draw one head's (T, T) weights, in a frame of its group's colour."""
    image = charts.heatmap(ax, weights, limit=1.0)
    charts.token_ticks(ax, labels, labels, 20)
    tone = colour("other")
    if kv_head is not None:
        tone = GROUPS[kv_head % len(GROUPS)]
    ax.spines[:].set(visible=True, color=tone, linewidth=2)
    return image


def attention_maps_of(chosen, height=4.2, **options):
    """Draw heads' maps: (title, (T, T) weights, T tokens, KV head) each.

    KV head: None for a grey frame.
    """
    fig, axes = panels(height, len(chosen), **options)
    for ax, (name, weights, labels, kv_head) in zip(axes, chosen, strict=True):
        im = attention_map(ax, weights, labels, kv_head)
        if len(labels) <= 12:
            rows = [row[: t + 1] for t, row in enumerate(weights.tolist())]
            texts = [[f"{weight:.2f}" for weight in row] for row in rows]
            charts.cell_texts(ax, texts, (weights > 0.55).tolist())
        charts.finish(ax, name, "key")
    axes[0].set_ylabel("query")
    fig.colorbar(im, ax=axes, label="attention weight", shrink=0.8, aspect=30)
    return fig


def sharing(n_heads, kinds):
    """Draw which query head uses which KV head, for each name: KV."""
    fig, axes = panels(1.25 * len(kinds), 1, len(kinds))
    half = min(0.4, 0.4 * 12 / n_heads)
    limits = dict(xlim=(-0.6 - half, n_heads - 0.4 + half), ylim=(-0.45, 1.45))
    for ax, (name, KV) in zip(axes, kinds.items(), strict=True):
        n_rep = n_heads // KV
        for h in range(n_heads):
            at = h // n_rep * n_rep + (n_rep - 1) / 2  # of the KV head
            tone = GROUPS[h // n_rep % len(GROUPS)]
            ax.plot([h, at], [1, 0], color=tone, lw=1.2, zorder=1)
            ax.scatter([h, at], [1, 0], 130, tone, marker="s", zorder=2)
            style = dict(color=charts.ink(tone), weight="bold", zorder=3)
            charts.write(ax, h, 1, str(h), 8, **style)
            if h % n_rep == 0:
                charts.write(ax, at, 0, str(h // n_rep), 8, **style)
        ax.set_yticks([0, 1], [f"{KV} KV", f"{n_heads} query"])
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        charts.finish(ax, name, xticks=[], **limits)
    return fig


def key_weights(series):
    """Draw the weights of some keys as bars: name to numbers."""
    fig, axes = panels(2.5, len(series), sharey=True)
    for ax, (name, weights) in zip(axes, series.items(), strict=True):
        weights = array(weights)
        ax.bar(range(len(weights)), weights, color=colour("key"))
        best = weights.argmax()
        charts.note(
            ax, best, weights[best], f"{weights[best]:.2f}", ha="center"
        )
        charts.finish(ax, name, "key", ylim=(0, 1.1))
    axes[0].set_ylabel("attention weight")
    return fig


def all_heads(maps, marked, name):
    """Draw the maps (L, H, T, T) of all heads in one picture.

    marked: name to the (layer, head) that gets a frame and a line in the
    legend.
    """
    L, H, T, _ = maps.shape
    wide = L >= H  # layers from left to right, or else from top to bottom
    size, grid = T + 1, array(maps.transpose(0, 1) if wide else maps)
    rows, columns = grid.shape[:2]
    image = np.full((rows * size + 1, columns * size + 1), np.nan)
    for row, column in np.ndindex(rows, columns):
        y, x = 1 + row * size, 1 + column * size
        image[y : y + T, x : x + T] = grid[row, column]
    cell = min(0.6, 7.9 / columns)  # inches
    _, ax = canvas(1.1 + cell * rows)
    style = dict(vmin=0, vmax=1, interpolation="nearest")
    ax.imshow(image, AMOUNT.with_extremes(bad="#bbbbbb"), **style)
    for (words, at), tone in zip(
        marked.items(), ("key", "token"), strict=True
    ):
        row, column = at[::-1] if wide else at
        corner = column * size - 0.5, row * size - 0.5
        style = dict(fc="none", ec=colour(tone), lw=2.5, label=words)
        ax.add_patch(plt.Rectangle(corner, size + 1, size + 1, **style))
    names = ("layer", "head") if wide else ("head", "layer")
    for axis, count in ((ax.xaxis, columns), (ax.yaxis, rows)):
        places = spaced(count, 16)
        axis.set_ticks([(i + 0.5) * size for i in places], list(places))
        axis.set_tick_params(length=0)
    ax.spines[:].set_visible(False)
    return charts.finish(ax, name, *names, legend="above")


def heads(llama, text, layer=0, head=0, longest=40) -> Play:
    """Return a browser of attention maps: any text, each layer and head."""
    c = llama.config
    n_rep = c.n_heads // c.n_kv_heads  # query heads in a group

    @lru_cache(maxsize=1)
    def maps_of(text):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)[:longest]
        ids = ids or [0]  # SmolLM2 has no begin token
        maps = attention_maps(llama, torch.tensor(ids))  # (L, H, T, T)
        return maps, token_texts(llama, ids)

    def draw(text, layer, head):
        (maps, labels), g = maps_of(text), head // n_rep
        name = f"layer {layer}, head {head} · KV head {g}"
        if n_rep > 1:
            name += f", shared by heads {g * n_rep} to {(g + 1) * n_rep - 1}"
        if len(labels) == longest:
            name += f" · the first {longest} tokens"
        panel = (name, maps[layer, head], labels, g)
        return attention_maps_of([panel], margins=(0.16, 0.3, 1.05, 0.93))

    return Play(
        draw,
        text=ipw.Text(text, description="text", continuous_update=False),
        layer=ipw.IntSlider(layer, 0, c.n_layers - 1, description="layer"),
        head=ipw.IntSlider(head, 0, c.n_heads - 1, description="head"),
    )


# -- the checks of the exercises --


@exercise(1, "a whole number")
def check_1(answer):
    """Check `tokens_that_fit(config, free, bytes_each)`."""
    # of proportions at which no two mistakes give the same number
    heads = dict(n_heads=48, n_kv_heads=4, head_width=64)
    config = replace(LLAMA_1B, n_layers=vary(18, 20, 28, 12), **heads)
    wide = replace(config, head_width=32 * config.head_dim)
    cases, fits = [], vary(47, 23, 38, 51)
    for c, bytes_each in ((config, 3), (config, 64), (wide, 3)):
        token = 2 * c.n_layers * c.n_kv_heads * c.head_dim * bytes_each
        cases.append((c, fits * token - 1, bytes_each))
    alike(answer, "05_attention", 1, cases)


@exercise(2, "a tensor (T, hd)")
def check_2(answer):
    """Check `one_head(xq, xk, xv, h)`."""
    g, cases = draws(), []
    T, H, half, hd = vary((6, 12, 6, 10), (5, 10, 5, 14), (7, 14, 7, 6))
    for S, KV in ((T, half), (T + 3, half), (T + 3, 2)):
        shapes = (T, H, hd), (S, KV, hd), (S, KV, hd)
        given = [torch.randn(shape, generator=g) for shape in shapes]
        cases += [(*given, h) for h in (H - 1, 1, 0, H // 2, 2 * H // 3)]
    q, k, v = 3 + given[0].tanh(), -3 - given[1].tanh(), given[2]
    q = q * 80 * math.sqrt(hd) / -torch.einsum("thd,sgd->thsg", q, k).min()
    cases += [(q, k, v, h) for h in range(H)]  # scores from -80 to about -50
    alike(answer, "05_attention", 2, cases, 1e-3)


class Pieces:
    """Keys and values, n at a time, in memory that the next overwrites."""

    def __init__(self, k, v, n):
        self.given = k, v, n

    def __iter__(self):
        return overwritten(*self.given)


def overwritten(k, v, n):
    """Yield keys and values n at a time, always in the same memory."""
    piece = torch.zeros(2, n, k.shape[-1])
    for s in range(0, len(k), n):
        rows = len(k[s : s + n])
        piece[:, :rows] = torch.stack([k[s : s + n], v[s : s + n]])
        yield piece[0, :rows], piece[1, :rows]


@exercise(3, "a tensor (hd,)")
def check_3(answer):
    """Check `streamed(q, pieces)`."""
    g, cases, more = draws(), [], vary(0, 1, 2, 4)
    shapes = (13, 8, 1, 5), (13, 8, 3, 4), (9, 16, 300, 2), (9, 16, -300, 2)
    for S, width, size, n in shapes:
        k, v = torch.randn(2, S + more, width, generator=g)
        q = torch.randn(width, generator=g)
        if abs(size) == 300:  # scores rise from piece to piece, or fall
            k = k[(k @ q).argsort(descending=size < 0)]
        size = min(abs(size), vary(abs(size), 90))  # 300: coarse in float32
        cases.append((q * size, Pieces(k, v, n)))
    k, v = torch.randn(2, 13, 8, generator=g)  # all scores far below 0
    cases.append((torch.full((8,), 300.0), Pieces(-k.abs(), v, 5)))
    # all scores about 2,000: more than even a float64's exponential can bear
    steps = torch.randint(8, (13, 16), generator=g) / 1024
    high = Pieces(1 + steps, torch.randn(13, 16, generator=g), 5)
    cases.append((torch.full((16,), 500.0), high))
    alike(answer, "05_attention", 3, cases, 1e-3)  # large scores are coarse
    k, v = torch.randn(2, 41 + more, 2000, generator=g)
    early, late = [], []  # how many bytes are held by then
    gc.collect()  # of older garbage, whose end would hide what is kept
    tracemalloc.start()
    try:
        answer(k[0], counted(overwritten(k, v, 1), {10: early, 40: late}))
    finally:
        tracemalloc.stop()
    if late[0] - early[0] > 15 * 2000 * 4:
        raise Wrong("you keep something of every piece: three sums are enough")
    return "no piece is kept"


def counted(pieces, held):
    """Yield the pieces; at some, note how many bytes are in use.

    Lists and arrays are Python's memory, which tensors are not.
    """
    for i, piece in enumerate(pieces):
        if i in held:
            size = tracemalloc.get_traced_memory()[0]
            kept = [each for each in gc.get_objects() if type(each) is Tensor]
            held[i].append(size + sum(each.nbytes for each in kept))
            del kept
        yield piece
