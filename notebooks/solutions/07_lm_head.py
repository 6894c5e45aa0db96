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
def answer_layer(hidden, weight, output, eps):
    x = rms_norm(hidden[:, -1], weight, eps)  # (L+1, D)
    top = (x @ output.T).argmax(-1).tolist()  # L+1 ids
    k = len(top) - 1
    while k > 0 and top[k - 1] == top[-1]:
        k -= 1
    return k
