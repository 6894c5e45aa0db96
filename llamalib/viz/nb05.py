r"""Pictures and widget of notebook 05."""

from functools import lru_cache

import ipywidgets as ipw
import torch

from ..probe import attention_maps
from . import charts
from .base import GROUPS, array, heading, panels, size_text, visible
from .model_map import strip  # noqa: F401
from .play import Play, token_texts


def masks(squares):
    """Draw (T, S) masks: (title, mask, query tokens, key tokens) each."""
    widths = [max(len(keys), 3) for *_, keys in squares]
    fig, axes = panels(4.1, len(squares), width_ratios=widths)
    for ax, (name, mask, queries, keys) in zip(axes, squares):
        seen = array(mask) == 0
        ax.imshow(seen, cmap="Blues", vmin=0, vmax=2.2)
        ax.set_anchor("N")
        charts.token_ticks(ax, queries, keys, most=20)
        for t, row in enumerate(seen if len(keys) <= 12 else ()):
            for s, sees in enumerate(row):
                text, tone = ("0", "black") if sees else ("−∞", "#777777")
                charts.write(ax, s, t, text, color=tone)
        ax.spines[:].set(visible=True, color="#999999", linewidth=1)
        charts.finish(ax, name, "key")
    axes[0].set_ylabel("query")
    return fig


def attention_map(ax, weights, labels, kv_head, most=20, size=9, width=2):
    """Draw one head's (T, T) weights, in a frame of its group's colour."""
    image = charts.heatmap(ax, weights, limit=1.0)
    charts.token_ticks(ax, labels, labels, most, size)
    tone = GROUPS[kv_head % len(GROUPS)]
    ax.spines[:].set(visible=True, color=tone, linewidth=width)
    return image


def attention_maps_of(chosen, height=4.2, **options):
    """Draw heads' maps: (title, (T, T) weights, T tokens, KV head) each."""
    fig, axes = panels(height, len(chosen), **options)
    for ax, (name, weights, labels, kv_head) in zip(axes, chosen):
        im = attention_map(ax, weights, labels, kv_head)
        if len(labels) <= 12:
            rows = [row[: t + 1] for t, row in enumerate(weights.tolist())]
            texts = [[f"{weight:.2f}" for weight in row] for row in rows]
            charts.cell_texts(ax, texts, (weights > 0.55).tolist())
        charts.finish(ax, name, "key")
    axes[0].set_ylabel("query")
    fig.colorbar(im, ax=axes, label="attention weight", shrink=0.8, aspect=30)
    return fig


def layer_heads(maps, labels, n_kv_heads, name=""):
    """Draw a layer's maps (H, T, T); heads that share a KV head match."""
    H, few = len(maps), len(maps) <= 12
    columns, most, size = (4, 12, 7.5) if few else (8, 7, 5.5)
    rows = -(-H // columns)
    fig, axes = panels(0.9 + rows * 8 / columns, columns, rows)
    for h, ax in enumerate(axes[:H]):
        kv_head = h // (H // n_kv_heads)
        attention_map(ax, maps[h], labels, kv_head, most, size, 2.5)
        style = dict(fontsize=9 if few else 7, weight="bold")
        ax.set_title(f"head {h} · KV {kv_head}", **style)
        bottom = h + columns >= H
        ax.tick_params(labelleft=h % columns == 0, labelbottom=bottom)
    for ax in axes[H:]:
        ax.axis("off")
    heading(fig, name)
    fig.supxlabel("key", fontsize=9)
    fig.supylabel("query", fontsize=9)
    return fig


def sharing(n_heads, kinds):
    """Draw which query head uses which KV head, for each name: KV."""
    fig, axes = panels(1.25 * len(kinds), 1, len(kinds))
    half = min(0.4, 0.4 * 12 / n_heads)
    limits = dict(xlim=(-0.6 - half, n_heads - 0.4 + half), ylim=(-0.45, 1.45))
    for ax, (name, KV) in zip(axes, kinds.items()):
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


def weights_by_scale(labels, weights, name=""):
    """Draw one query's weights for S keys, under up to three scalings."""
    fig, (ax,) = panels(3.0, 1)
    charts.grouped_bars(ax, weights, ("#bbbbbb", "probability", "#666666"))
    ax.set_xticks(range(len(labels)), [*map(visible, labels)], rotation=60)
    style = dict(legend="best", ylim=(0, 1))
    return charts.finish(ax, name, "key", "attention weight", **style)


def cache_bytes(positions, series, weights, name=""):
    """Draw a KV cache's bytes by length, for each kind, and the weights'."""
    fig, (ax,) = panels(3.4, 1)
    looks = [("value", style) for style in ("--", "-", ":")]
    charts.lines(ax, series, looks, positions)
    for n in (values[-1] for values in series.values()):
        charts.write(ax, positions[-1] * 1.1, n, size_text(n), ha="left")
    charts.mark_y(ax, weights, f"the weights: {size_text(weights)}")
    charts.log_axis(ax, "x", positions[::3], "{:,}".format, base=2)
    charts.log_axis(ax, "y", text=size_text)
    style = dict(legend="lower right", xlim=(positions[0], positions[-1] * 2))
    x, y = "tokens in the text", "keys and values of one text"
    return charts.finish(ax, name, x, y, **style)


def heads(llama, text, layer=0, head=0, longest=40) -> Play:
    """Return a browser of attention maps: any text, each layer and head."""
    c = llama.config
    n_rep = c.n_heads // c.n_kv_heads  # query heads in a group

    @lru_cache(maxsize=1)
    def maps_of(text):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)[:longest]
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
