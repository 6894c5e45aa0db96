r"""Pictures and widget of notebook 07."""

import ipywidgets as ipw
import torch

from . import charts
from .base import array, canvas, panels, visible
from .model_map import strip  # noqa: F401
from .nbA import label_rows  # noqa: F401
from .play import Play, token_texts


def next_token_bars(labels, probabilities, title=""):
    """Draw n tokens and their probabilities, the most likely on top."""
    fig, ax = canvas(0.6 + 0.32 * len(labels))
    fig.set_figwidth(7)
    texts = [probability_text(p) for p in probabilities]
    charts.ranked_bars(ax, labels, probabilities, "probability", texts)
    x = "probability of being the next token"
    ticks = [0, 0.25, 0.5, 0.75, 1]
    return charts.finish(ax, title, x, xlim=(0, 1.15), xticks=ticks)


def probability_text(p: float) -> str:
    """Return a rounded probability that reads neither 0 nor 1."""
    if 0.005 <= p <= 0.995:
        return f"{p:.2f}"
    text = f"{p:.4f}"
    return {"0.0000": "<0.0001", "1.0000": ">0.9999"}.get(text, text)


def lens_map(words, probabilities, columns, title_text=""):
    """Draw the logit lens: top tokens, L+1 lists of T, and probabilities."""
    n = len(words)
    fig, ax = canvas(1.3 + 0.3 * n)
    image = charts.heatmap(ax, probabilities, (), columns, limit=1.0)
    ax.invert_yaxis()
    ax.set_yticks(range(n), ["embedding: 0", *range(1, n)])
    texts = [[visible(word) for word in line] for line in words]
    dark = array(probabilities) > 0.5
    charts.cell_texts(ax, texts, dark, min(8.5, 58 / len(columns)))
    charts.finish(ax, title_text, "token of the prompt", "blocks done")
    fig.colorbar(image, ax=ax, label="probability of the top token", pad=0.01)
    return fig


def answer_by_layer(probabilities, ranks, answer):
    """Draw a token's L+1 probabilities and ranks by the logit lens."""
    fig, (left, right) = panels(2.8, 2)
    layers, look = range(len(ranks)), ("probability", "o-", dict(ms=5, lw=1.5))
    for ax, values in ((left, probabilities), (right, ranks)):
        charts.lines(ax, {"": values}, [look], layers)
        ax.set_title(f"the answer {visible(answer)}", loc="left", fontsize=11)
        ax.set_xticks(layers)
    charts.finish(left, "", "blocks done", "probability", ylim=(-0.03, 1.03))
    left.yaxis.set_major_formatter("{x:g}")
    charts.log_axis(right, "y", text="{:g}".format)
    right.set_ylim(max(*ranks, 2) * 1.6, 0.8)
    charts.finish(right, "", "blocks done", "rank (1 is the top)")
    return fig


def logit_by_block(names, leads):
    """Draw the L+1 parts that sum to a logit's lead, for two names."""
    fig, ax = canvas(2.8)
    series = {}
    for name, parts in leads.items():
        series[f"{name}: {sum(parts):.2f} in all"] = parts
    charts.grouped_bars(ax, series, ("probability", "plain"))
    ax.axhline(0, color="black", lw=0.8)
    angle = 60 if len(names) > 9 else 0
    ax.set_xticks(range(len(names)), names, rotation=angle)
    return charts.finish(ax, y="added to the lead", legend="best")


LONGEST_PROMPT = 64  # tokens, so that an answer takes less than 200 ms


def next_token(llama, prompt: str = "The capital of France is") -> Play:
    """Return a prompt box with the next tokens; it reads a prompt's end."""

    def draw(prompt, bars):
        ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
        name = f"{prompt} …" if len(prompt) < 60 else f"… {prompt[-40:]} …"
        if len(ids) > LONGEST_PROMPT:
            most, n = LONGEST_PROMPT - 1, len(ids) - 1
            name += f" (its last {most} of {n} tokens)"
            ids = ids[:1] + ids[-most:]
        with torch.inference_mode():
            logits = llama(torch.tensor(ids), last_only=True)[-1]  # (V,)
        top = logits.softmax(-1).topk(min(bars, len(logits)))
        labels = token_texts(llama, top.indices.tolist())
        return next_token_bars(labels, top.values.tolist(), name)

    # a large model is too slow to follow each keystroke
    small = sum(p.numel() for p in llama.parameters()) < 100_000_000
    return Play(
        draw,
        prompt=ipw.Text(prompt, continuous_update=small),
        bars=ipw.IntSlider(10, 3, 15),
    )
