"""Solutions to the exercises of H_documents: each replaces its stub."""

import torch
import torch.nn.functional as F

formulas = {
    "right": lambda gate, up: F.silu(gate) * up,
    "gate at W3": lambda gate, up: gate * F.silu(up),
    "sigmoid": lambda gate, up: gate * up.sigmoid(),
    "two gates": lambda gate, up: F.silu(gate) * gate.sigmoid() * up,
}


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
def labels(rows, T, end):
    result = torch.full((len(rows), T), -100)
    for b, row in enumerate(rows):
        if row:  # an empty text has no last token
            after = (row[1:] + [end])[:T]
            result[b, : len(after)] = torch.tensor(after)
    return result
