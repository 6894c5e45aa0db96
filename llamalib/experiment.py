r"""Break it: run the model with one function replaced, and see what it says.

The notebooks spoil the thing they have just taught and measure the damage.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .decoding import generate
from .model import Llama

# A plain little story, on which the loss is measured.
STORY = (
    "One summer day, Mira went to the market. Mira had a round key and took "
    "it everywhere. One day Mira left the round key at the market and did "
    "not notice. In the evening Mira looked for the round key, but it was "
    "gone. So Mira went back to the market. There was the round key!"
)


@dataclass(frozen=True)
class Outcome:
    """What a model says: its loss on a story, how it continues a prompt."""

    loss: float
    continuation: str

    def __str__(self) -> str:
        # beyond 100 the digits are noise; nan is over 100 too
        loss = f"{self.loss:.3g}" if self.loss <= 100 else "over 100"
        return f"loss {loss} nats a token | {self.continuation!r}"


def loss(llama: Llama, text: str) -> float:
    r"""Mean surprise at each next token of a text: -ln p, in nats.

    Raises:
        ValueError: for a text that has no token to be predicted.
    """
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    if len(ids) < 2:
        raise ValueError(
            f"the text {text!r} has no token to predict; wanted some words"
        )
    tokens = torch.tensor(ids, device=llama.device)  # (T,)
    with torch.inference_mode():
        logits = llama(tokens)  # (T, V)
    # row t speaks of token t + 1
    return F.cross_entropy(logits[:-1], tokens[1:]).item()


def continuation(llama: Llama, prompt: str, max_new_tokens: int = 12) -> str:
    r"""The greedy continuation of a prompt, up to an end token, as text.

    The whole text is run again for each token: a model that is broken on
    purpose need not give the same with a KV cache as without.
    """
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    start = len(ids)
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
    r"""Put functions in the place of llamalib's, everywhere, for a while.

    Args:
        functions: name to function, such as `rms_norm=my_norm`; called with
            the arguments of the one it stands for.

    Raises:
        ValueError: for a name that llamalib does not have.
    """
    package = sys.modules[__package__]
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name == __package__ or name.startswith(__package__ + ".")
    ]
    changed = []
    for name, function in functions.items():
        if name not in package.__all__:
            raise ValueError(
                f"llamalib has no function {name}; wanted one of "
                f"{', '.join(package.__all__)}"
            )
        original = getattr(package, name)
        for module in modules:
            if getattr(module, name, None) is original:
                changed.append((module, name, original, function))
    for module, name, _, function in changed:
        setattr(module, name, function)
    try:
        yield
    finally:
        for module, name, original, _ in changed:
            setattr(module, name, original)


def break_it(
    llama: Llama,
    prompt: str,
    story: str = STORY,
    *,
    max_new_tokens: int = 12,
    **functions,
) -> tuple[Outcome, Outcome]:
    r"""The model as it is, and with some of its functions replaced.

    Args:
        prompt: continued greedily, by max_new_tokens; 0: not at all.
        story: the loss is measured on it.
        functions: see `replaced`. `attention` cannot be replaced so, for the
            model runs on its fused twin: replace `self_attention`.

    Returns:
        two Outcomes: as it is, and broken.
    """

    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    if "attention" in functions:
        raise ValueError(
            "the model runs on sdpa_attention, not on attention; replace "
            "self_attention, or pass attend= to the model"
        )
    new = ()
    if max_new_tokens:  # the whole model gives the same with its cache
        new = generate(llama, ids, max_new_tokens=max_new_tokens)
    as_it_is = Outcome(loss(llama, story), llama.tokenizer.decode(new))
    with replaced(**functions):
        broken = Outcome(
            loss(llama, story), continuation(llama, prompt, max_new_tokens)
        )
    return as_it_is, broken
