"""Pictures, widgets and checks of notebook B."""

import json
import re

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.ticker import NullLocator

from llamalib.load import ROOT

from .charts import add_legend, finish, histograms, lines, log_axis, note
from .judge import agree, draws, exercise, vary
from .play import Play
from .pocket import strip  # noqa: F401
from .texts import SENTENCES, held_out_texts
from .theme import COLOURS, array, canvas, panels


def tokens_of_new_sentences(llama) -> list[torch.Tensor]:
    """Return for each held-out text which tokens are of new sentences.

    New is what data/recipe/seen_sentences.json does not have; a token of a
    text is one that is predicted, (T - 1,) booleans.
    """
    file = ROOT / "data" / "recipe" / "seen_sentences.json"
    seen, found = set(json.loads(file.read_text(encoding="utf-8"))), []
    for text in held_out_texts(llama):
        flags = []
        for sentence in re.split(SENTENCES, text):
            ids = llama.tokenizer.encode(sentence, bos=False, eos=False)
            flags += [sentence.strip() not in seen] * len(ids)
        found.append(torch.tensor(flags))
    return found


def mean_of_tokens(texts, draws=1000) -> tuple[float, float]:
    """Return the mean over all tokens, and its standard error over texts.

    texts: a tensor of numbers for each text. The error is the standard
    deviation over as many texts drawn again, with replacement.
    """
    sums = torch.tensor([[each.sum(), len(each)] for each in texts])
    generator, shape = torch.Generator().manual_seed(0), (draws, len(sums))
    drawn = torch.randint(len(sums), shape, generator=generator)
    again = sums[drawn].sum(1)  # (draws, 2)
    total, count = sums.sum(0)
    return (total / count).item(), (again[:, 0] / again[:, 1]).std().item()


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


LINEAR = 1e-3  # nats: below it the axis of `loss_by_bits` is linear


def loss_by_bits(points):
    """Draw losses added: how to {name: (bits, nats, standard error)}.

    A name is written once: at its first point, or left of its last one if
    another code is near on the right; below it if a bar is in the way on
    the left. Points of one name have the same bits: a dotted line joins
    them.
    """
    _, ax = canvas(4.6)
    looks = [("plain", "o"), ("query", "s"), ("key", "D")][: len(points)]
    places, named_at, bars = {}, set(), []
    for (how, named), (tone, mark) in zip(points.items(), looks, strict=True):
        bits, losses, errors = zip(*named.values(), strict=True)
        style = dict(fmt=mark, color=COLOURS[tone], capsize=3, label=how)
        if mark == "D":  # hollow: it covers no other mark
            style |= dict(mfc="none", ms=8, mew=1.5)
        ax.errorbar(bits, losses, errors, **style)
        for name, (x, y, _) in named.items():
            places.setdefault(name, (x, []))[1].append(y)
        bars += named.values()
    for name, (x, ys) in places.items():
        style = dict(color=COLOURS["other"], ls=":", zorder=0)
        ax.vlines(x, min(ys), max(ys), **style)
        crowded = any(x < other < 1.1 * x for other, _ in places.values())
        barred = crowded and any(
            x / 1.2 < other < x and abs(y - ys[-1]) < error
            for other, y, error in bars
        )
        left, below = crowded and not barred, barred or x in named_at
        y, dx, ha = (ys[-1], -9, "right") if left else (ys[0], 7, "left")
        dy, va = (-2, "top") if below else (1, "bottom")
        note(ax, x, y, name, dx, dy, ha=ha, va=va, size=9)
        named_at.add(x)
    ax.set_yscale("symlog", linthresh=LINEAR)
    ticks = 0, LINEAR, 0.01, 0.1, 1
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.yaxis.set_minor_locator(NullLocator())
    log_axis(ax, "x", (2, 3, 4, 6, 8), base=2)
    ax.axhline(0, color=COLOURS["plain"], lw=0.8)
    labels = "true bits per weight", "loss added, nats per token"
    heading = "All matrices of the blocks rounded: loss added ± standard error"
    finish(ax, heading, *labels, xlim=(1.5, 10))
    return add_legend(ax)


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
        heading = (
            f"{code} in {sharing}: error {100 * lost:.2g} % of the matrix"
        )
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
    bits += [0x7F7F0001, 0x7F7F7FFF, 0x7F7F8000]  # near the largest
    right = [nearest(p) for p in bits]
    beyond = [(p & 0x7FFFFFFF) > 0x7F7F0000 for p in bits]
    infinite = [p >> 16 & 0x8000 | 0x7F80 for p in bits]
    columns = zip(infinite, beyond, right, strict=True)
    early = [i if b else r for i, b, r in columns]
    mistakes = [
        ("the bits are cut off, not rounded", [p >> 16 for p in bits]),
        ("less than half a step beyond the largest: expected the largest",
         early),
        ("all ties go up: expected even", [p + 2**15 >> 16 for p in bits]),
        ("all ties go down: expected even", [p + 32767 >> 16 for p in bits]),
        ("these are 32 bits: return the upper 16", [r << 16 for r in right]),
        ("the mantissa must carry into the exponent",
         [p >> 23 << 7 | r & 127 for p, r in zip(bits, right, strict=True)]),
    ]  # fmt: skip
    agree([answer(p) for p in bits], right, mistakes, tolerance=0)


def nearest(bits: int) -> int:
    """Return the bfloat16 that PyTorch rounds a float32's bits to."""
    signed = torch.tensor(bits - 2**32 if bits >= 2**31 else bits).int()
    rounded = signed.view(torch.float32).bfloat16()
    return rounded.view(torch.int16).item() % 2**16
