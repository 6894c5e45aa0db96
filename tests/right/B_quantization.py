"""Unusual right answers to the exercises of appendix B."""
# ruff: noqa: F811, F821


# %% exercise 1: with loops, as lists
def round_asymmetric(w):
    rows = []
    for row in w.tolist():
        a, b = min(row), max(row)
        s = (b - a) / 255
        rows.append([a + s * round((v - a) / s) for v in row])
    return rows


# %% exercise 1: with NumPy
def round_asymmetric(w):
    import numpy as np

    w = w.numpy()
    a, b = w.min(1, keepdims=True), w.max(1, keepdims=True)
    return a + np.rint((w - a) / (b - a) * 255) * (b - a) / 255


# %% exercise 1: in float64, from the upper end
def round_asymmetric(w):
    w = w.double()
    a, b = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    s = (b - a) / 255
    return b - s * (255 - ((w - a) / s).round())


# %% exercise 1: in place, on its own tensor
def round_asymmetric(w):
    a, b = w.aminmax(dim=1, keepdim=True)
    s = (b - a) / 255
    w = w.clone()
    return w.sub_(a).div_(s).round_().mul_(s).add_(a)


# %% exercise 2: with a remainder
def to_bfloat16(bits):
    kept, rest = divmod(bits, 2**16)
    up = rest > 2**15 or rest == 2**15 and kept % 2 == 1
    return kept + up


# %% exercise 2: by the distance to both neighbours
def to_bfloat16(bits):
    low = bits // 65536
    down, up = bits - low * 65536, (low + 1) * 65536 - bits
    if down == up:
        return low + low % 2
    return low if down < up else low + 1


# %% exercise 2: with Python's own rounding, which takes ties to even
def to_bfloat16(bits):
    return round(bits / 65536)


# %% exercise 2: sign apart, with PyTorch
def to_bfloat16(bits):
    number = torch.tensor(bits % 2**31, dtype=torch.int32)
    rounded = number.view(torch.float32).to(torch.bfloat16)
    return (bits >> 31 << 15) + rounded.view(torch.int16).item()
