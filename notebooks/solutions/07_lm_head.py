"""Answers to the exercises of 07_lm_head: each stands in the stub's place."""
# ruff: noqa: F821


# %% exercise 1
def my_softmax(z):
    e = (z - z.max(-1, keepdim=True).values).exp()  # (..., V)
    return e / e.sum(-1, keepdim=True)


# %% exercise 2
def text_loss(logits, tokens):
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


# %% exercise 4
def log_prob(llama, prompt, answer):
    start = llama.tokenizer.encode(prompt, bos=True, eos=False)
    end = llama.tokenizer.encode(answer, bos=False, eos=False)
    tokens = torch.tensor(start + end)  # (T,)
    log_p = llama(tokens).log_softmax(-1)  # (T, V)
    n = len(start)  # row n - 1 predicts the answer's first token
    return log_p[n - 1 : -1].gather(1, tokens[n:, None]).sum().item()
