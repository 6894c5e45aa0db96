"""Pictures, widgets and checks of notebook 00."""

import functools
from dataclasses import replace
from functools import cache
from math import prod

import ipywidgets as ipw
import torch

from llamalib.model import LLAMA_1B
from llamalib.tensors import tensor_shapes

from .charts import figure_legend, finish, grouped_bars, ink, write
from .judge import Wrong, agree, as_tensor, exercise, vary
from .play import Play
from .pocket import strip  # noqa: F401
from .theme import COLOURS, canvas, colour, panels, plain, spaced

# Where a parameter is, in the order data flows, and its colour.
PLACES = {
    "embedding": "token",
    "attention": "attention",
    "feed-forward": "feed-forward",
    "norms": "other",
    "output": "probability",
}
PLACE_OF = {"tok_embeddings": "embedding", "output": "output"}
PLACE_OF |= dict.fromkeys(("wq", "wk", "wv", "wo"), "attention")
PLACE_OF |= dict.fromkeys(("w1", "w2", "w3"), "feed-forward")
# The published settings of larger Llamas, and whether they are tied.
_8B = dict(dim=4096, n_layers=32, ffn_dim_multiplier=1.3, multiple_of=1024)
_70B = dict(_8B, dim=8192, n_layers=80, n_heads=64, multiple_of=4096)
_3B = dict(dim=3072, n_layers=28, n_heads=24, ffn_dim_multiplier=1.0)
LARGER = {
    "Llama 3.2-3B": (replace(LLAMA_1B, **_3B), True),
    "Llama 3.1-8B": (replace(LLAMA_1B, **_8B), False),
    "Llama 3.1-70B": (replace(LLAMA_1B, **_70B), False),
}


def shares(models):
    """Draw the share of each place, by model: name to (config, tied)."""
    fig, ax = canvas(0.95 + 0.45 * len(models))
    rows = range(len(models))[::-1]
    for row, (config, tied) in zip(rows, models.values(), strict=True):
        counts = by_place(config, tied)
        left, total = 0.0, sum(counts.values())
        for place, count in counts.items():
            share, tone = 100 * count / total, colour(PLACES[place])
            ax.barh(row, share, 0.7, left, color=tone, label=place)
            if share >= 4:
                text = f"{share:.1f} %"
                write(ax, left + share / 2, row, text, color=ink(tone))
            left += share
        write(ax, 101, row, f"{total / 1e6:,.1f} M", ha="left")
    ax.spines["bottom"].set_bounds(0, 100)
    ax.set_yticks(rows, [plain(name) for name in models])
    label = "share of the parameters in percent; at the right, how many"
    finish(ax, "", label, xlim=(0, 113), xticks=range(0, 101, 25))
    return figure_legend(fig, "outside upper center")


def by_place(config, tied) -> dict[str, int]:
    """Return how many parameters each place has; a tied output has none."""
    counts = dict.fromkeys(PLACES, 0)
    for name, shape in tensor_shapes(config).items():
        part = name.split(".")[-2]  # such as wq
        place = PLACE_OF.get(part, "norms")
        if part != "output" or not tied:
            counts[place] += prod(shape)
    return {place: n for place, n in counts.items() if n}


def tensor_card(heading, counts, edges, spreads, layer, yscale):
    """Draw a tensor's histogram, and its spread in each layer if in one."""
    fig, (ax, side) = panels(3.2, 2, width_ratios=[1.8, 1])
    ax.stairs(counts, edges, fill=True, color=COLOURS["plain"])
    finish(ax, heading, "value of a weight", "how many", yscale=yscale)
    if not spreads:
        side.axis("off")
        return fig
    grouped_bars(side, {"": spreads}, ["other"])
    side.patches[layer].set_color(COLOURS["plain"])
    name = "standard deviation\nof this tensor in each layer"
    return finish(side, name, "layer", xticks=spaced(len(spreads), 8))


EXACT = 2**20  # the figures of a larger tensor are those of a sample
SAMPLE = 2**18  # numbers


def tensors(llama) -> Play:
    """Return a browser of a model's tensors: shape, figures, histogram."""
    weights = llama.state_dict()
    figures = functools.cache(lambda name: _figures(weights[name]))

    def draw(name, log):
        counts, edges, _, text = figures(name)
        spreads, layer = [], 0
        if name.startswith("layers."):
            _, layer, part = name.split(".", 2)
            layers = range(llama.config.n_layers)
            spreads = [figures(f"layers.{i}.{part}")[2] for i in layers]
        card = _heading(llama, name, text), counts, edges, spreads, int(layer)
        return tensor_card(*card, "log" if log else "linear")

    first = "layers.0.attention.wq.weight"
    return Play(
        draw,
        name=ipw.Dropdown(options=list(weights), value=first),
        log=ipw.Checkbox(value=False, description="logarithmic counts"),
    )


def _figures(weight):
    """Return a tensor's counts, bin edges, std, and its figures as a text."""
    flat = weight.detach().flatten()  # (n,)
    if len(flat) > EXACT:
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(len(flat), (SAMPLE,), generator=generator)
        flat = flat[drawn.to(flat.device)]  # (SAMPLE,)
    flat = flat.float().cpu()
    low, high = flat.min().item(), flat.max().item()
    half = 0.5 if low == high else 0  # a histogram needs some width
    ends = low - half, high + half
    mean, std = flat.mean().item(), flat.std(correction=0).item()
    text = f"mean {round(mean, 4) + 0:.4f}, std {std:.4f}, "  # + 0: no -0
    text += f"from {low:.3f} to {high:.3f}"
    if len(flat) < weight.numel():
        text += f"\nof {len(flat):,} of its numbers, drawn at random"
    return flat.histc(60, *ends), torch.linspace(*ends, 61), std, text


def _heading(llama, name, text) -> str:
    """Return the lines over a tensor's picture."""
    weight = llama.state_dict()[name]
    share = weight.numel() / sum(p.numel() for p in llama.parameters())
    shape = " × ".join(str(size) for size in weight.shape)
    dtype = str(weight.dtype).removeprefix("torch.")
    text = f"{shape} {dtype}, {100 * share:.3g} % of the parameters\n{text}"
    if name == "output.weight" and llama.tied:
        text += "\nthe same numbers as tok_embeddings.weight"
    return f"{name}\n{text}"


# -- the checks of the exercises --


def models():
    """Return a tiny model, the 1B and the 8B, or in a hidden check others."""
    k = vary(1, 2, 3, 5)
    one = replace(LLAMA_1B, dim=2048 * k, n_layers=15 + k)
    more = dict(n_layers=31 + k, ffn_dim_multiplier=1.3, multiple_of=1024)
    tiny = dict(dim=8 * k, n_layers=11 + k, vocab_size=9 + k)
    tiny = replace(one, **tiny, n_heads=2 * k, n_kv_heads=2)
    return tiny, one, replace(one, dim=4096 * k, **more)


@exercise(1, expects="a dict with a number for each part")
def check_1(answer):
    for shapes in map(tensor_shapes, models()[:2]):
        found, expected = answer(shapes), count_parts(shapes)
        mistakes = [(m, count_parts(shapes, *how)) for m, *how in PARTS]
        if isinstance(found, dict):
            keys = [*expected, *found]
            odd = [k for k in keys if found.get(k) != expected.get(k)]
            mistakes.append((f"{odd[:1]} is missing or wrong", found))
        agree(found, expected, mistakes, tolerance=0)
    return f"the {len(expected)} parts of the 1B"


def part_of(name: str) -> str:
    words = name.split(".")[:-1]
    return ".".join(words[2:] if words[0] == "layers" else words)


def one_digit(name: str) -> str:
    if name.startswith("layers."):
        name = name[len("layers.0.") :]
    return name.removesuffix(".weight")


def count_parts(shapes, part=part_of, size=prod, add=1) -> dict:
    found = {}
    for name, shape in shapes.items():
        before = found.get(part(name), 0)
        found[part(name)] = add * before + size(shape)
    return found


PARTS = (
    ("the layers are not added up", part_of, prod, 0),
    ("attention.wq is the part, not wq alone", lambda n: n.split(".")[-2]),
    ("a part does not end in .weight", lambda n: f"{part_of(n)}.weight"),
    ("a part has no layer's number", lambda n: n[:-7]),
    ("a layer's number may have two digits", one_digit),
    ("multiply the sizes of a shape; they were added", part_of, sum),
    ("count parameters, not tensors", part_of, lambda shape: 1),
)


@exercise(2, expects="a dict of five numbers")
def check_2(answer):
    for c in (*models()[1:], models()[0]):
        found, expected = answer(tensor_shapes(c)), settings(c)
        if isinstance(found, dict) and found.keys() != expected.keys():
            keys = f"{str([*found])[:80]}; expected {[*expected]}"
            raise Wrong(f"the keys are {keys}")
        if not isinstance(found, dict):
            agree(found, expected)
        for key, (value, *mistakes) in expected.items():
            agree(found[key], value, mistakes, 0, key)
    return "the settings of the 1B, the 8B and a tiny model"


def settings(c) -> dict:
    """Return by key the right value, and likely mistakes with theirs."""
    D, L, V, F = c.dim, c.n_layers, c.vocab_size, c.hidden_dim
    last = int(max(map(str, range(L))))  # "9" is after "15"
    text = "n_layers: as strings '9' is after '15'; compare ints"
    digit = "n_layers: a layer's number may have two digits"
    first = len({str(layer)[0] for layer in range(L)})  # 1 and 15: the same
    other = "is the other size: a matrix (n, m) maps m numbers to n"
    both = f"{text}. Or: {digit.split(': ')[1]}" if first == last + 1 else text
    count_from_0 = "n_layers is the last number, but layers count from 0"
    group = "group_size: rows of wq over rows of wk, not under"
    group_size = c.n_heads // c.n_kv_heads
    tensors = "n_layers: those are tensors; a layer has nine"
    return dict(
        dim=(D, (f"dim {other}", V), (f"dim {other}", F)),
        n_layers=(
            *(L, (count_from_0, L - 1), (text, last)),
            *((both, last + 1), (digit, first), (tensors, 9 * L + 3)),
        ),
        vocab_size=(V, (f"vocab_size {other}", D)),
        hidden_dim=(F, (f"hidden_dim {other}", D)),
        group_size=(group_size, (group, 1 / group_size)),
    )


@exercise(3, expects="a whole number")
def check_3(answer):
    cases = list(budgets())
    right, found = [fit(*c) for c in cases], [answer(*c) for c in cases]
    for each, expected in zip(found, right, strict=True):
        if (number := as_tensor(each)) is None or number.dim():
            agree(each, expected)
        if number < 0:
            raise Wrong("fewer than no layers; expected 0 if none fits")
    mistakes = [(m, [fit(*c, **how) for c in cases]) for m, how in LAYERS]
    agree(found, right, mistakes, 0, "the number of layers")
    if any(isinstance(each, float) for each in found):
        raise Wrong("the numbers are right; expected them as int")
    return f"{len(cases)} budgets"


def budgets():
    """Yield (config, bytes, dtype, tied): just enough, a byte less, more."""
    for c, tied in zip(models(), (False, True, False), strict=True):
        for dtype in (torch.bfloat16, torch.float32):
            yield c, 0, dtype, tied
            for n_layers in vary((1, 2, 7, 33), (2, 5, 8, 21), (3, 1, 17, 4)):
                layer, around = weigh(c, 2 - tied)
                exact = (n_layers * layer + around) * dtype.itemsize
                norm = c.dim * dtype.itemsize
                short = exact - n_layers * norm  # a norm a layer is left out
                for budget in (exact - 1, exact, exact + layer, short):
                    yield c, budget, dtype, tied


@cache
def weigh(c, matrices: int) -> tuple[int, int]:
    """Return the parameters of a layer, and of what is around the layers."""
    shapes = tensor_shapes(replace(c, n_layers=1)).items()
    layer = sum(prod(s) for name, s in shapes if name.startswith("layers."))
    return layer, (matrices * c.vocab_size + 1) * c.dim


def fit(
    c, budget, dtype, tied, size=0, n=0, around=1, up=0, less=0, norms=2
) -> int:
    """Return how many layers fit, or what one of the mistakes gives."""
    layer, rest = weigh(c, n or 2 - tied)
    layer -= (2 - norms) * c.dim
    left = budget // (size or dtype.itemsize) - around * (rest - less * c.dim)
    return max((left + up * (layer - 1)) // layer, 0)


LAYERS = (
    ("count what is around the layers, too", dict(around=0)),
    ("a tied output is not counted", dict(n=2)),
    ("an output that is not tied is counted", dict(n=1)),
    ("the last norm has parameters, too", dict(less=1)),
    ("a layer has two norms", dict(norms=1)),
    ("the last layer must fit whole: round down", dict(up=1)),
    ("the dtype says how many bytes a number has", dict(size=2)),
    ("the budget is in bytes, not in numbers", dict(size=1)),
)
