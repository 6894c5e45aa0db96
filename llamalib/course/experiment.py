r"""Break it: run the model with one function replaced, and see what it says."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..checks import expect
from ..decoding import generate
from ..model import Llama

# A plain short story to measure the loss on.
STORY = (
    "One summer day, Mira went to the market. Mira had a round key and took "
    "it everywhere. One day Mira left the round key at the market and did "
    "not notice. In the evening Mira looked for the round key, but it was "
    "gone. So Mira went back to the market. There was the round key!"
)


@dataclass(frozen=True)
class Outcome:
    """A model's loss on a story, and its continuation of a prompt."""

    loss: float
    continuation: str

    def __str__(self) -> str:
        # beyond 100 the digits are noise; nan is over 100 too
        loss = f"{self.loss:.3g}" if self.loss <= 100 else "over 100"
        return f"loss {loss} nats a token | {self.continuation!r}"


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
    story: str = STORY,
    *,
    max_new_tokens: int = 12,
    **functions,
) -> tuple[Outcome, Outcome]:
    r"""Run the model unchanged, then with some of its functions replaced.

    prompt: continued greedily by max_new_tokens; 0 skips this.
    story: the text to measure the loss on.
    functions: see `replaced`. `attention` cannot be replaced, because the
    model runs on `sdpa_attention`: replace `self_attention`.
    Returns two Outcomes: unchanged, and broken.
    """
    runs_on = "self_attention: the model runs on sdpa_attention"
    ok = "attention" not in functions
    expect(ok, "the function to replace", "attention", runs_on)
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    new = ()
    if max_new_tokens:  # unchanged, it gives the same with its cache
        new = generate(llama, ids, max_new_tokens=max_new_tokens)
    unchanged = Outcome(loss(llama, story), llama.tokenizer.decode(new))
    with replaced(**functions):
        broken = Outcome(
            loss(llama, story), continuation(llama, prompt, max_new_tokens)
        )
    return unchanged, broken
