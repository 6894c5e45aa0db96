r"""The map that opens every notebook."""

import re

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

from .base import COLOURS, WIDTH, plain

# Name, x, y, width, of each part of the model; then for each notebook's part
# what is lit, what comes in and what goes out.
BOXES = {
    "files": ("files", 0.0, 0.5, 0.9),
    "tokenize": ("tokenize", 1.2, 0.5, 1.15),
    "embed": ("embed", 2.65, 0.5, 0.95),
    "norm 1": ("RMSNorm", 4.1, 0.5, 1.1),
    "rope": ("RoPE", 5.5, 1.15, 0.95),
    "attention": ("attention", 5.4, 0.5, 1.15),
    "norm 2": ("RMSNorm", 7.1, 0.5, 1.1),
    "feed-forward": ("feed-forward", 8.4, 0.5, 1.4),
    "norm 3": ("RMSNorm", 10.65, 0.5, 1.1),
    "LM head": ("LM head", 11.95, 0.5, 1.0),
    "sample": ("sample", 13.25, 0.5, 0.95),
}
PARTS = {
    "initialization": ("files", "a folder", "tensors by name"),
    "tokenize": ("tokenize", "text", "ids (T,)"),
    "embed": ("embed", "ids (T,)", "(T, D)"),
    "rmsnorm": ("norm 1, norm 2, norm 3", "(T, D)", "(T, D)"),
    "rope": ("rope", "queries (T, H, hd), keys (T, KV, hd)", "the same"),
    "attention": ("attention, rope", "(T, D)", "(T, D)"),
    "feed_forward": ("feed-forward", "(T, D)", "(T, D)"),
    "lm_head": ("norm 3, LM head", "(T, D)", "logits (T, V)"),
    "sampling": ("sample", "logits (V,)", "an id"),
    "generate": (", ".join(BOXES), "text", "text"),
    "training": (", ".join(BOXES), "texts", "weights by name"),
    "quantization": (
        "files, embed, attention, feed-forward, LM head",
        "matrices of 16 bits a number",
        "matrices of 8 or 4",
    ),
    "mixture_of_experts": ("feed-forward", "(T, D)", "(T, D)"),
    "long_context": ("rope, attention", "(T, D), T ever larger", "(T, D)"),
}


def strip(part: str, llama, T: int | None = None):
    r"""The map of the model with one notebook's part lit.

    Args:
        part: a name of `PARTS`.
        llama: which checkpoint, and the numbers behind the letters.
        T: the prompt's tokens; None leaves the letter.
    """
    lit, comes, goes = PARTS[part]
    c = llama.config
    numbers = {
        "D": c.dim,
        "H": c.n_heads,
        "KV": c.n_kv_heads,
        "hd": c.head_dim,
        "F": c.hidden_dim,
        "V": c.vocab_size,
        "L": c.n_layers,
    }
    fig, ax = plt.subplots(figsize=(WIDTH, 1.75), layout="constrained")
    ax.set_xlim(-0.1, 14.3)
    ax.set_ylim(-0.55, 2.35)
    ax.axis("off")
    _draw_flow(ax, c.n_layers)
    for name, (label, x, y, width) in BOXES.items():
        on = name in lit.split(", ")
        box = FancyBboxPatch(
            (x, y - 0.25),
            width,
            0.5,
            boxstyle="round,pad=0.04",
            facecolor=COLOURS["probability"] if on else "white",
            edgecolor="black" if on else COLOURS["other"],
            lw=1.2,
            zorder=3,
        )
        ax.add_patch(box)
        ax.text(
            x + width / 2,
            y,
            label,
            ha="center",
            va="center",
            fontsize=8,
            weight="bold" if on else None,
            zorder=4,
            color="black" if on else "#555555",
        )
    shapes = f"in: {_numbered(comes, numbers, T)}   →   "
    shapes += f"out: {_numbered(goes, numbers, T)}"
    ax.text(0, -0.4, shapes, fontsize=9, va="center")
    sizes = " · ".join(f"{k} = {v}" for k, v in numbers.items())
    ax.text(0, 2.2, plain(f"{llama.name}:  {sizes}"), fontsize=9, va="center")
    return fig


def _draw_flow(ax, n_layers):
    """The residual stream, the frame around a block, the way back."""
    grey = COLOURS["other"]
    flow = dict(
        arrowprops=dict(arrowstyle="-|>", color=grey, lw=1.2), zorder=1
    )
    ax.annotate("", (13.2, 0.5), (0.9, 0.5), **flow)
    for start, end in ((3.85, 6.78), (6.78, 10.02)):  # around each half
        ax.plot(
            [start, start, end, end],
            [0.5, 0.0, 0.0, 0.42],
            color=COLOURS["residual"],
            lw=1.6,
            zorder=1,
        )
    for x in (6.78, 10.02):
        ax.text(
            x,
            0.5,
            "+",
            ha="center",
            va="center",
            fontsize=9,
            zorder=4,
            bbox=dict(
                boxstyle="circle,pad=0.1", fc="white", ec=COLOURS["residual"]
            ),
        )
    frame = FancyBboxPatch(
        (3.7, -0.1),
        6.55,
        1.65,
        boxstyle="round,pad=0.03",
        fc="#f5f5f5",
        ec=grey,
        ls="--",
        lw=1,
        zorder=0,
    )
    ax.add_patch(frame)
    ax.text(
        3.78,
        1.38,
        f"block, {n_layers} times",
        fontsize=8,
        va="center",
        color="#555555",
    )
    ax.plot([13.7, 13.7, 3.1], [0.8, 1.8, 1.8], color=grey, lw=1.2, zorder=0)
    ax.annotate("", (3.1, 0.8), (3.1, 1.82), **flow)
    ax.text(
        13.6,
        1.62,
        "the next token",
        fontsize=8,
        ha="right",
        va="center",
        color="#555555",
    )


def _numbered(shape: str, numbers: dict, T) -> str:
    """'(T, D)' as '(T, D) = (6, 256)', and what has no letters as it is."""
    values = {**numbers, "T": T or "T"}

    def number(letters):
        inside = re.sub(r"\w+", lambda m: str(values[m[0]]), letters[0])
        return f"{letters[0]} = {inside}"

    return re.sub(r"\([^)]*\)", number, shape)
