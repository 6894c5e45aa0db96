r"""The pictures of notebook 02."""

import ipywidgets as ipw

from .base import (
    COLOURS,
    GROUPS,
    canvas,
    heatmap,
    legend_above,
    title,
    visible,
)
from .play import Play
from .model_map import strip  # noqa: F401


def lookup(one_hot, table, rows):
    r"""One-hot rows times a small table, as three tables of numbers.

    Args:
        one_hot: (T, V) zeros and ones, as lists.
        table: (V, D) numbers.
        rows: (T, D), the product.
    """
    parts = [
        ("one-hot (T, V)", "position t", "token id", one_hot),
        ("table (V, D)", "token id", "dimension", table),
        ("result (T, D)", "position t", "dimension", rows),
    ]
    limit = max(abs(float(x)) for row in table for x in row)
    widths = [len(values[0]) for *_, values in parts]
    fig, axes = canvas(3.6, 1, 3, gridspec_kw={"width_ratios": widths})
    for ax, (name, down, across, values), sign in zip(axes[0], parts, "×= "):
        n, m = len(values), len(values[0])
        ones = values is one_hot
        heatmap(ax, values, signed=not ones, limit=1.5 if ones else limit)
        ax.set_aspect("equal")
        for i in range(n):
            for j in range(m):
                text = f"{values[i][j]:.0f}" if ones else f"{values[i][j]:.2f}"
                colour = "white" if ones and values[i][j] > 0 else "black"
                ax.text(
                    j, i, text, ha="center", va="center", size=8, color=colour
                )
        ax.set(xlabel=across, ylabel=down, xticks=range(m), yticks=range(n))
        title(ax, name)
        if sign != " ":
            ax.text(m, n / 2 - 0.5, sign, size=16, ha="center", va="center")
    return fig


def norm_histogram(norms, special, marks):
    r"""How long the embedding's rows are, ordinary and special tokens apart.

    Args:
        norms: n floats, of the ordinary tokens.
        special: m floats, of the special tokens.
        marks: (token text, norm) of those to be named.
    """
    fig, ax = canvas(3.8)
    low, high = float(min(*norms, *special)), float(max(*norms, *special))
    for values, name, role in (
        (norms, "ordinary tokens", "residual"),
        (special, "special tokens", "plain"),
    ):
        ax.hist(
            values,
            bins=60,
            range=(low, high),
            color=COLOURS[role],
            label=name,
            alpha=0.85,
        )
    ax.set_yscale("log")
    top = ax.get_ylim()[1]
    ax.set_ylim(0.7, top * 150)
    marks = sorted(marks, key=lambda mark: mark[1])
    places = _apart([x for _, x in marks], (high - low) / 32, low, high)
    for (text, x), place in zip(marks, places):
        ax.plot([x, x, place], [0.7, top, top * 2], c=COLOURS["other"], lw=0.8)
        ax.text(
            place, top * 2.6, visible(text), rotation=90, ha="center", size=8
        )
    legend_above(ax, 2)
    ax.set_xlabel("norm of the row (square root of the sum of squares)")
    ax.set_ylabel("tokens (log scale)")
    return fig


def _apart(places, gap, low, high):
    """Sorted places, moved as little as need be to stand `gap` apart."""
    places = list(places)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    places = [min(p, high) for p in places]
    for i in range(len(places) - 2, -1, -1):
        places[i] = min(places[i], places[i + 1] - gap)
    return [max(p, low) for p in places]


def neighbours(panels):
    r"""For each of a few tokens, its nearest tokens as bars.

    Args:
        panels: (token text, names, cosines) for each token; the names and
            cosines nearest first, as many for each token.
    """
    n = len(panels[0][1])
    fig, axes = canvas(0.8 + 0.26 * n, 1, len(panels), sharex=True)
    axes = axes.flat if len(panels) > 1 else [axes]
    for ax, (token, names, cosines) in zip(axes, panels):
        ax.barh(range(n), cosines, color=COLOURS["token"])
        ax.set_yticks(range(n), [visible(name) for name in names], fontsize=8)
        ax.invert_yaxis()
        ax.set_xlim(0, 1)
        ax.set_xlabel("cosine")
        title(ax, f"nearest to {visible(token)}")
    return fig


def nearest_bars(token, names, cosines, every):
    r"""One token's nearest tokens as bars, among the cosines of all tokens.

    Args:
        token: its text.
        names, cosines: n texts and floats, nearest first.
        every: the cosine with each token of the vocabulary, itself left out.
    """
    import numpy

    n = len(names)
    height = 0.9 + 0.27 * n
    fig, axes = canvas(height, 1, 2)
    # fixed places: the widget draws this often, and a layout takes its time
    fig.set_layout_engine(None)
    low, high = 0.5 / height, 1 - 0.3 / height
    fig.subplots_adjust(0.16, low, 0.98, high, wspace=0.28)
    ax, crowd = axes[0]
    ax.barh(range(n), cosines, color=COLOURS["token"])
    ax.set_yticks(range(n), [visible(name) for name in names])
    ax.invert_yaxis()
    for row, cosine in enumerate(cosines):
        ax.text(
            max(cosine, 0) + 0.01, row, f"{cosine:.2f}", va="center", size=8
        )
    ax.set_xlim(min(0, *cosines), 1.12)
    ax.set_xlabel("cosine (1: the same direction)")
    title(ax, f"nearest to {visible(token)}")
    counts, edges = numpy.histogram(every, bins=60, range=(-1, 1))
    crowd.stairs(counts, edges, fill=True, color=COLOURS["residual"])
    crowd.plot(cosines, [0.7] * n, "|", color=COLOURS["token"], ms=14)
    crowd.set_yscale("log")
    crowd.set_xticks([-1, -0.5, 0, 0.5, 1])
    crowd.set_xlabel("cosine with every other token")
    crowd.set_ylabel("tokens (log scale)")
    crowd.minorticks_off()
    title(crowd, "the whole vocabulary")
    return fig


def word_map(points, words, groups, shares):
    r"""Words as points in a plane, each with its text beside it.

    Args:
        points: (n, 2) coordinates.
        words: n token texts.
        groups: n names of groups, at most six; one colour each.
        shares: of the variance, that each of the two axes holds (0 to 1).
    """
    fig, ax = canvas(5.6)
    names = list(dict.fromkeys(groups))
    for name, colour in zip(names, GROUPS):
        mine = [p for p, g in zip(points, groups) if g == name]
        x, y = zip(*mine)
        ax.scatter(x, y, s=18, color=colour, label=name)
    ax.margins(0.08)
    ax.set_xlabel(f"first axis ({shares[0]:.0%} of the variance)")
    ax.set_ylabel(f"second axis ({shares[1]:.0%} of the variance)")
    ax.legend(
        frameon=False,
        fontsize=9,
        ncols=len(names),
        loc="lower left",
        bbox_to_anchor=(0, 1),
    )
    colours = [GROUPS[names.index(g)] for g in groups]
    fig.canvas.draw()  # so that the size of a label is known
    _write_beside(ax, points, [visible(word) for word in words], colours)
    return fig


def _write_beside(ax, points, texts, colours):
    """Each text beside its point, where it covers no other if it can."""
    from matplotlib.transforms import Bbox

    renderer = ax.figure.canvas.get_renderer()
    at = ax.transData.transform([[float(x), float(y)] for x, y in points])
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in at]
    turns = [(1, 0), (-1, 0), (0, 1), (0, -1)]
    turns += [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    for own, ((x, y), text, colour) in enumerate(zip(at, texts, colours)):
        label = ax.text(0, 0, text, size=8, color=colour)
        box = label.get_window_extent(renderer)
        w, h = box.width, box.height
        best = None
        for far in (5, 9, 14, 20, 28):
            for right, up in turns:
                left = x + right * (far + w / 2) - w / 2
                low = y + up * (far + h / 2) - h / 2
                place = Bbox.from_bounds(left, low, w, h)
                others = taken[:own] + taken[own + 1 :]
                hits = place.count_overlaps(others)
                hits += 5 * (not ax.bbox.fully_containsx(left + w))
                hits += 5 * (not ax.bbox.fully_containsx(left))
                if best is None or hits < best[0]:
                    best = hits, place
        taken.append(best[1])
        corner = ax.transData.inverted().transform(best[1].p0)
        label.set_position(corner)
        label.set_verticalalignment("bottom")


def order_by_layer(changes):
    r"""How far the last row moves when the words are reordered, by layer.

    Args:
        changes: name of a model to L numbers: the change of the last row
            of the residual stream after each block, relative to its norm.
    """
    fig, ax = canvas(3.4)
    roles = ("other", "plain", "residual")
    for (name, values), role in zip(changes.items(), roles, strict=True):
        values = [max(float(v), 1e-9) for v in values]
        layers = range(1, len(values) + 1)
        ax.plot(layers, values, "o-", color=COLOURS[role], label=name, lw=2)
    ax.set_yscale("log")
    ax.set_ylim(1e-9, 30)
    ax.set_xticks(layers)
    ax.set_xlabel("after how many blocks")
    ax.set_ylabel("relative change\nof the last row (log)")
    ax.legend(frameon=False, fontsize=9, ncols=3, loc="upper left")
    return fig


def position_table(table, title_text=""):
    r"""A position embedding: one row a position.

    Args:
        table: (T, D) numbers.
        title_text: over the picture.
    """
    fig, ax = canvas(2.9)
    image = heatmap(ax, table, signed=True)
    fig.colorbar(image, ax=ax, label="value", pad=0.01)
    ax.set_xlabel("dimension (sine and cosine of each pair side by side)")
    ax.set_ylabel("position")
    title(ax, title_text)
    return fig


# -- the widget

def nearest(llama, token: str = " France", n: int = 12) -> Play:
    r"""A token, and the tokens whose rows of the embedding point its way.

    Args:
        llama: any Llama with its tokenizer.
        token: to start with; where it is several tokens, its last one.
        n: bars to draw.

    Controls: `token`, the text of one token (a special token by its name),
    or # and an id; `centre`, to take the mean row off every row first.
    """
    table = llama.tok_embeddings.weight.detach()  # (V, D)
    mean = table.mean(0)  # (D,)
    off = table @ mean  # (V,)
    norms = table.norm(dim=1)  # (V,)
    # |w - m|^2 = |w|^2 - 2 w.m + |m|^2: no second table is held
    centred = (norms**2 - 2 * off + mean @ mean).clamp(min=0).sqrt()
    decode = llama.tokenizer.decode

    def draw(token, centre):
        i = _one_id(llama.tokenizer, token)
        # V products of D numbers, never V times V
        if centre:
            row = table[i] - mean  # (D,)
            cosines = (table @ row - mean @ row) / (centred * row.norm())
        else:
            cosines = table @ table[i] / (norms * norms[i])  # (V,)
        cosines = cosines.nan_to_num().float().cpu()  # a row of zeros: 0
        cosines[i] = -2  # not itself
        top = cosines.topk(min(n, len(cosines) - 1))
        names = [decode([j]) for j in top.indices.tolist()]
        every = cosines[cosines > -2].numpy()
        return nearest_bars(decode([i]), names, top.values.tolist(), every)

    last = llama.tokenizer.encode(token, bos=False, eos=False)[-1:]
    return Play(
        draw,
        token=ipw.Text(
            decode(last),
            description="token, or # and an id",
            continuous_update=False,
        ),
        centre=ipw.Checkbox(
            False, description="take the mean row off first", indent=False
        ),
    )


def _one_id(tokenizer, text: str) -> int:
    """The id that a reader asks for, as "#" and digits or as a text."""
    if text.startswith("#") and text[1:].isdecimal():
        if int(text[1:]) >= tokenizer.n_words:
            raise ValueError(
                f"id {int(text[1:])} is not in the vocabulary; wanted 0 to "
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
