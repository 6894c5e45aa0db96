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


# %% exercise 1: torch.float64
def my_layer_norm(x, weight, bias, eps):
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps).double()


# %% exercise 1: a value is
def my_layer_norm(x, weight, bias, eps):
    return torch.ones_like(x)


# %% exercise 2: only r·g
def my_gradient(x, g, eps):
    return g * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


# %% exercise 2: wrong sign
def my_gradient(x, g, eps):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return r * g + r**3 * x * (g * x).mean(-1, keepdim=True)


# %% exercise 2: the sum over features is missing
def my_gradient(x, g, eps):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return r * g - r**3 * x * (g * x) / x.shape[-1]


# %% exercise 2: lacks 1/D
def my_gradient(x, g, eps):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return r * g - r**3 * x * (g * x).sum(-1, keepdim=True)


# %% exercise 2: the sum is over all tokens
def my_gradient(x, g, eps):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return r * g - r**3 * x * (g * x).sum() / x.shape[-1]


# %% exercise 2: cancel
def my_gradient(x, g, eps):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return r * g - 2 * r**3 * x * (g * x).mean(-1, keepdim=True)


# %% exercise 2: ε is missing
def my_gradient(x, g, eps):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True))
    return r * g - r**3 * x * (g * x).mean(-1, keepdim=True)


# %% exercise 2: a value is
def my_gradient(x, g, eps):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return r * g - r**3 * x * (g * x).sum(-1, keepdim=True) / 8


# %% exercise 3: you scaled the rows
def my_fold(gamma, w1, w3):
    return gamma[:, None] * w1, gamma[:, None] * w3


# %% exercise 3: only w1
def my_fold(gamma, w1, w3):
    return w1 * gamma, w3


# %% exercise 3: only w3
def my_fold(gamma, w1, w3):
    return w1, w3 * gamma


# %% exercise 3: w3 comes first
def my_fold(gamma, w1, w3):
    return w3 * gamma, w1 * gamma


# %% exercise 3: transposed
def my_fold(gamma, w1, w3):
    return (w1 * gamma).T, (w3 * gamma).T


# %% exercise 3: nothing is changed
def my_fold(gamma, w1, w3):
    return w1, w3
