r"""Break it: run the model with one function replaced, and measure the loss."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..checks import expect
from ..decoding import generate
from ..model import Llama
from .text import own_documents

# The same held-out texts measure every change: fifty, or eight for a model
# that takes a second for each.
TEXTS, FEW_TEXTS, LARGE = 50, 8, 10**8
# The days of the week and the like: short texts that were drawn in training.
TRAINED_ON = (6, 12, 14, 33, 42, 51)
# A plain short story to look at.
STORY = (
    "One summer day, Mira went to the market. Mira had a round key and took "
    "it everywhere. One day Mira left the round key at the market and did "
    "not notice. In the evening Mira looked for the round key, but it was "
    "gone. So Mira went back to the market. There was the round key!"
)


@dataclass(frozen=True)
class Outcome:
    r"""A model's loss on each of some texts, and its continuation of a prompt.

    Attributes:
        losses: nats per token, of each text.
        change: of a broken model, the mean of its losses minus those of the
            unchanged model on the same texts, and its standard error.
    """

    losses: tuple[float, ...]
    continuation: str
    change: tuple[float, float] | None = None

    @property
    def loss(self) -> float:
        """The mean of the texts' losses; each text counts the same."""
        return sum(self.losses) / len(self.losses)

    def __str__(self) -> str:
        # beyond 100 the digits are noise; nan is over 100 too
        words = f"{self.loss:.3g}" if self.loss <= 100 else "over 100"
        if self.change is not None and self.loss <= 100:
            mean, error = self.change
            sure = abs(mean) >= 2 * error
            words += "" if sure else ", no difference"
            digits = 3  # more where the error is smaller than 0.001
            if 0 < error < 1e-3:
                digits = min(8, -math.floor(math.log10(error)))
            words += f" ({mean:+.{digits}f} ± {error:.{digits}f})"
        return f"loss {words} | {self.continuation!r}"


def paired_difference(losses, others) -> tuple[float, float]:
    r"""Return the mean of losses minus others, and its standard error.

    Both are of the same texts, two or more. A difference below two standard
    errors may be chance.
    """
    found = torch.tensor(losses).double() - torch.tensor(others).double()
    error = found.std() / math.sqrt(len(found))
    return found.mean().item(), error.item()


def held_out_texts(llama: Llama) -> list[str]:
    """Return fifty texts that the pocket was not trained on; eight if large.

    They are of the same kinds as the training texts.
    """
    drawn = own_documents(TEXTS + len(TRAINED_ON), seed="held out")
    texts = [text for i, text in enumerate(drawn) if i not in TRAINED_ON]
    large = sum(w.numel() for w in llama.parameters()) > LARGE
    return texts[:FEW_TEXTS] if large else texts


def loss(llama: Llama, text: str) -> float:
    """Return the mean of -ln p over the tokens of a text, in nats."""
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    expect(len(ids) > 1, "the text", text, "a token or more to predict")
    tokens = torch.tensor(ids, device=llama.device)  # (T,)
    with torch.inference_mode():
        logits = llama(tokens)  # (T, V)
    # row t predicts token t + 1
    return F.cross_entropy(logits[:-1], tokens[1:]).item()


def continuation(llama: Llama, prompt: str, max_new_tokens: int = 12) -> str:
    """Return the greedy continuation of a prompt, up to an end token."""
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    start = len(ids)  # no cache: a broken model may need the whole text
    with torch.inference_mode():
        for _ in range(max_new_tokens):
            tokens = torch.tensor(ids, device=llama.device)  # (T,)
            logits = llama(tokens, last_only=True)  # (1, V)
            token_id = logits[-1].argmax().item()
            if token_id in llama.tokenizer.stop_tokens:
                break
            ids.append(token_id)
    return llama.tokenizer.decode(ids[start:])


@contextmanager
def replaced(**functions) -> Iterator[None]:
    r"""Replace functions of llamalib everywhere while the context is open.

    functions: name to function, such as `rms_norm=my_norm`; called with the
    arguments of the original.
    Raises ValueError for a name that llamalib does not have.
    """
    package, changed = sys.modules["llamalib"], []
    known = ", ".join(package.__all__)
    for name in functions:
        ok = name in package.__all__
        expect(ok, "the function to replace", name, f"one of {known}")
    for module_name, module in list(sys.modules.items()):
        for name, function in functions.items():
            original = getattr(package, name)
            ours = module_name.split(".")[0] == package.__name__
            if ours and vars(module).get(name) is original:
                changed.append((module, name, original))
    try:
        for module, name, _ in changed:
            setattr(module, name, functions[name])
        yield
    finally:
        for module, name, original in changed:
            setattr(module, name, original)


def break_it(
    llama: Llama,
    prompt: str,
    texts: list[str] | None = None,
    *,
    max_new_tokens: int = 12,
    **functions,
) -> tuple[Outcome, Outcome]:
    r"""Run the model unchanged, then with some of its functions replaced.

    prompt: continued greedily by max_new_tokens; 0 skips this.
    texts: two or more to measure the loss on; None: `held_out_texts`.
    functions: see `replaced`. `attention` cannot be replaced, because the
    model runs on `sdpa_attention`: replace `self_attention`.
    Returns two Outcomes: unchanged, and broken.
    """
    runs_on = "self_attention: the model runs on sdpa_attention"
    ok = "attention" not in functions
    expect(ok, "the function to replace", "attention", runs_on)
    texts = held_out_texts(llama) if texts is None else texts
    ok = not isinstance(texts, str) and len(texts) > 1
    expect(ok, "texts", str(texts)[:60], "a list of two texts or more")
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    new = ()
    if max_new_tokens:  # unchanged, it gives the same with its cache
        new = generate(llama, ids, max_new_tokens=max_new_tokens)
    losses = tuple(loss(llama, text) for text in texts)
    unchanged = Outcome(losses, llama.tokenizer.decode(new))
    with replaced(**functions):
        losses = tuple(loss(llama, text) for text in texts)
        said = continuation(llama, prompt, max_new_tokens)
    change = paired_difference(losses, unchanged.losses)
    return unchanged, Outcome(losses, said, change)
