r"""The pictures of notebook 05."""

import ipywidgets as ipw
import torch

from matplotlib.colors import to_rgb

from .base import (
    COLOURS,
    GROUPS,
    canvas,
    cell_texts,
    heatmap,
    plain,
    title,
    visible,
)
from ..model import attention_maps
from .play import Play
from .model_map import strip  # noqa: F401


def group_colour(kv_head: int) -> str:
    """The colour of the group that shares this KV head."""
    return GROUPS[kv_head % len(GROUPS)]


def _frame(ax, colour, lw=2.0):
    """A frame around a picture, in a group's colour."""
    ax.spines[:].set(visible=True, color=colour, linewidth=lw)


def masks(squares):
    r"""Which query may look at which key, 0 or -inf in every cell.

    Args:
        squares: (title, mask, query labels, key labels) each; a mask is
            (T, S), 0 or -inf.
    """
    widths = [max(len(keys), 3) for *_, keys in squares]
    fig, axes = canvas(4.1, 1, len(squares), width_ratios=widths)
    axes = [axes] if len(squares) == 1 else list(axes.flat)
    for ax, (name, mask, queries, keys) in zip(axes, squares):
        seen = [[float(cell == 0) for cell in row] for row in mask.tolist()]
        ax.imshow(seen, cmap="Blues", vmin=0, vmax=2.2)
        ax.set_anchor("N")
        heatmap_ticks(ax, queries, keys)
        for t, row in enumerate(seen if len(keys) <= 12 else ()):
            for s, sees in enumerate(row):
                text, colour = ("0", "black") if sees else ("−∞", "#777777")
                middle = dict(ha="center", va="center", fontsize=9)
                ax.text(s, t, text, color=colour, **middle)
        _frame(ax, COLOURS["other"], 1)
        title(ax, name)
        ax.set_xlabel("key: who is looked at")
    axes[0].set_ylabel("query: who looks")
    return fig


def heatmap_ticks(ax, rows, columns, most=20, size=9):
    """Token texts on both axes, at most so many: every n-th, if need be."""
    for axis, names in ((ax.yaxis, rows), (ax.xaxis, columns)):
        step = max(1, -(-len(names) // most))
        places = range(0, len(names), step)
        axis.set_ticks(places, [visible(names[i]) for i in places])
        axis.set_tick_params(length=0, labelsize=size)
    across = dict(rotation=60, ha="right", rotation_mode="anchor")
    for label in ax.get_xticklabels():
        label.set(**across)


def attention_map(ax, weights, labels, name, colour=None):
    r"""One head's map on an axes: rows look, columns are looked at.

    Args:
        weights: (T, T) from 0 to 1.
        labels: T token texts.
        name: the title; colour: of the frame, the group's.
    """
    image = heatmap(ax, weights.tolist(), limit=1.0)
    heatmap_ticks(ax, labels, labels)
    if len(labels) <= 12:
        seen = [row[: t + 1] for t, row in enumerate(weights.tolist())]
        texts = [[f"{weight:.2f}" for weight in row] for row in seen]
        cell_texts(ax, texts, (weights > 0.55).tolist())
    if colour:
        _frame(ax, colour)
    title(ax, name)
    return image


def attention_maps_of(panels, height=4.2):
    r"""Maps of some heads, beside each other, each over its own tokens.

    Args:
        panels: (title, (T, T) weights, T token texts, KV head) each.
    """
    fig, axes = canvas(height, 1, len(panels))
    axes = [axes] if len(panels) == 1 else list(axes.flat)
    for ax, (name, weights, labels, kv_head) in zip(axes, panels):
        colour = group_colour(kv_head)
        image = attention_map(ax, weights, labels, name, colour)
        ax.set_xlabel("key: the token looked at")
    axes[0].set_ylabel("query: the token that looks")
    fig.colorbar(image, ax=axes, label="weight", shrink=0.8, aspect=30)
    return fig


def layer_heads(maps, labels, n_kv_heads, name=""):
    r"""All heads of a layer, side by side; a group has one colour.

    Args:
        maps: (H, T, T) weights from 0 to 1.
        labels: T token texts.
        n_kv_heads: KV; heads h with one h // (H/KV) share a KV head.
        name: over the picture.
    """
    H = len(maps)
    columns = 4 if H <= 12 else 8
    rows = -(-H // columns)
    fig, axes = canvas(0.9 + rows * 8 / columns, rows, columns)
    axes = axes.reshape(rows, columns) if rows * columns > 1 else [[axes]]
    for place, ax in enumerate(ax for row in axes for ax in row):
        if place >= H:
            ax.axis("off")
            continue
        kv_head = place // (H // n_kv_heads)
        heatmap(ax, maps[place].tolist(), limit=1.0)
        colour = group_colour(kv_head)
        _frame(ax, colour, 2.5)
        ax.set_title(
            f"head {place} · KV {kv_head}",
            fontsize=9 if columns == 4 else 7,
            weight="bold",
        )
        bottom = place + columns >= H
        most, size = (12, 7.5) if columns == 4 else (7, 5.5)
        heatmap_ticks(ax, labels, labels, most, size)
        left = place % columns == 0
        ax.tick_params(labelleft=left, labelbottom=bottom)
    fig.suptitle(plain(name), x=0.01, ha="left", fontsize=11)
    fig.supxlabel("key: the token looked at", fontsize=9)
    fig.supylabel("query: the token that looks", fontsize=9)
    return fig


def sharing(n_heads, kinds):
    r"""Which query head uses which KV head, for each kind of attention.

    Args:
        n_heads: H.
        kinds: name to KV, the KV heads there are of that kind.
    """
    fig, axes = canvas(1.25 * len(kinds), len(kinds), 1)
    axes = [axes] if len(kinds) == 1 else list(axes.flat)
    half = min(0.4, 0.4 * 12 / n_heads)
    for ax, (name, KV) in zip(axes, kinds.items()):
        n_rep = n_heads // KV
        for h in range(n_heads):
            kv_head = h // n_rep
            at = kv_head * n_rep + (n_rep - 1) / 2
            colour = group_colour(kv_head)
            ax.plot([h, at], [1, 0], color=colour, lw=1.2, zorder=1)
            ax.scatter([h], [1], marker="s", s=130, color=colour, zorder=2)
            ax.scatter([at], [0], marker="s", s=130, color=colour, zorder=2)
            if h % n_rep == 0:
                _number(ax, at, 0, kv_head, colour)
            _number(ax, h, 1, h, colour)
        ax.set_yticks([0, 1], [f"{KV} KV", f"{n_heads} query"])
        ax.set_xlim(-0.6 - half, n_heads - 0.4 + half)
        ax.set_ylim(-0.45, 1.45)
        ax.set_xticks([])
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        title(ax, name)
    return fig


def _number(ax, x, y, number, colour):
    """A head's number on its square, in black where the square is pale."""
    red, green, blue = to_rgb(colour)
    pale = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
    ink = "black" if pale else "white"
    middle = dict(ha="center", va="center", color=ink, weight="bold")
    ax.text(x, y, str(number), fontsize=8, zorder=3, **middle)


def weights_by_scale(labels, weights, name=""):
    r"""One query's weights under several scalings, as grouped bars.

    Args:
        labels: S token texts, on the x axis.
        weights: name of the scaling to S weights.
        name: over the picture.
    """
    fig, ax = canvas(3.0)
    width = 0.8 / len(weights)
    colours = ("#bbbbbb", COLOURS["probability"], "#666666")
    for i, (scaling, values) in enumerate(weights.items()):
        x = [
            s + (i - (len(weights) - 1) / 2) * width
            for s in range(len(labels))
        ]
        ax.bar(x, values, width, label=scaling, color=colours[i % 3])
    ax.set_xticks(range(len(labels)), [visible(text) for text in labels])
    if len(labels) > 10:
        ax.tick_params(axis="x", rotation=60)
    ax.set_xlabel("key: the token looked at")
    ax.set_ylabel("weight")
    ax.set_ylim(0, 1)
    ax.legend(frameon=False, fontsize=9)
    title(ax, name)
    return fig


def cache_bytes(positions, panels):
    r"""Bytes of keys and values against length, on two logarithmic axes.

    Args:
        positions: n lengths in tokens.
        panels: a panel's title to {kind of attention: n numbers of bytes}.
    """
    fig, axes = canvas(3.6, 1, len(panels), sharey=True)
    axes = [axes] if len(panels) == 1 else list(axes.flat)
    for ax, (name, series) in zip(axes, panels.items()):
        for i, (kind, values) in enumerate(series.items()):
            style = dict(color=COLOURS["value"], ls=("--", "-", ":")[i % 3])
            ax.plot(positions, values, label=kind, lw=2, **style)
            ax.text(
                positions[-1] * 1.15,
                values[-1],
                size_text(values[-1]),
                va="center",
                fontsize=9,
                bbox=dict(fc="white", ec="none", pad=1),
            )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=10)
        ax.set_xlim(positions[0], positions[-1] * 12)
        ticks = [p for p in (256, 2048, 16384, 131072) if p <= positions[-1]]
        ax.set_xticks(ticks, [f"{p:,}" for p in ticks])
        ax.yaxis.set_major_formatter(lambda value, _: size_text(value))
        ax.grid(axis="y", color="#e5e5e5", lw=0.8)
        ax.set_xlabel("tokens in the text")
        ax.legend(frameon=False, fontsize=8, loc="upper left")
        title(ax, name)
    axes[0].set_ylabel("keys and values of one text")
    return fig


def size_text(n_bytes: float) -> str:
    """Bytes in the unit that reads best: 1 GB is 10⁹ bytes."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


# -- the widget

def heads(llama, ids, layer: int = 0, head: int = 0):
    r"""Browse the attention maps of a text: choose a layer and a head.

    The maps are computed once, when the widget is made.

    Args:
        llama: the model.
        ids: T token ids.
        layer, head: what it opens with.
    """
    maps = attention_maps(llama, torch.tensor(ids))  # (L, H, T, T)
    labels = [llama.tokenizer.decode([i]) for i in ids]
    n_rep = llama.config.n_rep

    def draw(layer, head):
        kv_head = head // n_rep
        group = range(kv_head * n_rep, (kv_head + 1) * n_rep)
        name = f"layer {layer}, head {head} · KV head {kv_head}"
        if n_rep > 1:
            name += f", shared by heads {group[0]} to {group[-1]}"
        panel = (name, maps[layer, head], labels, kv_head)
        return attention_maps_of([panel])

    L, H = maps.shape[:2]
    return Play(
        draw,
        layer=ipw.IntSlider(layer, 0, L - 1, description="layer"),
        head=ipw.IntSlider(head, 0, H - 1, description="head"),
    )
