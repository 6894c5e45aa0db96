"""Fingerprints of pictures: what a figure holds, in lines of text.

`tests/pictures.json` has those of the pictures in `tests/drawings.py`: a line
of text for each axes, line, bar, image and text. After a wanted change
`python -m tests.fingerprints` writes them again and prints what changed.
"""

import difflib
import json
import math
import re
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.patches import StepPatch
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter
from matplotlib.transforms import IdentityTransform

FILE = Path(__file__).with_name("pictures.json")
COMMAND = "python -m tests.fingerprints"
NUMBER = re.compile(r"(?<![#\w.])(-?\d+\.?\d*(?:e[+-]\d+)?)")  # no colour
MOST = 40  # points of a line; of a longer one 20 are kept


# -- numbers and colours


def number(x, largest=0.0) -> str:
    """Return four digits, or 0 for a rounding error beside `largest`."""
    return "0" if abs(x) <= 1e-6 * largest else f"{x:.4g}"


def numbers(values, largest=None) -> str:
    """Return the numbers of an array."""
    values = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan).ravel()
    if largest is None:
        largest = abs(values[np.isfinite(values)]).max(initial=0)
    return " ".join(number(x, largest) for x in values)


def reach(ax, which) -> float:
    """Return the largest number of an axis; 0: none is a rounding error."""
    if getattr(ax, f"get_{which}scale")() == "log":
        return 0
    return max(map(abs, getattr(ax, f"get_{which}lim")()))


def tone(colour, alpha=None) -> str:
    """Return a colour as "#rrggbb", with its alpha if it is transparent."""
    rgba = to_rgba(colour, alpha)
    return to_hex(rgba, keep_alpha=rgba[3] < 1) if rgba[3] else "none"


def tones(colours) -> str:
    """Return the colours of an array, or the one that all have."""
    found = [tone(each) for each in colours]
    return " ".join(found[:1] if len(set(found)) == 1 else found)


def at(ax, points, transform) -> str:
    """Return points in the units of the data, whatever an artist counts in."""
    points = np.asarray(points, dtype=float).reshape(-1, 2)
    if (n := len(points)) > MOST:
        points = points[np.linspace(0, n - 1, MOST // 2).round().astype(int)]
    largest = reach(ax, "x"), reach(ax, "y")  # first: it sets the limits
    points = ax.transData.inverted().transform(transform.transform(points))
    pairs = [" ".join(map(number, point, largest)) for point in points]
    return f"{n} points: " * (n > MOST) + ", ".join(pairs)


# -- artists: what it is, its looks, its label, its place


def line(ax, it) -> str:
    looks = [tone(it.get_color(), it.get_alpha()), it.get_linestyle()]
    looks.append(f"{it.get_linewidth():g}")
    if it.get_marker() not in ("None", ""):
        looks += [it.get_marker(), tone(it.get_markerfacecolor())]
    return say("line", looks, it, at(ax, it.get_xydata(), it.get_transform()))


def say(kind, looks, it, where) -> str:
    """Join what describes an artist; a label of matplotlib's own is none."""
    label = str(it.get_label())
    if label and not label.startswith("_"):
        looks = [*looks, repr(label)]
    return f"{kind} {' '.join(looks)}: {where}"


def patch(ax, it) -> str:
    """Describe a bar or a box by two corners."""
    fill = tone(it.get_facecolor()) if it.get_fill() else "none"
    looks = fill, tone(it.get_edgecolor()), it.get_linestyle()
    if isinstance(it, StepPatch):
        found = it.get_data()
        where = f"{numbers(found.values)} between {numbers(found.edges)}"
    else:
        box = it.get_transform().transform_path(it.get_path()).get_extents()
        where = at(ax, [box.p0, box.p1], IdentityTransform())
    return say(type(it).__name__, looks, it, where)


def collection(ax, it) -> str:
    """Describe the dots of `scatter`, or lines and areas."""
    looks = [tones(it.get_facecolor()) or "none"]
    looks.append(tones(it.get_edgecolor()) or "none")
    if isinstance(it, PathCollection):
        looks.append(f"size {numbers(np.unique(it.get_sizes()))}")
        where = at(ax, it.get_offsets(), it.get_offset_transform())
        return say("dots", looks, it, where)
    points = np.concatenate([path.vertices for path in it.get_paths()])
    return say("paths", looks, it, at(ax, points, it.get_transform()))


def image(ax, it) -> str:
    low, high = it.get_clim()
    looks = [f"from {tone(it.cmap(0.0))} at {number(low)}"]
    looks.append(f"over {tone(it.cmap(0.5))}")
    looks.append(f"to {tone(it.cmap(1.0))} at {number(high)}")
    rows = "; ".join(numbers(row) for row in it.get_array())
    return say("image", looks, it, f"{rows} in {numbers(it.get_extent())}")


def text(ax, it) -> str:
    """Describe a text, or the arrow of an annotation."""
    looks = [tone(it.get_color()), it.get_ha(), it.get_va()]
    if it.get_weight() not in ("normal", 400):
        looks.append(str(it.get_weight()))
    if it.get_rotation():
        looks.append(f"{it.get_rotation():g}°")
    if box := it.get_bbox_patch():
        looks.append(f"on {tone(box.get_facecolor())}")
        looks.append(tone(box.get_edgecolor()))
    if not isinstance(it, Annotation):
        where = at(ax, it.get_position(), it.get_transform())
        return say(repr(it.get_text()), looks, it, where)
    where = at(ax, it.xy, coordinates(ax, it.xycoords))
    if it.arrowprops:
        start = it.anncoords if it.anncoords is not None else it.xycoords
        start = at(ax, it.xyann, coordinates(ax, start))
        arrow = it.arrow_patch
        looks = [tone(arrow.get_edgecolor()), it.arrowprops["arrowstyle"]]
        where = f"from {start} to {where}"
        return f"arrow {it.get_text()!r} {' '.join(looks)}: {where}"
    where += f" and {numbers(it.xyann)} {it.anncoords}"
    return say(repr(it.get_text()), looks, it, where)


def coordinates(ax, where):
    """Return the transform that an annotation's coordinates name."""
    known = {"data": ax.transData, "axes fraction": ax.transAxes}
    return known[where] if isinstance(where, str) else where


# -- axes and figures


def axes(ax) -> list[str]:
    """Return the lines of an axes and of what it draws, lowest first."""
    place = ax.get_subplotspec()
    rows, columns, first, _ = place.get_geometry() if place else (1, 1, 0, 0)
    head = f"axes {first} of {rows} × {columns}"
    if hasattr(ax, "_colorbar"):
        limits = numbers([*ax.get_xlim(), *ax.get_ylim()])
        return [f"{head}: colour bar {ax.get_ylabel()!r} {limits}"]
    equal = "; equal" if ax.get_aspect() == 1 else ""
    found = [f"{head}: {one_axis(ax, 'x')}; {one_axis(ax, 'y')}{equal}"]
    titles = [ax.get_title(loc) for loc in ("left", "center", "right")]
    found += [f"title {title!r}" for title in titles if title]
    if ax.axison:
        sides = [
            f"{side} {tone(spine.get_edgecolor())}"
            for side, spine in ax.spines.items()
            if spine.get_visible()
        ]
        found.append(f"frame {', '.join(sides) or 'none'}")
    if it := ax.get_legend():
        found.append(legend(it, ax.transAxes))
    return found + artists(ax)


def artists(ax) -> list[str]:
    """Return a line for each artist of an axes, in the order of drawing."""
    kinds = (
        (ax.lines, line),
        (ax.patches, patch),
        (ax.collections, collection),
        (ax.images, image),
        (ax.texts, text),
    )
    describe = {id(it): kind for them, kind in kinds for it in them}
    drawn = [it for it in ax.get_children() if id(it) in describe]
    drawn.sort(key=lambda it: it.get_zorder())
    return [describe[id(it)](ax, it) for it in drawn if it.get_visible()]


def one_axis(ax, which) -> str:
    """Describe the x or y axis; ticks that matplotlib chose are left out."""
    axis = getattr(ax, f"{which}axis")
    limits = getattr(ax, f"get_{which}lim")()
    found = f"{which} {axis.get_scale()} {numbers(limits, reach(ax, which))}"
    if not ax.axison:
        return f"{found} hidden"
    if axis.get_label_text():
        found += f" {axis.get_label_text()!r}"
    if not axis.get_major_ticks(1)[0].label1.get_visible():
        return f"{found} without ticks"
    if isinstance(axis.get_major_locator(), FixedLocator):
        places = axis.get_ticklocs()
        names = axis.get_major_formatter().format_ticks(places)
        pairs = zip(places, map(str, names), strict=True)
        ticks = [f"{number(x)} {name!r}" for x, name in pairs]
        found += f" ticks {', '.join(ticks) or 'none'}"
    elif isinstance(axis.get_major_formatter(), FuncFormatter):
        ends = map(axis.get_major_formatter(), limits)
        found += f" written {' to '.join(map(repr, ends))}"
    return found


def legend(it, of) -> str:
    """Describe a legend of an axes or a figure."""
    entries = zip(it.legend_handles, it.get_texts(), strict=True)
    names = [f"{entry_tone(h)} {t.get_text()!r}" for h, t in entries]
    box = it.get_bbox_to_anchor().transformed(of.inverted())
    # no public name for where a legend lies: its number, such as 2
    place = f"{it._loc} of {numbers([*box.p0, *box.p1])}"
    return f"legend at {place}: {', '.join(names)}"


def entry_tone(handle) -> str:
    """Return the colour of a legend's line or box."""
    if hasattr(handle, "get_color"):
        return tone(handle.get_color())
    return tones(np.atleast_2d(handle.get_facecolor()))


def fingerprint(fig) -> list[str]:
    """Return what a figure holds, in lines.

    Numbers have four digits, points are in the data's units, and what fonts
    and the layout decide is left out: so other processors and versions of
    matplotlib give the same.
    """
    words = [getattr(fig, "subject", "")]
    words += [text.get_text() for text in fig.texts]
    found = [f"figure {numbers(fig.get_size_inches())}"]
    found += [repr(each) for each in words if each]
    found += [legend(it, fig.transSubfigure) for it in fig.legends]
    for ax in fig.axes:
        found += axes(ax)
    return found


# -- comparing and storing


def alike(a: str, b: str) -> bool:
    """Compare two lines: their words exactly, their numbers nearly."""
    a, b = NUMBER.split(a), NUMBER.split(b)
    if len(a) != len(b) or a[::2] != b[::2]:
        return False
    pairs = zip(map(float, a[1::2]), map(float, b[1::2]))
    return all(math.isclose(x, y, rel_tol=2e-3) for x, y in pairs)


def differences(found, stored) -> str:
    """Return the lines in which a fingerprint differs; "" if in none."""
    if len(found) == len(stored):  # a number may differ in its last digit
        pairs = zip(found, stored)
        found = [old if alike(new, old) else new for new, old in pairs]
    lines = difflib.unified_diff(stored, found, n=0, lineterm="")
    return "\n".join(list(lines)[2:])


def read() -> dict[str, list[str]]:
    """Return the stored fingerprints."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def main() -> None:
    """Store the fingerprints of all pictures, and print what changed."""
    from tests.drawings import fingerprints

    stored = read() if FILE.exists() else {}
    found = fingerprints()
    for name in {**stored, **found}:
        old, new = stored.get(name, []), found.get(name, [])
        if changed := differences(new, old):
            print(name, changed, sep="\n", end="\n\n")
        else:
            found[name] = old
    form = json.dumps(found, indent=1, ensure_ascii=False)
    FILE.write_text(form + "\n", encoding="utf-8")


if __name__ == "__main__":
    matplotlib.use("agg")
    main()
