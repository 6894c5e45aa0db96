"""Exercise 4 of notebook 00 as it was: its solution, then its mistakes with words of the check."""


# == notebooks/solutions/00_initialization.py ==


# %% exercise 4
def to_bfloat16(bits):
    last = bits >> 16 & 1  # the last bit that stays
    # adds half a step, or, where that bit is 0, a little less: then a tie
    # stays below. A carry out of the mantissa is the next exponent: right.
    return bits + 0x7FFF + last >> 16


# == tests/mistakes/00_initialization.py ==


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
