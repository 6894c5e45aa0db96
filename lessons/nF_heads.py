"""Pictures, widgets and checks of notebook F."""

import ipywidgets as ipw
import torch
import torch.nn.functional as F

from llamalib.model import rms_norm
from llamalib.probe import record

from . import charts
from .judge import Wrong, agree, draws, exercise, vary
from .play import Play, token_texts
from .pocket import strip  # noqa: F401
from .theme import COLOURS, array, canvas, heading, panels, spaced, visible


def head_maps(tables, label, least=None):
    """Draw numbers from 0 to 1 by head: title to (L, H).

    least: the smallest number that is written into its cell; None: none is.
    """
    fig, axes = panels(3.0, len(tables), sharey=True)
    for ax, (name, values) in zip(axes, tables.items(), strict=True):
        image = charts.heatmap(ax, values, limit=1.0)
        ax.invert_yaxis()  # layer 0 at the bottom
        charts.finish(ax, name, "head", "layer" if ax is axes[0] else "")
        if least is not None and values.numel() <= 64:
            texts = [
                [f"{x:.2f}" if x >= least else "" for x in v] for v in values
            ]
            charts.cell_texts(ax, texts, values > 0.55, 7)
        n_layers, n_heads = values.shape
        ax.set_yticks(spaced(n_layers, 8))
        ax.set_xticks(spaced(n_heads, 8))
    fig.colorbar(image, ax=axes, label=label, pad=0.02)
    return fig


def patch_maps(tables, labels, blocks):
    """Draw how far each patch moved the answer: title to (blocks, T)."""
    fig, axes = panels(1.4 + 0.28 * len(blocks), len(tables), sharey=True)
    for ax, (name, values) in zip(axes, tables.items(), strict=True):
        image = charts.heatmap(ax, values, (), labels, limit=1.0)
        ax.invert_yaxis()
        ax.set_yticks(range(len(blocks)), blocks)
        first = "stream that enters block" if ax is axes[0] else ""
        charts.finish(ax, name, "", first)
        texts = [[f"{x:.2f}" if x >= 0.1 else "" for x in v] for v in values]
        charts.cell_texts(ax, texts, values > 0.55, 7)
    fig.colorbar(image, ax=axes, label="moved", pad=0.02)
    return fig


def stream_parts(sums):
    """Draw what 2L + 1 parts give to each sum: (title, label) to parts."""
    fig, axes = panels(3.1, len(sums))
    for ax, ((name, label), parts) in zip(axes, sums.items(), strict=True):
        first, *rest = array(parts)
        kinds = {"attention": rest[::2], "feed-forward": rest[1::2]}
        charts.grouped_bars(ax, kinds, list(kinds))
        ax.bar(-1.5, first, color=COLOURS["residual"], label="embedding")
        ticks = spaced(len(rest) // 2, 12)
        ax.set_xticks([-1.5, *ticks], ["emb.", *ticks])
        ax.axhline(0, color=COLOURS["other"], lw=0.8)
        charts.finish(ax, name, "layer", label)
    low, high = zip(*(ax.get_ylim() for ax in axes), strict=True)
    for ax in axes:  # one scale for all
        ax.set_ylim(min(low), max(high))
    return charts.figure_legend(fig, "outside lower center")


def lens_map(words, probabilities, columns, title=""):
    """Draw the logit lens: top tokens, L+1 lists of T, and probabilities."""
    fig, ax = canvas(1.3 + 0.3 * len(words))
    image = charts.heatmap(ax, probabilities, (), columns, limit=1.0)
    ax.invert_yaxis()
    ax.set_yticks(range(len(words)), ["embedding: 0", *range(1, len(words))])
    texts = [[visible(word) for word in line] for line in words]
    dark = array(probabilities) > 0.5
    charts.cell_texts(ax, texts, dark, min(8.5, 58 / len(columns)))
    charts.finish(ax, title, "token of the prompt", "blocks done")
    fig.colorbar(image, ax=ax, label="probability of the top token", pad=0.01)
    return fig


def neuron_on_text(labels, activation, gate, name, top=5):
    """Draw a neuron's T activations; name the tokens of the `top` largest."""
    # margins, vlines and texts: faster than a layout, bars and ticks
    fig, ax = canvas(3.3, margins=(0.08, 0.28, 0.99, 0.84))
    T, names = len(labels), [visible(label) for label in labels]
    tones = [COLOURS["feed-forward" if g > 0 else "other"] for g in gate]
    ax.vlines(range(T), 0, activation, colors=tones, lw=440 / T)
    ax.axhline(0, color=COLOURS["other"], lw=0.8)
    size = 8 if T <= 60 else 7
    if T > 90:
        size = 5
    style = dict(rotation=90, va="top", transform=ax.get_xaxis_transform())
    for t, word in enumerate(names):
        charts.write(ax, t, -0.03, word, size, **style)
    order = sorted(range(T), key=lambda t: -abs(activation[t]))[:top]
    most = "   ".join(f"{names[t]} ({activation[t]:+.2f})" for t in order)
    ax.set_title(f"largest:   {most}", loc="left", fontsize=9)
    count = sum(g > 0 for g in gate)
    heading(fig, f"{name}: gate open (wine red) at {count} of {T} tokens")
    return charts.finish(ax, y="gate × up", xlim=(-0.7, T - 0.3), xticks=[])


def neurons(llama, text, layer=0, neuron=0) -> Play:
    """Return a browser of neurons: which tokens open each gate; 100 at most.

    layer, neuron: the one that is shown first.
    """
    ids = llama.tokenizer.encode(text, bos=True, eos=False)[:100]
    if len(ids) < 2:
        raise ValueError(f"the text {text!r} has no token; expected words")
    labels, (gates, activations) = token_texts(llama, ids), _gated(llama, ids)
    (L, _, n_neurons), sizes = gates.shape, activations[:, 1:].abs()
    selective = sizes.amax(1) / sizes.mean(1).clamp(min=1e-9)  # (L, F)
    ranked = selective.argsort(dim=-1, descending=True).tolist()

    def draw(layer, neuron, order):
        if order == "selective first":
            neuron = ranked[layer][neuron]
        chosen = activations[layer, :, neuron], gates[layer, :, neuron]
        name = f"layer {layer}, neuron {neuron}"
        return neuron_on_text(labels, *(x.tolist() for x in chosen), name)

    orders = ["by number", "selective first"]
    return Play(
        draw,
        layer=ipw.IntSlider(layer, 0, L - 1, description="layer"),
        neuron=ipw.IntSlider(neuron, 0, n_neurons - 1, description="neuron"),
        order=ipw.Dropdown(options=orders, description="order"),
    )


@torch.no_grad()
def _gated(llama, ids):
    """Return every neuron's gate, and gate times up: (L, T, F) each."""
    seen, gates, activations = record(llama, torch.tensor(ids)), [], []
    for i, layer in enumerate(llama.layers):
        x, ffn = seen[f"layers.{i}.feed_forward.in"], layer.feed_forward
        gates.append(F.silu(ffn.w1(x)).float())  # (T, F)
        activations.append(gates[-1] * ffn.w3(x))  # (T, F)
    return torch.stack(gates).cpu(), torch.stack(activations).cpu()


# -- the checks of the exercises --


def score(weights, ids, step=1, which=slice(None), mean_of="position"):
    """Return a head's weight on what followed the same token earlier."""
    found = []  # for each position, a weight for each earlier one
    for t, token in enumerate(ids):
        earlier = [s for s in range(t) if ids[s] == token][which]
        found.append([weights[t, s + step].item() for s in earlier])
    counts = dict(position=sum(map(bool, found)), text=len(ids), sum=1)
    return sum(map(sum, found)) / max(counts[mean_of], 1)


@exercise(1, expects="a number")
def check_1(answer):
    flaws = {
        "this is the weight on the same token: take the next": dict(step=0),
        "this is the token before the earlier one": dict(step=-1),
        "only the latest earlier one: add all": dict(which=slice(-1, None)),
        "only the first earlier one: add all": dict(which=slice(1)),
        "divide by the positions that repeat": dict(mean_of="text"),
        "this is the sum over positions: take the mean": dict(mean_of="sum"),
    }
    g, more = draws(), vary([], [6, 4, 2], [3, 1], [4, 1, 3, 2])
    for ids in ([1, 2, 3, 1, 2], [5, 5, 7, 6, 5, 7, 5], [7, 8, 9]):
        ids = ids + more
        rows = torch.rand(len(ids), len(ids), generator=g).tril()
        weights = rows / rows.sum(-1, keepdim=True)
        wrong = [(w, score(weights, ids, **f)) for w, f in flaws.items()]
        wrong += [("rows are queries: weights[t, s]", score(weights.T, ids))]
        agree(answer(weights, ids), score(weights, ids), wrong)


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


def patched(llama, base, donor, layer, at=-1, part="out"):
    """Return the last logits, with a network's output from another run.

    at: the positions that are patched. part: what is put there.
    """
    given = record(llama, donor)[f"layers.{layer}.feed_forward.{part}"]

    def put(module, args, out):
        out = out.clone()
        out[..., at, :] = given[at]
        return out

    ffn = llama.layers[layer].feed_forward
    hook = ffn.register_forward_hook(put)
    try:
        with torch.no_grad():
            return llama(base)[-1]
    finally:
        hook.remove()


def remove_hooks(llama) -> bool:
    """Remove the hooks of all modules; return whether there were any."""
    kinds = "_forward_hooks", "_forward_pre_hooks"
    hooks = [getattr(m, kind) for m in llama.modules() for kind in kinds]
    found = any(hooks)
    for each in hooks:
        each.clear()
    return found


@exercise(3, expects="the logits, (V,)")
def check_3(answer, llama):
    g, T, c = draws(2), vary(6, 9, 7), llama.config
    for layer in sorted({0, c.n_layers - 1}):
        base, donor = torch.randint(c.vocab_size, (2, T), generator=g)
        case, other = (base, donor), (layer + 1) % c.n_layers
        whole = slice(None)
        mistakes = [
            ("base and donor are exchanged", (donor, base, layer)),
            ("nothing is patched", (base, base, layer)),
            ("patch the last position only", (*case, layer, whole)),
            ("patch the last position, not the first", (*case, layer, 0)),
            ("patch the output, not the input", (*case, layer, -1, "in")),
            ("this is another layer", (*case, other)),
        ]
        wrong = [(words, patched(llama, *how)) for words, how in mistakes]
        found = answer(llama, *case, layer)
        if remove_hooks(llama):
            raise Wrong("remove your hook: the model stays changed")
        agree(found, patched(llama, *case, layer), wrong, 1e-3)
    return "right, in the first and the last layer"
