"""Answers to the exercises of H_documents: each stands in the stub's place."""
# ruff: noqa: F821


# %% exercise 1
def name_of(network):
    g = torch.Generator().manual_seed(0)
    shapes = (64, 8), (16, 8), (8, 16), (16, 8)
    x, w1, w2, w3 = (torch.randn(*shape, generator=g) for shape in shapes)
    found = network(x, w1, w2, w3).float()  # (n, D)

    def distance(name):
        middle = formulas[name](x @ w1.T, x @ w3.T)  # (n, F)
        return (middle @ w2.T - found).norm()

    return min(formulas, key=distance)


# %% exercise 2
def fewest(word, ranks):
    # for the first n bytes: one more than for those before the last token,
    # wherever that token begins
    best = [0]
    for n in range(1, len(word) + 1):
        options = [
            best[start] + 1 for start in range(n) if word[start:n] in ranks
        ]
        best.append(min(options))
    return best[-1]
