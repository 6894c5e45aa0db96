"""Pictures, widgets and checks of notebook 07."""

import ipywidgets as ipw
import torch

from . import charts
from .judge import alike, draws, exercise, vary
from .play import Play, token_texts
from .pocket import strip  # noqa: F401
from .texts import begin_and_text
from .theme import canvas


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
        start, ids = begin_and_text(llama.tokenizer, prompt)
        name = f"{prompt} …" if len(prompt) < 60 else f"… {prompt[-40:]} …"
        most = LONGEST_PROMPT - len(start)
        if len(ids) > most:
            name += f" (its last {most} of {len(ids)} tokens)"
        text = torch.tensor(start + ids[-most:])
        with torch.inference_mode():
            logits = llama(text, last_only=True)[-1]  # (V,)
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


# -- the checks of the exercises --


@exercise(1, expects="probabilities of the shape of the logits")
def check_1(my_softmax):
    """Rows of very different sizes, then one row alone."""
    T, V = 4, vary(5, 7, 6, 9)
    level = torch.tensor([[1000.0], [0.0], [-1000.0], [0.0]])
    z = torch.randn(T, V, generator=draws(1)) * 3 + level
    z[3, 0], z[3, 1:3] = 1000, -1000  # mean and median are far off
    row = f"right for ({T}, {V}), but the result for one row ({V},)"
    alike(my_softmax, "07_lm_head", 1, {"the result": (z,), row: (z[1],)})


@exercise(2, expects="a number")
def check_2(mean_surprisal):
    """A random text, then one with a token that is almost impossible."""
    T, V = vary((9, 7), (11, 5), (8, 6))
    z = torch.randn(T, V, generator=draws(2)) * 2
    unlikely = torch.tensor([[0, -200.0], [0, 0], [0, 0], [0, 0]])
    cases = (z, torch.arange(T) % V), (unlikely, torch.tensor([0, 1, 0, 1]))
    alike(mean_surprisal, "07_lm_head", 2, cases)


@exercise(3, expects="a number")
def check_3(bits_per_byte, llama):
    """A text with letters of several bytes, then one in ASCII."""
    first = "¿Dónde está la llave? Über den Fluß. 水", "Né cet été. 山"
    second = "A key is here.", "The door was open.", "Two birds sat on it."
    cases = (llama, vary(*first)), (llama, vary(*second))
    alike(bits_per_byte, "07_lm_head", 3, cases)
