"""Unusual right answers to the exercises of appendix F."""
# ruff: noqa


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


# %% exercise 2: with loops, without argmax over tensors
def answer_layer(hidden, weight, output, eps):
    tops = []
    for x in hidden[:, -1]:
        logits = (output @ rms_norm(x, weight, eps)).tolist()
        tops.append(logits.index(max(logits)))
    while len(tops) > 1 and tops[-2] == tops[-1]:
        tops.pop()
    return len(tops) - 1


# %% exercise 3: without hooks: the network is exchanged
def patch_ffn(llama, base, donor, layer):
    block = llama.layers[layer]
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
