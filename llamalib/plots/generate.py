r"""The pictures of notebook 09."""

import matplotlib.pyplot as plt

from .base import COLOURS, plain


def cost_by_position(positions, series, title=""):
    r"""Lines that grow, or do not, with the position in the text.

    Args:
        positions: n ints, the x axis.
        series: two names with n numbers each; the first is drawn in
            grey, the second dark.
        title: over the picture.
    """
    fig, ax = plt.subplots(figsize=(7, 3.2))
    for (name, values), role in zip(
        series.items(), ("other", "plain"), strict=True
    ):
        ax.plot(positions, values, label=name, color=COLOURS[role], lw=2)
    ax.set_xlabel("position of the new token")
    ax.set_ylabel("positions run\nthrough the model")
    ax.set_title(plain(title), loc="left", fontsize=11)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    return fig
