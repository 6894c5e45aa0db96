r"""Checks of the exercises of notebook 06."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from ..model import LLAMA_1B, causal_mask, precompute_freqs_cis
from .judge import Wrong, agree, close, draws, exercise, vary

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
    found = [answer(dict(zip(NAMES, case))) for case in cases]
    right = [3 * D * L * width(D, m, t) for D, L, m, t in cases]
    wrong = {
        words: [3 * D * L * f(D, m, t) for D, L, m, t in cases]
        for words, f in WIDTHS.items()
    }
    one = [n // case[1] for n, case in zip(right, cases)]
    wrong["you counted one layer"] = one
    wrong["there are three matrices, not two"] = [n * 2 // 3 for n in right]
    for words, counts in wrong.items():
        if close(found, counts, 1e-9):
            raise Wrong(words)
    for n, expected, case in zip(found, right, cases):
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
    for y, (x, a, b, c) in zip(found, cases):
        agree(y, silu(x @ a) * (x @ b) @ c, mistakes)


@exercise(3)
def check_3(answer, llama):
    c, T = llama.config, vary(7, 8, 10, 11)
    ids, L = torch.randint(c.vocab_size, (T,), generator=draws(6)), c.n_layers
    angles = c.head_dim, T, c.rope_theta, c.scaling_factor
    freqs_cis = precompute_freqs_cis(*angles)

    def run(layers, mask=causal_mask(T)):
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
