"""Pictures, widgets and checks of notebook 02."""

from collections.abc import Iterator

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.transforms import Bbox
from torch import Tensor

from . import charts
from .judge import Wrong, agree, as_tensor, describe, draws, exercise, vary
from .play import Play, token_texts
from .pocket import strip  # noqa: F401
from .theme import COLOURS, GROUPS, array, canvas, panels, visible


def lookup(one_hot, table, rows):
    """Draw one-hot rows (T, V) times a table (V, D): rows (T, D), as lists."""
    parts = [
        ("one-hot (T, V)", "position t", "token id", one_hot),
        ("table (V, D)", "token id", "dimension", table),
        ("result (T, D)", "position t", "dimension", rows),
    ]
    widths = [len(values[0]) for *_, values in parts]
    fig, axes = panels(3.6, 3, width_ratios=widths)
    columns = zip(axes, parts, "×= ", strict=True)
    for ax, (name, down, across, values), sign in columns:
        n, m = array(values).shape
        ones = values is one_hot
        limit = 1.5 if ones else abs(array(table)).max()
        charts.heatmap(ax, values, signed=not ones, limit=limit)
        form = "{:.0f}" if ones else "{:.2f}"
        texts = [[form.format(x) for x in row] for row in values]
        dark = [[ones and x > 0 for x in row] for row in values]
        charts.cell_texts(ax, texts, dark)
        ticks = dict(xticks=range(m), yticks=range(n))
        charts.finish(ax, name, across, down, aspect="equal", **ticks)
        charts.write(ax, m, n / 2 - 0.5, sign, 16)
    return fig


def norm_histogram(lengths, special, marks):
    """Draw the lengths of rows, and ticks at two marks: name to lengths."""
    fig, ax = canvas(3.2)
    series = {"ordinary tokens": lengths, "special tokens": special}
    edges = np.histogram_bin_edges(np.concatenate([lengths, special]), 60)
    style = dict(fill=True, alpha=0.85)
    charts.histograms(ax, series, edges, ("residual", "plain"), **style)
    top = ax.get_ylim()[1]
    looks = ("token", 1.06), ("probability", 1.18)
    for (name, xs), (tone, height) in zip(marks.items(), looks, strict=True):
        style = dict(color=COLOURS[tone], ms=13, mew=2, label=name)
        ax.plot(array(xs), [height * top] * len(xs), "|", **style)
    label = "length of the row (square root of the sum of squares)"
    return charts.finish(ax, "", label, "tokens", legend="above")


def by_count(times, cosines, chance):
    """Draw n tokens' cosines by how often each occurred in training.

    chance: cosines of random vectors are seldom larger than this.
    """
    fig, ax = canvas(3.4)
    times, zero = array(times), 0.3  # where "never" is on a log axis
    places, never = np.maximum(times, zero), (times == 0).sum()
    ax.axhspan(-chance, chance, color="#dddddd", label="random vectors")
    style = dict(ms=3, alpha=0.5, color=COLOURS["token"], label="tokens")
    ax.plot(places, array(cosines), "o", **style)
    charts.note(ax, zero, 1, f"{never:,} tokens", 6, -3, va="top", size=9)
    ticks = {zero: "never" if never else ""}
    ticks |= {10**i: f"{10**i:,}" for i in range(7)}
    charts.log_axis(ax, "x", list(ticks), ticks.get)
    labels = "times in training (log scale)", "cosine"
    return charts.finish(ax, "", *labels, legend="above")


def directions(points, axes, spread):
    """Draw (n, 2) points and two directions; the spread by angle, (180,)."""
    points, axes = array(points), array(axes)
    fig, (ax, curve) = panels(3.6, 2, width_ratios=(1, 1))
    ax.plot(*points.T, "o", ms=4, color=COLOURS["token"])
    far = max(points, key=lambda p: abs(p @ axes[1]))
    shadow = far @ axes[0] * axes[0]
    ax.plot(*zip(far, shadow, strict=True), ":", color="#777777")
    charts.lines(curve, {"": spread}, [("plain", "-")], range(180))
    for name, axis in zip(("first", "second"), axes, strict=True):
        reach = abs(points @ axis).max() * axis
        ends = dict(arrowprops=dict(arrowstyle="<->", lw=1.5))
        ax.annotate("", reach, -reach, **ends)
        angle = np.degrees(np.arctan2(axis[1], axis[0])) % 180
        charts.mark_x(curve, angle, name)
        reach = reach * (1 if reach[1] > 0 else -1)
        charts.note(ax, *reach, name, 4, 4)
    ax.margins(0.12)
    charts.finish(ax, "points", "x", "y", aspect="equal", adjustable="datalim")
    labels = "angle of the direction (degrees)", "sum of squares"
    return charts.finish(curve, "spread", *labels, ylim=(0, None))


def neighbours(nearest):
    """Draw the nearest tokens of a few tokens: (text, names, cosines) each."""
    n = len(nearest[0][1])
    fig, axes = panels(0.8 + 0.26 * n, len(nearest), sharex=True)
    for ax, (token, names, cosines) in zip(axes, nearest, strict=True):
        charts.ranked_bars(ax, names, cosines, "token")
        ax.tick_params(axis="y", labelsize=8)
        name = f"nearest to {visible(token)}"
        charts.finish(ax, name, "cosine", xlim=(0, 1))
    return fig


def nearest_bars(token, names, cosines, every):
    """Draw a token's n nearest tokens, and its cosine with every other."""
    height = 0.9 + 0.27 * len(names)
    margins = 0.16, 0.5 / height, 0.98, 1 - 0.3 / height, 0.28
    fig, (ax, crowd) = panels(height, 2, margins=margins)
    texts = [f"{cosine:.2f}" for cosine in cosines]
    charts.ranked_bars(ax, names, cosines, "token", texts)
    labels = f"nearest to {visible(token)}", "cosine (1: the same direction)"
    charts.finish(ax, *labels, xlim=(min(0, *cosines), 1.12))
    edges = np.linspace(-1, 1, 61)
    charts.histograms(crowd, {"": every}, edges, ["residual"], fill=True)
    lowest = min(cosines)
    charts.mark_x(crowd, lowest, f"the nearest {len(names)} →", lowest > 0.5)
    crowd.set(yscale="log", xticks=[-1, -0.5, 0, 0.5, 1])
    crowd.minorticks_off()
    labels = "cosine with every other token", "tokens (log scale)"
    return charts.finish(crowd, "the whole vocabulary", *labels)


def word_map(points, words, kinds, shares):
    """Draw n words at (n, 2) points; shares: of the variance, by axis."""
    fig, ax = canvas(5.6)
    names = list(dict.fromkeys(kinds))
    for i, name in enumerate(names):
        pairs = zip(points, kinds, strict=True)
        mine = array([point for point, kind in pairs if kind == name])
        ax.scatter(*mine.T, s=18, color=GROUPS[i], label=name)
    ax.margins(0.08)
    first, second = (f"({share:.0%} of the variance)" for share in shares)
    charts.finish(ax, "", f"first axis {first}", f"second axis {second}")
    place = dict(ncols=len(names), bbox_to_anchor=(0, 1))
    charts.add_legend(ax, "lower left", **place)
    tones = [GROUPS[names.index(kind)] for kind in kinds]
    fig.canvas.draw()  # so that the size of a label is known
    _write_beside(ax, points, [visible(word) for word in words], tones)
    return fig


def _write_beside(ax, points, texts, tones):
    """Write each text next to its point, where it covers least."""
    at = ax.transData.transform(points)
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in at]
    sides = [(1, 0), (-1, 0), (0, 1), (0, -1)]
    sides += [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    for own, (text, tone) in enumerate(zip(texts, tones, strict=True)):
        label = charts.write(ax, *points[own], text, 8, color=tone)
        box = label.get_window_extent()
        w, h = box.width / 2, box.height / 2
        others = taken[:own] + taken[own + 1 :]

        def hits(place, others=others):
            inside = map(ax.bbox.fully_containsx, (place.x0, place.x1))
            return place.count_overlaps(others) + 5 * (2 - sum(inside))

        places = [
            box.translated(right * (far + w), up * (far + h))
            for far in (5, 9, 14, 20, 28)
            for right, up in sides
        ]
        taken.append(min(places, key=hits))
        middle = taken[-1].get_points().mean(0)
        label.set_position(ax.transData.inverted().transform(middle))


def position_table(table):
    """Draw a position embedding (T, D): sines at the left, then cosines."""
    fig, axes = panels(2.9, 2, sharey=True)
    for i, name in enumerate(("sines", "cosines")):
        half = array(table)[:, i::2]  # (T, D/2)
        image = charts.heatmap(axes[i], half, signed=True, limit=1)
        charts.finish(axes[i], name, "pair i", "position" if i == 0 else "")
    fig.colorbar(image, ax=axes, label="value", pad=0.01)
    return fig


def nearest(llama, token=" France") -> Play:
    """Return a field for a token, and the tokens of the nearest rows."""
    table = llama.tok_embeddings.weight.detach()  # (V, D)
    mean = table.mean(0)  # (D,)
    norms = table.norm(dim=1)  # (V,)
    # |w - m|² = |w|² - 2 w·m + |m|²: needs no second table
    squares = norms**2 - 2 * (table @ mean) + mean @ mean  # (V,)
    centred = squares.clamp(min=0).sqrt()  # (V,)

    def draw(token, centre):
        i = _one_id(llama.tokenizer, token)
        origin, lengths = (mean, centred) if centre else (0 * mean, norms)
        row = table[i] - origin  # (D,)
        cosines = (table @ row - origin @ row) / (lengths * row.norm())
        cosines = cosines.nan_to_num().float().cpu()  # a row of zeros: 0
        cosines[i] = -2  # not itself
        top = cosines.topk(min(12, len(cosines) - 1))
        name, *names = token_texts(llama, [i, *top.indices.tolist()])
        every = cosines[cosines > -2]
        return nearest_bars(name, names, top.values.tolist(), every)

    last = llama.tokenizer.encode(token, bos=False, eos=False)[-1:]
    text = dict(description="token, or # and an id", continuous_update=False)
    box = dict(description="subtract the mean row first", indent=False)
    return Play(
        draw,
        token=ipw.Text(llama.tokenizer.decode(last), **text),
        centre=ipw.Checkbox(False, **box),
    )


def _one_id(tokenizer, text: str) -> int:
    """Return the id of "#" and digits, or of a text of one token."""
    if text.startswith("#") and text[1:].isdecimal():
        i, last = int(text[1:]), tokenizer.n_words - 1
        if i > last:
            found = f"id {i} is not in the vocabulary"
            raise ValueError(f"{found}; expected 0 to {last}")
        return i
    ids = tokenizer.encode(text, bos=False, eos=False, allowed_special="all")
    if len(ids) != 1:
        names = ", ".join(f"{tokenizer.decode([i])!r} (#{i})" for i in ids)
        raise ValueError(
            f"{text!r} is {len(ids)} tokens, not one: {names or 'none'}. "
            "Most words are one token only with a space before them."
        )
    return ids[0]


# -- the checks of the exercises --


@exercise(1, "a tensor (B, T, V) of zeros and ones")
def check_1(answer):
    g, n = draws(1), vary(0, 1, 2, 4)
    for shape, V in (((2 + n, 5), 11 + n), ((3 + n, 3 + n), 9 - n)):
        # the largest id is below V - 1
        ids = torch.randint(0, V - 2, shape, generator=g)  # (B, T)
        expected = F.one_hot(ids, V).float()  # (B, T, V)
        found = answer(ids, V)
        agree(found, expected, one_hot_mistakes(ids, expected))
        if not isinstance(found, Tensor) or found.dtype != torch.float32:
            words = "a float32 table cannot be multiplied by it"
            dtype = found.dtype if isinstance(found, Tensor) else ""
            raise Wrong(f"the result is {dtype or describe(found)}: {words}")
    return "the product with a table is the lookup"


def one_hot_mistakes(ids: Tensor, expected: Tensor) -> Iterator[tuple]:
    each = torch.arange(expected.shape[-1])  # (V,)
    words = "V is taken from the largest id; use the argument V"
    yield words, F.one_hot(ids)
    yield "V is before T; expected (B, T, V)", expected.mT
    for step in (1, -1):
        yield "the 1 is one index off the id", expected.roll(step, -1)
    for several in (ids[..., None] >= each, ids[..., None] <= each):
        yield "a row has several ones; expected one", several
    yield "zeros and ones are exchanged", 1 - expected


@exercise(2, "the ids of k tokens, nearest first")
def check_2(answer):
    g, n = draws(2), vary(0, 1, 2, 3)
    scale = torch.rand(60 + n, 1, generator=g) * 3 + 0.2
    table = torch.randn(60 + n, 4, generator=g) * scale  # of all lengths
    line = torch.arange(12.0)[:, None] ** 2 * torch.tensor([1.0, 2.0])
    line[2 + n] = line[5 + n]  # two equal rows; whole numbers are exact
    cases = [(table, 7 + n, 9), (table, n, 5)]
    # of two equal rows, either may come first in topk: ask for both
    for rows, i, k in (*cases, (line, 5 + n, 4), (line, 2 + n, 4)):
        found = answer(rows, i, k)
        numbers = as_tensor(found)
        if numbers is not None and i in numbers.flatten().tolist():
            raise Wrong("the token itself is among its neighbours")
        distance = (rows - rows[i]).norm(dim=1)  # (V,)
        distance[i] = torch.inf
        expected = distance.topk(k, largest=False)
        agree(found, expected.indices, distance_mistakes(rows, i, expected))
    return "nearest first"


def distance_mistakes(table: Tensor, i: int, expected) -> Iterator[tuple]:
    values, indices = expected
    for shown in (values, values**2):
        words = "these are distances; expected ids (topk's .indices)"
        yield words, shown
    yield "the furthest of them is first", indices.flip(0)
    yield "the right tokens, but not nearest first", indices.sort().values
    dots, length = table @ table[i], table.norm(dim=1)  # (V,) each
    squares = length**2 - 2 * dots  # |w_i|² is the same for all
    for words, score in (
        ("sorted by cosine: the lengths count here", dots / length),
        ("sorted by dot product: |w_v|² is missing", dots),
        ("these are the furthest; expected the nearest", squares),
        ("the sign of 2 a·b is wrong", -(length**2) - 2 * dots),
        ("2 a·b lacks its 2", dots - length**2),
        ("|w_v| is not squared", 2 * dots - length),
    ):
        score[i] = -torch.inf
        yield words, score.topk(len(indices)).indices


def sinusoids(T: int, D: int) -> Tensor:
    """Return the sines and cosines of T positions, in pairs, (T, D)."""
    angle = torch.arange(T)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


@exercise(3, "a tensor (n, D)")
def check_3(answer):
    n = vary(0, 1, 2, 3)
    for D, start, k in ((8, 3, 5 + n), (12, 20, -7), (16, 11, 2), (8, 4, 0)):
        table = sinusoids(64, D + 4 * n)[n:]
        rows, expected = table[start : start + 9], table[start + k :][:9]
        agree(answer(rows, k), expected, shift_mistakes(rows, k), 1e-3)
    return "each pair rotates by k times its frequency"


def shift_mistakes(rows: Tensor, k: int) -> Iterator[tuple]:
    D, pair = rows.shape[1], torch.arange(0, rows.shape[1], 2)  # 2i
    sin, cos = rows[:, 0::2], rows[:, 1::2]  # (n, D/2)
    angle = k / 10000 ** (pair / D)  # (D/2,)
    yield "nothing has moved", rows
    yield "these are k positions earlier", paired(sin, cos, -angle)
    words = "the pairs are neighbours: columns 2i and 2i + 1, not halves"
    yield words, torch.cat(rotated(*rows.chunk(2, 1), angle), 1)
    words = "pairs count from 0: the first rotates by k"
    yield words, paired(sin, cos, k / 10000 ** ((pair + 2) / D))
    words = "the exponent is i/D; expected 2i/D"
    yield words, paired(sin, cos, k / 10000 ** (pair / 2 / D))
    words = "all sines are before all cosines; expected pairs"
    yield words, torch.cat(rotated(sin, cos, angle), 1)
    late = rotated(sin, cos, angle)[0]  # the sines are overwritten first
    late = torch.stack([late, cos * angle.cos() - late * angle.sin()], -1)
    yield "the cosines use sines that are rotated already", late.flatten(1)


def rotated(sin: Tensor, cos: Tensor, angle: Tensor) -> tuple:
    new_sin = sin * angle.cos() + cos * angle.sin()
    return new_sin, cos * angle.cos() - sin * angle.sin()


def paired(sin: Tensor, cos: Tensor, angle: Tensor) -> Tensor:
    return torch.stack(rotated(sin, cos, angle), -1).flatten(1)
