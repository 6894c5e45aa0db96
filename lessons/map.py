r"""The map that opens every notebook."""

import re
from pathlib import Path

from matplotlib.patches import FancyBboxPatch

from llamalib.load import ROOT, SMOL
from llamalib.threads import choose_threads

from .charts import write
from .theme import COLOURS, canvas, colour, plain

# Each part of the model: its label, left end, height and width.
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
# Each notebook: the parts that it lights, their input and output.
PARTS = {
    "initialization": ("files", "the files", "tensors by name"),
    "tokenize": ("tokenize", "text", "ids (T,)"),
    "embed": ("embed", "ids (T,)", "(T, D)"),
    "rmsnorm": ("norm 1, norm 2, norm 3", "(T, D)", "(T, D)"),
    "rope": ("rope", "queries (T, H, hd), keys (T, KV, hd)", "the same"),
    "attention": ("attention, rope", "(T, D)", "(T, D)"),
    "feed_forward": ("norm 2, feed-forward", "(T, D)", "(T, D)"),
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
    "long_context": ("rope, attention", "(T, D), T grows", "(T, D)"),
    "tensor_parallel": (
        "files, embed, attention, feed-forward, LM head",
        "one model",
        "a part of each matrix in each process",
    ),
    "heads": ("attention, feed-forward", "(T, D)", "what each part adds"),
    "speed": (", ".join(BOXES), "text", "text, sooner"),
    "documents": (", ".join(BOXES), "four documents", "numbers"),
}


def strip(part: str, llama, T: int | None = None, about: Path = SMOL):
    """Draw the model's map with a part lit; `T` is the length of a prompt.

    Every notebook begins with it: it also sets the threads for the model, and
    says so if the notebook's text is `about` another model.
    """
    choose_threads(llama)
    lit, before, after = PARTS[part]
    c = llama.config
    numbers = dict(D=c.dim, H=c.n_heads, KV=c.n_kv_heads, hd=c.head_dim)
    numbers |= dict(F=c.hidden_dim, V=c.vocab_size, L=c.n_layers)
    fig, ax = canvas(1.75)
    fig.subject = f"Map of the model. Highlighted: {lit}"
    ax.set(xlim=(-0.1, 14.3), ylim=(-0.55, 2.35))
    ax.axis("off")
    draw_flow(ax, c.n_layers)
    for name, box in BOXES.items():
        draw_box(ax, *box, name in lit.split(", "))
    sizes = " · ".join(f"{k} = {v}" for k, v in numbers.items())
    write(ax, 0, 2.2, plain(f"{llama.name}:  {sizes}"), ha="left")
    shapes = [_numbered(each, numbers, T) for each in (before, after)]
    write(ax, 0, -0.4, "in: {}   →   out: {}".format(*shapes), ha="left")
    if not llama.name.startswith(about.name):  # a GGUF's ends with its type
        print(f"The text below is about {about.name}{how_to_open(about)}.")
    return fig


def how_to_open(about: Path) -> str:
    """Return how to open the model that a notebook's text is about."""
    if not (ROOT / about).is_dir():
        return f": `python -m llamalib fetch {about.name}` brings it"
    folder = f"%env LLAMA_DIR={ROOT / about}"
    return f"; to open it, run {folder} and then this cell again"


def draw_box(ax, label, x, y, width, lit):
    """Draw one part of the model."""
    fill, edge = ("probability", "black") if lit else ("white", "other")
    style = dict(boxstyle="round,pad=0.04", fc=colour(fill), ec=colour(edge))
    style |= dict(lw=1.2, zorder=3)
    ax.add_patch(FancyBboxPatch((x, y - 0.25), width, 0.5, **style))
    style = dict(weight="bold") if lit else dict(color="#555555")
    write(ax, x + width / 2, y, label, 8, zorder=4, **style)


def draw_flow(ax, n_layers):
    """Draw the residual stream, the frame of a block, the loop."""
    grey, blue = COLOURS["other"], COLOURS["residual"]
    arrow = dict(arrowstyle="-|>", color=grey, lw=1.2)
    flow = dict(arrowprops=arrow, zorder=1)
    ax.annotate("", (13.2, 0.5), (0.9, 0.5), **flow)
    circle = dict(boxstyle="circle,pad=0.1", fc="white", ec=blue)
    for start, end in ((3.85, 6.72), (6.98, 10.02)):  # around each sub-layer
        around = [start, start, end, end], [0.5, 0.0, 0.0, 0.42]
        ax.plot(*around, color=blue, lw=1.6, zorder=1)
        write(ax, end, 0.5, "+", zorder=4, bbox=circle)
    frame = dict(boxstyle="round,pad=0.03", fc="#f5f5f5", ec=grey, ls="--")
    ax.add_patch(FancyBboxPatch((3.7, -0.1), 6.55, 1.65, zorder=0, **frame))
    style = dict(color="#555555")
    write(ax, 3.78, 1.38, f"block, {n_layers} times", 8, ha="left", **style)
    ax.plot([13.7, 13.7, 3.1], [0.8, 1.8, 1.8], color=grey, lw=1.2, zorder=0)
    ax.annotate("", (3.1, 0.8), (3.1, 1.82), **flow)
    write(ax, 13.6, 1.62, "the next token", 8, ha="right", **style)


def _numbered(shape: str, numbers: dict, T) -> str:
    """Return "(T, D)" as "(T, D) = (6, 256)", and other texts as they are."""
    values = {**numbers, "T": T or "T"}

    def number(letters):
        inside = re.sub(r"\w+", lambda m: str(values[m[0]]), letters[0])
        return f"{letters[0]} = {inside}"

    return re.sub(r"\([^)]*\)", number, shape)
