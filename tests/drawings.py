"""The pictures whose fingerprints are stored, of small fixed inputs."""

import json
import math
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib import pyplot as plt

from lessons import alternatives, charts, theme
from lessons import map as model_map
from lessons import n00_initialization as nb00
from lessons import n01_tokenize as nb01
from lessons import n02_embed as nb02
from lessons import n03_rmsnorm as nb03
from lessons import n04_rope as nb04
from lessons import n05_attention as nb05
from lessons import n06_feed_forward as nb06
from lessons import n07_lm_head as nb07
from lessons import n08_sampling as nb08
from lessons import n09_generate as nb09
from lessons import nF_heads as nbF
from llamalib import Tokenizer
from tests.fingerprints import fingerprint
from tests.helpers import random_llama, small_ranks

PICTURES = {}


def picture(draw):
    """Enter a function that draws a figure, by its name."""
    PICTURES[draw.__name__] = draw
    return draw


def fingerprints() -> dict[str, list[str]]:
    """Return the fingerprint of each picture, and the colours of all."""
    found = {"colours": colours()}
    for name, draw in PICTURES.items():
        found[name] = fingerprint(draw())
        plt.close("all")
    return found


def colours() -> list[str]:
    """Return the colours of the roles, and of the groups of heads."""
    roles = [f"{name} {value}" for name, value in theme.COLOURS.items()]
    return [*roles, f"groups {' '.join(theme.GROUPS)}"]


@cache
def small_llama():
    """Return a model with 8 query heads of 8 numbers, and 2 KV heads."""
    llama = random_llama()
    llama.name, llama.tokenizer = "small", Tokenizer(small_ranks())
    return llama


# -- the map ----------------------------------------------------------------


@picture
def map_rope():
    return model_map.strip("rope", small_llama(), 6, about=Path("small"))


@picture
def map_generate():
    return model_map.strip("generate", small_llama(), about=Path("small"))


# -- 00 ---------------------------------------------------------------------


@picture
def shares():
    """Two models, one of them tied."""
    config = small_llama().config
    return nb00.shares({"tied": (config, True), "other": (config, False)})


@picture
def changes():
    """Bars of 1 and more have a number; one is below 0."""
    rows = {
        "attention off": [0.2, 3.06, -0.1],
        "attention uniform": [0.4, -0.05, 0],
        "network off": [8.2, 0.99, 1],
    }
    return nb00.changes(rows)


@picture
def two_texts():
    texts = {"as it is": ", a city.\nIt", "network off": " wis" * 60}
    return nb00.two_texts("Once", texts)


# -- 01 ---------------------------------------------------------------------


@picture
def token_rows():
    """Twice the same text; the second row needs a second line."""
    rows = {"0 merges": list("a cat"), "1 merge": ["a", " c", "at" * 60, "."]}
    return nb01.token_rows(rows, "one sentence")


@picture
def token_counts():
    series = {"first": [3, 40], "second": [5, 20], "third": [9, 60]}
    return nb01.token_counts(["English", "Hindi"], series, "in tokens")


# -- 02 ---------------------------------------------------------------------


@picture
def word_map():
    """Two pairs far apart on the first axis, near on the second."""
    rows = torch.tensor([[4.0, 0, 1], [4, 1, 1], [-4, 0, 1], [-4, -2, 1]])
    return nb02.word_map(rows, ["ab", "cd", "ef", "gh"], ["x", "x", "y", "y"])


@picture
def said():
    """Two tokens have rank 1: the second is drawn beside the first."""
    return nb02.said({"rare": [1, 30, 1], "strange": [5000, 12000]})


# -- 03 ---------------------------------------------------------------------


@picture
def rms_by_block():
    """The first token grows from 1 to 100, two others from 1 to 4."""
    return nb03.rms_by_block([[1, 1, 2], [100, 3, 4]], " The")


@picture
def two_norms():
    paths = {
        "RMSNorm": [[(1, 7), (0.2, 1.4)]],
        "LayerNorm": [[(1, 7), (-1, 1)]],
    }
    return nb03.two_norms(paths)


@picture
def loss_by_factor():
    return nb03.loss_by_factor([0, 0.1, 1], [13, 11, 3], 10.8)


# -- 04 ---------------------------------------------------------------------


@picture
def clocks():
    """Right and up at position 0; a quarter on at 1000, pair 1 on the left."""
    vectors = torch.tensor([[[3.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [-2.0, 0]]])
    return nb04.clocks(vectors, [0, 1000], [0, 7], "The query")


@picture
def four_arrows():
    """As they are; all a quarter further; the second key half a circle."""
    queries = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    keys = torch.tensor([[1.0, 1.0], [-2.0, 0.0]])
    turns = {"a": (0, 0), "b": (90, 90), "c": (90, 180)}
    return nb04.four_arrows(queries, keys, turns)


@picture
def wavelengths():
    series = {"factor 1": [10, 1e5], "factor 8": [10, 8e5], "f 32": [10, 3e6]}
    limits = [("2048: unchanged below", 2048), ("8192", 8192)]
    return nb04.wavelengths(series, limits, "hd = 4")


@picture
def facing():
    """The key a quarter after the query."""
    return nb04.facing(2 + 0j, 3j, 1, [0.5, -1.5, 2.5], "the heading")


@picture
def rotation():
    play = nb04.rotation(small_llama(), "abc")
    return play.draw(position=5, distance=2, pair=1)


@picture
def ahead():
    """The keys are a quarter after the queries, which rotate by it."""
    queries = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
    keys = torch.tensor([[0.0, 3.0], [0.0, 5.0]])
    return nb04.ahead(queries, keys, math.pi / 2, (0, 1, 3), "Pair 0")


@picture
def three_heads():
    """The first head is asked for, (1, 0) falls, (0, 1) stays."""
    rotated = torch.tensor([[[0.0, 9, 1, 8], [5, 4, 5, 5]]])
    rotated = torch.cat(
        (rotated, torch.tensor([[[9.0, 6, 2, 1], [0, 5, 1, 9]]]))
    )
    plain = torch.tensor([[7.0, 7, 7, 7], [5, 5, 5, 5]]).expand(2, 2, 4)
    return nb04.three_heads(rotated, plain, (0, 0))


# -- 05 ---------------------------------------------------------------------


def causal_weights(H, T):
    """Return maps (H, T, T) that differ from head to head."""
    scores = torch.arange(H * T * T).reshape(H, T, T) * 7 % 11
    weights = (1 + scores).tril()
    return weights / weights.sum(-1, keepdim=True)


@picture
def sharing():
    return nb05.sharing(6, {"MHA": 6, "GQA": 3, "MQA": 1})


@picture
def key_weights():
    dots = torch.tensor([1.0, 3, 2])
    return nb05.key_weights({"as it is": dots.softmax(-1), "÷ 2": dots / 8})


@picture
def all_heads_wide():
    """More layers than heads: they stand side by side."""
    maps = causal_weights(6, 3).unflatten(0, (3, 2))  # (L, H, T, T)
    return nb05.all_heads(maps, {"first": (0, 1), "last": (2, 0)}, "All 6")


@picture
def all_heads_high():
    """More heads than layers: these stand below each other."""
    maps = causal_weights(6, 3).unflatten(0, (2, 3))
    return nb05.all_heads(maps, {"one": (0, 2), "other": (1, 0)}, "All 6")


@picture
def attention_maps_of():
    first, second = causal_weights(2, 3)
    labels = ["a", " b", "c"]
    chosen = [("one", first, labels, 0), ("other", second, labels, 9)]
    chosen.append(("no group", second, labels, None))
    return nb05.attention_maps_of(chosen)


@picture
def heads():
    play = nb05.heads(small_llama(), "abc")
    return play.draw(text="abc", layer=1, head=5)


# -- 06 ---------------------------------------------------------------------


@picture
def activations():
    z = torch.tensor([-4.0, -1, 0, 2])
    return nb06.activations(z, {"SiLU": F.silu(z), "ReLU": F.relu(z)})


@picture
def ranks():
    return nb06.ranks("after", [900, 20, 1])


@picture
def score_parts():
    return nb06.score_parts([0.5, -1, 2], [0, 3, 1.5])


@picture
def without_blocks():
    return nb06.without_blocks({"a": [1, 900, 20], "b": [40, 1, 7]})


@picture
def surprises():
    """Each token's colour, from 0 to more than the darkest one's nats."""
    tokens = ["The", " clock", "\n", "$x$", " soup"]
    return nb07.surprises(tokens, [0.0, 1.0, 5.0, 40.0])


@picture
def copies():
    return nb08.copies({"the same": [0.1, 0.5, 0.9], "other": [0.1, 0.2, 0.2]})


@picture
def token_probabilities():
    return nb08.token_probabilities({"a": [0.1, 0.9], "b": [0.5, 1.0]}, "t")


# -- 09 ---------------------------------------------------------------------


@picture
def positions_run():
    """A prompt of 3 tokens and 4 passes: 3, 4, 5, 6 positions."""
    return nb09.positions_run(3, 4)


@picture
def time_by_position():
    """The shortest times: 100 and 400, then 20 and 10 milliseconds."""
    ran = []

    def repeat(run, **options):
        run()  # a step, which says how long it took
        return ran.pop()

    def step(times):
        return lambda n: ran.append(times[n]) or torch.zeros(2)

    steps = {
        "naive": step({16: [0.3, 0.1, 0.2], 256: [0.4, 0.4, 0.5]}),
        "cached": step({16: [0.02], 256: [0.03, 0.01]}),
    }
    with patch.object(nb09.timeit, "repeat", repeat):
        return nb09.time_by_position([16, 256], steps)


# -- A -----------------------------------------------------------------------


@picture
def changes_by_seed():
    """Two variants of A; a run of the second ended early."""
    run = dict(seed=0, steps=100, loss=[8], held_out=[8, 7, 4])
    runs = [
        run | dict(name="a"),
        run | dict(name="a", seed=1, held_out=[8, 6, 5]),
        run | dict(name="b", held_out=[8, 6, 4.1]),
        run | dict(name="b", seed=1, held_out=[8, 6, 7]),
        run | dict(name="c", held_out=[8, 6, 3.95]),
        run | dict(name="c", seed=1, held_out=[8, 9]),
    ]
    found = dict(about=dict(mean_of=10, every=50), runs=runs)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "runs.json")
        file.write_text(json.dumps(found), encoding="utf-8")
        with patch.object(alternatives, "FILE", file):
            return alternatives.changes("a", "b", "c")


# -- F ----------------------------------------------------------------------


@picture
def head_maps():
    values = torch.tensor([[0.1, 0.9], [0, 0.4], [1, 0.2]])  # (L, H)
    return nbF.head_maps({"one": values, "other": 1 - values})


@picture
def losses_by_token():
    series = {"all": [9, 8, 1], "without": [9, 8, 7], "others": [9, 8, 2]}
    return nbF.losses_by_token(series, 2)


@picture
def moved_by_block():
    blocks = [0, 2, 3]
    series = {"here": (blocks, [1, 0.9, 0]), "there": (blocks, [0, 0.1, 1])}
    return nbF.moved_by_block(series)


@picture
def look_and_carry():
    look = torch.tensor([[0.1, 0.9], [0, 0.4], [1, 0.2]])  # (L, H)
    return nbF.look_and_carry(look, look - 0.4)


# -- shared charts ----------------------------------------------------------


@picture
def bars():
    """Groups upright and across, from 0 and from another start."""
    series = {"a": [1, 2, 4], "b": [3, 5, 0.5]}
    fig, (upright, across) = theme.panels(2, 2)
    charts.grouped_bars(upright, series, ["query", "key"], start=-1)
    charts.grouped_bars(across, series, ["value", "token"], across=True)
    across.set_yticks(range(3), ["third", "second", "first"])
    charts.add_legend(across, "right")
    return charts.figure_legend(fig, "outside upper center")


@picture
def ranked():
    _, ax = theme.canvas(2)
    names, tones = [" a", "b", "$"], ["key", "query", "#123456"]
    texts = ["0.7", "-0.2", "0"]
    charts.ranked_bars(ax, names, [0.7, -0.2, 0], tones, texts)
    return charts.finish(ax, "$ ranked", "x", "y", xlim=(-1, 1))


@picture
def histograms():
    """Every number is counted, also outside of the edges."""
    values = {"a": [-5, 0.5, 1.5, 99], "b": [0.5, 0.6, 0.7, 1.5]}
    fig, axes = theme.panels(2, 2)
    for ax, share in zip(axes, (False, True)):
        charts.histograms(ax, values, [0, 1, 2], ["key", "query"], share=share)
    charts.finish(axes[0], "counts", legend="above")
    roles = {"one": "value", "two": "#123456"}
    return charts.figure_legend(fig, "lower right", roles)


@picture
def heatmaps():
    """Orange below 0, white at 0, blue above."""
    fig, (amount, signed) = theme.panels(2, 2)
    names = [str(n) for n in range(5)]
    values = np.outer([1, -2], range(5))
    charts.heatmap(amount, values, [" a", "\n"], names)
    charts.heatmap(signed, values, signed=True, limit=4)
    charts.token_ticks(signed, columns=names, most=3)
    dark = abs(values) > 3
    charts.cell_texts(signed, values.astype(str), dark)
    return theme.heading(fig, "maps")


@picture
def marks():
    """Lines at 2 and 3 with texts on each side; a note; black or white."""
    _, ax = theme.canvas(2)
    looks = ("key", "o-"), ("#123456", "--", dict(lw=3))
    series = {"a": ([1, 5], [1, 1000]), "b": ([1, 2, 5], [10, 20, 30])}
    charts.lines(ax, series, looks, lw=1)
    charts.mark_x(ax, 2, "right of 2")
    charts.mark_x(ax, 3, "left of 3", end=True)
    charts.mark_y(ax, 20, "above 20")
    charts.mark_y(ax, 30, "below 30, right", end=True, dy=-2, color="black")
    charts.note(ax, 4, 300, "noted", 5, -6)
    for i, background in enumerate(("query", "probability", "#000000"), 5):
        ink = charts.ink(background)
        charts.write(ax, i, 100, background, color=ink, weight="bold")
    charts.log_axis(ax, "x", (1, 2, 4), base=2)
    charts.log_axis(ax, "y", text=theme.size_text)
    return charts.finish(ax, "marks", "x", "y", legend="best", xlim=(1, 8))


@picture
def boxes():
    fig, ax = charts.page(60)
    places = [(0, 0, 20), (22, 0, 40), (0, 1, 30)]
    tones = "#f6e3ee", "#000000", "#E69F00"
    charts.boxes(ax, 5, ["a", "b", "c"], places, tones)
    charts.boxes(ax, 5, ["d"], [(50, 1, 20)], ["white"], down=3)
    return fig
