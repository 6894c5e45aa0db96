"""The picture of a result: who is how fast, and how a long text slows it."""

import matplotlib
from plan import POSITIONS
from report import by_bytes, by_name, median, share

from llamalib.viz.base import COLOURS

matplotlib.use("agg")
from matplotlib import pyplot as plt  # noqa: E402

PEERS = {
    "ours": COLOURS["query"],
    "transformers": COLOURS["key"],
    "llama.cpp": COLOURS["value"],
    "naive": COLOURS["other"],
    "gpt-fast": COLOURS["token"],
}

MARKS = {"q8_0": "s", "int8": "D", "int4": "^"}


def colour(name: str) -> str:
    return next(c for peer, c in PEERS.items() if name.startswith(peer))


def limit(section: dict, row: dict) -> float | None:
    """tokens/s at which memory gave the bytes of a row's step.

    While that row was measured: where the memory's speed changes from round
    to round, the others' limit would be another.
    """
    part = share(section, row, "decode")
    return None if part is None else median(row, "decode") / part


def bars(ax, section: dict) -> None:
    """tokens/s by peer, each with its limit."""
    rows = [r for r in section["rows"] if median(r, "decode")]
    for y, row in enumerate(rows):
        speed = median(row, "decode")
        ax.barh(y, speed, color=colour(row["name"]), height=0.62)
        inside = dict(ha="right", va="center", color="white")
        ax.text(speed, y, f"{speed:.1f} ", fontsize=8, **inside)
        most = limit(section, row)
        label = "memory's limit" if y == 0 else None
        ax.plot([most, most], [y - 0.42, y + 0.42], "k-", lw=1.6, label=label)
    ax.set_yticks(range(len(rows)), [r["name"] for r in rows])
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set_xlim(left=0)
    ax.set_xlabel("tokens a second, one row")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower right", fontsize=8)


def lines(ax, section: dict) -> None:
    """tokens/s by position, and what the bytes say of ours."""
    for row in section["rows"]:
        points = [(p, median(row, f"position {p}")) for p in POSITIONS]
        points = [(p, speed) for p, speed in points if speed is not None]
        if points:
            more = "compile" in row["name"]
            style = "x:" if more else "o-"
            name = row["name"]
            if row["dtype"] in MARKS:  # fewer bits
                style = f"{MARKS[row['dtype']]}-"
            ax.plot(*zip(*points), style, color=colour(name), label=name)
    ours = by_name(section, "ours bfloat16") or {}
    said = [by_bytes(section, ours, p) for p in POSITIONS]
    if None not in said:
        label = "ours, as the cache's bytes say"
        ax.plot(POSITIONS, said, "k--", lw=1.2, label=label)
    ax.set_xscale("log", base=2)
    ax.set_xticks(POSITIONS, map(str, POSITIONS))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("position of the new token")
    ax.set_ylabel("tokens a second")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(
        frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5)
    )


def draw(result: dict):
    """The Figure of a result that has a section "1b"."""
    section = result["sections"]["1b"]
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(12, 3.8), layout="constrained", width_ratios=(6, 5)
    )
    bars(left, section)
    lines(right, section)
    return fig
