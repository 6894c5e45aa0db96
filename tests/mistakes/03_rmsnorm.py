"""Mistakes in the exercises of notebook 03, with words of the check."""


# %% exercise 1: ε is outside the root
def my_layer_norm(x, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / (x.std(-1, keepdim=True, unbiased=False) + eps) * (
        weight
    ) + bias


# %% exercise 1: divided by D - 1
def my_layer_norm(x, weight, bias, eps):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True)
    return (x - mean) / (var + eps).sqrt() * weight + bias


# %% exercise 1: this is RMSNorm
def my_layer_norm(x, weight, bias, eps):
    return F.rms_norm(x, x.shape[-1:], weight, eps) + bias


# %% exercise 1: the shift is missing
def my_layer_norm(x, weight, bias, eps):
    return F.layer_norm(x, x.shape[-1:], weight, None, eps)


# %% exercise 1: has shape
def my_layer_norm(x, weight, bias, eps):
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)[0]


# %% exercise 1: over dimension 0
def my_layer_norm(x, weight, bias, eps):
    mean, var = x.mean(0), x.var(0, unbiased=False)  # the wrong axis
    return (x - mean) / (var + eps).sqrt() * weight + bias


# %% exercise 1: over dimension 2
def my_layer_norm(x, weight, bias, eps):
    mean = x.mean(2, keepdim=True)  # right for three dimensions alone
    var = x.var(2, keepdim=True, unbiased=False)
    return (x - mean) / (var + eps).sqrt() * weight + bias


# %% exercise 1: outside the root, and the variance is divided by D - 1
def my_layer_norm(x, weight, bias, eps):
    mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return (x - mean) / (std + eps) * weight + bias


# %% exercise 1: eps is not used
def my_layer_norm(x, weight, bias, eps):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


# %% exercise 1: a value is
def my_layer_norm(x, weight, bias, eps):
    return torch.ones_like(x)


# %% exercise 1: the root is missing
def my_layer_norm(x, weight, bias, eps):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, False, keepdim=True)
    return (x - mean) / (var + eps) * weight + bias


# %% exercise 1: scaled too
def my_layer_norm(x, weight, bias, eps):
    return weight * (F.layer_norm(x, x.shape[-1:], None, None, eps) + bias)


# %% exercise 2: of all D features
def partial_rms_norm(x, weight, eps, k):
    return rms_norm(x, weight, eps)


# %% exercise 2: divide it by k, not D
def partial_rms_norm(x, weight, eps, k):
    total = x[..., :k].pow(2).sum(-1, keepdim=True)
    return x * torch.rsqrt(total / x.shape[-1] + eps) * weight


# %% exercise 2: the last k
def partial_rms_norm(x, weight, eps, k):
    square = x[..., -k:].pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(square + eps) * weight


# %% exercise 2: scale all D
def partial_rms_norm(x, weight, eps, k):
    return rms_norm(x[..., :k], weight[:k], eps)


# %% exercise 2: divide all D
def partial_rms_norm(x, weight, eps, k):
    first = rms_norm(x[..., :k], weight[:k], eps)
    return torch.cat([first, x[..., k:]], -1)


# %% exercise 2: outside the root
def partial_rms_norm(x, weight, eps, k):
    rms = x[..., :k].pow(2).mean(-1, keepdim=True).sqrt()
    return x / (rms + eps) * weight


# %% exercise 2: ε is missing
def partial_rms_norm(x, weight, eps, k):
    return x / x[..., :k].pow(2).mean(-1, keepdim=True).sqrt() * weight


# %% exercise 2: γ is missing
def partial_rms_norm(x, weight, eps, k):
    return x * torch.rsqrt(x[..., :k].pow(2).mean(-1, keepdim=True) + eps)


# %% exercise 2: not divided by k
def partial_rms_norm(x, weight, eps, k):
    return x * torch.rsqrt(x[..., :k].pow(2).sum(-1, True) + eps) * weight


# %% exercise 2: a value is
def partial_rms_norm(x, weight, eps, k):
    return torch.zeros_like(x)


# %% exercise 3: you scaled the rows
def my_fold(gamma, w1, w3):
    return gamma[:, None] * w1, gamma[:, None] * w3


# %% exercise 3: only w1
def my_fold(gamma, w1, w3):
    return w1 * gamma, w3


# %% exercise 3: only w3
def my_fold(gamma, w1, w3):
    return w1, w3 * gamma


# %% exercise 3: w3 is first
def my_fold(gamma, w1, w3):
    return w3 * gamma, w1 * gamma


# %% exercise 3: transposed
def my_fold(gamma, w1, w3):
    return (w1 * gamma).T, (w3 * gamma).T


# %% exercise 3: nothing is changed
def my_fold(gamma, w1, w3):
    return w1, w3


# %% exercise 3: divided by γ
def my_fold(gamma, w1, w3):
    return w1 / gamma, w3 / gamma


# %% exercise 3: numbers (2, 12, 12)
def my_fold(gamma, w1, w3):
    return gamma, "w1", w3
