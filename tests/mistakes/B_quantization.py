# ruff: noqa
# %% exercise 1: its own a and b
def stairs_from_to(w):
    low, high = w.min(), w.max()
    s = (high - low) / 255
    return low + s * ((w - low) / s).round()


# %% exercise 1: 255 steps up, not 256
def stairs_from_to(w):
    low, high = w.aminmax(dim=1, keepdim=True)
    s = (high - low) / 256
    return low + s * ((w - low) / s).round()


# %% exercise 1: a is added back
def stairs_from_to(w):
    low, high = w.aminmax(dim=1, keepdim=True)
    s = (high - low) / 255
    return s * ((w - low) / s).round()


# %% exercise 1: that is the symmetric one
def stairs_from_to(w):
    return dequantize_rows(*quantize_rows(w))


# %% exercise 1: do not cut off
def stairs_from_to(w):
    low, high = w.aminmax(dim=1, keepdim=True)
    s = (high - low) / 255
    return low + s * ((w - low) / s).int()


# %% exercise 1: q itself is not
def stairs_from_to(w):
    low, high = w.aminmax(dim=1, keepdim=True)
    return ((w - low) * 255 / (high - low)).round()


# %% exercise 1: a is kept as it is
def stairs_from_to(w):
    low, high = w.aminmax(dim=1, keepdim=True)
    s = (high - low) / 255
    zero = (low / s).round()
    q = ((w - low) / s).round()
    return s * (q + zero)


# %% exercise 1: shape (50, 4), wanted (4, 50)
def stairs_from_to(w):
    return w.T


# %% exercise 1: shape (), wanted (4, 50)
def stairs_from_to(w):
    return 255


# %% exercise 1: off by
def stairs_from_to(w):
    return 2 * w


# %% exercise 2: shared by g numbers
def bits_a_number(bits, g, scale_bits, offset_bits):
    return bits + scale_bits + offset_bits


# %% exercise 2: the offset takes bits, too
def bits_a_number(bits, g, scale_bits, offset_bits):
    return bits + scale_bits / g


# %% exercise 2: a fraction of a bit counts
def bits_a_number(bits, g, scale_bits, offset_bits):
    return bits + (scale_bits + offset_bits) // g


# %% exercise 2: bits, not bytes
def bits_a_number(bits, g, scale_bits, offset_bits):
    return (bits + (scale_bits + offset_bits) / g) / 8


# %% exercise 2: a whole group
def bits_a_number(bits, g, scale_bits, offset_bits):
    return bits * g + scale_bits + offset_bits


# %% exercise 2: wanted 4.5
def bits_a_number(bits, g, scale_bits, offset_bits):
    return 1


# %% exercise 2: wanted 4.5
def bits_a_number(bits, g, scale_bits, offset_bits):
    return "4.5 bits"


# %% exercise 3: the largest of the scales
def best_scale(row, bits):
    return row.abs().max() / (2 ** (bits - 1) - 1)


# %% exercise 3: squares of the errors
def best_scale(row, bits):
    top = 2 ** (bits - 1) - 1
    scales = [c / 100 * row.abs().max() / top for c in range(100, 19, -1)]

    def error(s):
        return (s * (row / s).round().clamp(-top, top) - row).abs().sum()

    return min(scales, key=error)


# %% exercise 3: cut off at the last step
def best_scale(row, bits):
    top = 2 ** (bits - 1) - 1
    scales = [c / 100 * row.abs().max() / top for c in range(100, 19, -1)]
    return min(scales, key=lambda s: (s * (row / s).round() - row).norm())


# %% exercise 3: top is
def best_scale(row, bits):
    top = 2 ** (bits - 1)
    scales = [c / 100 * row.abs().max() / top for c in range(100, 19, -1)]

    def error(s):
        return (s * (row / s).round().clamp(-top, top) - row).norm()

    return min(scales, key=error)


# %% exercise 3: wanted
def best_scale(row, bits):
    return 1.0


# %% exercise 3: the largest of |w|
def best_scale(row, bits):
    top = 2 ** (bits - 1) - 1
    scales = [c / 100 * row.max() / top for c in range(100, 19, -1)]

    def error(s):
        return (s * (row / s).round().clamp(-top, top) - row).norm()

    return min(scales, key=error)


# %% exercise 3: down to 0.20
def best_scale(row, bits):
    top = 2 ** (bits - 1) - 1
    scales = [c / 100 * row.abs().max() / top for c in range(100, 49, -1)]

    def error(s):
        return (s * (row / s).round().clamp(-top, top) - row).norm()

    return min(scales, key=error)


# %% exercise 3: the scale, not c
def best_scale(row, bits):
    top = 2 ** (bits - 1) - 1

    def error(c):
        s = c * row.abs().max() / top
        return (s * (row / s).round().clamp(-top, top) - row).norm()

    return min([c / 100 for c in range(100, 19, -1)], key=error)


# %% exercise 3: one number
def best_scale(row, bits):
    return row if bits > 2 else None


# %% exercise 3: one number
def best_scale(row, bits):
    return row


# %% exercise 4: cut off
def to_bfloat16(bits):
    return bits >> 16


# %% exercise 4: ties go up
def to_bfloat16(bits):
    return bits + 0x8000 >> 16


# %% exercise 4: ties go down
def to_bfloat16(bits):
    return bits + 0x7FFF >> 16


# %% exercise 4: the upper 16
def to_bfloat16(bits):
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16 << 16


# %% exercise 4: carry into the exponent
def to_bfloat16(bits):
    mantissa = bits & 0x7FFFFF
    mantissa = (mantissa + 0x7FFF + (bits >> 16 & 1) >> 16) & 127
    return bits >> 23 << 7 | mantissa


# %% exercise 4: gives
def to_bfloat16(bits):
    return 0
