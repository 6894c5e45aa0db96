r"""Pictures and widget of notebook 07."""

import ipywidgets as ipw
import torch

from . import charts
from .base import canvas
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
