"""Pictures, widgets and checks of notebook 03."""

from collections.abc import Iterator

import ipywidgets as ipw
import numpy as np
import torch
from torch import Tensor

from llamalib.model import rms_norm
from llamalib.probe import text_loss

from . import charts
from .judge import Guarded, alike, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play
from .theme import COLOURS, array, canvas, panels, visible


def rms_by_block(rms, first):
    """Draw the RMS (L, T) of T tokens' vectors after each block."""
    _, ax = canvas(2.9)
    long, *others = array(rms).T  # (L,) each
    blocks = range(len(long))
    style = dict(color=COLOURS["residual"], label="all other tokens")
    span = np.min(others, 0), np.max(others, 0)
    ax.fill_between(blocks, *span, alpha=0.6, **style)
    name = f"the first token, {visible(first)}"
    charts.lines(ax, {name: long}, [("plain", "o-")], blocks)
    heading = "Size of the residual stream"
    charts.finish(ax, heading, "after block", "RMS", yscale="log")
    return charts.add_legend(ax, "upper left")


def before_and_after(vectors, heading):
    """Draw vectors before and after RMSNorm: name to (D,) numbers."""
    margins = 0.075, 0.13, 0.99, 0.93, 0.14, 0.3
    fig, axes = panels(3.4, 2, 2, margins=margins, sharex=True)
    tones = COLOURS["plain"], COLOURS["residual"]
    for i, (name, vector) in enumerate(vectors.items()):
        x = vector.float()
        y = rms_norm(x, torch.ones_like(x))
        for column, values in enumerate((x, y)):
            ax = axes[2 * i + column]
            ax.vlines(range(len(x)), 0, array(values), tones[i], lw=1)
            ax.axhline(0, color=COLOURS["other"], lw=0.6)
            if column:  # the most that a feature can be
                limit, title = len(x) ** 0.5, f"{name}, normalized"
            else:
                limit = max(float(abs(values).max()), 1e-6)
                title = f"{name}, after {heading}"
            ax.set_title(title, fontsize=9)
            ax.set_ylim(-1.1 * limit, 1.1 * limit)
    for ax in axes[2:]:
        ax.set_xlabel("feature")
    return fig


def norm(stream, labels, block) -> Play:
    """Return the first token and another, before and after RMSNorm.

    stream: (L, T, D), after each block.  labels: the texts of T tokens.
    """

    def draw(block, token):
        vectors = {
            f"token {i}, {visible(labels[i])}": stream[block, i]
            for i in (0, token)
        }
        return before_and_after(vectors, f"block {block}")

    last = len(stream) - 1
    names = [(f"{i}: {text!r}", i) for i, text in enumerate(labels[:20])][1:]
    return Play(
        draw,
        block=ipw.IntSlider(block, 0, last, description="block"),
        token=ipw.Dropdown(description="token", options=names, value=1),
    )


def two_norms(paths):
    """Draw how norms move points of the plane: title to paths (k, 2)."""
    fig, axes = panels(4.0, len(paths))
    angles, line = np.linspace(0, 2 * np.pi, 200), np.array([-2.6, 2.6])
    style = dict(color=COLOURS["other"], lw=1)
    for ax, (name, moves) in zip(axes, paths.items(), strict=True):
        ax.plot(2**0.5 * np.cos(angles), 2**0.5 * np.sin(angles), **style)
        ax.plot(line, -line, ":", **style)
        for move in map(array, moves):
            ax.plot(*move.T, color=COLOURS["plain"], lw=1)
            ax.plot(*move[0], "o", color="white", mec=COLOURS["plain"])
            ax.plot(*move[-1], "o", color=COLOURS["residual"], ms=8)
        labels = name, "first number", "second number"
        charts.finish(ax, *labels, aspect="equal", xlim=line, ylim=line)
    return fig


def loss_by_factor(factors, losses, guess):
    """Draw the loss for each factor of one number, and a uniform guess's."""
    _, ax = canvas(2.6)
    places = range(len(factors))
    charts.lines(ax, {"loss": losses}, [("plain", "o-")], places)
    ax.set_xticks(places, [f"{factor:g}" for factor in factors])
    charts.mark_y(ax, guess, "a uniform guess, ln V", end=True)
    x = "factor (not to scale)"
    labels = "One number, multiplied", x, "loss, nats per token"
    return charts.finish(ax, *labels, ylim=(0, 1.15 * max(*losses, guess)))


# -- the checks of the exercises --


def small_vectors(seed: int) -> Iterator[tuple]:
    """Yield (x, weight, bias) with one to three leading dimensions."""
    g, n = draws(seed), vary(0, 2, 3, 4)
    for shape in ((2, 3, 8 + n), (2, 3 + n, 4, 6), (5 + n, 6)):
        x = 0.05 * torch.randn(shape, generator=g) + 0.1  # (..., D)
        yield x, *torch.randn(2, shape[-1], generator=g).unbind()


EPSILONS = 1e-3, 2e-3, 7e-4, 3e-3  # large enough to be seen in such vectors


@exercise(1, "a tensor (..., D)")
def check_1(answer):
    """Check `my_layer_norm(x, weight, bias, eps)`."""
    cases = [(*each, vary(*EPSILONS)) for each in small_vectors(1)]
    alike(answer, "03_rmsnorm", 1, cases)


@exercise(2, "a tensor (..., D)")
def check_2(answer, norms, llama, feature, text):
    """Check `partial_rms_norm(x, weight, eps, k)`, then run some norms by it.

    norms: those of the model that run on the answer.
    """
    cases = []
    for x, weight, _ in small_vectors(2):
        x = x * torch.arange(1.0, x.shape[-1] + 1)  # later ones are larger
        for k in (vary(3, 4, 5), 1, x.shape[-1]):
            cases.append((x, weight, vary(*EPSILONS), k))
    alike(answer, "03_rmsnorm", 2, cases)
    found = [
        f"with k = {k}: loss {loss_of(answer, norms, llama, text, k):.1f}"
        for k in (feature, feature + 1)
    ]
    return "; ".join(found)


def loss_of(answer: Guarded, norms, llama, text: str, k: int) -> float:
    """Return the loss of a text if some norms run on the answer."""

    def by_answer(norm, args, out) -> Tensor:
        found = answer.function(args[0], norm.weight, norm.eps, k)
        return torch.as_tensor(found).type_as(out)

    hooks = [norm.register_forward_hook(by_answer) for norm in norms]
    try:
        return text_loss(llama, text)
    finally:
        for hook in hooks:
            hook.remove()
