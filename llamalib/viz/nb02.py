r"""Pictures and widget of notebook 02."""

import ipywidgets as ipw
import numpy as np
from matplotlib.transforms import Bbox

from . import charts
from .base import COLOURS, GROUPS, array, canvas, panels, visible
from .model_map import strip  # noqa: F401
from .play import Play, token_texts


def lookup(one_hot, table, rows):
    """Draw one-hot rows (T, V) times a table (V, D): rows (T, D), as lists."""
    parts = [
        ("one-hot (T, V)", "position t", "token id", one_hot),
        ("table (V, D)", "token id", "dimension", table),
        ("result (T, D)", "position t", "dimension", rows),
    ]
    largest = abs(array(table)).max()
    widths = [len(values[0]) for *_, values in parts]
    fig, axes = panels(3.6, 3, width_ratios=widths)
    for ax, (name, down, across, values), sign in zip(axes, parts, "×= "):
        n, m = array(values).shape
        ones = values is one_hot
        limit = 1.5 if ones else largest
        charts.heatmap(ax, values, signed=not ones, limit=limit)
        form = "{:.0f}" if ones else "{:.2f}"
        texts = [[form.format(x) for x in row] for row in values]
        dark = [[ones and x > 0 for x in row] for row in values]
        charts.cell_texts(ax, texts, dark)
        ticks = dict(xticks=range(m), yticks=range(n))
        charts.finish(ax, name, across, down, aspect="equal", **ticks)
        charts.write(ax, m, n / 2 - 0.5, sign, 16)
    return fig


def norm_histogram(norms, special, marks):
    """Draw the norms of tokens' rows; marks: (token text, norm) to name."""
    fig, ax = canvas(3.8)
    series = {"ordinary tokens": norms, "special tokens": special}
    low, high = float(min(*norms, *special)), float(max(*norms, *special))
    edges = np.linspace(low, high, 61)
    style = dict(fill=True, alpha=0.85)
    charts.histograms(ax, series, edges, ("residual", "plain"), **style)
    ax.set_yscale("log")
    top = ax.get_ylim()[1]
    marks = sorted(marks, key=lambda mark: mark[1])
    places = _apart([x for _, x in marks], (high - low) / 32, low, high)
    for (text, x), place in zip(marks, places):
        ax.plot([x, x, place], [0.7, top, top * 2], c=COLOURS["other"], lw=0.8)
        style = dict(rotation=90, va="baseline")
        charts.write(ax, place, top * 2.6, visible(text), 8, **style)
    label = "norm of the row (square root of the sum of squares)"
    limits = dict(ylim=(0.7, top * 150), legend="above")
    return charts.finish(ax, "", label, "tokens (log scale)", **limits)


def _apart(places, gap, low, high):
    """Move sorted places as little as needed to be `gap` apart."""
    places = list(places)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    places = [min(p, high) for p in places]
    for i in range(len(places) - 2, -1, -1):
        places[i] = min(places[i], places[i + 1] - gap)
    return [max(p, low) for p in places]


def neighbours(nearest):
    """Draw the nearest tokens of a few tokens: (text, names, cosines) each."""
    height = 0.8 + 0.26 * len(nearest[0][1])
    fig, axes = panels(height, len(nearest), sharex=True)
    for ax, (token, names, cosines) in zip(axes, nearest):
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
    limits = dict(xlim=(min(0, *cosines), 1.12))
    label = "cosine (1: the same direction)"
    charts.finish(ax, f"nearest to {visible(token)}", label, **limits)
    edges = np.linspace(-1, 1, 61)
    charts.histograms(crowd, {"": every}, edges, ["residual"], fill=True)
    crowd.plot(cosines, [0.7] * len(names), "|", c=COLOURS["token"], ms=14)
    crowd.set(yscale="log", xticks=[-1, -0.5, 0, 0.5, 1])
    crowd.minorticks_off()
    label = "cosine with every other token"
    labels = dict(x=label, y="tokens (log scale)")
    return charts.finish(crowd, "the whole vocabulary", **labels)


def word_map(points, words, groups, shares):
    """Draw n words at (n, 2) points; shares: of the variance, by axis."""
    fig, ax = canvas(5.6)
    names = list(dict.fromkeys(groups))
    for name, tone in zip(names, GROUPS):
        mine = [p for p, g in zip(points, groups) if g == name]
        ax.scatter(*zip(*mine), s=18, color=tone, label=name)
    ax.margins(0.08)
    first, second = (f"({share:.0%} of the variance)" for share in shares)
    charts.finish(ax, "", f"first axis {first}", f"second axis {second}")
    place = dict(ncols=len(names), bbox_to_anchor=(0, 1))
    charts.add_legend(ax, "lower left", **place)
    tones = [GROUPS[names.index(g)] for g in groups]
    fig.canvas.draw()  # so that the size of a label is known
    _write_beside(ax, points, [visible(word) for word in words], tones)
    return fig


def _write_beside(ax, points, texts, tones):
    """Write each text next to its point, where it covers least."""
    at = ax.transData.transform(points)
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in at]
    sides = ((1, 0), (-1, 0), (0, 1), (0, -1))
    sides += ((1, 1), (1, -1), (-1, 1), (-1, -1))
    for own, (text, tone) in enumerate(zip(texts, tones)):
        label = charts.write(ax, *points[own], text, 8, color=tone)
        box = label.get_window_extent()
        w, h = box.width / 2, box.height / 2
        others = taken[:own] + taken[own + 1 :]

        def hits(place):
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


def order_by_layer(changes):
    """Draw the last row's relative change after each block: name to (L,)."""
    fig, ax = canvas(3.4)
    looks = [(tone, "o-") for tone in ("other", "plain", "residual")]
    series = {name: array(c).clip(1e-9) for name, c in changes.items()}
    layers = range(1, 1 + len(next(iter(series.values()))))
    charts.lines(ax, series, looks, layers)
    label = "relative change\nof the last row (log)"
    scale = dict(yscale="log", ylim=(1e-9, 30), xticks=layers)
    charts.finish(ax, "", "after how many blocks", label, **scale)
    charts.add_legend(ax, "upper left", ncols=3)
    return fig


def position_table(table, title_text=""):
    """Draw a position embedding (T, D), one row per position."""
    fig, ax = canvas(2.9)
    image = charts.heatmap(ax, table, signed=True)
    fig.colorbar(image, ax=ax, label="value", pad=0.01)
    label = "dimension (sine and cosine of each pair side by side)"
    return charts.finish(ax, title_text, label, "position")


def nearest(llama, token: str = " France", n: int = 12) -> Play:
    r"""Return a field for a token, and the tokens of the nearest rows.

    Args:
        token: to begin with; of several tokens the last one.
        n: bars to draw.
    """
    table = llama.tok_embeddings.weight.detach()  # (V, D)
    mean = table.mean(0)  # (D,)
    norms, centred = _norms(table, mean)

    def draw(token, centre):
        i = _one_id(llama.tokenizer, token)
        if centre:
            row = table[i] - mean  # (D,)
            cosines = (table @ row - mean @ row) / (centred * row.norm())
        else:
            cosines = table @ table[i] / (norms * norms[i])  # (V,)
        cosines = cosines.nan_to_num().float().cpu()  # a row of zeros: 0
        cosines[i] = -2  # not itself
        top = cosines.topk(min(n, len(cosines) - 1))
        names = token_texts(llama, top.indices.tolist())
        every = cosines[cosines > -2]
        (name,) = token_texts(llama, [i])
        return nearest_bars(name, names, top.values.tolist(), every)

    last = llama.tokenizer.encode(token, bos=False, eos=False)[-1:]
    return Play(
        draw,
        token=ipw.Text(
            llama.tokenizer.decode(last),
            description="token, or # and an id",
            continuous_update=False,
        ),
        centre=ipw.Checkbox(
            False, description="subtract the mean row first", indent=False
        ),
    )


def _norms(table, mean):
    """Return the norms of the rows, and of the rows minus their mean."""
    norms = table.norm(dim=1)  # (V,)
    # |w - m|² = |w|² - 2 w·m + |m|²: needs no second table
    squares = norms**2 - 2 * (table @ mean) + mean @ mean  # (V,)
    return norms, squares.clamp(min=0).sqrt()


def _one_id(tokenizer, text: str) -> int:
    """Return the id of "#" and digits, or of a text of one token."""
    if text.startswith("#") and text[1:].isdecimal():
        if int(text[1:]) >= tokenizer.n_words:
            raise ValueError(
                f"id {int(text[1:])} is not in the vocabulary; expected 0 to "
                f"{tokenizer.n_words - 1}"
            )
        return int(text[1:])
    ids = tokenizer.encode(text, bos=False, eos=False, allowed_special="all")
    if len(ids) != 1:
        names = ", ".join(f"{tokenizer.decode([i])!r} (#{i})" for i in ids)
        raise ValueError(
            f"{text!r} is {len(ids)} tokens, not one: {names or 'none'}. "
            "Most words are one token only with a space before them."
        )
    return ids[0]
