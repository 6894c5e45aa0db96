"""Unusual right answers to the exercises of notebook 03."""


# %% exercise 1: with PyTorch's own variance
def my_layer_norm(x, weight, bias, eps):
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (var + eps).sqrt() * weight + bias


# %% exercise 1: with loops over the tokens
def my_layer_norm(x, weight, bias, eps):
    result = torch.empty_like(x)
    rows = zip(x.reshape(-1, x.shape[-1]), result.view(-1, x.shape[-1]))
    for row, out in rows:
        g, b = weight.tolist(), bias.tolist()
        out[:] = torch.tensor(naive_layer_norm(row.tolist(), g, b, eps))
    return result


# %% exercise 1: in float64, by E[x²] - E[x]²
def my_layer_norm(x, weight, bias, eps):
    x = x.double()
    mean = x.mean(-1, keepdim=True)
    var = x.square().mean(-1, keepdim=True) - mean**2
    return (x - mean) * (var + eps) ** -0.5 * weight + bias


# %% exercise 1: in NumPy
def my_layer_norm(x, weight, bias, eps):
    x = x.numpy()
    d = x - x.mean(-1, keepdims=True)
    scale = (d.var(-1, keepdims=True) + eps) ** 0.5
    return d / scale * weight.numpy() + bias.numpy()


# %% exercise 1: in place on its own copy
def my_layer_norm(x, weight, bias, eps):
    x = x - x.mean(-1, keepdim=True)
    x /= (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    x *= weight
    x += bias
    return x


# %% exercise 1: by rms_norm
def my_layer_norm(x, weight, bias, eps):
    return rms_norm(x - x.mean(-1, keepdim=True), weight, eps) + bias


# %% exercise 2: by the length of a slice
def partial_rms_norm(x, weight, eps, k):
    square = torch.linalg.vector_norm(x[..., :k], dim=-1) ** 2 / k
    return torch.einsum("...d,...,d->...d", x, (square + eps) ** -0.5, weight)


# %% exercise 2: with a mask of ones and zeros
def partial_rms_norm(x, weight, eps, k):
    first = (torch.arange(x.shape[-1]) < k).double()
    square = (x.double() ** 2 @ first / k)[..., None]
    return x / (square + eps).sqrt() * weight


# %% exercise 2: in NumPy
def partial_rms_norm(x, weight, eps, k):
    x = x.numpy()
    square = (x[..., :k] ** 2).mean(-1, keepdims=True)
    return x / (square + eps) ** 0.5 * weight.numpy()


# %% exercise 2: with loops
def partial_rms_norm(x, weight, eps, k):
    def one(row):
        scale = 1 / (sum(v * v for v in row[:k]) / k + eps) ** 0.5
        return [v * scale * g for v, g in zip(row, weight.tolist())]

    def each(rows):
        return one(rows) if isinstance(rows[0], float) else list(map(each, rows))

    return each(x.tolist())


# %% exercise 3: by a diagonal matrix
def my_fold(gamma, w1, w3):
    return w1 @ gamma.diag(), w3 @ torch.diag(gamma)


# %% exercise 3: one tensor of both
def my_fold(gamma, w1, w3):
    return torch.stack([w1, w3]) * gamma


# %% exercise 3: a list, column by column, in float64
def my_fold(gamma, w1, w3):
    folded = []
    for matrix in (w1.double(), w3.double()):
        columns = [g * column for g, column in zip(gamma, matrix.T)]
        folded.append(torch.stack(columns, 1))
    return folded


# %% exercise 3: NumPy arrays
def my_fold(gamma, w1, w3):
    return (w1.numpy() * gamma.numpy(), (gamma * w3).numpy())


# %% exercise 3: in place on copies
def my_fold(gamma, w1, w3):
    return w1.clone().mul_(gamma), w3.clone().mul_(gamma)
