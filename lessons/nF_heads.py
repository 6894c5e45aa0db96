"""Pictures and checks of notebook F."""

from copy import copy

import torch

from llamalib.probe import record

from . import charts, judge
from .judge import Wrong, agree, close, draws, exercise, vary
from .map import strip  # noqa: F401
from .theme import canvas, panels, spaced


def head_maps(tables, label="attention weight"):
    """Draw numbers from 0 to 1 by head, blocks from left to right.

    tables: title to (L, H).
    """
    fig, axes, (*_, image) = maps_of(tables)
    fig.colorbar(image, ax=axes, label=label, pad=0.02)
    return fig


def maps_of(tables, signed=()):
    """Draw a map of heads for each table; return figure, axes and images.

    tables: title to (L, H). signed: titles of those with numbers around 0.
    """
    n_blocks, n_heads = next(iter(tables.values())).shape
    height = 0.9 + 0.55 + min(0.13 * n_heads, 2.0)
    fig, axes = panels(height * len(tables), rows=len(tables), sharex=True)
    images = []
    for ax, (name, values) in zip(axes, tables.items(), strict=True):
        around = name in signed
        style = dict(signed=around, limit=None if around else 1.0)
        images.append(charts.heatmap(ax, values.T, **style))
        charts.finish(ax, name, "", "head")
        ax.set_xticks(spaced(n_blocks, 30))
        ax.set_yticks(spaced(n_heads, 9))
    axes[-1].set_xlabel("block")
    return fig, axes, images


def losses_by_token(series, again):
    """Draw nats at each token: name to numbers.

    again: the token at which the text begins once more.
    """
    _, ax = canvas(3.2)
    looks = [("attention", "-"), ("key", "-"), ("other", "--")]
    places = range(1, len(next(iter(series.values()))) + 1)
    charts.lines(ax, series, looks, places)
    charts.mark_x(ax, again, "the words come again")
    label = "surprise, nats"
    return charts.finish(
        ax, "", "token", label, ylim=(0, None), legend="above"
    )


def moved_by_block(series):
    """Draw how far patches before each block move: name to (blocks, moved)."""
    _, ax = canvas(2.9)
    charts.lines(ax, series, [("key", "o-"), ("query", "s-")], markersize=4)
    label = "patched stream that enters block"
    return charts.finish(ax, "", label, "moved", legend="center left")


def look_and_carry(look, carry):
    """Draw two maps: a head's weight, and how far its patch moves.

    look, carry: (L, H).
    """
    looks = "“ is” looks at the country"
    moves = "the head's patch moves the answer"
    tables = {looks: look, moves: carry}
    fig, axes, images = maps_of(tables, signed=[moves])
    labels = "attention weight", "moved"
    for ax, image, label in zip(axes, images, labels, strict=True):
        fig.colorbar(image, ax=ax, label=label, pad=0.02)
    return fig


# -- the checks of the exercises --


@exercise(1, expects="a number")
def check_1(answer):
    g, more = draws(), vary([], [6, 4, 2], [3, 1], [4, 1, 3, 2])
    cases = []
    for ids in ([1, 2, 3, 1, 2], [5, 5, 7, 6, 5, 7, 5], [7, 8, 9]):
        ids = ids + more
        rows = torch.rand(len(ids), len(ids), generator=g).tril()
        cases.append((rows / rows.sum(-1, keepdim=True), ids))
    judge.alike(answer, "F_heads", 1, cases)


@exercise(2, expects="a whole number, k")
def check_2(answer):
    g, (n, T, D, V) = draws(4), vary((9, 3, 6, 4), (12, 5, 8, 5), (7, 2, 5, 6))
    shapes = (n, T, D), (D,), (V, D)  # n is L+1
    cases = [[torch.randn(s, generator=g) for s in shapes] for _ in range(20)]
    cases = [(x.cumsum(0), w, u, vary(1e-5, 1e-6)) for x, w, u in cases]
    judge.alike(answer, "F_heads", 2, cases)


NETWORK = "feed_forward"


def patched(llama, base, donor, block, at=-1, part="out", of=NETWORK):
    """Return the last logits, with a network's output from another run.

    at: the positions that are patched. part: what is put there.
    of: the module whose output it is, None: the block.
    """
    layer = f"layers.{block}"
    name = layer if of is None else f"{layer}.{of}"
    given = record(llama, donor)[f"{name}.{part}"]

    def put(module, args, out):
        out = out.clone()
        out[..., at, :] = given[at]
        return out

    hook = llama.get_submodule(name).register_forward_hook(put)
    try:
        with torch.no_grad():
            return llama(base)[-1]
    finally:
        hook.remove()


def unchanged(llama, network):
    """Return a function that undoes a reader's changes of a model.

    It returns whether a hook was left. network: its weights are restored, too.
    """
    weights = [(w, w.clone()) for w in network.parameters()]
    kept, forward = [], type(network).forward
    for module in llama.modules():
        inside = {k: copy(v) for k, v in vars(module).items()}
        kept.append((module, dict(vars(module)), inside))

    def restore():
        type(network).forward, hooks = forward, False
        for module, values, inside in kept:
            for name, value in values.items():
                if isinstance(value, dict):
                    hooks |= "_hooks" in name and len(value) > len(
                        inside[name]
                    )
                    value.clear()
                    value.update(inside[name])
            vars(module).clear()
            vars(module).update(values)
        for weight, before in weights:
            weight.copy_(before)
        return hooks

    return restore


@exercise(3, expects="the logits, (V,)")
@torch.no_grad()
def check_3(answer, llama):
    g, T, c = draws(2), vary(6, 9, 7), llama.config
    for block in sorted({0, c.n_layers - 1}):
        base, donor = torch.randint(c.vocab_size, (2, T), generator=g)
        case, other = (base, donor), (block + 1) % c.n_layers
        whole = slice(None)
        mistakes = [
            ("base and donor are exchanged", (donor, base, block)),
            ("nothing is patched", (base, base, block)),
            ("patch the last position only", (*case, block, whole)),
            ("patch the last position, not the first", (*case, block, 0)),
            ("patch the output, not the input", (*case, block, -1, "in")),
            ("this is another block", (*case, other)),
            (
                "patch the network's output, not the block's",
                (*case, block, -1, "out", None),
            ),
        ]
        right, usual = patched(llama, *case, block), llama(base)
        restore = unchanged(llama, llama.layers[block].feed_forward)
        try:
            found = answer(llama, *case, block)
            changed = not close(llama(base), usual, 1e-3)
        finally:
            hooked = restore()
        if hooked:
            raise Wrong("remove your hook: the model stays changed")
        if changed:
            raise Wrong("the model stays changed: put back what you replaced")
        # each mistake runs the model, but only if the answer is wrong
        wrong = ((words, patched(llama, *how)) for words, how in mistakes)
        agree(found, right, wrong, 1e-3)
    return "right, in the first and the last block"
