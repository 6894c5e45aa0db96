"""Texts, pictures and checks of notebook F."""

from contextlib import ExitStack
from copy import deepcopy

import torch

from llamalib import FeedForward, Llama

from . import charts, judge
from .judge import Wrong, close, draws, exercise, vary
from .map import strip  # noqa: F401
from .n07_lm_head import SMALL
from .texts import page
from .theme import canvas, panels, spaced


def said_twice(llama, n, count=3):
    """Return texts of n words in random order, said twice: (count, T).

    And where the words come again: after n, and a start token if there is one.
    """
    tokenizer, texts = llama.tokenizer, []
    ids = tokenizer.encode(page(), bos=False, eos=False)
    ids = list(dict.fromkeys(ids))  # each one once
    words = {i: tokenizer.decode([i]) for i in ids}
    whole = [i for i in ids if words[i][:1] == " " and words[i][1:].isalpha()]
    ids = torch.tensor(whole if len(whole) >= n else ids)
    start = torch.tensor(tokenizer.encode("", bos=True, eos=False)).long()
    for seed in range(count):
        g = torch.Generator().manual_seed(seed)
        order = ids[torch.randperm(len(ids), generator=g)[:n]]
        texts.append(torch.cat([start, order, order]))
    return torch.stack(texts), len(start) + n


def head_outputs(llama, tokens):
    """Return what each head gives to `wo`, (L, B, T, H, hd)."""
    kept, heads = [], (llama.config.n_heads, llama.config.head_dim)

    def keep(wo, args):
        kept.append(args[0].unflatten(-1, heads))

    with ExitStack() as hooks:
        for block in llama.layers:
            wo = block.attention.wo
            hooks.enter_context(wo.register_forward_pre_hook(keep))
        llama(tokens, last_only=True)
    return torch.stack(kept)


def others(heads, n_heads):
    """Return as many other heads of the same blocks, drawn at random."""
    g, found = torch.Generator().manual_seed(0), []
    for block in sorted({block for block, _ in heads}):
        every = [(block, h) for h in range(n_heads)]
        rest = [head for head in every if head not in heads]
        count = n_heads - len(rest)
        chosen = torch.randperm(len(rest), generator=g)[:count]
        found += [rest[i] for i in chosen.tolist()]
    return found


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


@exercise(3, expects="the logits, (V,)")
@torch.no_grad()
def check_3(answer):
    """Patch copies of a small random Llama, which must stay as they were."""
    g, T = draws(2), vary(6, 9, 7)
    small = Llama(SMALL)
    for weight in small.parameters():
        noise = torch.randn(weight.shape, generator=g)
        weight.copy_(noise / 2 if weight.dim() == 2 else 1 + noise / 4)

    def observe(patch, base, donor, block):
        llama, forward = deepcopy(small), FeedForward.forward
        try:
            found, after = patch(llama, base, donor, block), llama(base)
        finally:
            FeedForward.forward = forward
        hooks = (
            m._forward_hooks | m._forward_pre_hooks for m in llama.modules()
        )
        if any(hooks):
            raise Wrong("remove your hook: the model stays changed")
        if not close(after, small(base), 1e-3):
            raise Wrong("the model stays changed: put back what you replaced")
        return found

    V = SMALL.vocab_size
    base = torch.randint(V, (T,), generator=g)
    donor = (base + torch.randint(1, V, (T,), generator=g)) % V  # all others
    cases = [(base, donor, block) for block in (SMALL.n_layers - 1, 0)]
    judge.alike(answer, "F_heads", 3, cases, 1e-3, observe)
