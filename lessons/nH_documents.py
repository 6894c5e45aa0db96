"""Pictures, widgets and checks of notebook H."""

import json
from pathlib import Path

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from IPython.display import Markdown

from llamalib import apply_rotary_emb, precompute_freqs_cis

from .charts import finish, lines
from .judge import alike, exercise, vary
from .play import Play
from .pocket import strip  # noqa: F401
from .tables import table
from .theme import COLOURS, panels


def rotated(pair, degrees, right: bool):
    """Return a rotated pair; not `right`: as document 000 prints it."""
    swapped = (-pair[1], pair[0]) if right else (-pair[0], pair[1])
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    pairs = zip(pair, swapped, strict=True)
    return np.array([a * cos + b * sin for a, b in pairs])


def last_pair(pair=(3.0, 4.0)) -> Play:
    """Rotate a pair by an angle, rightly and as document 000 prints it."""
    ways = ("right", "query", "-", True), ("as 000 prints it", "key", "--", 0)
    along = np.arange(361)

    def draw(degrees):
        fig, (plane, curve) = panels(3.4, 2, width_ratios=[1, 1.4])
        x, y = pair
        plane.plot((0, x), (0, y), color=COLOURS["other"], lw=2)
        for name, role, style, right in ways:
            x, y = tip = rotated(pair, degrees, right)
            look = [(role, style)]
            lines(plane, {name: ((0, x), (0, y))}, look, marker="o")
            lengths = np.hypot(*rotated(pair, along, right))
            lines(curve, {name: lengths}, look, along)
            curve.plot(degrees, np.hypot(*tip), "o", color=COLOURS[role])
        limits = dict(xlim=(-8, 8), ylim=(-8, 8), aspect="equal")
        finish(
            plane,
            "grey: the pair before rotation",
            "first",
            "second",
            **limits,
        )
        labels = "", "angle, degrees", "length of the pair"
        style = dict(legend="above", ylim=(0, 8), xticks=range(0, 361, 90))
        return finish(curve, *labels, **style)

    return Play(draw, degrees=ipw.IntSlider(53, 0, 360, description="angle"))


# -- formulas of the documents, to run in place of the model's own --


def outside_the_root(x, weight, eps):
    """003's RMSNorm: ε is added to the RMS."""
    return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps) * weight


def gate_at_w3(self, x):
    """003's feed-forward network: SiLU at W3."""
    return self.w2(self.w1(x) * F.silu(self.w3(x)))


def two_gates(self, x):
    """004's network, as H reads it: Swish and a sigmoid."""
    gate = self.w1(x)
    return self.w2(F.silu(gate) * gate.sigmoid() * self.w3(x))


def plain(head_dim, end, theta, factor):
    """003's frequencies: not scaled."""
    return precompute_freqs_cis(head_dim, end, theta)


def base_10_000(head_dim, end, theta, factor):
    """004's base."""
    return precompute_freqs_cis(head_dim, end, 10_000.0)


def squared(head_dim, end, theta, factor):
    """004's `compute_freq`: the exponent has its 2 twice."""
    freqs = theta ** (-2 * torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(end).float(), freqs)
    return torch.stack((angles.cos(), angles.sin()), dim=-1)


def other_sign(xq, xk, freqs_cis):
    """Scores by R(m − n), as in 004, not by R(n − m)."""
    return apply_rotary_emb(xq, xk, freqs_cis * torch.tensor([1.0, -1.0]))


def printed_last_pair(xq, xk, freqs_cis):
    """000's elementwise form: the last pair's neighbours are (-x1, x2)."""
    cos, sin = freqs_cis[:, -1:].unbind(-1)  # (T, 1) each

    def rotate(x, right):
        a, b = x[..., -2], x[..., -1]
        last = torch.stack((a * cos - a * sin, b * cos + b * sin), dim=-1)
        return torch.cat((right[..., :-2], last.type_as(x)), dim=-1)

    right = apply_rotary_emb(xq, xk, freqs_cis)
    return tuple(map(rotate, (xq, xk), right))


SLIPS = {  # what `llamalib.replaced` takes
    "as Meta's code": {},
    "ε outside the root": {"rms_norm": outside_the_root},
    "gate at W3": {"FeedForward.forward": gate_at_w3},
    "plain frequencies": {"precompute_freqs_cis": plain},
    "two gates": {"FeedForward.forward": two_gates},
    "squared frequencies": {"precompute_freqs_cis": squared},
    "base 10,000": {"precompute_freqs_cis": base_10_000},
    "the other sign": {"apply_rotary_emb": other_sign},
    "the last pair": {"apply_rotary_emb": printed_last_pair},
}


# -- the tables of H, and the checks of its exercises --

FILE = Path(__file__).with_name("documents.json")
# letters; places of claims; tables: the names of their rows, by subject;
# stated: settled by arithmetic, a source or H; linked: by another notebook;
# labels: which item of a row a verdict is about
DOCUMENTS = json.loads(FILE.read_text("utf-8"))
MARKS = {
    "wrong": "**wrong**",
    "partly": "partly",
    "misprint": "*misprint*",
    "open": "open",
    "right": "right",
}
UNSETTLED, MISPRINTS = "Not settled by a number", "Misprints and letters"
HEAD = "document", "it says", "verdict", "what is right", "settled by"


def verdicts(names: str) -> str:
    """Return what H finds, and in which tables; for names of its rows."""
    subject = {
        name: title
        for title, those in DOCUMENTS["tables"].items()
        for name in those.split()
    }
    found = {}
    for name in names.split():
        title = subject.get(name, UNSETTLED)
        if name in DOCUMENTS["misprints"]:
            verdict, title = "misprint", MISPRINTS
        else:
            kinds = "stated", "linked", "without"
            rows = (DOCUMENTS[kind].get(name) for kind in kinds)
            verdict = next(row[2] for row in rows if row)
        about = DOCUMENTS["labels"].get(name)
        words = title + (f" ({about})" if about else "")
        found.setdefault(verdict, []).append(words)
    return "; ".join(
        f"{mark}: {', '.join(found[verdict])}"
        for verdict, mark in MARKS.items()
        if verdict in found
    )


def folded(title: str, head: tuple[str, ...], rows) -> Markdown:
    """Return a table under its head, folded under its title."""
    rows = [*rows]
    text = table([head, ("---",) * len(head), *rows])
    summary = f"<summary>{title}: {len(rows)} rows</summary>"
    return Markdown(f"<details>{summary}\n\n{text}\n\n</details>")


def link(stem: str) -> str:
    """Return a link from H to a notebook, such as 03_rmsnorm."""
    folder, _, name = stem.rpartition("/")
    up = "" if folder else "../"
    return f"[{name.split('_')[0]}]({up}{name}.ipynb)"


def places(document: str) -> Markdown:
    """Return where the series treats each statement of a document."""
    head = "in the document", "notebook", "section", "verdict: table"
    rows = [
        (words, link(stem), heading or "all of it", verdicts(names))
        for words, stem, heading, names in DOCUMENTS["places"][document]
    ]
    return folded(f"Document {document}", head, rows)


def subject(title: str) -> Markdown:
    """Return the table of a subject: what is right, and what settles it."""

    def row(name):
        if name in DOCUMENTS["stated"]:
            return DOCUMENTS["stated"][name]
        *words, stem, heading, found = DOCUMENTS["linked"][name]
        section = heading.split(" · ")[0]
        return *words, f"{found} ({link(stem)}, section {section})"

    names = DOCUMENTS["tables"][title].split()
    return folded(title, HEAD, map(row, names))


def every_table() -> list[Markdown]:
    """Return all tables of H, each folded."""
    letters = "here", "meaning", "1B", "003", "004", "000, 001"
    edits = [r for r in DOCUMENTS["changes"] if r[2] != "the conversion"]
    without, misprints = HEAD[:4], (*HEAD[:2], HEAD[3])
    columns = "003", "change", "due to", "without it, on a CPU"
    return [
        *map(places, DOCUMENTS["places"]),
        *map(subject, DOCUMENTS["tables"]),
        folded(UNSETTLED, without, DOCUMENTS["without"].values()),
        folded(MISPRINTS, misprints, DOCUMENTS["misprints"].values()),
        folded("Letters", letters, DOCUMENTS["letters"]),
        folded("Changes of 003's program", columns, edits),
    ]


@exercise(1, expects="the name of a formula")
def check_1(name_of, formulas):
    def hidden(name, kind):  # in a closure, not in the args of a partial
        def network(*given):
            x, w1, w2, w3 = (getattr(each, kind)() for each in given)
            return formulas[name](x @ w1.T, x @ w3.T) @ w2.T

        return network

    kinds = vary("float", "double"), "bfloat16"
    cases = {
        f"for a network of {name!r} in {kind}, the result": hidden(name, kind)
        for kind in kinds
        for name in formulas
    }
    cases = {words: (network,) for words, network in cases.items()}
    alike(name_of, "H_documents", 1, cases)


@exercise(2, expects="a tensor (B, T) of int64")
def check_2(labels):
    up, T = vary((0, 4), (1, 3), (3, 5), (2, 6))
    rows = [5, 6, 7], [8], [], [9, 5, 6, 7, 8, 4, 3, 7], [3, 8, 5, 9], [6, 7]
    rows = [[i + up for i in row] for row in rows]
    alike(labels, "H_documents", 2, [(rows, T, 2), (rows[:2], 3, 1)])
