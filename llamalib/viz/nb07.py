r"""The pictures of notebook 07."""

import ipywidgets as ipw
import torch

import matplotlib.pyplot as plt

from .base import COLOURS, canvas, cell_texts, heatmap, plain, title, visible
from .play import Play
from .base import legible
from .model_map import strip  # noqa: F401


def next_token_bars(labels, probabilities, title=""):
    r"""The likeliest next tokens as bars, the likeliest on top.

    Args:
        labels: token texts, n of them.
        probabilities: n floats, from 0 to 1.
        title: over the picture.
    """
    n = len(labels)
    fig, ax = plt.subplots(figsize=(7, 0.6 + 0.32 * n))
    rows = range(n)[::-1]
    ax.barh(rows, probabilities, color=COLOURS["probability"])
    ax.set_yticks(rows, [visible(label) for label in labels])
    for row, p in zip(rows, probabilities):
        # nothing is said to be certain, or impossible, by rounding
        text = f"{p:.2f}" if 0.005 <= p <= 0.995 else f"{p:.4f}"
        text = {"0.0000": "<0.0001", "1.0000": ">0.9999"}.get(text, text)
        ax.text(p + 0.01, row, text, va="center", fontsize=9)
    ax.set_xlim(0, 1.15)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel("probability of being the next token")
    ax.set_title(plain(title), loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    return fig


def lens_map(words, probabilities, columns, title_text=""):
    r"""The logit lens: the top token of every layer at every position.

    Args:
        words: L+1 lists of T token texts, the embedding's first; drawn from
            the bottom up.
        probabilities: (L+1, T), of those tokens, from 0 to 1: the colour.
        columns: T texts, the prompt's tokens.
        title_text: over the picture.
    """
    n, T = len(words), len(columns)
    fig, ax = canvas(1.3 + 0.3 * n)
    image = heatmap(ax, probabilities, (), columns, limit=1.0)
    ax.invert_yaxis()
    ax.set_yticks(range(n), ["embedding: 0", *map(str, range(1, n))])
    size = min(8.5, 58 / T)
    texts = [[visible(word) for word in line] for line in words]
    dark = [[p > 0.5 for p in line] for line in probabilities]
    cell_texts(ax, texts, dark, size)
    ax.set_xlabel("token of the prompt")
    ax.set_ylabel("blocks done")
    fig.colorbar(image, ax=ax, label="probability of the top token", pad=0.01)
    title(ax, title_text)
    return fig


def answer_by_layer(probabilities, ranks, answer):
    r"""How the final answer comes up through the layers, at one position.

    Args:
        probabilities: L+1 floats, the answer's probability through the lens.
        ranks: L+1 ints from 1, its place among all tokens.
        answer: its text.
    """
    fig, axes = canvas(2.8, columns=2)
    panels = (
        (probabilities, "probability", "linear"),
        (ranks, "rank (1 is the top)", "log"),
    )
    layers = range(len(ranks))
    for ax, (values, label, scale) in zip(axes[0], panels):
        ax.plot(layers, values, "o-", color=COLOURS["probability"], ms=5)
        ax.set_yscale(scale)
        ax.set_xticks(layers, [str(i) for i in layers])
        ax.set_xlabel("blocks done")
        ax.set_ylabel(label)
        ax.yaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.set_title(f"the answer {visible(answer)}", loc="left", fontsize=11)
    axes[0, 0].set_ylim(-0.03, 1.03)
    axes[0, 1].set_ylim(max(*ranks, 2) * 1.6, 0.8)
    return fig


def logit_by_block(names, leads):
    r"""What the embedding and each block add to the lead of a logit.

    Args:
        names: L+1 texts for the ticks, from the left.
        leads: two texts (of tokens as `visible` gives them), each with L+1
            floats that sum to a lead.
    """
    fig, ax = canvas(2.8)
    colours = (COLOURS["probability"], COLOURS["plain"])
    pairs = zip(leads.items(), colours, (-0.2, 0.2), strict=True)
    for (label, parts), colour, shift in pairs:
        label = f"{label}: {sum(parts):.2f} in all"
        places = [i + shift for i in range(len(parts))]
        ax.bar(places, parts, 0.4, color=colour, label=label)
    ax.axhline(0, color="black", lw=0.8)
    ax.set_xticks(range(len(names)), names)
    if len(names) > 9:
        ax.tick_params(axis="x", rotation=60)
    ax.set_ylabel("added to the lead")
    ax.legend(frameon=False, fontsize=9)
    return fig


# -- the widget

LONGEST_PROMPT = 64  # tokens: keeps an answer under a fifth of a second


def next_token(llama, prompt: str = "The capital of France is") -> Play:
    r"""Type a prompt, see the likeliest next tokens.

    Args:
        llama: with its tokenizer.
        prompt: to open with; may be empty: `<|begin_of_text|>` alone.

    Returns:
        a Play of `prompt` and `bars`, how many tokens are shown. Of a long
        prompt the last tokens are read, and the title says so.
    """

    def draw(prompt, bars):
        ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
        said = f"{prompt} …" if len(prompt) < 60 else f"… {prompt[-60:]} …"
        said = legible(said)
        if len(ids) > LONGEST_PROMPT:
            said += (
                f" (its last {LONGEST_PROMPT - 1} of {len(ids) - 1} tokens)"
            )
            ids = ids[:1] + ids[1 - LONGEST_PROMPT :]
        tokens = torch.tensor(ids, device=llama.device)  # (T,)
        with torch.inference_mode():
            logits = llama(tokens, last_only=True)[-1]  # (V,)
        top = logits.softmax(-1).topk(min(bars, len(logits)))
        labels = [llama.tokenizer.decode([i]) for i in top.indices.tolist()]
        return next_token_bars(labels, top.values.tolist(), said)

    # a model too slow to follow the typing waits for the end of the line
    small = sum(p.numel() for p in llama.parameters()) < 100_000_000
    return Play(
        draw,
        prompt=ipw.Text(prompt, continuous_update=small),
        bars=ipw.IntSlider(10, 3, 15),
    )
