"""Pictures, widgets and checks of notebook 07."""

import math

import ipywidgets as ipw
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from . import charts
from .judge import agree, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play, token_texts
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


# -- the checks of the exercises --


@exercise(1, expects="probabilities of the shape of the logits")
def check_1(my_softmax):
    """Rows of very different sizes, then one row alone."""
    level = torch.tensor([[1000.0], [0.0], [-1000.0], [0.0]])
    z = torch.randn(4, vary(5, 7, 6, 9), generator=draws(1)) * 3 + level
    z[3, 0], z[3, 1:3] = 1000, -1000  # mean and median are far off
    e, low = z.exp(), (z - z.max()).exp()
    one = (z - z.amax(-1, True)).exp()
    mean = (z - z.mean(-1, True)).exp()
    mistakes = [
        ("e^1000 overflows: subtract the maximum first", e / e.sum(-1, True)),
        ("one maximum for all: each row has its own", low / low.sum(-1, True)),
        ("you sum over all rows: each row must sum to 1", one / one.sum()),
        ("you sum over dimension 0; expected the last", one / one.sum(0)),
        ("these are the numerators: divide by their sum", one),
        ("these are log-probabilities", z.log_softmax(-1)),
        ("subtract the maximum, not the mean", mean / mean.sum(-1, True)),
    ]
    agree(my_softmax(z), z.softmax(-1), mistakes)
    T, V = z.shape
    what = f"right for ({T}, {V}), but the result for one row ({V},)"
    agree(my_softmax(z[1]), z[1].softmax(-1), what=what)


@exercise(2, expects="a number")
def check_2(mean_surprisal):
    """A random text, then one with a token that is almost impossible."""
    n, T, V = vary((8, 9, 7), (10, 11, 5), (7, 8, 6))
    z = torch.randn(T, V, generator=draws(2)) * 2
    s = torch.arange(T) % V
    p, right = z[:-1].softmax(-1), cross_entropy(z[:-1], s[1:]).item()
    rows = [
        ("no shift: row t is scored on token t, which it has seen", z, s),
        ("no shift: cut the last row and the first token", z[:-1], s[:-1]),
        ("no shift: cut the last row, not the first", z[1:], s[1:]),
        ("the shift goes the wrong way: row t predicts t + 1", z[1:], s[:-1]),
        ("F.cross_entropy expects logits, not probabilities", p, s[1:]),
    ]
    mistakes = [(words, cross_entropy(*given)) for words, *given in rows]
    of_mean = -p.gather(1, s[1:, None]).mean().log()
    mistakes += [
        ("T tokens give T - 1 terms: your mean divides by T", right * n / T),
        ("this is the sum; expected the mean", right * n),
        ("these are bits: use the natural logarithm", right / math.log(2)),
        ("the sign: surprisal is -ln p", -right),
        ("this is the perplexity", math.exp(right)),
        ("expected the mean of ln p, not ln of the mean p", of_mean),
    ]
    agree(mean_surprisal(z, s), right, mistakes)
    z, s = torch.tensor([[0, -200.0], [0, 0], [0, 0]]), torch.tensor([0, 1, 0])
    words = "a softmax of e^-200 is rounded to 0: take log_softmax"
    agree(
        mean_surprisal(z, s), cross_entropy(z[:2], s[1:]), [(words, math.inf)]
    )


@exercise(3, expects="a number")
def check_3(bits_per_byte, llama):
    """A text with letters of several bytes, then one in ASCII."""
    first = "¿Dónde está la llave? Über den Fluß. 水", "Né cet été. 山"
    second = "A key is here.", "The door was open.", "Two birds sat on it."
    for text in (vary(*first), vary(*second)):
        ids = llama.tokenizer.encode(text, bos=True, eos=False)
        n, size = len(ids) - 1, len(text.encode())
        nats = -log_probs(llama, ids).sum()  # of the whole text
        bits = nats / math.log(2)
        late = bits * (n + 1) / n / size
        ended = -log_probs(llama, [*ids, llama.tokenizer.eos_id]).sum()
        ended = ended / math.log(2) / size
        mistakes = [
            ("you divide by characters: é has two bytes", bits / len(text)),
            ("these are nats per byte: a bit is ln 2 nats", nats / size),
            ("you multiply by ln 2: divide", nats * math.log(2) / size),
            ("these are bits per token: divide the sum by bytes", bits / n),
            ("you divide the mean over tokens: take the sum", bits / n / size),
            ("one token too many: <|begin_of_text|> is not predicted", late),
            ("<|end_of_text|> is counted: encode with eos=False", ended),
        ]
        agree(bits_per_byte(llama, text), bits / size, mistakes)


def log_probs(llama, ids: list[int]) -> Tensor:
    """Return ln p of each id after the first, (T-1,)."""
    tokens = torch.tensor(ids, device=llama.device)  # (T,)
    with torch.no_grad():
        z = llama(tokens)[:-1]  # (T-1, V)
    return -cross_entropy(z, tokens[1:], reduction="none")
