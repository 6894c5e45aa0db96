"""Pictures, widgets and checks of notebook B."""

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F

from .charts import add_legend, finish, histograms, lines, log_axis, note
from .judge import agree, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play
from .theme import COLOURS, array, canvas, colour, panels

PERCENT = dict(text=lambda y: f"{100 * y:.3g} %", subs=(1, 2, 5))


def stairs(numbers, kept, steps, name):
    """Draw n numbers before and after rounding to `steps`, and the errors."""
    numbers, kept = array(numbers), array(kept)
    _, (ax, below) = panels(4, 1, 2, sharex=True, height_ratios=(2, 1))
    for step in steps:
        ax.axhline(step, color=COLOURS["other"], lw=0.5, zorder=0)
    _kept(ax, numbers, kept, 12)
    finish(ax, name, "", "value", legend="above")
    at, half = range(len(numbers)), (steps[1] - steps[0]) / 2
    below.bar(at, kept - numbers, color=COLOURS["token"], width=0.5)
    below.axhline(0, color=COLOURS["plain"], lw=0.8)
    for y in (-half, half):
        below.axhline(y, color=COLOURS["other"], lw=0.8, ls="--")
    return finish(below, "", "index in the row", "error, and\nhalf a step")


def _kept(ax, numbers, kept, size):
    """Draw numbers as dots, and what is kept of them as dashes."""
    dash, dot = dict(ms=size, mew=2), dict(ms=3)
    looks = ("query", "_", dash), ("plain", "o", dot)
    lines(ax, dict(kept=kept, number=numbers), looks, range(len(numbers)))


def error_by_bits(curves):
    """Draw up to four errors by bits: name to [(bits, error), …]."""
    _, ax = canvas(3.4)
    tones = "plain", "query", "value", "key"
    looks = [(tone, f"{mark}-") for tone, mark in zip(tones, "osD^")]
    series = {name: tuple(zip(*points)) for name, points in curves.items()}
    lines(ax, series, looks, lw=1.5)
    log_axis(ax, "y", **PERCENT)
    halved = "From four bits on, each further bit halves the error"
    bits = "bits per number, with its share of the scale"
    finish(ax, halved, bits, "error, ‖ŵ − w‖ / ‖w‖")
    return add_legend(ax, title="numbers per scale")


def speed_by_texts(texts, ratios):
    """Draw speeds ÷ bfloat16's, by n texts decoded together: name to n."""
    _, ax = canvas(2.9)
    ax.axhline(1, color=COLOURS["plain"], lw=2)
    note(ax, texts[0], 1, "bfloat16 as it is loaded")
    looks = ("query", "o-"), ("key", "s-")
    lines(ax, ratios, looks, texts)
    log_axis(ax, "x", texts, base=2)
    heading = "Decoding with the 1B's shapes on a CPU"
    labels = "texts decoded together", "speed ÷ bfloat16's"
    return finish(ax, heading, *labels, ylim=(0, None), legend="best")


def loss_by_matrix(names, losses, base, bits):
    """Draw n losses above `base`: each with one kind of matrix at `bits`."""
    _, ax = canvas(2.9)
    roles = dict.fromkeys(("w1", "w2", "w3"), "feed-forward")
    roles |= dict(embedding="token", output="probability")
    tones = [colour(roles.get(name, "attention")) for name in names]
    ax.bar(names, [loss - base for loss in losses], color=tones)
    ax.axhline(0, color=COLOURS["plain"], lw=0.8)
    heading = f"One kind of matrix at {bits} bits, all others unchanged"
    return finish(ax, heading, "", "loss added,\nnats per token")


def outlier(steps, errors, labels):
    """Draw two rows' steps, and the errors of all but the first number."""
    fig, axes = panels(2.6, 2)
    tones = COLOURS["other"], COLOURS["token"]
    step = "Width of a step", steps, "{:.2g}"
    error = (
        "Relative error of the other numbers",
        errors,
        lambda x: f"{100 * x:.1f} %",
    )
    for ax, (name, values, form) in zip(axes, (step, error)):
        bars = ax.bar(labels, values, color=tones, width=0.6)
        ax.bar_label(bars, fmt=form, fontsize=9, padding=2)
        ax.spines["left"].set_visible(False)
        finish(ax, name, ylim=(0, 1.2 * max(values)), yticks=[])
    return fig


def largest_activations(shares, names):
    """Draw, for m inputs, each token's largest / typical number."""
    _, ax = canvas(2.9)
    for at, values in enumerate(shares):
        values = np.sort(array(values))
        spread = at + np.linspace(-0.3, 0.3, len(values))
        ax.plot(spread, values, ".", ms=3, color=COLOURS["residual"])
        ends = at - 0.3, at + 0.3
        ax.hlines(np.median(values), *ends, color=COLOURS["plain"], lw=2)
    log_axis(ax, "y", subs=(1, 2, 5))
    ax.set_xticks(range(len(names)), names)
    heading = (
        "Inputs of the matrices: each token of each layer, and the median"
    )
    return finish(ax, heading, "", "largest number\n÷ root mean square")


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


def quantization(llama) -> Play:
    """Return a widget that rounds a matrix: a row, and 256 rows' errors."""
    weights = {n: w for n, w in llama.state_dict().items() if w.dim() == 2}

    def draw(name, bits, g):
        w = weights[name][:256].detach().float().cpu()  # (M, K)
        kept = kept_at(w, bits, g or w.shape[1])  # (M, K)
        lost = ((kept - w).norm() / w.norm()).item()
        heading = f"error {100 * lost:.2g} % of the matrix"
        row = w[0, :48], kept[0, :48]
        return quantized_row(*row, w.flatten(), (kept - w).flatten(), heading)

    sizes = [("a row", 0), ("128", 128), ("32", 32), ("8", 8)]
    first = dict(options=list(weights), value="layers.0.attention.wq.weight")
    return Play(
        draw,
        name=ipw.Dropdown(description="matrix", **first),
        bits=ipw.IntSlider(4, 2, 8, description="bits"),
        g=ipw.Dropdown(options=sizes, description="per scale"),
    )


def kept_at(w, bits: int, g: int):
    """Return (M, K) numbers after rounding, `g` numbers to a scale."""
    top, K = 2 ** (bits - 1) - 1, w.shape[-1]
    # zeros after a row's last number do not change the scale
    groups = F.pad(w, (0, -K % g)).unflatten(-1, (-1, g))  # (M, n, g)
    scale = groups.abs().amax(dim=-1, keepdim=True) / top  # (M, n, 1)
    scale = torch.where(scale > 0, scale, 1)
    kept = (groups / scale).round() * scale  # (M, n, g)
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

    def kept(a, b, steps=255, to=torch.round):
        s = (b - a) / steps
        return a + s * to((w - a) / s)

    s, m = (b - a) / 255, w.abs().amax(1, keepdim=True)
    first, last = w.aminmax(dim=0, keepdim=True)  # (1, K)
    numbers, half = ((w - a) / s).round(), m / 127
    mistakes = [
        ("each row has its own a and b", kept(w.min(), w.max())),
        ("a row is along the last dimension", kept(first, last)),
        ("0 to 255 are 255 steps, not 256", kept(a, b, 256)),
        ("these are the whole numbers q: return a + s q", numbers),
        ("a is rounded to a step", s * (numbers + (a / s).round())),
        ("a is missing: return a + s q", s * numbers),
        ("this is symmetric", half * (w / half).round()),
        ("this is rounded down, not to nearest", kept(a, b, 255, torch.floor)),
        ("nothing is rounded", w),
    ]  # fmt: skip
    agree(answer(w), kept(a, b), mistakes)


@exercise(2, expects="a whole number of 16 bits")
def check_2(answer):
    """Ties, then any finite number, then the edges of the exponent."""
    n = vary(600, 500, 700, 550)
    bits = torch.randint(2**32, (n,), generator=draws(4))
    bits[:200] = (bits[:200] >> 16 << 16) + 2**15  # exactly between two
    bits = bits[(bits >> 23 & 255) < 255].tolist()  # finite
    bits += [0, 2**31, 0x3FFFFFFF, 0x3F808000, 0x3F818000, 0x7F7FFFFF]
    right = [nearest(p) for p in bits]
    mistakes = [
        ("the bits are cut off, not rounded", [p >> 16 for p in bits]),
        ("all ties go up: expected even", [p + 2**15 >> 16 for p in bits]),
        ("all ties go down: expected even", [p + 32767 >> 16 for p in bits]),
        ("these are 32 bits: return the upper 16", [r << 16 for r in right]),
        ("the mantissa must carry into the exponent",
         [p >> 23 << 7 | r & 127 for p, r in zip(bits, right)]),
    ]  # fmt: skip
    agree([answer(p) for p in bits], right, mistakes, tolerance=0)


def nearest(bits: int) -> int:
    """Return the bfloat16 that PyTorch rounds a float32's bits to."""
    signed = torch.tensor(bits - 2**32 if bits >= 2**31 else bits).int()
    rounded = signed.view(torch.float32).bfloat16()
    return rounded.view(torch.int16).item() % 2**16
