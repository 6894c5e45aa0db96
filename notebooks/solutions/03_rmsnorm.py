"""Solutions to the exercises of 03_rmsnorm.ipynb: each replaces its cell."""


# %% exercise 1
def my_layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)  # (..., D)
    variance = centred.pow(2).mean(-1, keepdim=True)  # (..., 1)
    return centred * torch.rsqrt(variance + eps) * weight + bias


# %% exercise 2
def my_gradient(x, g, eps):
    # y = r x and r = (mean(x²) + ε)^(-1/2), so dr/dx_j = -r³ x_j / D
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)  # (..., 1)
    dot = (g * x).mean(-1, keepdim=True)  # (..., 1)
    return r * g - r**3 * x * dot


# %% exercise 3
def my_fold(gamma, w1, w3):
    return w1 * gamma, w3 * gamma  # column j of each, times γ_j
