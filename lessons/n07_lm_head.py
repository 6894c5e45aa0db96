"""Pictures, widgets, faulty Llamas and checks of notebook 07."""

import copy

import ipywidgets as ipw
import torch
from torch import nn

from llamalib import model
from llamalib.model import Attention, Llama, ModelArgs

from . import charts
from .judge import Wrong, alike, draws, exercise, vary
from .map import strip  # noqa: F401
from .play import Play, token_texts
from .texts import begin_and_text
from .theme import AMOUNT, canvas


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


MOST = 10  # nats, of the darkest colour


def surprises(tokens, nats):
    """Draw a text's tokens; the darker a box, the more nats it costs.

    tokens: the texts of n tokens. nats: of all but the first, which is framed.
    """
    steps = [0, 2, 4, 6, 8, MOST]
    words = [f"{n} nats" for n in steps[:-1]] + [f"{MOST} nats or more"]
    widths = [charts.text_width(each, 9) + 14 for each in words]
    labels, places, lines = charts.text_flow(tokens, 9)
    fig, ax = charts.page(34 + 20 * lines)
    fig.subject = "A text, each token in a colour for its surprisal"
    charts.boxes(ax, 2, words, charts.flow(widths)[0], shades(steps), 9, 20)
    charts.boxes(ax, 32, labels, places, shades([0, *nats]), 9, 20)
    ax.patches[len(steps)].set_edgecolor("#777777")  # not predicted: a frame
    return fig


def shades(nats):
    """Return a colour for each number of nats."""
    return [tuple(AMOUNT(min(float(n) / MOST, 1.0))) for n in nats]


# -- Llamas with one fault --


def copy_of(llama: Llama) -> Llama:
    """Return a Llama with modules of its own, and the same weights."""
    shared = *llama.parameters(), llama.tokenizer
    return copy.deepcopy(llama, {id(each): each for each in shared})


class FirstTry(Attention):
    """Attention with one fault."""

    def forward(self, x, freqs_cis, mask, cache=None):
        xq = self.wq(x).unflatten(-1, (-1, self.head_dim))
        xk = self.wk(x).unflatten(-1, (-1, self.head_dim))
        xv = self.wv(x).unflatten(-1, (-1, self.head_dim))
        xq, xk_rotated = model.apply_rotary_emb(xq, xk, freqs_cis)
        if cache is not None:
            xk, xv = cache.update(xk, xv)
        heads = model.attention(xq, xk, xv, mask)
        return self.wo(heads)


def first_try(llama: Llama, blocks=None) -> Llama:
    """Return a Llama with a fault in the attention of some blocks.

    blocks: their numbers; None: of one, so that the Llama still talks.
    """
    found = copy_of(llama)
    for i in [len(found.layers) // 10] if blocks is None else blocks:
        unrotated(found.layers[i])
    return found


def unrotated(block):
    block.attention.__class__ = FirstTry


def exchanged(block):
    network = block.feed_forward
    network.w1, network.w3 = network.w3, network.w1


def negative(block):
    weight = block.feed_forward.w3.weight
    block.feed_forward.w3.weight = nn.Parameter(-weight, False)


def plain_norm(block):
    norm = block.ffn_norm
    norm.weight = nn.Parameter(torch.ones_like(norm.weight), False)


FAULTS = exchanged, negative, plain_norm, unrotated


def broken(llama: Llama) -> Llama:
    """Return a Llama with a fault in one block: exercise 3 finds it."""
    found = copy_of(llama)
    exchanged(found.layers[4 * len(found.layers) // 7])
    return found


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


SMALL = ModelArgs(
    dim=16,
    n_layers=4,
    n_heads=4,
    n_kv_heads=2,
    vocab_size=30,
    multiple_of=8,
    ffn_dim_multiplier=None,
    norm_eps=1e-5,
    rope_theta=10000.0,
)


@exercise(3, expects="a module's name, such as 'layers.0.attention.wq'")
def check_3(first_wrong, llama):
    """Small random Llamas with a fault each, then the reader's model."""
    small, random = Llama(SMALL).requires_grad_(False), draws(3)
    for weight in small.parameters():
        noise = torch.randn(weight.shape, generator=random)
        weight.copy_(noise / 4 if weight.dim() == 2 else 1 + noise / 4)
    tokens = torch.randint(30, (7,), generator=random)
    cases = {}
    for n, fault in enumerate(FAULTS):
        found = copy_of(small)
        fault(found.layers[(n + vary(1, 2, 3, 0)) % 4])
        case = f"the result for fault {n + 1} of a small Llama"
        cases[case] = small, found, tokens
    ids = torch.arange(20) + 100
    wrong = broken(llama)
    cases["the result for the broken Llama"] = llama, wrong, ids
    before = hooks_on(llama), hooks_on(wrong)  # an earlier try may have left
    alike(first_wrong, "07_lm_head", 3, cases)
    if (hooks_on(llama), hooks_on(wrong)) != before:
        raise Wrong("the name is right, but your hooks stay: remove them")
    return "gate and up, w1 and w3, are exchanged in the broken Llama"


def hooks_on(llama: Llama) -> int:
    """Return how many forward hooks the modules of a model have."""
    return sum(len(module._forward_hooks) for module in llama.modules())
