"""Unusual right answers to the exercises of appendix F."""


# %% exercise 1: remembers where each token was
def induction_score(weights, ids):
    from collections import defaultdict

    after, total, count = defaultdict(list), 0, 0
    for t, token in enumerate(ids):
        if after[token]:
            total += weights[t, after[token]].sum()
            count += 1
        after[token].append(t + 1)
    return total / count if count else 0


# %% exercise 1: a table of the earlier positions, no loop
def induction_score(weights, ids):
    ids = torch.tensor(ids)
    same = (ids[:, None] == ids).tril(-1)  # (T, T): s below t, same token
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    again = same.any(-1)
    sums = (weights * after).sum(-1)[again]
    return sums.mean() if len(sums) else torch.tensor(0.0)


# %% exercise 2: with loops, without argmax over tensors
def answer_block(hidden, weight, output, eps):
    tops = []
    for x in hidden[:, -1]:
        logits = (output @ rms_norm(x, weight, eps)).tolist()
        tops.append(logits.index(max(logits)))
    while len(tops) > 1 and tops[-2] == tops[-1]:
        tops.pop()
    return len(tops) - 1


# %% exercise 3: without hooks: the network is exchanged
def patch_ffn(llama, base, donor, number):
    block = llama.layers[number]
    usual, last = block.feed_forward, None

    class Patched(torch.nn.Module):
        def forward(self, x):
            nonlocal last
            out = usual(x)
            if last is None:
                last = out[..., -1:, :]
                return out
            return torch.cat([out[..., :-1, :], last], dim=-2)

    block.feed_forward = Patched()
    try:
        llama(donor)
        return llama(base, last_only=True)[0]
    finally:
        block.feed_forward = usual


# %% exercise 3: exchanges the method, and puts it back
def patch_ffn(llama, base, donor, block):
    ffn = llama.layers[block].feed_forward
    given = ffn.forward
    last = record(llama, donor)[f"layers.{block}.feed_forward.out"][-1]

    def forward(x):
        out = given(x).clone()
        out[0, -1] = last
        return out

    ffn.forward = forward
    logits = llama(base)
    del ffn.forward
    return logits[-1]
