r"""Pictures and widget of appendix D."""

import math

import ipywidgets as ipw

from .base import COLOURS, array, canvas, colour, heading, panels, size_text
from .base import spaced, title
from .charts import add_legend, cell_texts, figure_legend, finish, heatmap
from .charts import lines, log_axis, mark_x, mark_y, note
from .model_map import strip  # noqa: F401
from .play import Play

PLACES = "{:,}".format
LOSS = "loss (nats a token)"


def _look(tone, dashes, width, alpha=1.0):
    """Return the look of a line; a wide one is below a narrow one."""
    return tone, dashes, dict(lw=width, alpha=alpha, zorder=3 - width / 10)


# Each way to a longer text looks the same in every picture.
WAYS = {
    "as it is": _look("plain", "-", 1.4),
    "last keys only": _look("other", "-", 4, 0.6),
    "distance capped": _look("probability", "-", 1.8),
    "positions divided": _look("query", "--", 1.6),
    "base raised": _look("key", "-.", 1.6),
    "by wavelength": _look("attention", "-", 2.2),
}
OTHERS = (  # lines with another name, by their place in the legend
    _look("other", "-", 5, 0.5),
    _look("token", "--", 1.8),
    _look("feed-forward", "-.", 1.8),
    _look("value", "-", 2.4),
)


def look(name: str, place: int = 0) -> tuple:
    """Return a line's look: by the way its name begins with, or its place."""
    found = [WAYS[way] for way in WAYS if name.startswith(way)]
    return found[0] if found else OTHERS[place % len(OTHERS)]


def _ways(ax, series):
    """Draw the lines of one panel of `losses_along`."""
    for place, (name, (xs, ys, *errors)) in enumerate(series.items()):
        style, xs, ys = look(name, place), array(xs), array(ys)
        lines(ax, {name: (xs, ys)}, [style])
        for e in map(array, errors):
            shade = dict(color=colour(style[0]), alpha=0.2, lw=0)
            ax.fill_between(xs, ys - e, ys + e, **shade)


def losses_along(parts, marks=(), height=3.4):
    r"""Draw the loss along a text, for several ways to run the model.

    Args:
        parts: a panel's title to {name: (positions, losses)} or {name:
            (positions, losses, standard errors)}.
        marks: (position, text) of vertical lines; or a dict from a panel's
            title to those of this panel.
    """
    fig, axes = panels(height, len(parts), sharey=True)
    for ax, (name, series) in zip(axes, parts.items()):
        _ways(ax, series)
        right = max(float(xs[-1]) for xs, *_ in series.values())
        for x, text in marks[name] if isinstance(marks, dict) else marks:
            mark_x(ax, x, text, end=x > 0.9 * right, size=8)
        ax.margins(y=0.12)
        finish(ax, name, "position", ylim=(0, None))
    axes[0].set_ylabel(LOSS)
    return figure_legend(fig, "outside lower center")


def loss_by_gap(gaps, means, errors, waves, alone):
    r"""Draw the second half's loss by the gap before it.

    Args:
        gaps, means, errors: n numbers each: positions that were left out,
            losses, their standard errors (or None).
        waves: pair to its wavelength, for a mark at each full turn.
        alone: the loss if the first half is not seen.
    """
    options = dict(sharex=True, height_ratios=[3, 0.4 * len(waves)])
    _, (upper, lower) = panels(4.2, 1, 2, **options)
    means, plain = array(means), COLOURS["plain"]
    if errors is not None:
        band = means - array(errors), means + array(errors)
        upper.fill_between(gaps, *band, color=plain, alpha=0.2, lw=0)
    unseen = dict(ls="--", lw=1.4, label="first half not seen")
    upper.axhline(float(alone), color=COLOURS["key"], **unseen)
    upper.plot(gaps, means, "o-", color=plain, ms=3, lw=1.4)
    for row, wave in enumerate(waves.values()):
        for turn in range(int(gaps[-1] // wave) + 1):
            x, word = turn * wave, "turn" if turn == 1 else "turns"
            lower.plot(x, row, "o", color=COLOURS["query"], ms=7)
            if turn:
                mark_x(upper, x)
                at = dict(va="center", fontsize=8)
                note(lower, x, row, f"{turn} {word}", 9, 0, **at)
    names = [f"pair {k}: {wave:,.0f} a turn" for k, wave in waves.items()]
    lower.set_yticks(range(len(waves)), names)
    left_out = "positions left out between the halves"
    finish(lower, "", left_out, ylim=(len(waves) - 0.5, -0.5))
    far = "No more keys than in training, but further away"
    y = "loss of the second half\n(nats a token)"
    return finish(upper, far, "", y, ylim=(0, None), legend="upper right")


def shares_along(parts, ylabels):
    """Draw measures along a text: title to {name: (positions, values)}."""
    fig, axes = panels(3.1, len(parts))
    for ax, (name, series), label in zip(axes, parts.items(), ylabels):
        _ways(ax, series)
        finish(ax, name, "position", label, ylim=(0, None))
    return figure_legend(fig, "outside lower center")


def slowed_pairs(parts, marks):
    """Draw hd/2 pairs' wavelengths: title to (before, after)."""
    fig, axes = panels(4.4, len(parts), sharey=True)
    for ax, (name, wavelengths) in zip(axes, parts.items()):
        _before_and_after(ax, *wavelengths)
        for text, value in marks:
            mark_y(ax, value, text, size=8)
        title(ax, name)
    axes[0].set_ylabel("positions to a full turn")
    return figure_legend(fig, "outside lower center")


def _before_and_after(ax, before, after):
    """Draw two rows of dots, and a stroke from one to the other."""
    before, after, pairs = array(before), array(after), range(len(before))
    ax.vlines(pairs, before, after, color="#bbbbbb", lw=1, zorder=1)
    looks = ("other", "o", dict(ms=5)), ("attention", "s", dict(ms=3))
    lines(ax, dict(before=before, after=after), looks, pairs)
    ax.set(yscale="log", xlabel="pair k", xticks=spaced(len(pairs), 8))
    ax.minorticks_off()


def cache_and_weights(lengths, models):
    """Draw bytes: name of a model to (n caches, the weights)."""
    fig, ax = canvas(4.0)
    tones = "query", "key", "value", "token", "feed-forward"
    for (name, (caches, weights)), tone in zip(models.items(), tones):
        held = f"{name}: weights, {size_text(weights)}"
        series = {f"{name}: cache": caches, held: [weights] * len(lengths)}
        lines(ax, series, ((tone, "-"), (tone, ":")), lengths, lw=1.8)
        meet = weights * lengths[-1] / caches[-1]  # the cache is as large
        if lengths[0] <= meet <= lengths[-1]:
            ax.plot(meet, weights, "o", color=colour(tone), ms=7)
    log_axis(ax, "x", lengths[::2], PLACES, base=2)
    log_axis(ax, "y", text=size_text)
    ax.grid(axis="y", color="#e5e5e5", lw=0.8)
    grows = "The cache grows, the weights do not (dots: both are equal)"
    style = dict(ncols=1, fontsize=8, labelspacing=0.7)
    figure_legend(fig, "outside right upper", **style)
    return finish(ax, grows, "positions of one text", "bytes in bfloat16")


def attention_share(lengths, models):
    """Draw attention's n shares of a pass's operations, for each model."""
    _, ax = canvas(3.2)
    looks = [("attention", dashes) for dashes in ("-", "--", ":")]
    lines(ax, models, looks, lengths, lw=1.5)
    ax.axhline(0.5, color=COLOURS["other"], lw=1, ls=":")
    log_axis(ax, "x", lengths[::2], PLACES, base=2)
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    parts = "Scores and mixing, of all the products of a pass"
    labels = "tokens of the text", "attention's share\nof the operations"
    return finish(ax, parts, *labels, ylim=(0, 1), legend="above")


def needle_maps(parts, depths, lengths, trials, trained=None):
    """Draw counts of right answers: title to (depths, lengths)."""
    fig, axes = panels(3.1, len(parts), sharey=True)
    for ax, (name, counts) in zip(axes, parts.items()):
        counts = array(counts)
        heatmap(ax, counts, limit=trials)
        cell_texts(ax, counts.astype(int), counts > 0.55 * trials)
        ax.set_xticks(range(len(lengths)), map(PLACES, lengths))
        ax.set_yticks(range(len(depths)), depths)
        ax.tick_params(length=0)
        if trained in lengths:
            at = list(lengths).index(trained) + 0.5
            ax.axvline(at, color=COLOURS["key"], lw=2)
        finish(ax, name, "tokens of the text")
    axes[0].set_ylabel("where the number\nis told")
    return heading(fig, f"Numbers recalled, of {trials} in each cell")


def stretched(before, after, along, marks, over=""):
    """Draw hd/2 wavelengths, and losses; `marks` are ascending."""
    margins, ratios = (0.08, 0.25, 0.985, 0.88, 0.2), [1, 1.25]
    options = dict(margins=margins, width_ratios=ratios)
    fig, (left, right) = panels(3.7, 2, **options)
    _before_and_after(left, before, after)
    _ways(right, along)
    end = max(float(xs[-1]) for xs, _ in along.values())
    for (text, value), dy in zip(marks, (-2, 2)):
        mark_y(left, value, text, end=True, dy=dy, size=8)
        if value <= end:
            mark_x(right, value)
    left.set_ylabel("positions to a full turn")
    finish(right, "", "position", LOSS, ylim=(0, None))
    for ax in (left, right):
        below = (0.5, -0.18)
        add_legend(ax, "upper center", ncols=3, bbox_to_anchor=below)
    return heading(fig, over)


# -- the widget


def longer(freqs, trained: int, choices, as_it_is, known=None) -> Play:
    r"""Return a widget of measured ways to a longer text, and their factors.

    Args:
        freqs: (hd/2,) of the unchanged model, radians per position.
        trained: the length of training.
        choices: (way, factor) to ((hd/2,) frequencies, positions, losses).
        as_it_is: (positions, losses) without any change.
        known: name to (positions, losses) of lines to compare with; or None.
    """
    ways = list(dict.fromkeys(way for way, _ in choices))
    factors = sorted({factor for _, factor in choices})

    def draw(way, factor):
        slowed, *line = choices[way, factor]
        length = factor * trained
        marks = [(f"trained: {trained:,}", trained)]
        marks += [(f"{factor} times: {length:,}", length)]
        along = {"as it is": as_it_is, way: line} | (known or {})
        both = math.tau / freqs, math.tau / slowed  # (hd/2,) each
        return stretched(*both, along, marks, f"{way}, factor {factor}")

    steps = dict(options=factors, value=factors[-1])
    return Play(
        draw,
        way=ipw.Dropdown(options=ways, value=ways[-1], description="way"),
        factor=ipw.SelectionSlider(description="factor", **steps),
    )
