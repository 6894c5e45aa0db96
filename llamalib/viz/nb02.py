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
    widths = [len(values[0]) for *_, values in parts]
    fig, axes = panels(3.6, 3, width_ratios=widths)
    for ax, (name, down, across, values), sign in zip(axes, parts, "×= "):
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
    """Draw the lengths of rows, and ticks at marks: name to lengths."""
    fig, ax = canvas(3.2)
    series = {"ordinary tokens": lengths, "special tokens": special}
    edges = np.histogram_bin_edges(np.concatenate([lengths, special]), 60)
    style = dict(fill=True, alpha=0.85)
    charts.histograms(ax, series, edges, ("residual", "plain"), **style)
    top = ax.get_ylim()[1]
    ticks = zip(marks.items(), ("token", "probability"), (1.06, 1.18))
    for (name, xs), tone, height in ticks:
        style = dict(color=COLOURS[tone], ms=13, mew=2, label=name)
        ax.plot(array(xs), [height * top] * len(xs), "|", **style)
    label = "length of the row (square root of the sum of squares)"
    return charts.finish(ax, "", label, "tokens", legend="above")


def neighbours(nearest):
    """Draw the nearest tokens of a few tokens: (text, names, cosines) each."""
    n = len(nearest[0][1])
    fig, axes = panels(0.8 + 0.26 * n, len(nearest), sharex=True)
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
    for name, tone in zip(names, GROUPS):
        mine = [p for p, kind in zip(points, kinds) if kind == name]
        ax.scatter(*zip(*mine), s=18, color=tone, label=name)
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


def position_table(table):
    """Draw a position embedding (T, D): sines at the left, then cosines."""
    fig, axes = panels(2.9, 2, sharey=True)
    for ax, name, values in zip(axes, ("sines", "cosines"), (0, 1)):
        half = array(table)[:, values::2]  # (T, D/2)
        image = charts.heatmap(ax, half, signed=True, limit=1)
        charts.finish(ax, name, "pair i", "" if values else "position")
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
