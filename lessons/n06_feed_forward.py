"""Pictures, widgets and checks of notebook 06."""

from dataclasses import replace

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.colors import LogNorm

from llamalib.model import LLAMA_1B, causal_mask, precompute_freqs_cis

from . import charts
from .judge import Wrong, agree, close, draws, exercise, vary
from .play import Play
from .pocket import strip  # noqa: F401
from .theme import COLOURS, array, canvas, panels

ZERO = dict(color=COLOURS["other"], lw=0.8)


def activations(z, curves, factors):
    """Draw three f(z) by name, and f(z)/z; the network's own first."""
    fig, axes = panels(3.3, 2)
    looks = ("feed-forward", "-"), ("black", "--"), ("#777777", "-.")
    parts = [
        (curves, "Activation functions f", "f(z)"),
        (factors, "Each is z times a factor", "f(z) / z, the factor"),
    ]
    for ax, (series, name, y) in zip(axes, parts, strict=True):
        ax.axhline(0, **ZERO)
        ax.axvline(0, **ZERO)
        charts.lines(ax, series, looks, z)
        charts.finish(ax, name, "z", y, legend="upper left")
    axes[1].set_ylim(-0.05, 1.25)
    return fig


def one_gate() -> Play:
    """Return sliders of z and up of a neuron with the down column (1, -1)."""
    zs, tone = np.linspace(-5, 5, 201), COLOURS["feed-forward"]

    def draw(z, up):
        fig, (left, right) = panels(3.3, 2)
        gate, size = z / (1 + np.exp(-z)), z * up / (1 + np.exp(-z))
        left.plot(zs, zs / (1 + np.exp(-zs)), "-", z, gate, "o", color=tone)
        charts.finish(left, f"gate = silu({z:g}) = {gate:.3f}", "z", "silu(z)")
        ends = [0, size], [0, -size], "-", size, -size, "o"
        right.plot(*ends, color=tone, lw=3)
        right.grid(lw=0.5)
        right.set(xlim=(-10.5, 10.5), ylim=(-10.5, 10.5))
        name = f"added: gate · up · (1, −1) = ({size:.3f}, {-size:.3f})"
        return charts.finish(right, name, "first number", "second number")

    z = ipw.FloatSlider(1, min=-5, max=5, description="z")
    up = ipw.FloatSlider(2, min=-2, max=2, description="up")
    return Play(draw, z=z, up=up)


def stream_norms(norms, labels):
    """Draw lengths (2L + 1, T) of the residual stream after each sub-layer."""
    norms, parts = array(norms), ("attention", "feed-forward")
    layers = range(len(norms) // 2)
    rows = [f"layer {i}: + {part}" for i in layers for part in parts]
    rows = ["embedding", *rows]
    low, high = norms.min(), norms.max()
    fig, ax = canvas(1.2 + 0.24 * len(rows))
    image = charts.heatmap(ax, norms, columns=labels)
    image.set_norm(LogNorm(low, high))
    ax.set_yticks(range(len(rows)), rows)
    if len(labels) <= 12:
        short = np.vectorize(lambda x: f"{x:.3g}" if x < 1000 else f"{x:.0f}")
        charts.cell_texts(ax, short(norms), norms > (low * high) ** 0.5)
    charts.finish(ax, "Length of the residual stream, ‖x‖", "token")
    fig.colorbar(image, ax=ax, label="length (logarithmic)")
    return fig


# -- the checks of the exercises --


NAMES = "dim", "n_layers", "multiple_of", "ffn_dim_multiplier"
CASES = (
    (1024, 3, 256, 1.5),
    (512, 2, 128, None),
    (640, 5, 100, 1.0),
    (3072, 4, 256, 1.0),  # 8192 fits already
    (100, 2, 1, 1.3),  # 266.67, 345.8: a fraction is dropped twice
)


def width(D, multiple, times=None):
    """Return F for a model dim, multiple_of and ffn_dim_multiplier."""
    c = replace(LLAMA_1B, dim=D, multiple_of=multiple)
    return replace(c, ffn_dim_multiplier=times).hidden_dim


WIDTHS = {  # mistakes in F, from D, multiple_of and ffn_dim_multiplier
    "you rounded down, not up": lambda D, m, t: width(D, 1, t) // m * m,
    "a width that fits multiple_of already stays as it is": lambda D, m, t: (
        (width(D, 1, t) // m + 1) * m
    ),
    "you left out the two thirds": lambda D, m, t: width(1.5 * D, m, t),
    "you left out ffn_dim_multiplier": lambda D, m, t: width(D, m),
    "F is not 4 D: see section 5": lambda D, m, t: 4 * D,
    "drop the fraction after each step": lambda D, m, t: (
        -(int((t or 1) * 8 * D / 3) // -m) * m
    ),
}


@exercise(1)
def check_1(answer):
    k = vary(1, 2, 4, 5)  # with a factor of 3 no fraction would be dropped
    cases = [(k * D, k * L, m, t) for D, L, m, t in CASES]
    found = [answer(dict(zip(NAMES, case, strict=True))) for case in cases]
    right = [3 * D * L * width(D, m, t) for D, L, m, t in cases]
    wrong = {
        words: [3 * D * L * f(D, m, t) for D, L, m, t in cases]
        for words, f in WIDTHS.items()
    }
    one = [n // case[1] for n, case in zip(right, cases, strict=True)]
    wrong["you counted one layer"] = one
    wrong["there are three matrices, not two"] = [n * 2 // 3 for n in right]
    for words, counts in wrong.items():
        if close(found, counts, 1e-9):
            raise Wrong(words)
    for n, expected, case in zip(found, right, cases, strict=True):
        agree(n, expected, (), 1e-9, f"the count for {case}")
    c = LLAMA_1B
    return f"the 1B has {3 * c.dim * c.hidden_dim * c.n_layers:,}"


silu, sigma = F.silu, torch.sigmoid
FORMULAS = {  # mistakes with x, gate, up, down
    "you gated with up": lambda x, a, b, c: x @ a * silu(x @ b) @ c,
    "sigmoid is not SiLU": lambda x, a, b, c: sigma(x @ a) * (x @ b) @ c,
    "the gate is SiLU's, of gate, not a sigmoid of up": lambda x, a, b, c: (
        (x @ a) * sigma(x @ b) @ c
    ),
    "SiLU takes the gate alone, not the product": lambda x, a, b, c: (
        silu((x @ a) * (x @ b)) @ c
    ),
    "exp(-z), not exp(z)": lambda x, a, b, c: (
        (x @ a) * sigma(-(x @ a)) * (x @ b) @ c
    ),
    "ReLU is not SiLU": lambda x, a, b, c: F.relu(x @ a) * (x @ b) @ c,
    "you left out up": lambda x, a, b, c: silu(x @ a) @ c,
    "you left out SiLU": lambda x, a, b, c: (x @ a) * (x @ b) @ c,
    "you left out down": lambda x, a, b, c: silu(x @ a) * (x @ b),
    "down is not w2: no .T": lambda x, a, b, c: silu(x @ a) * (x @ b) @ c.T,
}


@exercise(2)
def check_2(answer):
    g, D, F = draws(6), *vary((8, 20), (10, 18), (7, 24), (12, 15))
    square, wide = (D, D), (6, F)
    shapes = [(2, 3, D), square, square, square], [(5, 6), wide, wide, (F, 6)]
    cases = [[torch.randn(s, generator=g) for s in each] for each in shapes]
    found = [answer(*case) for case in cases]
    mistakes = [(words, f(*cases[0])) for words, f in FORMULAS.items()]
    for y, (x, a, b, c) in zip(found, cases, strict=True):
        agree(y, silu(x @ a) * (x @ b) @ c, mistakes)
    x, *weights = cases[0]
    z, up = (80 * x @ each for each in weights[:2])  # z is up to some hundreds
    words = "exp(z) overflows for a large z: divide z by 1 + exp(-z)"
    found, e = answer(80 * x, *weights), z.exp()
    too_large = (z * e / (1 + e) * up) @ weights[2]
    agree(found, silu(z) * up @ weights[2], [(words, too_large)])


@exercise(3)
def check_3(answer, llama):
    c, T = llama.config, vary(7, 8, 10, 11)
    ids, L = torch.randint(c.vocab_size, (T,), generator=draws(6)), c.n_layers
    angles = c.head_dim, T, c.rope_theta, c.scaling_factor
    freqs_cis = precompute_freqs_cis(*angles)

    causal = causal_mask(T)

    def run(layers, mask=causal):
        x = llama.tok_embeddings(ids)  # (T, D)
        for layer in layers:
            x = llama.layers[layer](x, freqs_cis, mask)
        return x

    for n in sorted({0, 1, min(2, L), L}):
        right, layers = run(range(n)), range(L)
        mistakes = [
            ("one block too many", run(layers[: n + 1])),
            ("one block too few", run(layers[: max(n - 1, 0)])),
            ("no causal mask", run(layers[:n], None)),
            ("always layer 0's weights", run([0] * n)),
            ("those are the last n", run(layers[L - n :])),
            ("no final norm here", llama.norm(right)),
        ]
        what = f"for n = {n}, the result"
        agree(answer(llama, ids, n), right, mistakes, 1e-2, what)
    return "right, after 0, 1, 2 and all blocks"
