r"""Which part of each matrix a process holds. No process is needed here.

`n` processes, `rank` from 0 to n - 1, `H` query heads, `KV` key/value heads.
"""

from math import gcd

from torch import Tensor

from ..checks import expect
from ..formats.meta import shard_axis
from ..model import tensor_shapes


def split(size: int, rank: int, n: int) -> range:
    """Return a rank's share of `size` rows; shares differ by one at most."""
    return range(rank * size // n, (rank + 1) * size // n)


def kv_heads(config, rank: int, n: int) -> list[int]:
    r"""Return the KV heads that a rank holds, for its H/n query heads.

    They are KV/n where n divides KV; otherwise some are held twice or more.
    Raises ValueError unless n divides H.
    """
    H, group = config.n_heads, config.n_rep
    most = f"a divisor of n_heads = {H}: each has whole heads"
    expect(H % n == 0, "the number of processes", n, most)
    size = gcd(H // n, group)  # query heads that share one KV head here
    own = split(H, rank, n)
    return [h // group for h in own[::size]]


def part(config, name: str, rank: int, n: int):
    r"""Return which part of a tensor a rank holds.

    Returns the axis, 0 for rows and 1 for columns, and a list of ranges along
    it; None for a norm, which every rank holds. wo and w2 have their columns
    cut, so that their products are sums' parts; all others their rows.
    """
    axis, hd = shard_axis(name), config.head_dim
    own = kv_heads(config, rank, n)
    if axis is None:
        return None
    if name.endswith((".wk.weight", ".wv.weight")):
        if len(own) == own[-1] - own[0] + 1:  # in a row
            return axis, [range(own[0] * hd, (own[-1] + 1) * hd)]
        return axis, [range(head * hd, (head + 1) * hd) for head in own]
    if ".attention." in name:
        heads = split(config.n_heads, rank, n)
        return axis, [range(heads.start * hd, heads.stop * hd)]
    in_block = name.startswith("layers.")
    size = config.hidden_dim if in_block else config.vocab_size
    return axis, [split(size, rank, n)]


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
    r"""Return the views that make a rank's part, in order.

    held: what each of the files holds, in equal parts; nothing is read.
    """
    own = part(config, name, rank, n)
    if own is None:
        return held[:1]
    axis, ranges = own
    size, views = held[0].shape[axis], []
    for rows in ranges:
        for i, tensor in enumerate(held):
            first = max(rows.start - i * size, 0)
            last = min(rows.stop - i * size, size)
            if first < last:
                views.append(tensor.narrow(axis, first, last - first))
    return views
