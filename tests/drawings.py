"""The pictures whose fingerprints are stored, of small fixed inputs."""

import json
import math
import tempfile
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace
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
from lessons import nA_training as nbA
from lessons import nB_quantization as nbB
from lessons import nC_mixture_of_experts as nbC
from lessons import nD_long_context as nbD
from lessons import nE_tensor_parallel as nbE
from lessons import nF_heads as nbF
from lessons import nG_speed as nbG
from lessons import nH_documents as nbH
from lessons.play import Play
from llamalib import Tokenizer
from llamalib.tensors import tensor_shapes
from tests.fingerprints import fingerprint
from tests.helpers import random_llama, small_ranks

PICTURES = {}


def picture(draw):
    """Enter a function that draws a figure, by its name."""

    @wraps(draw)
    def drawn():
        with patch.object(charts, "text_width", text_width):
            return draw()

    PICTURES[draw.__name__] = drawn
    return drawn


def text_width(text, size):
    """Return a width that no version of the font library changes."""
    return 0.6 * size * len(text)


def widget(**values):
    """Enter a function that makes a widget: its picture at some values."""

    def enter(make):
        @wraps(make)
        def draw():
            with patch.object(Play, "update"):  # would draw it twice
                play = make()
            now = {name: each.value for name, each in play.controls.items()}
            return play.draw(**now | values)

        return picture(draw)

    return enter


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


@widget(part="attention off", block=1)
def silenced():
    return nb00.silenced(small_llama(), "abc")


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


@picture
def token_boxes():
    """Two lines; a special token is grey; eight of nine bytes are shown."""
    tokens = [" llama", "<|eot_id|>", *["a" * 9] * 6]
    codes = [b" llama", None, *[b"a" * 9] * 6]
    return nb01.token_boxes(tokens, range(8), codes, "title in $", 1200)


@widget(text="abcé<|eot_id|>", special=True)
def tokens():
    return nb01.tokens(small_llama())


# -- 02 ---------------------------------------------------------------------


@picture
def lookup():
    table = [[0.5, -1.25], [2, 0.25], [1, 1]]
    return nb02.lookup([[0, 1, 0], [1, 0, 0]], table, [table[1], table[0]])


@picture
def nearest_bars():
    """One of two bars goes to the left; three other cosines."""
    return nb02.nearest_bars(" a", ["b", " $"], [0.7, -0.1], [-0.9, 0.1, 0.1])


@widget(token="#98", centre=True)
def nearest():
    return nb02.nearest(small_llama(), "a")


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
def before_and_after():
    """A vector of RMS 2.5, one of equal numbers."""
    first, second = torch.tensor([3.0, -4, 0, 0]), torch.full((4,), 0.1)
    return nb03.before_and_after({"a": first, "b": second}, "block 1")


@widget(block=1, token=2)
def norm():
    stream = torch.arange(24.0).reshape(2, 3, 4) % 7 - 3
    return nb03.norm(stream, ["a", " b", "c"], 0)


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


@widget(position=5, distance=2, pair=1)
def rotation():
    return nb04.rotation(small_llama(), "abc")


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


@widget(layer=1, head=5)
def heads():
    return nb05.heads(small_llama(), "abc")


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


@widget(text="abc")
def late_answer():
    return nb06.late_answer(small_llama(), "a")


# -- 07 ---------------------------------------------------------------------


@picture
def next_token_bars():
    """Numbers that would round to 1 and 0 have another form."""
    probabilities = [0.99999, 0.25, 0.00001]
    return nb07.next_token_bars(["a", " b", "$"], probabilities, "abc …")


@widget(prompt="a" * 200, bars=4)
def next_token():
    return nb07.next_token(small_llama())


@picture
def surprises():
    """Each token's colour, from 0 to more than the darkest one's nats."""
    tokens = ["The", " clock", "\n", "$x$", " soup"]
    return nb07.surprises(tokens, [0.0, 1.0, 5.0, 40.0])


# -- 08 ---------------------------------------------------------------------


@picture
def copies():
    return nb08.copies({"the same": [0.1, 0.5, 0.9], "other": [0.1, 0.2, 0.2]})


@picture
def token_probabilities():
    return nb08.token_probabilities({"a": [0.1, 0.9], "b": [0.5, 1.0]}, "t")


@picture
def reshaped():
    """Of four tokens two are kept; one bar is too short for its number."""
    before = torch.tensor([0.25, 0.003, 0.597, 0.15])
    shapes = {"as it is": before, "k = 2": torch.tensor([0.25, 0, 0.75, 0])}
    return nb08.reshaped(small_llama(), shapes, "abc …")


@picture
def sample_tree():
    """Four samples: three begin with a, of which two go on with c."""
    paths = [["a", "b"], ["a", "c"], ["d"], ["a", "c"]]
    return nb08.sample_tree(paths, " root", "a tree")


@widget(temperature=0.5, k=5, p=0.9)
def sampling():
    return nb08.sampling(small_llama(), "abc")


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


@picture
def label_rows():
    """A row of five, and one of which the first two have no label."""
    first = [97, 32, 98, 10, 300], [32, 98, 10, 300, 99]
    second = [99, 100, 101], [nbA.NONE, nbA.NONE, 102]
    return nbA.label_rows(small_llama().tokenizer, [first, second])


def run(n):
    """Return a training of n steps, whose held-out loss rises at the end."""
    losses = [6 - 4 * t / n for t in range(n)]
    return SimpleNamespace(losses=losses, held=[(0, 6), (20, 3), (n, 4.5)])


@picture
def training_curve():
    """A gradient's norm is more than 10: the axis goes to 100."""
    norms, levels = [0.5, 20, 1] * 10, {"uniform guess": 6.32}
    now = run(30)
    sample = "A sample\nfor 2 $"
    return nbA.training_curve(
        60, now.losses, now.held, levels, norms, 1.0, sample
    )


@picture
def overfitting():
    return nbA.overfitting({"few texts": run(25), "many texts": run(30)})


@picture
def snapshot():
    names, probs = ["a", " b", "c"], [0.5, 0.3, 0.1]
    words = "step 5: loss 2.00", "A sample", names, probs
    return nbA.snapshot(*words, causal_weights(1, 3)[0], names, "a head")


@widget(step=50, head=(1, 0))
def training():
    """Of two snapshots the second one, and of four heads the third."""
    shots = []
    for step in (0, 50):
        shot = dict(step=step, loss=6 - step / 10, held=5.5)
        shot |= dict(sample=f"text {step}", probs=0.5 ** torch.arange(1, 120))
        shot["maps"] = causal_weights(4, 3).unflatten(0, (2, 2))
        shots.append(SimpleNamespace(**shot))
    return nbA.training(small_llama(), shots, [97, 98, 99], (0, 0))


# -- B ----------------------------------------------------------------------

CODES = {"three": torch.linspace(-1, 1, 3), "four": torch.linspace(-1, 1, 4)}


@picture
def keys_by_channel():
    keys = torch.tensor([[1.0, -4, 2], [0, -5, 1]])  # (T, hd)
    return nbB.keys_by_channel(keys, "Keys")


@picture
def values_of():
    return nbB.values_of(CODES)


@picture
def loss_by_code():
    """A point and its error for each rule; one of them below 0."""
    points = {
        "largest": {"a": (0.06, 0.01), "b": (-0.0002, 0.0003)},
        "searched": {"b": (0.03, 0.006)},
        "fitted": {"a": (0.02, 0.002)},
    }
    return nbB.loss_by_code(points)


@picture
def quantized_row():
    row, kept = torch.tensor([0.9, -0.5, 0.1]), torch.tensor([1.0, -1, 0])
    return nbB.quantized_row(row, kept, row, kept - row, "a row")


@widget(code="three", g=8)
def quantization():
    """Rows of ten numbers: their second groups have two."""
    weight = torch.arange(20.0).reshape(2, 10) * 7 % 11 - 4.5
    weights = {"layers.0.attention.wq.weight": weight}
    return nbB.quantization(SimpleNamespace(state_dict=lambda: weights), CODES)


# -- C ----------------------------------------------------------------------


@picture
def shares_of_runs():
    """Three experts, two runs, and two learning rates."""

    def runs_of(student):
        idle = 0.25 if student == "mixture" else 0.0
        runs = [{"shares": [0.2, 0.5 + idle, 0.3 - idle]}]
        runs.append({"shares": [0.4, 0.35, 0.25]})
        return {0.01: runs, 0.1: runs[::-1]}

    with patch.object(nbC, "runs_of", runs_of):
        return nbC.shares_of_runs()


@picture
def routing_picture():
    """Two of three experts; one token has the second alone."""
    weights = torch.tensor([[0.7, 0.3, 0], [0.4, 0, 0.6], [0, 1.0, 0]])
    return nbC.routing_picture(["a", " b", "$"], weights, "three tokens")


@widget(run="other", stage=0)
def routing():
    """Of two runs and two stages, four experts each."""

    def route(x, router, k):
        logits = x @ router.T  # (T, E)
        top = logits.topk(k)
        return top.values.softmax(-1), top.indices, logits

    rows = small_llama().tok_embeddings.weight[:16].view(2, 2, 4, -1)
    runs = {"one": rows[0], "other": rows[1]}
    steps = [0, 9]
    return nbC.routing(small_llama(), 1, steps, runs, "abc", 2, route=route)


# -- D ----------------------------------------------------------------------

XS = torch.tensor([100.0, 300.0])
FREQS = torch.tensor([1.0, 0.1, 0.001])
CHOICES = {
    (way, factor): (FREQS / factor / slow, XS, XS / 100 + factor + slow)
    for way, slow in (("positions divided", 1), ("the rule", 3))
    for factor in (2, 8)
}


@picture
def losses_along():
    """One line is high, for both panels; one mark is near the end."""
    parts = {"one": {"as it is": (XS, XS / 100)}}
    parts["other"] = {"as it is": (XS, XS), "the rule": (XS, [2, 1])}
    marks = {"one": [(150, "trained")], "other": [(290, "290")]}
    return nbD.losses_along(parts, marks)


@picture
def loss_by_gap():
    """One of two wavelengths fits twice into the gaps."""
    waves = {3: 20.0, 5: 1000.0}
    return nbD.loss_by_gap([0, 20, 50], [2.0, 2.5, 4], waves, 3)


@picture
def needle_maps():
    """Counts, black or white; of 80 and of 4 texts."""
    parts = {256: (80, {"a": [8, 80]}), 512: (4, {"a": [0, 1], "b": [2, 4]})}
    return nbD.needle_maps(parts, ["start", "end"])


@picture
def stretched():
    """One of two marks is beyond the measured positions."""
    along = {"as it is": (XS, XS / 50), "base raised": (XS, XS / 100)}
    marks = [("trained: 256", 256), ("4 times: 1,024", 1024)]
    return nbD.stretched([6.0, 60], [6.0, 240], along, marks, "factor 4")


@widget(way="positions divided", factor=2)
def longer():
    known = {"last keys only": (XS, XS / 300)}
    return nbD.longer(FREQS, 256, CHOICES, (XS, XS / 50), known)


# -- E ----------------------------------------------------------------------


def cut(config, name, rank, n):
    """Cut w2 and wo by columns, all other matrices by rows."""
    dim = int(name.endswith((".wo.weight", ".w2.weight")))
    length = tensor_shapes(config)[name][dim] // n
    return dim, rank * length, length


@picture
def block_parts():
    return nbE.block_parts(small_llama().config, cut, 1, 2, "rank 1 of 2")


@widget(n=8, rank=5)
def cuts():
    return nbE.cuts({"small": small_llama().config}, cut)


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


# -- G ----------------------------------------------------------------------


@picture
def roofline():
    """The limits meet between two of the measured points."""
    memory = [10.0, 20.0, 40.0]
    return nbG.roofline([1, 2, 4], [5.0, 9.0, 14.0], memory, 25.0)


@widget(size=0.5, bandwidth=500, batch=64, context=1024)
def bound():
    return nbG.bound(small_llama())


# -- H ----------------------------------------------------------------------


@widget(degrees=90)
def last_pair():
    return nbH.last_pair()


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
