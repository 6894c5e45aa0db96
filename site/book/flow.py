"""The map of the model as the site's table of contents: SVG with links."""

import io
import re
from pathlib import Path

from matplotlib import rc_context

from lessons.charts import write
from lessons.frame import SERIES
from lessons.map import BOXES, PARTS, draw_box, draw_flow
from lessons.theme import canvas, colour

# Texts stay texts; the file is the same every time.
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "map"}
METADATA = "Creator", "Date", "Format", "Type"


def lit(notebook) -> list[str]:
    """Return the parts of the model that a notebook is about."""
    stem = Path(notebook.file).stem.split("_", 1)[1]
    return PARTS[stem][0].split(", ")


def page(notebook) -> str:
    """Return the address of a notebook's page."""
    return notebook.file.replace(".ipynb", ".html")


# The notebook that opens each part: the first that lights it.
OPENS = {box: next(n for n in SERIES if box in lit(n)) for box in BOXES}


def picture() -> str:
    """Return the map: each part leads to the notebook that opens it.

    Below are the appendices, each with a mark at the parts it is about.
    """
    appendices = [each for each in SERIES if not each.step]
    lowest = -0.6 * len(appendices) - 0.3
    fig, ax = canvas(1.2 - lowest * 0.45, margins=(0, 0, 1, 1))
    ax.set(xlim=(-3.1, 14.3), ylim=(lowest, 2.2))
    ax.axis("off")
    draw_flow(ax, "L")
    whole = [each for each in SERIES if each.step][-1]
    words = f"{whole.label}: the next token"
    ax.texts[-1].set(text=words, url=page(whole))  # at the loop
    for key, (label, *place) in BOXES.items():
        number = OPENS[key].label.split(" ")[0]
        draw_box(ax, f"{label}\n{number}", *place, False)
        for artist in ax.patches[-1], ax.texts[-1]:
            artist.set_url(page(OPENS[key]))
    for row, notebook in enumerate(appendices):
        y = -0.6 * (row + 1)
        write(ax, -3, y, notebook.label, ha="left", url=page(notebook))
        ax.plot([0, 14.2], [y, y], color="#dddddd", lw=0.7, zorder=0)
        for _, x, _, width in map(BOXES.get, lit(notebook)):
            ax.barh(y, width, 0.15, x, color=colour("probability"))
    file, none = io.StringIO(), dict.fromkeys(METADATA)
    with rc_context(SETTINGS):
        fig.savefig(file, format="svg", transparent=True, metadata=none)
    svg = file.getvalue().partition("<svg")[2].replace('target="_blank"', "")
    # the keyboard stops at a part's name, not also at its box
    svg = re.sub(r"(<a [^>]*)(>\s*<path)", r'\1tabindex="-1"\2', svg)
    words = "Map of the model: each step is a link to its notebook"
    return (
        f'<div class="map"><svg role="group" aria-label="{words}"{svg}</div>'
    )
