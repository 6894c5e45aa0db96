"""Mistakes in the exercises of appendix B, with words of the check."""
# ruff: noqa: F811, F821


# %% exercise 1: its own a and b
def round_asymmetric(w):
    a, b = w.min(), w.max()
    s = (b - a) / 255
    return a + s * ((w - a) / s).round()


# %% exercise 1: along the last dimension
def round_asymmetric(w):
    a, b = w.aminmax(dim=0, keepdim=True)
    s = (b - a) / 255
    return a + s * ((w - a) / s).round()


# %% exercise 1: 255 steps, not 256
def round_asymmetric(w):
    a, b = w.aminmax(dim=1, keepdim=True)
    s = (b - a) / 256
    return a + s * ((w - a) / s).round()


# %% exercise 1: the whole numbers q
def round_asymmetric(w):
    a, b = w.aminmax(dim=1, keepdim=True)
    return ((w - a) * 255 / (b - a)).round()


# %% exercise 1: a is rounded to a step
def round_asymmetric(w):
    a, b = w.aminmax(dim=1, keepdim=True)
    s = (b - a) / 255
    zero = (a / s).round()
    return s * (((w - a) / s).round() + zero)


# %% exercise 1: a is missing
def round_asymmetric(w):
    a, b = w.aminmax(dim=1, keepdim=True)
    s = (b - a) / 255
    return s * ((w - a) / s).round()


# %% exercise 1: this is symmetric
def round_asymmetric(w):
    return dequantize_rows(*quantize_rows(w))


# %% exercise 1: rounded down
def round_asymmetric(w):
    a, b = w.aminmax(dim=1, keepdim=True)
    s = (b - a) / 255
    return a + s * ((w - a) / s).int()


# %% exercise 1: nothing is rounded
def round_asymmetric(w):
    a, b = w.aminmax(dim=1, keepdim=True)
    s = (b - a) / 255
    return a + s * ((w - a) / s)


# %% exercise 1: has shape (50, 4); expected (4, 50)
def round_asymmetric(w):
    return w.T


# %% exercise 1: a value is
def round_asymmetric(w):
    return 2 * w


# %% exercise 1: changes its argument w
def round_asymmetric(w):
    a, b = w.aminmax(dim=1, keepdim=True)
    s = (b - a) / 255
    w -= a
    return a + s * (w / s).round()


# %% exercise 2: cut off
def to_bfloat16(bits):
    return bits >> 16


# %% exercise 2: all ties go up
def to_bfloat16(bits):
    return bits + 0x8000 >> 16


# %% exercise 2: all ties go down
def to_bfloat16(bits):
    return bits + 0x7FFF >> 16


# %% exercise 2: return the upper 16
def to_bfloat16(bits):
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16 << 16


# %% exercise 2: carry into the exponent
def to_bfloat16(bits):
    mantissa = bits & 0x7FFFFF
    mantissa = (mantissa + 0x7FFF + (bits >> 16 & 1) >> 16) & 127
    return bits >> 23 << 7 | mantissa


# %% exercise 2: a value is
def to_bfloat16(bits):
    return 0


# %% exercise 2: a value is 1 off
def to_bfloat16(bits):
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16) + (bits == 0x7F7FFFFF)
