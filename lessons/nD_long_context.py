"""Pictures, widgets, needles and checks of notebook D."""

import math
import random
from operator import add

import ipywidgets as ipw
import torch

from llamalib import replaced

from .charts import (
    add_legend,
    cell_texts,
    figure_legend,
    finish,
    heatmap,
    lines,
    mark_x,
    mark_y,
    note,
)
from .judge import alike, close, exercise, vary
from .needs import is_large
from .play import Play
from .pocket import strip  # noqa: F401
from .texts import load_corpus
from .theme import COLOURS, array, heading, panels, spaced

LOSS = "loss (nats per token)"


def _look(tone, dashes, width, alpha=1.0):
    """Return the look of a line; a wide one is below a narrow one."""
    return tone, dashes, dict(lw=width, alpha=alpha, zorder=3 - width / 10)


# Each way to a longer text looks the same in every picture.
WAYS = {
    "as it is": _look("plain", "-", 1.4),
    "last keys only": _look("other", "-", 4, 0.6),
    "last keys and the first": _look("feed-forward", "-", 2.2),
    "positions divided": _look("query", "--", 1.6),
    "base raised": _look("key", "-.", 1.6),
    "the rule": _look("attention", "-", 2.2),
}


def sizes(llama) -> tuple[int, int, int]:
    """Return positions, rows, texts with needles: few if it is large."""
    return (512, 1, 1) if is_large(llama) else (1024, 4, 40)


def _ways(ax, series):
    """Draw the lines of one panel of `losses_along`."""
    for name, (xs, ys) in series.items():
        way = next(way for way in WAYS if name.startswith(way))
        lines(ax, {name: (array(xs), array(ys))}, [WAYS[way]])


def losses_along(parts, marks, height=3.4):
    """Draw the loss along a text, for several ways to run the model.

    parts: title to {name: (positions, losses)}.
    marks: (position, text) of lines, for all panels or by a panel's title.
    """
    fig, axes = panels(height, len(parts), sharey=True)
    for ax, series in zip(axes, parts.values(), strict=True):
        _ways(ax, series)  # all of them before the shared limits are set
    for ax, (name, series) in zip(axes, parts.items(), strict=True):
        right = max(float(xs[-1]) for xs, _ in series.values())
        for x, text in marks[name] if isinstance(marks, dict) else marks:
            mark_x(ax, x, text, end=x > 0.9 * right, size=8)
        ax.margins(y=0.12)
        finish(ax, name, "position", ylim=(0, None))
    axes[0].set_ylabel(LOSS)
    return figure_legend(fig, "outside lower center")


def loss_by_gap(gaps, means, waves, alone):
    """Draw the second half's n losses by the gap of positions before it.

    waves: pair to its wavelength, for a mark at each full rotation. alone: the
    loss if the first half is not seen.
    """
    options = dict(sharex=True, height_ratios=[3, 0.4 * len(waves)])
    _, (upper, lower) = panels(4.2, 1, 2, **options)
    means, tone = array(means), COLOURS["plain"]
    unseen = dict(ls="--", lw=1.4, label="first half not seen")
    upper.axhline(float(alone), color=COLOURS["key"], **unseen)
    upper.plot(gaps, means, "o-", color=tone, ms=3, lw=1.4)
    for row, wave in enumerate(waves.values()):
        for n in range(int(gaps[-1] // wave) + 1):
            lower.plot(n * wave, row, "o", color=COLOURS["query"], ms=7)
            if n:
                mark_x(upper, n * wave)
                text = "1 rotation" if n == 1 else f"{n} rotations"
                at = dict(va="center", fontsize=8)
                note(lower, n * wave, row, text, 9, 0, **at)
    names = [f"pair {k}: {wave:,.0f}" for k, wave in waves.items()]
    lower.set_yticks(range(len(waves)), names)
    left_out = "gap: positions left out between the halves"
    finish(lower, "", left_out, "wavelength", ylim=(len(waves) - 0.5, -0.5))
    far = "No more keys than in training, but farther away"
    y = "loss of the second half\n(nats per token)"
    return finish(upper, far, "", y, ylim=(0, None), legend="upper right")


def _before_and_after(ax, before, after, name=""):
    """Draw two rows of dots, and a stroke from one to the other."""
    before, after, pairs = array(before), array(after), range(len(before))
    ax.vlines(pairs, before, after, color="#bbbbbb", lw=1, zorder=1)
    looks = ("other", "o", dict(ms=5)), ("attention", "s", dict(ms=3))
    lines(ax, dict(before=before, after=after), looks, pairs)
    finish(ax, name, "pair k", yscale="log", xticks=spaced(len(pairs), 8))
    ax.minorticks_off()


def needle_maps(parts, depths):
    """Draw counts of right answers.

    parts: the texts' length to their number and {name: counts by depth}.
    """
    ratios = [len(columns) for _, columns in parts.values()]
    fig, axes = panels(3.2, len(parts), sharey=True, width_ratios=ratios)
    for ax, (length, (n, columns)) in zip(axes, parts.items(), strict=True):
        counts = array(list(columns.values())).T  # (depths, ways)
        heatmap(ax, counts, limit=n)
        cell_texts(ax, counts.astype(int), counts > 0.55 * n)
        ax.set_xticks(range(len(columns)), columns)
        ax.set_yticks(range(len(depths)), depths)
        ax.tick_params(length=0)
        finish(ax, f"Right, of {n} texts of {length:,} tokens", "")
    axes[0].set_ylabel("where the number\nis given")
    return fig


def stretched(before, after, along, marks, over):
    """Draw hd/2 wavelengths, and losses; two `marks` are ascending."""
    margins = 0.08, 0.25, 0.985, 0.88, 0.2
    fig, axes = panels(3.7, 2, margins=margins, width_ratios=[1, 1.25])
    left, right = axes
    _before_and_after(left, before, after)
    _ways(right, along)
    end = max(float(xs[-1]) for xs, _ in along.values())
    for (text, value), dy in zip(marks, (-2, 2), strict=True):
        mark_y(left, value, text, end=True, dy=dy, size=8)
        if value <= end:
            mark_x(right, value, text, size=8)
    left.set_ylabel("wavelength (positions)")
    finish(right, "", "position", LOSS, ylim=(0, None))
    for ax in axes:
        add_legend(ax, "upper center", ncols=3, bbox_to_anchor=(0.5, -0.18))
    return heading(fig, over)


def longer(freqs, trained: int, choices, as_it_is, known) -> Play:
    """Return a widget of measured ways to a longer text, and their factors.

    freqs: (hd/2,) of the unchanged model, radians per position.
    choices: (way, factor) to (slowed (hd/2,), positions, losses).
    as_it_is: (positions, losses). known: name to (positions, losses).
    """
    ways = list(dict.fromkeys(way for way, _ in choices))
    factors = sorted({factor for _, factor in choices})

    def draw(way, factor):
        slowed, *line = choices[way, factor]
        length = factor * trained
        marks = [(f"trained: {trained:,}", trained)]
        marks += [(f"{factor} times: {length:,}", length)]
        along = {"as it is": as_it_is, way: line} | known
        both = math.tau / freqs, math.tau / slowed  # (hd/2,) each
        return stretched(*both, along, marks, f"{way}, factor {factor}")

    steps = dict(options=factors, value=factors[-1])
    return Play(
        draw,
        way=ipw.Dropdown(options=ways, value=ways[-1], description="way"),
        factor=ipw.SelectionSlider(description="factor", **steps),
    )


# -- the needles of section 4 --


def insert_needles(needles, filler, room: int) -> list[int]:
    """Return ids: the needles, evenly spread over sentences of filler."""
    free, sentences = room - sum(map(len, needles)), []
    for sentence in filler:
        free -= len(sentence)
        if free < 0:
            break
        sentences.append(sentence)
    gaps, ids = len(needles) - 1, []
    for i, needle in enumerate(needles):
        start, end = (j * len(sentences) // gaps for j in (i, i + 1))
        ids += needle + sum(sentences[start:end], [])
    return ids


def telephone_text(llama, r, length, n=5):
    """Return ids of a text, and of n questions with their numbers.

    r: a random.Random. length: the most tokens of the text and a question.
    """
    corpus = load_corpus()

    def ids_of(text):
        return llama.tokenizer.encode(text, bos=False, eos=False)

    def story_sentences():
        while True:
            for sentence in corpus.story_doc(r).split(". "):
                yield ids_of(f" {sentence.rstrip('.')}.")

    begin = llama.tokenizer.encode("", bos=True, eos=False)
    people = corpus.people(r, n)
    numbers = [f" {r.randint(10, 99)} {r.randint(10, 99)}" for _ in people]
    pairs = list(zip(people, numbers, strict=True))
    given = [ids_of(f" {p}'s number is{x}.") for p, x in pairs]
    asked = [(ids_of(f" To call {p}, dial"), ids_of(x)) for p, x in pairs]
    room = length - len(begin) - max(len(a) + len(x) for a, x in asked)
    return begin + insert_needles(given, story_sentences(), room), asked


def answers(llama, freqs, text, asked, visible=10**9):
    """Return the most likely tokens in place of each number, as ids.

    freqs: (hd/2,), radians per position. visible: how many keys a token sees.
    All questions are read in one pass: each follows the text, and sees the
    text and itself.
    """
    T = len(text)
    ids, at, part = [*text], [*range(T)], [-1] * T
    for i, (question, number) in enumerate(asked):
        new = question + number
        ids += new
        at += range(T, T + len(new))  # each question follows the text
        part += [i] * len(new)
    ids, at, part = map(torch.tensor, (ids, at, part))  # (S,) each
    distance = at[:, None] - at  # (S, S)
    # a row for each token that looks, a column for each that is seen
    seen = (part == -1) | (part == part[:, None])  # the text, its own part
    seen &= (distance >= 0) & (distance < visible)
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
    angles = torch.outer(at.float(), freqs)  # (S, hd/2)
    rotations = torch.stack((angles.cos(), angles.sin()), dim=-1)
    functions = dict(precompute_freqs_cis=lambda *_: rotations)
    functions["causal_mask"] = lambda *_, **__: mask
    with replaced(**functions):
        found = llama(ids).argmax(-1)  # (S,)
    # a token's logits predict the next one, so each answer is one to the left
    return [
        found[part == i][len(question) - 1 : -1].tolist()
        for i, (question, _) in enumerate(asked)
    ]


def recalled(llama, freqs, length, texts, visible=10**9):
    """Return how many answers are right at each depth, (5,)."""
    r, right = random.Random(f"telephone {length}"), [0] * 5
    for _ in range(texts):
        text, asked = telephone_text(llama, r, length)
        found = answers(llama, freqs, text, asked, visible)
        for depth, (_, number) in enumerate(asked):
            right[depth] += found[depth] == number
    return right


# -- the checks of the exercises --


def frequencies(hd: int, theta: float) -> torch.Tensor:
    """Return plain frequencies, (hd/2,) float64."""
    return theta ** (-torch.arange(0, hd, 2).double() / hd)


@exercise(1, expects="real angles (length, head_dim/2)")
def check_1(interpolated):
    """Two longer texts, then a shorter one."""
    more = vary((0,) * 4, (4, 3, 50.0, 1), (8, 1, 900.0, 2))
    cases = (8, 12, 100.0, 4), (16, 40, 5e5, 16), (8, 5, 100.0, 8)
    cases = [tuple(map(add, case, more)) for case in cases]
    alike(interpolated, "D_long_context", 1, cases)


def as_ratio(answer, freqs, original, length):
    """Return a factor, where (n - 1)/(C - 1) counts as n/C: both are right."""
    found = answer(freqs, original, length)
    between = (length - 1) / (original - 1)  # the first position to the last
    if length > original and close(found, between, 1e-4):
        return length / original
    return found


@exercise(2, expects="a number")
def check_2(factor_for):
    """Pairs that see an arc, and cases where every pair has rotated once."""
    one_b, wide, narrow = (64, 5e5), (128, 5e5), (8, vary(1e2, 90.0, 120.0))
    cases = [(one_b, 8192, 131072), (wide, 8192, 16384), (narrow, 1000, 5000)]
    cases += [(one_b, 8192, 4096), (wide, 256, 1400), (narrow, 300, 1200)]
    cases += [(narrow, 130, 1000), (narrow, 100, 150), (narrow, 60, 300)]
    up = vary(0, 10, 5, 7)
    cases = [(frequencies(*f).float(), c + up, n + up) for f, c, n in cases]
    alike(factor_for, "D_long_context", 2, cases, observe=as_ratio)
