r"""Checks of the exercises of appendix B."""

import torch

from .judge import agree, draws, exercise, vary


@exercise(1, expects="a matrix (M, K)")
def check_1(answer):
    """Rows at different heights, so that each has its own ends."""
    g, (M, K) = draws(1), vary((4, 50), (3, 41), (6, 27), (5, 37))
    w = torch.rand(M, K, generator=g) * 3 + torch.arange(M)[:, None] - 1.4
    a, b = w.aminmax(dim=1, keepdim=True)  # (M, 1)
    tie = ((w - a) / (b - a) * 255 % 1 - 0.5).abs() < 1e-3  # nearly
    w = torch.where(tie, w + (b - a) / 2550, w)  # rounds in one way

    def kept(a, b, steps=255, to=torch.round):
        s = (b - a) / steps
        return a + s * to((w - a) / s)

    s, m = (b - a) / 255, w.abs().amax(1, keepdim=True)
    first, last = w.aminmax(dim=0, keepdim=True)  # (1, K)
    numbers, half = ((w - a) / s).round(), m / 127
    mistakes = [
        ("each row has its own a and b", kept(w.min(), w.max())),
        ("a row is along the last dimension", kept(first, last)),
        ("0 to 255 are 255 steps, not 256", kept(a, b, 256)),
        ("these are the whole numbers q: return a + s q", numbers),
        ("a is rounded to a step", s * (numbers + (a / s).round())),
        ("a is missing: return a + s q", s * numbers),
        ("this is symmetric", half * (w / half).round()),
        ("this is rounded down, not to nearest", kept(a, b, 255, torch.floor)),
        ("nothing is rounded", w),
    ]  # fmt: skip
    agree(answer(w), kept(a, b), mistakes)


@exercise(2, expects="a whole number of 16 bits")
def check_2(answer):
    """Ties, then any finite number, then the edges of the exponent."""
    n = vary(600, 500, 700, 550)
    bits = torch.randint(2**32, (n,), generator=draws(4))
    bits[:200] = (bits[:200] >> 16 << 16) + 2**15  # exactly between two
    bits = bits[(bits >> 23 & 255) < 255].tolist()  # finite
    bits += [0, 2**31, 0x3FFFFFFF, 0x3F808000, 0x3F818000, 0x7F7FFFFF]
    right = [nearest(p) for p in bits]
    mistakes = [
        ("the bits are cut off, not rounded", [p >> 16 for p in bits]),
        ("all ties go up: expected even", [p + 2**15 >> 16 for p in bits]),
        ("all ties go down: expected even", [p + 32767 >> 16 for p in bits]),
        ("these are 32 bits: return the upper 16", [r << 16 for r in right]),
        ("the mantissa must carry into the exponent",
         [p >> 23 << 7 | r & 127 for p, r in zip(bits, right)]),
    ]  # fmt: skip
    agree([answer(p) for p in bits], right, mistakes, tolerance=0)


def nearest(bits: int) -> int:
    """Return the bfloat16 that PyTorch rounds a float32's bits to."""
    signed = torch.tensor(bits - 2**32 if bits >= 2**31 else bits).int()
    rounded = signed.view(torch.float32).bfloat16()
    return rounded.view(torch.int16).item() % 2**16
