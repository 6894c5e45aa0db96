"""Solutions to the exercises of 09_generate: each replaces its stub."""


# %% exercise 1
def my_positions(t, n):
    # t + (t + 1) + … + (t + n - 1), and the prompt and n - 1 tokens once
    return n * t + n * (n - 1) // 2, t + n - 1


# %% exercise 2
def my_reply(llama, cache, held, ids, n, stop):
    same = 0  # ids that are held; the last one must run, for its logits
    while same < min(len(held), len(ids) - 1) and held[same] == ids[same]:
        same += 1
    cache.advance(same - cache.length)  # back to what is the same
    tokens = torch.tensor([ids[same:]])  # (1, T)
    for _ in range(n):
        logits = llama(tokens, cache, last_only=True)  # (1, 1, V)
        tokens = logits.argmax(-1)  # (1, 1)
        if tokens.item() in stop:
            return
        yield tokens.item()


# %% exercise 3
def my_limit(bandwidth, P, config, n, size):
    per_position = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return bandwidth / (size * (P + n * per_position))
