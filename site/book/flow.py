"""The table of contents as the map of the model: SVG, each step a link.

Two pictures of the same map: a wide one, and a tall one for a phone. The
boxes and what each notebook lights are viz.model_map's.
"""

from html import escape
from pathlib import Path

from llamalib.course.series import SERIES
from llamalib.viz.model_map import BOXES, PARTS

UNIT = 56  # pixels, in the wide picture
LEFT = 2.6  # units for the appendices' names
TOP, ROW = 2.1, 24
WIDTH, HEIGHT, GAP = 140, 30, 15  # of a box in the tall picture
COLUMN = 20  # of an appendix there


def lit(notebook) -> list[str]:
    """Return the parts of the model that a notebook is about."""
    stem = Path(notebook.file).stem.split("_", 1)[1]
    return PARTS[stem][0].split(", ")


ROAD = [n for n in SERIES if n.step]
APPENDICES = [n for n in SERIES if not n.step]
WHOLE = ROAD[-1]  # lights every part: the loop is its
# The notebook that opens each part: the first that lights it.
OPENS = {box: next(n for n in ROAD if box in lit(n)) for box in BOXES}


def link(notebook, inside: str, label="") -> str:
    """Return a link to a notebook's page."""
    address = notebook.file.replace(".ipynb", ".html")
    name = f"{label}: {notebook.label}" if label else notebook.label
    name = escape(name)
    title = f"<title>{name}</title>"
    return f'<a href="{address}" aria-label="{name}">{title}{inside}</a>'


def number(notebook) -> str:
    """Return the number or letter of a notebook."""
    return notebook.label.split(" · ")[0]


def text(x, y, words, style="", anchor="middle") -> str:
    """Return text at a point."""
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} class="{style}">{escape(words)}</text>'


def rect(x, y, width, height, style) -> str:
    """Return a box with round corners."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return f'<rect x="{x:.0f}" y="{y:.0f}" {size} rx="5" class="{style}"/>'


def path(points, style="line", arrow="") -> str:
    """Return a line through points, as "x,y x,y"."""
    end = f' marker-end="url(#{arrow})"' if arrow else ""
    return f'<polyline points="{points}" class="{style}"{end}/>'


def svg(name: str, width, height, parts: list[str]) -> str:
    """Return a picture with the marker of its arrows."""
    marker = (
        f'<defs><marker id="{name}" viewBox="0 0 6 6" refX="6" refY="3" '
        'markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 6,3 0,6z" class="head"/></marker></defs>'
    )
    about = "Map of the model: each step is a link to its notebook"
    return (
        f'<svg class="flow {name}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="group" aria-label="{about}">{marker}{"".join(parts)}</svg>'
    )


def plus(x, y) -> str:
    """Return the circle where a sub-layer's output is added."""
    circle = f'<circle cx="{x:.0f}" cy="{y:.0f}" r="8" class="sum"/>'
    return circle + text(x, y + 4, "+")


def at(x, y) -> tuple[float, float]:
    """Return a point of viz.model_map in pixels of the wide picture."""
    return (x + LEFT) * UNIT, (TOP - y) * UNIT


def points(*places) -> str:
    """Return places of viz.model_map as a line's points."""
    return " ".join("{:.0f},{:.0f}".format(*at(*each)) for each in places)


def wide() -> str:
    """Return the map from left to right, the appendices in rows below."""
    name = "wide"
    frame = rect(*at(3.7, 1.6), 6.55 * UNIT, 1.75 * UNIT, "block")
    parts = [frame, text(*at(3.8, 1.35), "block, L times", "note", "start")]
    parts.append(path(points((0.9, 0.5), (13.2, 0.5)), arrow=name))
    for start, end in ((3.85, 6.8), (6.98, 10.02)):
        corners = (start, 0.5), (start, 0), (end, 0), (end, 0.35)
        parts += [path(points(*corners), "stream"), plus(*at(end, 0.5))]
    loop = (13.7, 0.8), (13.7, 1.85), (3.1, 1.85), (3.1, 0.8)
    parts.append(path(points(*loop), arrow=name))
    label = f"{WHOLE.label}: token by token"
    parts.append(link(WHOLE, text(*at(8.4, 1.92), label, "name"), "the loop"))
    for key, (words, x, y, width) in BOXES.items():
        x, y = at(x, y + 0.13 * (y > 1))
        middle = x + width * UNIT / 2
        box = rect(x, y - 18, width * UNIT, 36, "box")
        box += text(middle, y - 1, words)
        box += text(middle, y + 12, number(OPENS[key]), "note")
        parts.append(link(OPENS[key], box, words))
    for i, each in enumerate(APPENDICES):
        y = (TOP + 0.55) * UNIT + i * ROW
        row = text(0, y + 4, each.label, "name", "start")
        row += path(
            f"{LEFT * UNIT - 8:.0f},{y} {at(14.2, 0)[0]:.0f},{y}", "rule"
        )
        for box in lit(each):
            _, x, _, width = BOXES[box]
            row += rect(at(x, 0)[0], y - 5, width * UNIT, 10, "bar")
        parts.append(link(each, row, applies(each)))
    height = (TOP + 0.55) * UNIT + len(APPENDICES) * ROW
    return svg(name, *(at(14.3, 0)[0], height), parts)


def applies(notebook) -> str:
    """Return to which parts of the model an appendix applies, in words."""
    found = dict.fromkeys(BOXES[box][0] for box in lit(notebook))
    every = len(lit(notebook)) == len(BOXES)
    return "the whole model" if every else ", ".join(found)


def tall() -> str:
    """Return the map from top to bottom, the appendices in columns."""
    name, left, step = "tall", 34, HEIGHT + GAP
    middle = left + WIDTH / 2
    heights = {}
    y = 40
    for key in BOXES:
        heights[key] = y
        y += step + (22 if key in ("attention", "feed-forward") else 0)
        y += 16 if key == "embed" else 0
    top, end = heights["norm 1"] - 28, heights["feed-forward"] + HEIGHT + 26
    parts = [rect(left - 20, top, WIDTH + 28, end - top, "block")]
    parts.append(text(left - 14, top + 13, "block, L times", "note", "start"))
    last = heights["sample"]
    parts.append(path(f"{middle},44 {middle},{last}", arrow=name))
    for first, box in (("norm 1", "attention"), ("norm 2", "feed-forward")):
        start, end = heights[first] - 8, heights[box] + HEIGHT + 14
        corners = f"{middle},{start} {left - 10},{start} {left - 10},{end}"
        parts.append(path(f"{corners} {middle - 8},{end}", "stream"))
        parts.append(plus(middle, end))
    back = heights["embed"] + HEIGHT / 2
    loop = f"{left},{last + 15} 6,{last + 15} 6,{back} {left},{back}"
    parts.append(path(loop, arrow=name))
    label = text(
        0, last + 52, f"{WHOLE.label}: token by token", "name", "start"
    )
    parts.append(link(WHOLE, label, "the loop"))
    for key, y in heights.items():
        box = rect(left, y, WIDTH, HEIGHT, "box")
        words = f"{number(OPENS[key])} {BOXES[key][0]}"
        box += text(middle, y + 20, words)
        parts.append(link(OPENS[key], box, BOXES[key][0]))
    for i, each in enumerate(APPENDICES):
        parts.append(column(i, each, heights, last))
    height = last + 74 + 24 * len(APPENDICES)
    return svg(name, 360, height, parts)


def column(i: int, notebook, heights: dict, last) -> str:
    """Return an appendix of the tall picture: its dots, and its name."""
    x = 206 + i * COLUMN
    found = text(x, 24, notebook.label[0], "name")
    found += path(f"{x},34 {x},{last + HEIGHT}", "rule")
    for box in lit(notebook):
        y = heights[box] + HEIGHT / 2
        found += f'<circle cx="{x}" cy="{y}" r="6" class="bar"/>'
    y = last + 80 + 24 * i
    found += text(0, y, notebook.label, "name", "start")
    return link(notebook, found, applies(notebook))


def picture() -> str:
    """Return both pictures, of which the page shows one."""
    return f'<div class="map">{wide()}{tall()}</div>'
