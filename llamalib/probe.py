r"""Losses of texts, broken models, recorded activations.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers; `...` any leading
dimensions. In code, `F` is torch.nn.functional. A matrix (out, in) maps x to
x @ w.T.
"""

import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import model
from .checks import is_whole, require
from .model import (
    Attention,
    FeedForward,
    Llama,
    TransformerBlock,
    attention_weights,
)


@torch.inference_mode()  # computes no gradients
def text_loss(llama: Llama, text: str) -> float:
    """Return the mean of -ln p over the tokens of a text, in nats.

    Raises ValueError if the text has no token to predict.
    """
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    require(len(ids) > 1, f"text has no token to predict: {text!r:.80}")
    tokens = torch.tensor(ids, device=llama.device)  # (T,)
    logits = llama(tokens)  # (T, V)
    # row t predicts token t + 1
    return F.cross_entropy(logits[:-1], tokens[1:]).item()


# Functions and methods that every Llama runs on
REPLACEABLE = (
    "rms_norm",
    "scale_frequencies",
    "precompute_freqs_cis",
    "apply_rotary_emb",
    "causal_mask",
    "attention",
    "RMSNorm.forward",
    "Attention.forward",
    "FeedForward.forward",
    "TransformerBlock.forward",
    "Llama.forward",
)


LOCK = threading.RLock()  # one thread at a time replaces or records
OPEN: list[dict[str, Callable]] = []  # the functions of each open `replaced`
ORIGINALS: dict[str, Callable] = {}  # of the names that are replaced now


@contextmanager
def replaced(**functions) -> Iterator[None]:
    r"""Replace functions that every Llama runs on, while the context is open.

    functions: by a name in REPLACEABLE, such as `rms_norm=my_norm` or
    `**{"FeedForward.forward": my_forward}`; called like the original.
    Raises ValueError for another name.

    Each module of llamalib that has the name gets the function, so all Llamas
    of the process run on it, in other threads too. `replaced`, `break_it`,
    `attention_maps` and `record` of another thread wait until the context is
    closed, which the thread that opened it must do. Of several contexts that
    replace one function the last opened counts; they close in any order.
    """
    known = ", ".join(REPLACEABLE)
    for name in functions:
        require(
            name in REPLACEABLE, f"{name} cannot be replaced, only {known}"
        )
    with LOCK:
        try:
            OPEN.append(functions)
            install(functions)
            yield
        finally:  # by identity: another context may replace the same
            OPEN[:] = [each for each in OPEN if each is not functions]
            install(functions)


def install(names) -> None:
    """Put the last open replacement of each name, or the original, in place.

    The caller holds LOCK.
    """
    modules = [
        module
        for module_name, module in list(sys.modules.items())
        if module_name.split(".")[0] == "llamalib"
    ]
    for name in names:
        owner, _, attribute = name.rpartition(".")
        home = getattr(model, owner) if owner else model
        ORIGINALS.setdefault(name, getattr(home, attribute))
        found = [each[name] for each in OPEN if name in each]
        function = found[-1] if found else ORIGINALS.pop(name)
        for each in [home] if owner else modules:
            if attribute in vars(each):
                setattr(each, attribute, function)


@dataclass(frozen=True)
class Outcome:
    r"""A model's loss on some texts, and its continuation of a prompt.

    losses: nats per token, of each text.
    unchanged: for a broken model, the losses of the unchanged model.
    """

    losses: tuple[float, ...]
    continuation: str
    unchanged: tuple[float, ...] | None = None

    @property
    def loss(self) -> float:
        """The mean of the texts' losses; each text counts the same."""
        return sum(self.losses) / len(self.losses)

    def __str__(self) -> str:
        words = f"{self.loss:.3g}"
        if not self.loss <= 100:  # or not a number: further digits are noise
            words = "over 100"
        elif self.unchanged is not None:
            change = self.loss - sum(self.unchanged) / len(self.unchanged)
            words += f" ({change:+.3f})"
        return f"loss {words} | {self.continuation!r}"


@torch.inference_mode()
def continuation(llama: Llama, prompt: str, max_new_tokens: int = 12) -> str:
    """Return the greedy continuation of a prompt, up to a stop token.

    It runs the whole text for each token: a broken model may need that.
    """
    n = max_new_tokens
    require(
        is_whole(n) and n >= 0,
        f"max_new_tokens must be a whole number >= 0, got {n!r:.80}",
    )
    ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
    start = len(ids)
    for _ in range(max_new_tokens):
        tokens = torch.tensor(ids, device=llama.device)  # (T,)
        logits = llama(tokens, last_only=True)  # (1, V)
        token_id = logits[-1].argmax().item()
        if token_id in llama.tokenizer.stop_tokens:
            break
        ids.append(token_id)
    return llama.tokenizer.decode(ids[start:])


def break_it(
    llama: Llama,
    prompt: str,
    texts: list[str],
    *,
    max_new_tokens: int = 12,
    **functions,
) -> tuple[Outcome, Outcome]:
    r"""Run the model unchanged, then with some of its functions replaced.

    prompt: continued greedily by max_new_tokens; 0 skips this.
    texts: one or more, to measure the loss on.
    functions: see `replaced`, also for other threads.
    Returns two Outcomes: unchanged, and broken.
    """
    is_list = isinstance(texts, Iterable) and not isinstance(texts, str)
    given, texts = texts, list(texts) if is_list else []
    require(texts, f"texts must be a list of texts, got {given!r:.80}")

    def run(unchanged=None) -> Outcome:
        losses = tuple(text_loss(llama, text) for text in texts)
        said = continuation(llama, prompt, max_new_tokens)
        return Outcome(losses, said, unchanged)

    with LOCK:  # another thread replaces nothing between the two
        unchanged = run()
        with replaced(**functions):
            broken = run(unchanged.losses)
    return unchanged, broken


def paired_difference(losses, others) -> tuple[float, float]:
    r"""Return the mean of losses minus others, and its standard error.

    losses, others: of the same texts, two or more, in the same order. A
    difference below two standard errors may be due to chance.
    """
    n, m = len(losses), len(others)
    require(
        n == m > 1,
        f"losses and others must be of the same texts, two or more, got {n} "
        f"and {m}",
    )
    differences = torch.tensor(losses).double() - torch.tensor(others).double()
    error = differences.std() / math.sqrt(n)
    return differences.mean().item(), error.item()


def attention_maps(llama: Llama, tokens: Tensor) -> Tensor:
    r"""Return the attention weights of every head for tokens (T,).

    Returns (L, H, T, T) float32 on the CPU; [l, h, t, s] is the weight that
    token t gives to token s in head h of layer l.
    Raises ValueError for several texts. See `replaced` for other threads.
    """
    require(
        tokens.dim() in (1, 2) and tokens.numel() == tokens.shape[-1],
        "attention_maps takes one text, tokens (T,), got a tensor of shape "
        f"{tuple(tokens.shape)}: call it for each text",
    )
    maps, thread = [], threading.get_ident()

    def keep(xq, xk, xv, mask=None):  # runs in the place of `attention`
        if threading.get_ident() == thread:  # others run on it, too
            weights = attention_weights(xq.float(), xk.float(), mask)
            maps.append(weights[0].cpu())
        return usual(xq, xk, xv, mask)

    with LOCK, torch.no_grad():
        usual = model.attention  # no other thread has replaced it
        with replaced(attention=keep):
            llama(tokens, last_only=True)
    return torch.stack(maps)  # (L, H, T, T)


def record(llama: Llama, tokens: Tensor) -> dict[str, Tensor]:
    r"""Return what enters and leaves each layer and each of its sub-layers.

    Returns (B, T, D) or (T, D) tensors by name: `layers.0.in` and `.out`, the
    residual stream; `layers.0.attention.in`, normalized, and `.out`, added to
    the stream; the same of `layers.0.feed_forward`.
    See `replaced` for other threads.
    """
    seen, thread = {}, threading.get_ident()
    with LOCK, ExitStack() as hooks, torch.no_grad():
        for name, module in llama.layers.named_modules(prefix="layers"):
            if isinstance(module, (TransformerBlock, Attention, FeedForward)):

                def keep(module, args, out, name=name):  # this module's name
                    if threading.get_ident() == thread:  # others run it, too
                        seen[f"{name}.in"], seen[f"{name}.out"] = args[0], out

                hooks.enter_context(module.register_forward_hook(keep))
        llama(tokens, last_only=True)
    if tokens.dim() == 2:
        return seen
    return {name: x[0] for name, x in seen.items()}  # no batch dimension
