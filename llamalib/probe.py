r"""Losses of texts, broken models, recorded activations.

Shapes, everywhere: `B` batch, `T` query positions, `S` key positions, `D`
model dim, `H` query heads, `KV` key/value heads, `hd` head dim, `F` hidden
dim of the feed-forward network, `V` vocabulary, `L` layers; `...` any leading
dimensions. In code, `F` is torch.nn.functional. A matrix (out, in) maps x to
x @ w.T.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from . import model
from .model import (
    Attention,
    FeedForward,
    Llama,
    TransformerBlock,
    attention_weights,
)


@torch.inference_mode()  # computes no gradients
def text_loss(llama: Llama, text: str) -> float:
    """Return the mean of -ln p over the tokens of a text, in nats."""
    ids = llama.tokenizer.encode(text, bos=True, eos=False)  # bos: see 01
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


@contextmanager
def replaced(**functions) -> Iterator[None]:
    r"""Replace functions that every Llama runs on, while the context is open.

    functions: by a name in REPLACEABLE, such as `rms_norm=my_norm` or
    `**{"FeedForward.forward": my_forward}`; called like the original.
    Raises ValueError for another name.
    """
    with ExitStack() as stack:
        for name, function in functions.items():
            if name not in REPLACEABLE:
                known = ", ".join(REPLACEABLE)
                raise ValueError(f"{name} cannot be replaced, only {known}")
            if "." in name:  # a method
                owner, name = name.split(".")
                owners = [getattr(model, owner)]
            else:  # wherever llamalib has imported the function
                owners = [
                    module
                    for module_name, module in list(sys.modules.items())
                    if module_name.split(".")[0] == "llamalib"
                    and vars(module).get(name) is getattr(model, name)
                ]
            for owner in owners:
                stack.enter_context(patch.object(owner, name, function))
        yield


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
    functions: see `replaced`.
    Returns two Outcomes: unchanged, and broken.
    """

    def run():
        losses = tuple(text_loss(llama, text) for text in texts)
        return losses, continuation(llama, prompt, max_new_tokens)

    unchanged = Outcome(*run())
    with replaced(**functions):
        broken = Outcome(*run(), unchanged.losses)
    return unchanged, broken


def paired_difference(losses, others) -> tuple[float, float]:
    r"""Return the mean of losses minus others, and its standard error.

    losses, others: of the same texts, two or more, in the same order. A
    difference below two standard errors may be due to chance.
    """
    differences = torch.tensor(losses).double() - torch.tensor(others).double()
    error = differences.std() / math.sqrt(len(differences))
    return differences.mean().item(), error.item()


def attention_maps(llama: Llama, tokens: Tensor) -> Tensor:
    r"""Return the attention weights of every head for tokens (T,).

    Returns (L, H, T, T) float32 on the CPU; [l, h, t, s] is the weight that
    token t gives to token s in head h of layer l.
    """
    maps, usual = [], model.attention

    def keep(xq, xk, xv, mask=None):  # runs in the place of `attention`
        weights = attention_weights(xq.float(), xk.float(), mask)
        maps.append(weights[0].cpu())
        return usual(xq, xk, xv, mask)

    with replaced(attention=keep), torch.no_grad():
        llama(tokens, last_only=True)
    return torch.stack(maps)  # (L, H, T, T)


def record(llama: Llama, tokens: Tensor) -> dict[str, Tensor]:
    r"""Return what enters and leaves each layer and each of its sub-layers.

    Returns (B, T, D) or (T, D) tensors by name: `layers.0.in` and `.out`, the
    residual stream; `layers.0.attention.in`, normalized, and `.out`, added to
    the stream; the same of `layers.0.feed_forward`.
    """
    seen, hooks = {}, []
    for name, module in llama.layers.named_modules(prefix="layers"):
        if isinstance(module, (TransformerBlock, Attention, FeedForward)):

            def keep(module, args, out, name=name):  # this module's name
                seen[f"{name}.in"], seen[f"{name}.out"] = args[0], out

            hooks.append(module.register_forward_hook(keep))
    try:
        with torch.no_grad():
            llama(tokens, last_only=True)
    finally:
        for hook in hooks:
            hook.remove()
    if tokens.dim() == 2:
        return seen
    return {name: x[0] for name, x in seen.items()}  # no batch dimension
