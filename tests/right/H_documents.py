"""Unusual right answers to the exercises of appendix H."""


# %% exercise 1: the model's own weights
def name_of(network):
    u = stream["layers.0.feed_forward.in"]
    w1, w2, w3 = (w[f"layers.0.feed_forward.w{i}.weight"] for i in (1, 2, 3))
    found = network(u, w1, w2, w3).float()
    similar = {}
    for name, f in formulas.items():
        expected = f(u @ w1.T, u @ w3.T) @ w2.T
        similar[name] = -(expected - found).abs().mean()
    return max(similar, key=similar.get)


# %% exercise 2: position by position
def labels(rows, T, end):
    def label(row, t):
        if t + 1 < len(row):
            return row[t + 1]
        return end if t + 1 == len(row) else -100

    return torch.tensor([[label(row, t) for t in range(T)] for row in rows])
