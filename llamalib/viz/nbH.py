r"""Widget of appendix H: the last pair of document 000's formula."""

import ipywidgets as ipw
import numpy as np

from .base import COLOURS, panels
from .charts import finish, lines
from .model_map import strip  # noqa: F401
from .play import Play


def rotated(pair, degrees, right: bool):
    """Return a rotated pair; not `right`: as document 000 prints it."""
    swapped = (-pair[1], pair[0]) if right else (-pair[0], pair[1])
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([a * cos + b * sin for a, b in zip(pair, swapped)])


def last_pair(pair=(3.0, 4.0)) -> Play:
    """Rotate a pair by an angle, rightly and as document 000 prints it."""
    ways = ("right", "query", "-", True), ("as 000 prints it", "key", "--", 0)
    along = np.arange(361)

    def draw(degrees):
        fig, (plane, curve) = panels(3.4, 2, width_ratios=[1, 1.4])
        plane.plot(*zip((0, 0), pair), color=COLOURS["other"], lw=2)
        for name, role, style, right in ways:
            tip = rotated(pair, degrees, right)
            look = [(role, style)]
            lines(plane, {name: zip(*((0, 0), tip))}, look, marker="o")
            lengths = np.hypot(*rotated(pair, along, right))
            lines(curve, {name: lengths}, look, along)
            curve.plot(degrees, np.hypot(*tip), "o", color=COLOURS[role])
        limits = dict(xlim=(-8, 8), ylim=(-8, 8), aspect="equal")
        finish(plane, "Grey: before", "first", "second", **limits)
        labels = "", "angle, degrees", "length of the pair"
        style = dict(legend="above", ylim=(0, 8), xticks=range(0, 361, 90))
        return finish(curve, *labels, **style)

    return Play(draw, degrees=ipw.IntSlider(53, 0, 360, description="angle"))
