"""Solutions to the exercises of 07_lm_head: each replaces its stub."""

import math

import torch
import torch.nn.functional as F


# %% exercise 1
def my_softmax(z):
    e = (z - z.max(-1, keepdim=True).values).exp()  # (..., V)
    return e / e.sum(-1, keepdim=True)


# %% exercise 2
def mean_surprisal(logits, tokens):
    log_p = logits.log_softmax(-1)[:-1]  # (T-1, V), row t for token t + 1
    return -log_p.gather(1, tokens[1:, None]).mean()


# %% exercise 3
def bits_per_byte(llama, text):
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    tokens = torch.tensor(ids)  # (T,)
    nats = F.cross_entropy(
        llama(tokens)[:-1], tokens[1:], reduction="sum"
    ).item()
    return nats / math.log(2) / len(text.encode("utf-8"))
