"""Unusual right answers to the exercises of notebook 07."""
# ruff: noqa: F811, F821


# %% exercise 1: with NumPy
def my_softmax(z):
    import numpy as np

    z = z.numpy()
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# %% exercise 1: in place, on its own tensor
def my_softmax(z):
    z = z.clone()
    z -= z.amax(-1, keepdim=True)
    z.exp_()
    z /= z.sum(-1, keepdim=True)
    return z


# %% exercise 2: with F.nll_loss
def mean_surprisal(logits, tokens):
    log_p = torch.log_softmax(logits.double(), dim=-1)
    return F.nll_loss(log_p[:-1], tokens[1:])


# %% exercise 2: with −100 as the last label
def mean_surprisal(logits, tokens):
    labels = tokens.roll(-1)
    labels[-1] = -100
    return F.cross_entropy(logits, labels).item()


# %% exercise 3: from the mean loss
def bits_per_byte(llama, text):
    n = len(llama.tokenizer.encode(text, bos=False, eos=False))
    return text_loss(llama, text) * n / math.log(2) / len(text.encode())


# %% exercise 3: a tensor with one number
def bits_per_byte(llama, text):
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    tokens = torch.tensor([ids])  # (1, T)
    log_p = llama(tokens).log_softmax(-1)[0, :-1]
    bits = -log_p.gather(1, tokens[0, 1:, None]) / math.log(2)
    return bits.sum() / len(text.encode())
