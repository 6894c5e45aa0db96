"""The table of contents as the map of the model: SVG, each step a link.

Two pictures of the same map: a wide one, and a tall one for a phone. The
boxes and what each notebook lights are lessons.map's.
"""

from html import escape
from pathlib import Path

from lessons.frame import SERIES
from lessons.map import BOXES, PARTS

UNIT = 56  # pixels of a unit of lessons.map, in the wide picture
LEFT = 145  # pixels for the appendices' names
# Pixels across the flow: half a box, the stream, a block's frame (its edge,
# its size), the residual path, the loop, the first appendix, the step to the
# next; and along the flow, those of the frame before its first box.
WIDE = dict(name="wide", half=18, stream=90, edge=28, size=98, side=118)
WIDE |= dict(loop=14, row=148, step=24, above=22)
TALL = dict(name="tall", half=70, stream=104, edge=14, size=168, side=24)
TALL |= dict(loop=6, row=206, step=20, above=28)
# Above a box of the tall picture, where it is more than for most.
GAPS = {"norm 1": 31, "norm 2": 37, "norm 3": 37}


def lit(notebook) -> list[str]:
    """Return the parts of the model that a notebook is about."""
    stem = Path(notebook.file).stem.split("_", 1)[1]
    return PARTS[stem][0].split(", ")


ROAD = [n for n in SERIES if n.step]
APPENDICES = [n for n in SERIES if not n.step]
WHOLE = ROAD[-1]  # lights every part: the loop is its
# The notebook that opens each part: the first that lights it.
OPENS = {box: next(n for n in ROAD if box in lit(n)) for box in BOXES}


def link(notebook, label: str, *inside: str) -> str:
    """Return a link to a notebook's page."""
    address = notebook.file.replace(".ipynb", ".html")
    name = escape(f"{label}: {notebook.label}")
    title = f"<title>{name}</title>{''.join(inside)}"
    return f'<a href="{address}" aria-label="{name}">{title}</a>'


def text(x, y, words, style="", anchor="middle") -> str:
    """Return text at a point."""
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} class="{style}">{escape(words)}</text>'


def applies(notebook) -> str:
    """Return to which parts of the model an appendix applies, in words."""
    found = dict.fromkeys(BOXES[box][0] for box in lit(notebook))
    every = len(lit(notebook)) == len(BOXES)
    return "the whole model" if every else ", ".join(found)


class Map:
    """The map in one direction: u along the flow and v across it, pixels.

    Attributes:
        boxes: of each part its first and last u, and the v of its middle.
    """

    def __init__(self, tall: bool):
        self.tall, self.boxes, end = tall, {}, 25
        vars(self).update(TALL if tall else WIDE)
        for key, (_, x, height, width) in BOXES.items():
            if tall:
                start, v = end + GAPS.get(key, 15), self.stream
                end = start + 30
            else:
                start, end = LEFT + x * UNIT, LEFT + (x + width) * UNIT
                v = self.stream - (height - 0.5) * 1.2 * UNIT
            self.boxes[key] = start, end, v
        self.first, self.last = self.boxes["files"][0], end

    def at(self, u, v) -> tuple[float, float]:
        """Return a place as x and y, or a size as width and height."""
        return (v, u) if self.tall else (u, v)

    def line(self, *places, style="line") -> str:
        """Return a line through places; the plain style ends in an arrow."""
        points = " ".join("{:.0f},{:.0f}".format(*self.at(*p)) for p in places)
        end = f' marker-end="url(#{self.name})"' if style == "line" else ""
        return f'<polyline points="{points}" class="{style}"{end}/>'

    def rect(self, u, v, length, size, style) -> str:
        """Return a box with round corners."""
        values = (*self.at(u, v), *self.at(length, size))
        names = 'x="{:.0f}" y="{:.0f}" width="{:.0f}" height="{:.0f}"'
        return f'<rect {names.format(*values)} rx="5" class="{style}"/>'

    def block(self) -> str:
        """Return the flow, with a block's frame and residual paths."""
        start, end = self.boxes["norm 1"][0], self.boxes["feed-forward"][1]
        corner, size = (start - self.above, self.edge), end - start + 25
        parts = [self.rect(*corner, size + self.above, self.size, "block")]
        x, y = self.at(*corner)
        parts.append(text(x + 6, y + 13, "block, L times", "note", "start"))
        parts.append(self.flow())
        for norm, box in (("norm 1", "attention"), ("norm 2", "feed-forward")):
            start, end = self.boxes[norm][0] - 8, self.boxes[box][1] + 14
            ends = (start, self.stream), (end, self.stream)
            side = (start, self.side), (end, self.side)
            around = self.line(ends[0], *side, ends[1], style="stream")
            parts.append(around)
            x, y = self.at(end, self.stream)
            place = f'cx="{x:.0f}" cy="{y:.0f}"'
            parts.append(f'<circle {place} r="8" class="sum"/>')
            parts.append(text(x, y + 4, "+"))
        return "".join(parts)

    def flow(self) -> str:
        """Return the arrow through all parts, and the loop back."""
        start, end = self.boxes["files"][1], self.boxes["sample"][0]
        through = self.line((start, self.stream), (end, self.stream))
        ends = [sum(self.boxes[b][:2]) / 2 for b in ("sample", "embed")]
        edge = self.stream - self.half
        corners = [(u, self.loop) for u in ends]
        loop = self.line((ends[0], edge), *corners, (ends[1], edge))
        place = (0, self.last + 22) if self.tall else (LEFT + 382, 10)
        label = f"{WHOLE.label}: token by token"
        label = text(*place, label, "name", "start")
        return through + loop + link(WHOLE, "the loop", label)

    def box(self, key: str) -> str:
        """Return a part of the model as a link to the notebook about it."""
        (start, end, v), words = self.boxes[key], BOXES[key][0]
        size = end - start, 2 * self.half
        box = self.rect(start, v - self.half, *size, "box")
        x, y = self.at((start + end) / 2, v)
        number = OPENS[key].label.split(" ")[0]
        inside = text(x, y - 1, words) + text(x, y + 12, number, "note")
        if self.tall:
            inside = text(x, y + 5, f"{number} {words}")
        return link(OPENS[key], words, box, inside)

    def appendix(self, i: int, notebook) -> str:
        """Return an appendix: a mark at each step that it is about."""
        v = self.row + i * self.step
        if self.tall:
            names = text(v, 24, notebook.label[0], "name")
            place = 0, self.last + 50 + 24 * i
        else:
            names, place = "", (0, v + 4)
        names += text(*place, notebook.label, "name", "start")
        rule = self.line((self.first - 7, v), (self.last, v), style="rule")
        marks = [
            self.rect(start, v - 5, end - start, 10, "bar")
            for start, end, _ in map(self.boxes.get, lit(notebook))
        ]
        return link(notebook, applies(notebook), names, rule, *marks)

    def picture(self) -> str:
        """Return the map, with the marker of its arrows."""
        rows = [self.appendix(i, each) for i, each in enumerate(APPENDICES)]
        parts = self.block(), *map(self.box, BOXES), *rows
        width = 360 if self.tall else self.last + 6
        height = (self.last + 44 if self.tall else self.row) + 24 * len(rows)
        marker = (
            f'<defs><marker id="{self.name}" viewBox="0 0 6 6" refX="6" '
            'refY="3" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0,0 6,3 0,6z" class="head"/></marker></defs>'
        )
        about = "Map of the model: each step is a link to its notebook"
        return (
            f'<svg class="flow {self.name}" viewBox="0 0 {width:.0f} '
            f'{height:.0f}" role="group" aria-label="{about}">'
            f"{marker}{''.join(parts)}</svg>"
        )


def picture() -> str:
    """Return both pictures, of which the page shows one."""
    maps = "".join(Map(tall).picture() for tall in (False, True))
    return f'<div class="map">{maps}</div>'
