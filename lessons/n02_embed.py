"""Pictures, widgets and checks of notebook 02."""

import ipywidgets as ipw
import numpy as np
import torch
from matplotlib.transforms import Bbox
from torch import Tensor

from . import charts
from .judge import Wrong, alike, describe, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play, token_texts
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


def neighbours(llama, text: str, k: int = 6) -> list[str]:
    """Return the texts of the k nearest tokens by cosine, [] if none is.

    A text that is not one token of this model has none.
    """
    found = llama.tokenizer.encode(text, bos=False, eos=False)
    if len(found) != 1:
        return []
    table = llama.tok_embeddings.weight.detach()  # (V, D)
    cosines = table @ table[found[0]] / table.norm(dim=1)  # (V,)
    cosines[found] = -torch.inf  # not itself
    return token_texts(llama, cosines.topk(k).indices.tolist())


def known(llama, kinds: dict[str, str]) -> dict[str, int]:
    """Return the ids of the words that are one token with their space.

    Raises ValueError if fewer than three are: the map needs three.
    """
    encode = llama.tokenizer.encode
    found = {
        word: encode(f" {word}", bos=False, eos=False)
        for words in kinds.values()
        for word in words.split()
    }
    single = {word: ids[0] for word, ids in found.items() if len(ids) == 1}
    if len(single) < 3:
        raise ValueError(
            f"only {len(single)} of these {len(found)} English words are one "
            f"token of {llama.name}: run this notebook without LLAMA_DIR"
        )
    return single


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


def flatten(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return (n, 2) coordinates of rows (n, D), and each axis's share.

    The axes are the two principal components: the directions in which the
    rows spread most.
    """
    U, S, _ = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    points = U[:, :2] * S[:2]  # (n, 2)
    for axis in points.T:  # (n,): the SVD does not fix the sign of an axis
        axis *= axis[axis.abs().argmax()].sign()  # the largest is positive
    return points, S[:2].square() / S.square().sum()


def word_map(rows, words, kinds):
    """Draw the words of rows (n, D) on a map, a colour for each kind."""
    points, shares = (each.tolist() for each in flatten(rows))
    fig, ax = canvas(5.6)
    names = list(dict.fromkeys(kinds))
    for i, name in enumerate(names):
        pairs = zip(points, kinds, strict=True)
        mine = array([point for point, kind in pairs if kind == name])
        ax.scatter(*mine.T, s=18, color=GROUPS[i], label=name)
    ax.margins(0.08)
    first, second = (f"({share:.0%} of the spread)" for share in shares)
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


def said(ranks):
    """Draw the rank of each token when it was asked for: group to ranks."""
    fig, ax = canvas(2.2)
    tones = COLOURS["token"], COLOURS["probability"]
    for y, (values, tone) in enumerate(
        zip(ranks.values(), tones, strict=True)
    ):
        step = min(0.09, 0.7 / max(map(values.count, values)))
        for times, rank in enumerate(sorted(values)):
            higher = sorted(values)[:times].count(rank)  # equal ranks
            style = dict(ms=6, color=tone, alpha=0.8, mec="black", mew=0.4)
            ax.plot(rank, y - step * higher, "o", **style)
    ax.set_yticks(range(len(ranks)), ranks)
    ticks = [10**i for i in range(len(str(max(map(max, ranks.values())))))]
    charts.log_axis(ax, "x", ticks, "{:,.0f}".format)
    ax.set_ylim(-0.85, len(ranks) - 0.8)
    ax.invert_yaxis()
    heading = "Can the model say this token?"
    label = "rank of the token that was asked for (1: it says it)"
    return charts.finish(ax, heading, label)


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
    """Check `one_hot_batch(ids, V)`."""
    g, n = draws(1), vary(0, 1, 2, 4)
    cases = [
        # the largest id is below V - 1
        (torch.randint(0, V - 2, shape, generator=g), V)
        for shape, V in (((2 + n, 5), 11 + n), ((3 + n, 3 + n), 9 - n))
    ]
    alike(answer, "02_embed", 1, cases)
    if not isinstance(answer.last, Tensor):
        found = describe(answer.last)
        raise Wrong(f"the result is {found}; expected a tensor")
    if answer.last.dtype != torch.float32:
        words = "a float32 table cannot be multiplied by it"
        raise Wrong(f"the result is {answer.last.dtype}: {words}")
    return "the product with a table is the lookup"


@exercise(2, "the id of a token")
def check_2(answer, llama):
    """Check `analogy(table, a, b, c)`, then ask the model's own table."""
    g, n = draws(2), vary(0, 1, 2, 3)
    rows = torch.randn(40 + n, 6, generator=g)  # (V, D)
    rows *= torch.rand(len(rows), 1, generator=g) * 3 + 0.2  # of all lengths
    order = torch.rand(30, len(rows), generator=g).argsort(1)
    triples = order[:, :3].tolist()  # different ids; b or c is often nearest
    cases = [(rows, *triple) for triple in triples]
    # b - a + c is (0, 1), and the only other row points away from it
    away = torch.tensor([[1.0, 0], [1, 1], [0, 0.5], [-1, -2 - n]])
    cases.append((away, 0, 1, 2))
    alike(answer, "02_embed", 2, cases)
    table = llama.tok_embeddings.weight.detach()
    found = []
    for country in ("Italy", "Spain", "Germany", "Japan", "Russia", "China"):
        words = f" France, Paris, {country}".split(",")
        ids = [llama.tokenizer.encode(w, bos=False, eos=False) for w in words]
        if all(len(each) == 1 for each in ids):
            i = int(answer.function(table, *(each[0] for each in ids)))
            found.append(f"{country} → {llama.tokenizer.decode([i])!r}")
    return ", ".join(found) or "right"
