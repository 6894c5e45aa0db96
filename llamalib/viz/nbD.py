r"""The pictures of appendix D."""

import math
import ipywidgets as ipw

import matplotlib.pyplot as plt

from .nb05 import size_text
from .base import (
    COLOURS,
    WIDTH,
    array,
    canvas,
    cell_texts,
    heatmap,
    legend_above,
    title,
)
from .play import Play
from .model_map import strip  # noqa: F401

# The ways to a longer text, as lines: the same in every picture.
WAYS = {
    "as it is": dict(color=COLOURS["plain"], ls="-", lw=1.4),
    "last keys only": dict(color=COLOURS["other"], ls="-", lw=4, alpha=0.6),
    "distance capped": dict(color=COLOURS["probability"], ls="-", lw=1.8),
    "positions divided": dict(color=COLOURS["query"], ls="--", lw=1.6),
    "base raised": dict(color=COLOURS["key"], ls="-.", lw=1.6),
    "by wavelength": dict(color=COLOURS["attention"], ls="-", lw=2.2),
}
# lines without a look of their own, by their place in the legend
OTHERS = (
    dict(color=COLOURS["other"], ls="-", lw=5, alpha=0.5),
    dict(color=COLOURS["token"], ls="--", lw=1.8),
    dict(color=COLOURS["feed-forward"], ls="-.", lw=1.8),
    dict(color=COLOURS["value"], ls="-", lw=2.4),
)


def look(name: str, place: int = 0) -> dict:
    """How a line is drawn: by the name it begins with, else by its place."""
    for way, style in WAYS.items():
        if name.startswith(way):
            return style
    return OTHERS[place % len(OTHERS)]


def losses_along(panels, marks=(), heading="", height=3.4):
    r"""The loss along a text, of several ways to run the model.

    Args:
        panels: a panel's title to {name: (positions, losses)} or {name:
            (positions, losses, standard errors)}.
        marks: (position, text) of vertical lines; or a panel's title to
            those of this panel.
        heading: over the picture.
    """
    fig, axes = canvas(height, 1, len(panels), sharey=True)
    axes = [axes] if len(panels) == 1 else list(axes.flat)
    for ax, (name, series) in zip(axes, panels.items()):
        for place, (way, (xs, ys, *error)) in enumerate(series.items()):
            style, xs, ys = look(way, place), array(xs), array(ys)
            # a wide line below a narrow one, which else it would hide
            ax.plot(xs, ys, label=way, zorder=3 - style["lw"] / 10, **style)
            for e in map(array, error):
                shade = dict(color=style["color"], alpha=0.2, lw=0)
                ax.fill_between(xs, ys - e, ys + e, **shade)
        right = max(float(xs[-1]) for xs, *_ in series.values())
        for place, text in marks[name] if isinstance(marks, dict) else marks:
            ax.axvline(place, color="#777777", ls=":", lw=1.2, zorder=0)
            at_end = place > 0.9 * right  # no room for words behind it
            ax.text(
                place,
                1.0,
                f"{text} " if at_end else f" {text}",
                fontsize=8,
                va="top",
                ha="right" if at_end else "left",
                transform=ax.get_xaxis_transform(),
            )
        ax.set_ylim(bottom=0)
        ax.margins(y=0.12)
        ax.set_xlabel("position")
        title(ax, name)
    axes[0].set_ylabel("loss (nats a token)")
    handles = {}
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels()):
            handles.setdefault(name, handle)
    columns = min(5, len(handles))
    fig.legend(
        handles.values(),
        handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )
    if heading:
        fig.suptitle(heading, x=0.01, ha="left", fontsize=11)
    return fig


def loss_by_gap(gaps, means, errors, waves, alone=None):
    r"""The loss where part of a text is moved away from the rest.

    Args:
        gaps: n numbers of positions that were left out.
        means, errors: n losses, and their standard errors; or None.
        waves: pair to its wavelength: where it has turned once, twice … a
            mark is put, a row for each pair.
        alone: the loss where the other half is not seen at all; or None.
    """
    fig, (upper, lower) = canvas(
        4.2, 2, 1, sharex=True, height_ratios=[3, 0.4 * len(waves)]
    )
    upper, lower = upper[0], lower[0]
    gaps, means = map(array, (gaps, means))
    colour = COLOURS["plain"]
    if errors is not None:
        edges = means - array(errors), means + array(errors)
        upper.fill_between(gaps, *edges, color=colour, alpha=0.2, lw=0)
    if alone is not None:
        other = dict(color=COLOURS["key"], ls="--", lw=1.4)
        upper.axhline(float(alone), label="first half not seen", **other)
        upper.legend(frameon=False, fontsize=9, loc="upper right")
    upper.plot(gaps, means, "o-", color=colour, ms=3, lw=1.4)
    upper.set_ylim(bottom=0)
    upper.set_ylabel("loss of the second half\n(nats a token)")
    for row, wave in enumerate(waves.values()):
        turn = 0
        while turn * wave <= gaps[-1]:
            lower.plot(turn * wave, row, "o", color=COLOURS["query"], ms=7)
            if turn:
                lower.text(
                    turn * wave,
                    row,
                    f"   {turn} turn{'s' if turn > 1 else ''}",
                    va="center",
                    fontsize=8,
                )
                upper.axvline(
                    turn * wave, color="#bbbbbb", ls=":", lw=1, zorder=0
                )
            turn += 1
    names = [f"pair {k}: {wave:,.0f} a turn" for k, wave in waves.items()]
    lower.set_yticks(range(len(waves)), names)
    lower.set_ylim(len(waves) - 0.5, -0.5)
    lower.set_xlabel("positions left out between the halves")
    title(upper, "No more keys than in training, but further away")
    return fig


def shares_along(panels, ylabels):
    r"""Measures of the model along a text, side by side.

    Args:
        panels: a panel's title to {name: (positions, values)}.
        ylabels: of each panel.
    """
    fig, axes = canvas(3.1, 1, len(panels))
    axes = [axes] if len(panels) == 1 else list(axes.flat)
    for ax, (name, series), ylabel in zip(axes, panels.items(), ylabels):
        for place, (way, (xs, ys)) in enumerate(series.items()):
            ax.plot(array(xs), array(ys), label=way, **look(way, place))
        ax.set_ylim(bottom=0)
        ax.set_xlabel("position")
        ax.set_ylabel(ylabel)
        title(ax, name)
    fig.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
    )
    return fig


def slowed_pairs(panels, lines):
    r"""Wavelength by pair, before and after: what is kept, mixed, slowed.

    Args:
        panels: a panel's title to (before, after): hd/2 wavelengths each.
        lines: (name, positions) of horizontal lines.
    """
    fig, axes = canvas(4.4, 1, len(panels), sharey=True)
    axes = [axes] if len(panels) == 1 else list(axes.flat)
    for ax, (name, (before, after)) in zip(axes, panels.items()):
        before, after = array(before), array(after)
        pairs = range(len(before))
        _before_and_after(ax, pairs, before, after)
        for text, value in lines:
            ax.axhline(value, color="#777777", ls=":", lw=1.2, zorder=0)
            ax.text(0, value * 1.2, text, fontsize=8)
        ax.set_yscale("log")
        ax.set_xlabel("pair k")
        title(ax, name)
    axes[0].set_ylabel("positions to a full turn")
    fig.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    return fig


def _before_and_after(ax, pairs, before, after):
    """Two rows of dots, and a stroke from one to the other."""
    ax.vlines(pairs, before, after, color="#bbbbbb", lw=1, zorder=1)
    grey, dark = COLOURS["other"], COLOURS["attention"]
    ax.plot(pairs, before, "o", color=grey, ms=5, label="before")
    ax.plot(pairs, after, "s", color=dark, ms=3, label="after")


def cache_and_weights(lengths, models):
    r"""Bytes of one text's keys and values, and of the weights.

    Args:
        lengths: n numbers of positions.
        models: name to (n cache sizes, size of the weights), in bytes. Where
            a cache passes its model's weights there is a dot.
    """
    fig, ax = canvas(4.0)
    roles = ("query", "key", "value", "token", "feed-forward")
    for (name, (caches, weights)), role in zip(models.items(), roles):
        style = dict(color=COLOURS[role], lw=1.8)
        ax.plot(lengths, caches, label=f"{name}: cache", **style)
        ax.plot(
            [lengths[0], lengths[-1]],
            [weights, weights],
            ls=":",
            label=f"{name}: weights, {size_text(weights)}",
            **style,
        )
        meet = weights * lengths[-1] / caches[-1]
        if lengths[0] <= meet <= lengths[-1]:
            ax.plot(meet, weights, "o", color=COLOURS[role], ms=7)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = lengths[::2]
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks], fontsize=8)
    ax.yaxis.set_major_formatter(lambda value, _: _ticks(value))
    ax.grid(axis="y", color="#e5e5e5", lw=0.8)
    ax.set_xlabel("positions of one text")
    ax.set_ylabel("bytes in bfloat16")
    fig.legend(
        loc="outside right upper", frameon=False, fontsize=8, labelspacing=0.7
    )
    title(ax, "The cache grows, the weights do not (dots: both are equal)")
    return fig


def _ticks(value: float) -> str:
    """Bytes at a tick of the axis, where they may be thousands of GB."""
    return f"{value / 1e12:g} TB" if value >= 1e12 else size_text(value)


def attention_share(lengths, models):
    r"""Attention's part of the operations of one pass, by its length.

    Args:
        lengths: n numbers of tokens.
        models: name to n shares, from 0 to 1.
    """
    fig, ax = canvas(3.2)
    for (name, shares), style in zip(models.items(), ("-", "--", ":")):
        ax.plot(
            lengths, shares, ls=style, color=COLOURS["attention"], label=name
        )
    ax.axhline(0.5, color=COLOURS["other"], lw=1, ls=":")
    ax.set_xscale("log", base=2)
    ticks = lengths[::2]
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks], fontsize=8)
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    ax.set_xlabel("tokens of the text")
    ax.set_ylabel("attention's share\nof the operations")
    title(ax, "Scores and mixing, of all the products of a pass")
    legend_above(ax, len(models))
    return fig


def needle_maps(panels, depths, lengths, trials, trained=None):
    r"""Right answers by where the needle stands and how long the text is.

    Args:
        panels: a panel's title to (depths, lengths) numbers of right answers.
        depths: names of the rows.
        lengths: of the columns.
        trials: how many were asked for in each cell.
        trained: the length of training; a line stands behind its column.
    """
    fig, axes = canvas(3.1, 1, len(panels), sharey=True)
    axes = [axes] if len(panels) == 1 else list(axes.flat)
    for ax, (name, counts) in zip(axes, panels.items()):
        counts = array(counts)
        heatmap(ax, counts, limit=trials)
        texts = [[f"{count:.0f}" for count in row] for row in counts]
        cell_texts(ax, texts, counts > 0.55 * trials)
        ax.set_xticks(range(len(lengths)), [f"{n:,}" for n in lengths])
        ax.set_yticks(range(len(depths)), depths)
        ax.tick_params(length=0)
        if trained in lengths:
            at = list(lengths).index(trained) + 0.5
            ax.axvline(at, color=COLOURS["key"], lw=2)
        ax.set_xlabel("tokens of the text")
        title(ax, name)
    axes[0].set_ylabel("where the number\nis told")
    heading = f"Numbers recalled, of {trials} in each cell"
    fig.suptitle(heading, x=0.01, ha="left", fontsize=11)
    return fig


def stretched(before, after, along, lines, heading=""):
    r"""Wavelengths by pair, and the loss that the model has with them.

    Args:
        before, after: hd/2 wavelengths each, in positions.
        along: name to (positions, losses).
        lines: two of (name, positions), the smaller first: across the left
            panel, and upright in the right one where they are within it.
        heading: over the picture.
    """
    # laid out by hand: to be drawn again within a fifth of a second
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(WIDTH, 3.7), width_ratios=[1, 1.25]
    )
    fig.subplots_adjust(0.08, 0.25, 0.985, 0.88, wspace=0.2)
    pairs = range(len(before))
    _before_and_after(left, pairs, array(before), array(after))
    left.set_yscale("log")
    left.minorticks_off()
    left.set_xticks(pairs[:: max(1, len(pairs) // 8)])
    left.set_xlabel("pair k")
    left.set_ylabel("positions to a full turn")
    for place, (way, (xs, ys)) in enumerate(along.items()):
        style = look(way, place)
        above = 3 - style["lw"] / 10  # a wide line below a narrow one
        right.plot(array(xs), array(ys), label=way, zorder=above, **style)
    end = max(float(xs[-1]) for xs, _ in along.values())
    sides = (("top", 0.85), ("bottom", 1.15))  # the first below its line
    for (text, value), (side, by) in zip(lines, sides):
        left.axhline(value, color="#777777", ls=":", lw=1.2, zorder=0)
        left.text(pairs[-1], value * by, text, fontsize=8, va=side, ha="right")
        if value <= end:
            right.axvline(value, color="#777777", ls=":", lw=1.2, zorder=0)
    right.set_ylim(bottom=0)
    right.set_xlabel("position")
    right.set_ylabel("loss (nats a token)")
    for ax, at in ((left, 0.27), (right, 0.76)):
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
        fig.legend(
            *ax.get_legend_handles_labels(),
            frameon=False,
            fontsize=9,
            ncols=3,
            loc="lower center",
            bbox_to_anchor=(at, 0),
        )
    fig.suptitle(heading, x=0.01, ha="left", fontsize=11)
    return fig


# -- the widget

def longer(freqs, trained: int, choices, as_it_is, known=None) -> Play:
    r"""A way to a longer text, and a factor: wavelengths and loss.

    Nothing is run: what is shown was measured before.

    Args:
        freqs: (hd/2,) of the model as it is, radians a position.
        trained: the length it was trained at.
        choices: (way, factor) to ((hd/2,) frequencies, positions, losses).
        as_it_is: (positions, losses) without any change.
        known: name to (positions, losses) of lines to compare with; or None.

    Returns:
        a Play of `way` and `factor`.
    """
    ways = list(dict.fromkeys(way for way, _ in choices))
    factors = sorted({factor for _, factor in choices})
    before = math.tau / freqs  # (hd/2,)

    def draw(way, factor):
        slowed, *line = choices[way, factor]
        lines = [(f"trained: {trained:,}", trained)]
        lines.append(
            (f"{factor} times: {factor * trained:,}", factor * trained)
        )
        along = {"as it is": as_it_is, way: line} | (known or {})
        heading = f"{way}, factor {factor}"
        return stretched(
            before, math.tau / slowed, along, lines, heading
        )

    return Play(
        draw,
        way=ipw.Dropdown(options=ways, value=ways[-1], description="way"),
        factor=ipw.SelectionSlider(
            options=factors, value=factors[-1], description="factor"
        ),
    )
