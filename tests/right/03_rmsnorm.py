"""Unusual right answers to the exercises of notebook 03."""


# %% exercise 1: in float64, by E[x²] - E[x]²
def my_layer_norm(x, weight, bias, eps):
    x = x.double()
    mean = x.mean(-1, keepdim=True)
    var = x.square().mean(-1, keepdim=True) - mean**2
    return (x - mean) * (var + eps) ** -0.5 * weight + bias


# %% exercise 2: in NumPy
def partial_rms_norm(x, weight, eps, k):
    x = x.numpy()
    square = (x[..., :k] ** 2).mean(-1, keepdims=True)
    return x / (square + eps) ** 0.5 * weight.numpy()
