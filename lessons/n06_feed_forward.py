"""Pictures, widgets and checks of notebook 06."""

import ipywidgets as ipw
import torch

from llamalib.model import LLAMA_1B
from llamalib.probe import record

from . import charts
from .judge import alike, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play
from .theme import COLOURS, canvas, plain, visible


def activations(z, curves):
    """Draw functions f(z) by name; the network's own first."""
    _, ax = canvas(2.4)
    style = dict(color=COLOURS["other"], lw=0.8)
    ax.axhline(0, **style)
    ax.axvline(0, **style)
    charts.lines(ax, curves, [("feed-forward", "-"), ("plain", "--")], z)
    limits = dict(xlim=(-6, 3), ylim=(-0.5, 2))
    return charts.finish(ax, "", "z", "f(z)", legend="upper left", **limits)


def ranks(name, values):
    """Draw the L ranks of a word, one for each block."""
    _, ax = canvas(3.2)
    looks, blocks = [("plain", "o-")], range(len(values))
    charts.lines(ax, {name: values}, looks, blocks, markersize=4)
    charts.log_axis(ax, "y")
    ax.invert_yaxis()  # the first place is at the top
    y = "rank (1: the most likely)"
    return charts.finish(ax, "", "block", y, legend="above")


def score_parts(attention, network):
    """Draw what attention and network of each block (L,) add to a score."""
    _, ax = canvas(3.0)
    series = {"attention": attention, "feed-forward": network}
    charts.grouped_bars(ax, series, list(series))
    ax.axhline(0, color=COLOURS["other"], lw=0.8)
    return charts.finish(ax, "", "block", "added to the score", legend="above")


def without_blocks(table):
    """Draw ranks of answers without each block: name to L ranks."""
    fig, ax = canvas(1.1 + 0.33 * len(table))
    places = torch.tensor(list(table.values()))  # (n, L)
    image = charts.heatmap(ax, places.log10(), limit=4)
    ax.set_yticks(range(len(table)), [plain(name) for name in table])
    charts.finish(ax, "", "block that is left out")
    bar = fig.colorbar(image, ax=ax, label="rank of the answer", pad=0.02)
    bar.set_ticks(range(5), labels=["1", "10", "100", "1,000", "10,000"])
    return fig


def late_answer(llama, text, longest=60) -> Play:
    """Return a field for a text: the rank of its next word, block by block."""

    def draw(text):
        begin = llama.tokenizer.encode(text, bos=True, eos=False)
        ids = torch.tensor((begin or [0])[-longest:])
        seen = record(llama, ids)
        names = [f"layers.{i}.out" for i in range(llama.config.n_layers)]
        stream = torch.stack([seen[name][-1] for name in names])  # (L, D)
        logits = llama.output(llama.norm(stream))  # (L, V)
        word = logits[-1].argmax()
        after = 1 + (logits > logits[:, word, None]).sum(-1)
        name = visible(llama.tokenizer.decode([word.item()]))
        return ranks(f"rank of {name} after each block", after)

    style = dict(description="text", continuous_update=False)
    return Play(draw, text=ipw.Text(text, **style))


# -- the checks of the exercises --


NAMES = "dim", "n_layers", "multiple_of", "ffn_dim_multiplier"
CASES = (
    (1024, 3, 256, 1.5),
    (512, 2, 128, None),
    (640, 5, 100, 1.0),
    (3072, 4, 256, 1.0),  # 8192 fits already
    (100, 2, 1, 1.3),  # 266.67, 345.8: a fraction is dropped twice
)


@exercise(1, "a whole number")
def check_1(answer):
    """Check `ffn_parameters(params)`."""
    k = vary(1, 2, 4, 5)  # with a factor of 3 no fraction would be dropped
    cases = [(k * D, k * L, m, t) for D, L, m, t in CASES]
    # 535.6, two thirds are 357.07; of 535 they are 356.67
    cases.append((vary(103, 118, 133, 148), 2, 1, 1.3))
    given = [(dict(zip(NAMES, case, strict=True)),) for case in cases]
    alike(answer, "06_feed_forward", 1, given)
    c = LLAMA_1B
    return f"the 1B has {3 * c.dim * c.hidden_dim * c.n_layers:,}"


@exercise(2, "a tensor (..., D)")
def check_2(answer):
    """Check `swiglu(x, gate, up, down)`."""
    g, D, F = draws(6), *vary((8, 20), (10, 18), (7, 24), (12, 15))
    square, wide = (D, D), (6, F)
    shapes = [(2, 3, D), square, square, square], [(5, 6), wide, wide, (F, 6)]
    cases = [[torch.randn(s, generator=g) for s in each] for each in shapes]
    x, *weights = cases[0]
    cases.append([80 * x, *weights])  # z is up to some hundreds
    alike(answer, "06_feed_forward", 2, [tuple(case) for case in cases])


@exercise(3, "a tensor (N,)")
def check_3(answer):
    """Check `word_parts(parts, gamma, eps, row)`."""
    g, n = draws(7), vary(0, 1, 2, 3)
    cases = []
    for N, D, size in ((5 + n, 12, 1), (3, 8 + n, 0.05)):  # eps is seen
        parts = size * torch.randn(N, D, generator=g)
        gamma, row = torch.randn(2, D, generator=g).unbind()
        cases.append((parts, gamma, 1e-3, row))
    alike(answer, "06_feed_forward", 3, cases)
