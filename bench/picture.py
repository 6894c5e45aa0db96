"""Draw a result: tokens per second, by peer and by position."""

import matplotlib

from bench.plan import POSITIONS
from bench.report import by_bytes, by_name, median, share
from lessons.theme import COLOURS

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
    """Return the tokens/s that the memory allows for a row's step.

    From the bandwidth measured with that row: it changes between rounds.
    """
    part = share(section, row, "decode")
    return None if part is None else median(row, "decode") / part


def bars(ax, section: dict) -> None:
    """Draw the tokens/s of each peer with its limit."""
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
    """Draw tokens/s by position, and the prediction from ours' bytes."""
    for row in section["rows"]:
        points = [(p, median(row, f"position {p}")) for p in POSITIONS]
        points = [(p, speed) for p, speed in points if speed is not None]
        if points:
            more = "compile" in row["name"]
            style = "x:" if more else "o-"
            name = row["name"]
            if row["dtype"] in MARKS:  # quantized
                style = f"{MARKS[row['dtype']]}-"
            ax.plot(*zip(*points), style, color=colour(name), label=name)
    ours = by_name(section, "ours bfloat16") or {}
    predicted = [by_bytes(section, ours, p) for p in POSITIONS]
    if None not in predicted:
        label = "ours, predicted by its bytes"
        ax.plot(POSITIONS, predicted, "k--", lw=1.2, label=label)
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
    """Return the Figure of a result that has a section "1b"."""
    section = result["sections"]["1b"]
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(12, 3.8), layout="constrained", width_ratios=(6, 5)
    )
    bars(left, section)
    lines(right, section)
    return fig
