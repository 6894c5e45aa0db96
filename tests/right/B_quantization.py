"""Unusual right answers to the exercises of appendix B."""


# %% exercise 1: in float64, from the upper end
def round_asymmetric(w):
    w = w.double()
    a, b = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    s = (b - a) / 255
    return b - s * (255 - ((w - a) / s).round())


# %% exercise 1: row by row, each in numbers of Python
def round_asymmetric(w):
    rows = []
    for row in w.tolist():
        a, s = min(row), (max(row) - min(row)) / 255
        rows.append([a + s * round((each - a) / s) for each in row])
    return rows


# %% exercise 2: with Python's own rounding, which takes ties to even
def to_bfloat16(bits):
    return round(bits / 65536)


# %% exercise 2: by PyTorch, whose int16 has a sign
def to_bfloat16(bits):
    signed = torch.tensor(bits).to(torch.uint32).view(torch.float32)
    return signed.bfloat16().view(torch.int16).item() & 0xFFFF


# %% exercise 2: exponent and mantissa apart, with the carry
def to_bfloat16(bits):
    sign, exponent = bits >> 31, bits >> 23 & 255
    mantissa, rest = bits >> 16 & 127, bits & 0xFFFF
    if rest > 0x8000 or rest == 0x8000 and mantissa % 2:
        mantissa += 1
    if mantissa == 128:
        mantissa, exponent = 0, exponent + 1
    return sign << 15 | exponent << 7 | mantissa
