"""Plan which part of each matrix process `rank` of `n` holds."""

from math import gcd

from torch import Tensor

from ..checks import expect
from ..fast.weight import GROUP  # numbers that share a scale in int4
from ..formats.meta import shard_axis, tensor_shapes


def split(size: int, rank: int, n: int) -> range:
    """Return a rank's share of `size` rows; shares differ by one at most."""
    return range(rank * size // n, (rank + 1) * size // n)


def kv_heads(config, rank: int, n: int) -> list[int]:
    r"""Return the KV heads that a rank holds for its H/n query heads.

    KV/n of them if n divides KV; if not, several ranks hold the same head.
    Raises ValueError unless n divides H.
    """
    H, group = config.n_heads, config.n_heads // config.n_kv_heads
    divisor = f"a divisor of n_heads = {H}, for each has whole heads"
    expect(H % n == 0, "the number of processes", n, divisor)
    own, size = split(H, rank, n), gcd(H // n, group)
    return [head // group for head in own[::size]]


def part(config, name: str, rank: int, n: int):
    r"""Return which part of a tensor a rank holds.

    Returns the axis, 0 for rows or 1 for columns, and a list of ranges along
    it; None for a norm, which every rank holds.
    """
    axis, unit, F = shard_axis(name), config.head_dim, config.hidden_dim
    held = kv_heads(config, rank, n)
    if axis is None:
        return None
    if ".feed_forward." in name:
        unit = GROUP if F % GROUP == 0 and F >= n * GROUP else 1
        held = split(F // unit, rank, n)
    elif ".attention." not in name:
        unit, held = 1, split(config.vocab_size, rank, n)
    elif name.endswith((".wq.weight", ".wo.weight")):
        held = split(config.n_heads, rank, n)
    if len(held) == held[-1] - held[0] + 1:  # in a row
        return axis, [range(held[0] * unit, (held[-1] + 1) * unit)]
    return axis, [range(i * unit, (i + 1) * unit) for i in held]


def part_shapes(config, rank: int, n: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of a rank's part of each tensor, by Meta's name."""
    shapes = {}
    for name, whole in tensor_shapes(config).items():
        shape, own = list(whole), part(config, name, rank, n)
        if own is not None:
            shape[own[0]] = sum(map(len, own[1]))
        shapes[name] = tuple(shape)
    return shapes


def keep_part(config, name: str, held: list[Tensor], *, rank: int, n: int):
    r"""Return a rank's part as views of what the files hold, in order.

    held: equal parts of the tensor, one per file; nothing is read or copied.
    """
    own = part(config, name, rank, n)
    if own is None:
        return held[:1]
    axis, ranges = own
    size, views = held[0].shape[axis], []
    for rows in ranges:
        for i, tensor in enumerate(held):
            start, stop = rows.start - i * size, rows.stop - i * size
            if own := range(max(start, 0), min(stop, size)):
                views.append(tensor.narrow(axis, own.start, len(own)))
    return views
