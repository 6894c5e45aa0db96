"""Mistakes in the exercises of notebook 07, with words of the check."""
# ruff: noqa: F811, F821


# %% exercise 1: overflows
def my_softmax(z):
    return z.exp() / z.exp().sum(-1, keepdim=True)


# %% exercise 1: each row has its own
def my_softmax(z):
    e = (z - z.max()).exp()
    return e / e.sum(-1, keepdim=True)


# %% exercise 1: you sum over all rows
def my_softmax(z):
    e = (z - z.max(-1, keepdim=True).values).exp()
    return e / e.sum()


# %% exercise 1: dimension 0
def my_softmax(z):
    e = (z - z.max(-1, keepdim=True).values).exp()
    return e / e.sum(0)


# %% exercise 1: numerators
def my_softmax(z):
    return (z - z.max(-1, keepdim=True).values).exp()


# %% exercise 1: log-probabilities
def my_softmax(z):
    z = z - z.max(-1, keepdim=True).values
    return z - z.exp().sum(-1, keepdim=True).log()


# %% exercise 1: right for (4, 5), but
def my_softmax(z):
    z = z - z.max(-1, keepdim=True).values
    return z.exp() / z.exp().sum(1 if z.dim() > 1 else 0, keepdim=True) ** (
        z.dim() - 1
    )


# %% exercise 1: not the mean
def my_softmax(z):
    e = (z - z.mean(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


# %% exercise 1: the result has shape (4,); expected (4, 5)
def my_softmax(z):
    return z.max(-1).values


# %% exercise 1: your function changes its argument z
def my_softmax(z):
    z -= z.max(-1, keepdim=True).values
    return z.exp() / z.exp().sum(-1, keepdim=True)


# %% exercise 1: OverflowError: math range error
def my_softmax(z):
    e = [[math.exp(v) for v in row] for row in z.tolist()]
    return [[v / sum(row) for v in row] for row in e]


# %% exercise 2: no shift
def mean_surprisal(logits, tokens):
    return F.cross_entropy(logits, tokens)


# %% exercise 2: cut the last row and the first token
def mean_surprisal(logits, tokens):
    return F.cross_entropy(logits[:-1], tokens[:-1])


# %% exercise 2: cut the last row, not the first
def mean_surprisal(logits, tokens):
    return F.cross_entropy(logits[1:], tokens[1:])


# %% exercise 2: wrong way
def mean_surprisal(logits, tokens):
    return F.cross_entropy(logits[1:], tokens[:-1]).item()


# %% exercise 2: expects logits, not probabilities
def mean_surprisal(logits, tokens):
    return F.cross_entropy(logits.softmax(-1)[:-1], tokens[1:])


# %% exercise 2: divides by T
def mean_surprisal(logits, tokens):
    log_p = logits.log_softmax(-1)[:-1].gather(1, tokens[1:, None])
    return -log_p.sum() / len(tokens)


# %% exercise 2: this is the sum
def mean_surprisal(logits, tokens):
    return F.cross_entropy(logits[:-1], tokens[1:], reduction="sum")


# %% exercise 2: these are bits
def mean_surprisal(logits, tokens):
    p = logits.softmax(-1)[:-1].gather(1, tokens[1:, None])
    return -p.log2().mean()


# %% exercise 2: the sign
def mean_surprisal(logits, tokens):
    return logits.log_softmax(-1)[:-1].gather(1, tokens[1:, None]).mean()


# %% exercise 2: perplexity
def mean_surprisal(logits, tokens):
    return F.cross_entropy(logits[:-1], tokens[1:]).exp()


# %% exercise 2: not ln of the mean p
def mean_surprisal(logits, tokens):
    p = logits.softmax(-1)[:-1].gather(1, tokens[1:, None])
    return -p.mean().log()


# %% exercise 2: is rounded to 0
def mean_surprisal(logits, tokens):
    p = logits.softmax(-1)[:-1].gather(1, tokens[1:, None])
    return -p.log().mean()


# %% exercise 2: expected a number
def mean_surprisal(logits, tokens):
    return F.cross_entropy(logits[:-1], tokens[1:], reduction="none")


# %% exercise 2: the result is 0.0; expected another number
def mean_surprisal(logits, tokens):
    return 0.0


# %% exercise 3: characters
def bits_per_byte(llama, text):
    n = len(llama.tokenizer.encode(text, bos=False, eos=False))
    return text_loss(llama, text) * n / math.log(2) / len(text)


# %% exercise 3: nats per byte
def bits_per_byte(llama, text):
    n = len(llama.tokenizer.encode(text, bos=False, eos=False))
    return text_loss(llama, text) * n / len(text.encode())


# %% exercise 3: ln 2: divide
def bits_per_byte(llama, text):
    n = len(llama.tokenizer.encode(text, bos=False, eos=False))
    return text_loss(llama, text) * n * math.log(2) / len(text.encode())


# %% exercise 3: bits per token
def bits_per_byte(llama, text):
    return text_loss(llama, text) / math.log(2)


# %% exercise 3: take the sum
def bits_per_byte(llama, text):
    return text_loss(llama, text) / math.log(2) / len(text.encode())


# %% exercise 3: one token too many
def bits_per_byte(llama, text):
    n = len(llama.tokenizer.encode(text, bos=True, eos=False))
    return text_loss(llama, text) * n / math.log(2) / len(text.encode())


# %% exercise 3: <|end_of_text|> is counted
def bits_per_byte(llama, text):
    ids = llama.tokenizer.encode(text, bos=True, eos=True)
    tokens = torch.tensor(ids)
    z = llama(tokens)
    nats = F.cross_entropy(z[:-1], tokens[1:], reduction="sum")
    return nats / math.log(2) / len(text.encode())
