"""Mistakes in the exercises of appendix H, with words of the check."""
# ruff: noqa


# %% exercise 1: look alike
def name_of(network):
    g = torch.Generator().manual_seed(0)
    x, w1, w2 = (
        torch.randn(*s, generator=g) for s in ((64, 8), (16, 8), (8, 16))
    )
    found = network(x, w1, w2, w1).float()
    distance = {
        name: (f(x @ w1.T, x @ w1.T) @ w2.T - found).norm()
        for name, f in formulas.items()
    }
    return min(distance, key=distance.get)


# %% exercise 1: small numbers?
def name_of(network):
    g = torch.Generator().manual_seed(0)
    shapes = (64, 8), (16, 8), (8, 16), (16, 8)
    x, w1, w2, w3 = (1e-4 * torch.randn(*s, generator=g) for s in shapes)
    found = network(x, w1, w2, w3).float()
    distance = {
        name: (f(x @ w1.T, x @ w3.T) @ w2.T - found).norm()
        for name, f in formulas.items()
    }
    return min(distance, key=distance.get)


# %% exercise 1: exchanged w1 and w3
def name_of(network):
    g = torch.Generator().manual_seed(0)
    x, w1, w2, w3 = (torch.randn(8, 8, generator=g) for _ in range(4))
    found = network(x, w1, w2, w3).float()
    near = {
        "right": x @ w1.T * F.silu(x @ w3.T),
        "003": F.silu(x @ w1.T) * (x @ w3.T),
        "sigmoid": x @ w1.T * (x @ w3.T).sigmoid(),
    }
    for name, middle in near.items():
        if (middle @ w2.T - found).norm() < 0.03 * found.norm():
            return name
    return "004"


# %% exercise 1: bfloat16
def name_of(network):
    g = torch.Generator().manual_seed(0)
    shapes = (64, 8), (16, 8), (8, 16), (16, 8)
    x, w1, w2, w3 = (torch.randn(*s, generator=g) for s in shapes)
    found = network(x, w1, w2, w3).float()
    for name, f in formulas.items():
        if torch.allclose(f(x @ w1.T, x @ w3.T) @ w2.T, found, rtol=1e-4):
            break
    return name


# %% exercise 2: the longest token first is not always best
def fewest(word, ranks):
    count = 0
    while word:
        n = len(word)
        while word[:n] not in ranks:
            n -= 1
        word, count = word[n:], count + 1
    return count


# %% exercise 2: the longest token last is not always best
def fewest(word, ranks):
    count = 0
    while word:
        n = len(word)
        while word[-n:] not in ranks:
            n -= 1
        word, count = word[:-n], count + 1
    return count


# %% exercise 2: that is what BPE takes
def fewest(word, ranks):
    parts = [bytes([b]) for b in word]
    while True:
        joined = [a + b for a, b in zip(parts, parts[1:])]
        found = [(ranks[j], i) for i, j in enumerate(joined) if j in ranks]
        if not found:
            return len(parts)
        i = min(found)[1]
        parts[i : i + 2] = [joined[i]]


# %% exercise 2: neither end is always best
def fewest(word, ranks):
    def greedy(word, last):
        count = 0
        while word:
            n = len(word)
            while (word[-n:] if last else word[:n]) not in ranks:
                n -= 1
            word, count = word[:-n] if last else word[n:], count + 1
        return count

    return min(greedy(word, False), greedy(word, True))


# %% exercise 2: those are the bytes
def fewest(word, ranks):
    return len(word)


# %% exercise 2: one too many
def fewest(word, ranks):
    best = [1]
    for n in range(1, len(word) + 1):
        best.append(min(best[s] + 1 for s in range(n) if word[s:n] in ranks))
    return best[-1]
