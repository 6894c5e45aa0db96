"""Pictures and checks of notebook F."""

from copy import copy

import torch

from llamalib.model import rms_norm
from llamalib.probe import record

from . import charts
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


def score(
    weights,
    ids,
    step=1,
    which=slice(None),
    mean_of="position",
    add=sum,
    itself=True,
):
    """Return a head's weight on what followed the same token earlier.

    itself: False: the position t - 1 is no earlier one.
    """
    found = []  # for each position, a weight for each earlier one
    for t, token in enumerate(ids):
        before = range(t if itself else max(t - 1, 0))
        earlier = [s for s in before if ids[s] == token][which]
        found.append([weights[t, s + step].item() for s in earlier])
    counts = dict(position=sum(map(bool, found)), text=len(ids), sum=1)
    if mean_of == "repeated":  # also those that only `itself` leaves out
        repeated = [token in ids[:t] for t, token in enumerate(ids)]
        counts["repeated"] = sum(repeated)
    return sum(add(each) for each in found if each) / max(counts[mean_of], 1)


@exercise(1, expects="a number")
def check_1(answer):
    itself = "a position after an earlier one may be t itself: add it, too"
    flaws = [
        ("this is the weight on the same token: take the next", dict(step=0)),
        ("this is the token before the earlier one", dict(step=-1)),
        ("only the latest earlier one: add all", dict(which=slice(-1, None))),
        ("only the first earlier one: add all", dict(which=slice(1))),
        ("divide by the positions that repeat", dict(mean_of="text")),
        ("this is the sum over positions: take the mean", dict(mean_of="sum")),
        ("add the weights of a position: this is their mean", dict(add=mean)),
        ("add the weights of a position: this is the largest", dict(add=max)),
        (itself, dict(itself=False)),
        (itself, dict(itself=False, mean_of="repeated")),
    ]
    g, more = draws(), vary([], [6, 4, 2], [3, 1], [4, 1, 3, 2])
    for ids in ([1, 2, 3, 1, 2], [5, 5, 7, 6, 5, 7, 5], [7, 8, 9]):
        ids = ids + more
        rows = torch.rand(len(ids), len(ids), generator=g).tril()
        weights = rows / rows.sum(-1, keepdim=True)
        wrong = [(words, score(weights, ids, **f)) for words, f in flaws]
        wrong += [("rows are queries: weights[t, s]", score(weights.T, ids))]
        found = answer(weights, ids)
        if len(set(ids)) == len(ids) and found != found:
            raise Wrong("it is NaN if no token comes again: return 0")
        agree(found, score(weights, ids), wrong)


def mean(values):
    return sum(values) / len(values)


def settled(hidden, weight, output, eps, t=-1, first=False):
    """Return after how many blocks the last token is on top to the end."""
    top = (rms_norm(hidden[:, t], weight, eps) @ output.T).argmax(-1).tolist()
    others = [k + 1 for k, i in enumerate(top) if i != top[-1]]
    return top.index(top[-1]) if first else max(others, default=0)


@exercise(2, expects="a whole number, k")
def check_2(answer):
    g, (n, T, D, V) = draws(4), vary((9, 3, 6, 4), (12, 5, 8, 5), (7, 2, 5, 6))
    shapes = (n, T, D), (D,), (V, D)  # n is L+1
    cases = [[torch.randn(s, generator=g) for s in shapes] for _ in range(20)]
    cases = [(x.cumsum(0), w, u, vary(1e-5, 1e-6)) for x, w, u in cases]
    right = [settled(*case) for case in cases]
    plain = [(x, 0 * w + 1, *more) for x, w, *more in cases]
    mistakes = [
        (
            "it leads there for the first time, but not to the end",
            [settled(*c, -1, 1) for c in cases],
        ),
        ("one too many: hidden[0] is k = 0", [k + 1 for k in right]),
        ("after k blocks another still leads", [max(k - 1, 0) for k in right]),
        ("the final norm's weight is left out", [settled(*c) for c in plain]),
        ("expected the last position", [settled(*c, t=0) for c in cases]),
    ]
    agree([answer(*case) for case in cases], right, mistakes)


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
