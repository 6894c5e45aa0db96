"""Pictures, widgets and checks of notebook B."""

from functools import partial

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.ticker import NullLocator

from llamalib import paired_difference

from .charts import (
    add_legend,
    finish,
    heatmap,
    histograms,
    lines,
)
from .judge import alike, draws, exercise, vary
from .needs import smollm2_file  # noqa: F401
from .play import Play
from .pocket import strip  # noqa: F401
from .theme import COLOURS, array, canvas, panels


def keys_by_channel(keys, name):
    """Draw keys (T, hd): a row for each token, a column for each channel."""
    fig, ax = canvas(2.8)
    image = heatmap(ax, keys, signed=True)
    fig.colorbar(image, ax=ax)
    return finish(ax, name, "channel", "token")


@torch.inference_mode()
def inputs_of(llama, texts) -> dict[str, torch.Tensor]:
    """Return the inputs (tokens, K) of each matrix of a block, by its name.

    texts: of token ids (T,). All their tokens are rows of one tensor.
    """
    found, hooks = {}, []

    def note(module, args, name):
        found.setdefault(name, []).append(args[0].flatten(0, -2))

    for name, module in llama.layers.named_modules(prefix="layers"):
        if isinstance(module, torch.nn.Linear):
            hook = partial(note, name=f"{name}.weight")
            hooks.append(module.register_forward_pre_hook(hook))
    try:
        for ids in texts:
            llama(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: torch.cat(some) for name, some in found.items()}


def losses(log_p, texts) -> list[float]:
    """Return the loss of each text; log_p: (tokens of all texts, V)."""
    rows = log_p.split([len(t) for t in texts])
    pairs = zip(rows, texts, strict=True)  # row t predicts token t + 1
    return [F.nll_loss(r[:-1], t[1:]).item() for r, t in pairs]


def compare(log_p, log_q, texts) -> tuple[float, float, float]:
    """Return the loss that q adds, its standard error, the divergence."""
    added = paired_difference(losses(log_q, texts), losses(log_p, texts))
    each = (log_p.exp() * (log_p - log_q)).sum(-1)  # (tokens,)
    far = [d.mean().item() for d in each.split([len(t) for t in texts])]
    return *added, sum(far) / len(far)


def _kept(ax, numbers, kept, size):
    """Draw numbers as dots, and what is kept of them as dashes."""
    dash, dot = dict(ms=size, mew=2), dict(ms=3)
    looks = ("query", "_", dash), ("plain", "o", dot)
    lines(ax, dict(kept=kept, number=numbers), looks, range(len(numbers)))


def values_of(codes):
    """Draw each code's values as dashes, from -1 to 1; the first on top."""
    _, ax = canvas(0.9 + 0.32 * len(codes))
    heights = range(len(codes))[::-1]
    for y, code in zip(heights, codes.values(), strict=True):
        style = dict(color=COLOURS["query"], lw=1 if len(code) > 99 else 2)
        ax.vlines(array(code), y - 0.3, y + 0.3, **style)
    ax.set_yticks(heights, list(codes))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return finish(ax, "The values of each code", "weight ÷ a", "")


LINEAR = 1e-3  # nats: below it the axis of `loss_by_code` is linear


def loss_by_code(points):
    """Draw losses added: how to {name of a code: (nats, standard error)}."""
    names = list(dict.fromkeys(n for named in points.values() for n in named))
    _, ax = canvas(1.2 + 0.32 * len(names))
    looks = [("plain", "o"), ("query", "s"), ("key", "D")][: len(points)]
    for (how, named), (tone, mark) in zip(points.items(), looks, strict=True):
        losses, errors = zip(*named.values(), strict=True)
        style = dict(fmt=mark, color=COLOURS[tone], capsize=3, label=how)
        if mark == "D":  # hollow: it covers no other mark
            style |= dict(mfc="none", ms=8, mew=1.5)
        rows = [names.index(name) for name in named]
        ax.errorbar(losses, rows, xerr=errors, **style)
    ax.set_xscale("symlog", linthresh=LINEAR)
    ticks = 0, LINEAR, 0.01, 0.1, 1
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axvline(0, color=COLOURS["plain"], lw=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.grid(axis="y", alpha=0.3)
    heading = "All matrices of the blocks rounded: loss added ± standard error"
    limits = dict(ylim=(len(names) - 0.5, -0.5))
    finish(ax, heading, "loss added, nats per token", **limits)
    return add_legend(ax, "lower right")


def quantized_row(numbers, kept, values, errors, name):
    """Draw a row before and after rounding, and all values' errors."""
    margins = 0.09, 0.16, 0.99, 0.9, 0.24
    _, axes = panels(3.0, 2, margins=margins, width_ratios=(2, 1))
    left, right = axes
    strokes = dict(color=COLOURS["token"], lw=1.5)
    left.vlines(range(len(numbers)), numbers, kept, **strokes)
    _kept(left, numbers, kept, 7)
    finish(left, name, "index in the row", "value")
    add_legend(left, "lower right", ncols=2)
    both, limit = dict(numbers=values, errors=errors), abs(values).max().item()
    edges, tones = np.linspace(-limit, limit, 41), ("other", "token")
    histograms(right, both, edges, tones, fill=True, alpha=0.7)
    return finish(right, "", "value", "how many", yscale="log", legend="above")


def quantization(llama, codes) -> Play:
    """Return a widget that rounds a matrix: a row, and 256 rows' errors.

    codes: name to the values of a code, in order.
    """
    weights = {n: w for n, w in llama.state_dict().items() if w.dim() == 2}

    def draw(name, code, g):
        w = weights[name][:256].detach().float().cpu()  # (M, K)
        kept = kept_by(w, codes[code], g or w.shape[1])  # (M, K)
        lost = ((kept - w).norm() / w.norm()).item()
        sharing = f"groups of {g}" if g else "rows"
        which = name.removesuffix(".weight")
        heading = f"{which}, {code} in {sharing}: error {100 * lost:.2g} %"
        row = w[0, :48], kept[0, :48]
        return quantized_row(*row, w.flatten(), (kept - w).flatten(), heading)

    sizes = [("a row", 0), ("128", 128), ("32", 32), ("8", 8)]
    first = dict(options=list(weights), value="layers.0.attention.wq.weight")
    values = dict(options=list(codes), value=list(codes)[-1])
    return Play(
        draw,
        name=ipw.Dropdown(description="matrix", **first),
        code=ipw.Dropdown(description="code", **values),
        g=ipw.Dropdown(options=sizes, description="per scale"),
    )


def kept_by(w, code, g: int):
    """Return (M, K) numbers after rounding, `g` numbers to a scale."""
    K = w.shape[-1]
    # zeros after a row's last number do not change the scale
    groups = F.pad(w, (0, -K % g)).unflatten(-1, (-1, g))  # (M, n, g)
    scale = groups.abs().amax(dim=-1, keepdim=True)  # (M, n, 1)
    scale = torch.where(scale > 0, scale, 1e-12)
    middles = (code[1:] + code[:-1]) / 2
    kept = code[torch.bucketize(groups / scale, middles)] * scale
    return kept.flatten(-2)[:, :K]  # (M, K)


# -- the checks of the exercises --


@exercise(1, expects="a matrix (M, K)")
def check_1(answer):
    """Rows at different heights, so that each has its own ends."""
    g, (M, K) = draws(1), vary((4, 50), (3, 41), (6, 27), (5, 37))
    w = torch.rand(M, K, generator=g) * 3 + torch.arange(M)[:, None] - 1.4
    a, b = w.aminmax(dim=1, keepdim=True)  # (M, 1)
    tie = ((w - a) / (b - a) * 255 % 1 - 0.5).abs() < 1e-3  # nearly
    w = torch.where(tie, w + (b - a) / 2550, w)  # rounds in one way

    alike(answer, "B_quantization", 1, [(w,)])


@exercise(2, expects="a whole number of 16 bits")
def check_2(answer):
    """Ties, then any finite number, then the edges of the exponent."""
    n = vary(600, 500, 700, 550)
    bits = torch.randint(2**32, (n,), generator=draws(4))
    bits[:200] = (bits[:200] >> 16 << 16) + 2**15  # exactly between two
    bits = bits[(bits >> 23 & 255) < 255].tolist()  # finite
    bits += [0, 2**31, 0x3FFFFFFF, 0x3F808000, 0x3F818000, 0x7F7FFFFF]
    bits += [0x7F7F0001, 0x7F7F7FFF, 0x7F7F8000]  # near the largest
    cases = {f"the result for 0x{p:08X}": (p,) for p in bits}
    alike(answer, "B_quantization", 2, cases, tolerance=0)
