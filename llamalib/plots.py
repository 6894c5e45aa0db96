r"""Pictures: the only file that imports matplotlib.

Every function draws one figure from arrays or lists that were prepared
before, and returns its matplotlib Figure.
"""

import logging

# "Matplotlib is building the font cache" is no part of a lesson
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

import matplotlib.pyplot as plt  # noqa: E402

# One colour for one thing in the whole series: Okabe and Ito's palette,
# which the colour-blind can tell apart.
COLOURS = {
    "query": "#0072B2",
    "key": "#D55E00",
    "value": "#009E73",
    "residual": "#56B4E9",
    "token": "#CC79A7",
    "probability": "#E69F00",
    "other": "#999999",
}


def visible(text: str) -> str:
    """A token's text with its spaces and line ends made visible."""
    return plain(text.replace(" ", "␣").replace("\n", "⏎")) or "∅"


def plain(text: str) -> str:
    """Text in which matplotlib reads no dollar sign as mathematics."""
    return text.replace("$", r"\$")


def next_token_bars(labels, probabilities, title=""):
    r"""The likeliest next tokens as bars, the likeliest on top.

    Args:
        labels: token texts, n of them.
        probabilities: n floats, from 0 to 1.
        title: over the picture.
    """
    n = len(labels)
    fig, ax = plt.subplots(figsize=(7, 0.6 + 0.32 * n))
    rows = range(n)[::-1]
    ax.barh(rows, probabilities, color=COLOURS["probability"])
    ax.set_yticks(rows, [visible(label) for label in labels])
    for row, p in zip(rows, probabilities):
        ax.text(p + 0.01, row, f"{p:.2f}", va="center", fontsize=9)
    ax.set_xlim(0, 1.12)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel("probability of being the next token")
    ax.set_title(plain(title), loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    return fig


def cost_by_position(positions, series, title=""):
    r"""Lines that grow, or do not, with the position in the text.

    Args:
        positions: n ints, the x axis.
        series: two names with n numbers each; the first is drawn in the
            colour of the query, the second in that of the key.
        title: over the picture.
    """
    fig, ax = plt.subplots(figsize=(7, 3.2))
    for (name, values), role in zip(
        series.items(), ("query", "key"), strict=True
    ):
        ax.plot(positions, values, label=name, color=COLOURS[role], lw=2)
    ax.set_xlabel("position of the new token")
    ax.set_ylabel("positions run\nthrough the model")
    ax.set_title(plain(title), loc="left", fontsize=11)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    return fig
