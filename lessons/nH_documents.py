"""Pictures, widgets and checks of notebook H."""

import json
import os
from pathlib import Path

import ipywidgets as ipw
import numpy as np
import torch
import torch.nn.functional as F
from IPython.display import Markdown

from llamalib import Tokenizer, apply_rotary_emb, precompute_freqs_cis
from llamalib.load import ROOT

from .charts import finish, lines
from .judge import agree, exercise, vary
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
        return torch.cat((right[..., :-2], last), dim=-1)

    right = apply_rotary_emb(xq, xk, freqs_cis)
    return tuple(map(rotate, (xq, xk), right))


SLIPS = {  # what `llamalib.replaced` takes
    "as Meta's code": {},
    "003: ε outside the root": {"rms_norm": outside_the_root},
    "003: gate at W3": {"FeedForward.forward": gate_at_w3},
    "003: plain frequencies": {"precompute_freqs_cis": plain},
    "004: two gates": {"FeedForward.forward": two_gates},
    "004: squared frequencies": {"precompute_freqs_cis": squared},
    "004: base 10,000": {"precompute_freqs_cis": base_10_000},
    "004: the other sign": {"apply_rotary_emb": other_sign},
    "000: the last pair": {"apply_rotary_emb": printed_last_pair},
}


# -- the rows of H, and the checks of its exercises --


def printed_ids(prompt: str) -> str:
    """Return whether the published tokenizers give the documents' ids."""
    words = {None: "not checked", True: "the same ids", False: "other ids"}
    llama_2 = llama_3 = None
    if path := os.environ.get("LLAMA2_TOKENIZER"):
        import sentencepiece

        pieces = sentencepiece.SentencePieceProcessor(model_file=path)
        ids = [1, *pieces.encode("Hello, this is a test sentence."), 2]
        found = [1, 15043, 29892, 445, 338, 263, 1243, 10541, 29889, 2]
        llama_2 = ids == found
    path = ROOT / "data" / "Llama-3-tokenizer" / "tokenizer.model"
    if path.is_file():
        ids = Tokenizer.from_file(path).encode(prompt, bos=True, eos=False)
        llama_3 = ids == [128000, 791, 6864, 315, 9822, 374]
    return f"000: {words[llama_2]}; 003: {words[llama_3]}"


FILE = Path(__file__).with_name("documents.json")
# letters; places of claims; tables: the names of their rows, by section and
# number, or by section and title where no cell settles them; slips, settled by
# a cell's number; stated: by arithmetic or a source; linked: by another
# notebook; labels: which item of a row a verdict is about
DOCUMENTS = json.loads(FILE.read_text("utf-8"))


def verdicts(names: str) -> str:
    """Return what H finds, and in which sections; for names of its rows."""
    section = {
        name: number[0]
        for number, those in DOCUMENTS["tables"].items()
        for name in those.split()
    }
    found = {}
    for name in names.split():
        if name in DOCUMENTS["misprints"]:
            verdict = "misprint"
        else:
            kinds = "slips", "stated", "linked", "without"
            verdict = next(
                DOCUMENTS[kind][name][2]
                for kind in kinds
                if name in DOCUMENTS[kind]
            )
        about = DOCUMENTS["labels"].get(name)
        words = section.get(name, "8") + (f" ({about})" if about else "")
        found.setdefault(verdict, []).append(words)
    marks = {
        "wrong": "**wrong**",
        "partly": "partly",
        "misprint": "*misprint*",
        "open": "open",
        "right": "right",
    }
    return "; ".join(
        f"{mark}: {', '.join(found[verdict])}"
        for verdict, mark in marks.items()
        if verdict in found
    )


def show(head: tuple[str, ...], rows, title: str = "") -> Markdown:
    """Return a table under its head; with a title it is folded."""
    rows = [*rows]
    text = table([head, ("---",) * len(head), *rows])
    if title:
        title = f"<summary>{title}: {len(rows)} rows</summary>"
        text = f"<details>{title}\n\n{text}\n\n</details>"
    return Markdown(text)


def link(stem: str) -> str:
    """Return a link from H to a notebook, such as 03_rmsnorm."""
    folder, _, name = stem.rpartition("/")
    up = "" if folder else "../"
    return f"[{name.split('_')[0]}]({up}{name}.ipynb)"


def letters() -> Markdown:
    """Return what the documents call the things of this series."""
    head = "here", "meaning", "1B", "003", "004", "000, 001"
    return show(head, DOCUMENTS["letters"], "Letters")


def places(document: str) -> Markdown:
    """Return where the series treats each statement of a document."""
    head = "in the document", "notebook", "section", "verdict: section"
    rows = [
        (words, link(stem), heading or "all of it", verdicts(names))
        for words, stem, heading, names in DOCUMENTS["places"][document]
    ]
    return show(head, rows, f"Document {document}")


HEAD = "document", "it says", "verdict", "what is right", "settled by"


def settle(place: str, **numbers) -> Markdown:
    """Return a table of H, such as 3.1; numbers: by row, what cells found."""
    title = place[1:].strip() if " " in place else ""

    def row(name):
        if name in numbers:
            return *DOCUMENTS["slips"][name], str(numbers[name])
        if name in DOCUMENTS["stated"]:
            return DOCUMENTS["stated"][name]
        *words, stem, heading, found = DOCUMENTS["linked"][name]
        section = heading.split(" · ")[0]
        return *words, f"{found} ({link(stem)}, section {section})"

    return show(HEAD, map(row, DOCUMENTS["tables"][place].split()), title)


def other_rows() -> list[Markdown]:
    """Return the rows that no cell of H settles, by subject."""
    tables = [settle(p) for p in DOCUMENTS["tables"] if " " in p]
    for kind, head, title in (
        ("without", HEAD[:4], "Not settled by a number"),
        ("misprints", (*HEAD[:2], HEAD[3]), "Misprints and letters"),
    ):
        tables.append(show(head, DOCUMENTS[kind].values(), title))
    return tables


def changes() -> Markdown:
    """Return what lets 003's text run, but for faults of the conversion."""
    rows = [r for r in DOCUMENTS["changes"] if r[2] != "the conversion"]
    return show(("003", "change", "due to", "without it, on a CPU"), rows)


@exercise(1, expects="the name of a formula")
def check_1(name_of, formulas):
    def hidden(name, kind):  # in a closure, not in the args of a partial
        def network(*given):
            x, w1, w2, w3 = (getattr(each, kind)() for each in given)
            return formulas[name](x @ w1.T, x @ w3.T) @ w2.T

        return network

    kinds = vary("float", "double"), "bfloat16"
    a, b, *rest = names = [*formulas]  # w1 gates, w3 gates
    calls = [hidden(n, k) for k in kinds for n in names]
    order = [vary(0, 3, 5, 6) ^ i for i in range(8)]  # its own inverse
    found = [name_of(calls[i]) for i in order]
    words = f"{a} and {b} look alike: w1 and w3 equal, or small numbers?"
    pairs = [a, a], [b, b], [a, b]  # float32 may still tell them apart
    mistakes = [(words, [*p, *rest, *q, *rest]) for p in pairs for q in pairs]
    words = "you have exchanged w1 and w3"  # 004's is then nearest to 003's
    mistakes += [(words, [b, a, rest[0], last] * 2) for last in (b, rest[1])]
    words = "half of the networks run in bfloat16: take the closest formula"
    mistakes += [(words, names + [each] * 4) for each in names]
    agree([found[i] for i in order], names * 2, mistakes)


def shortest(word, ranks, best=(0,)):  # of the first 0, 1, 2, … bytes
    for n in range(1, len(word) + 1):
        best += (1 + min(best[s] for s in range(n) if word[s:n] in ranks),)
    return best[-1]


def longest(word, ranks):  # first
    found = (n for n in range(len(word), 0, -1) if word[:n] in ranks)
    return 1 + longest(word[next(found) :], ranks) if word else 0


def anywhere(word, ranks, side):  # the longest, then what is beside it
    if not word:
        return 0
    inside = (token for token in ranks if token in word)
    token = max(inside, key=lambda t: (len(t), side * word.find(t)))
    return 1 + sum(anywhere(w, ranks, side) for w in word.split(token, 1))


@exercise(2, expects="a whole number")
def check_2(fewest):
    tokens = "a b c d e f u v w x y z bc ab cd cdef abcd wx yz uvwx wxyz"
    tokens = (tokens + " g h i j k l ghi jkl hijk").split()
    up, *times = vary((0, 1, 5, 0), (5, 2, 3, 0), (-32, 0, 4, 1), (2, 3, 0, 6))
    more = ["abcdef" * n for n in times]
    more += ["uvwxyz", "abcdefuvwxyz", "ghijkl"]
    words = [bytes(ord(c) + up for c in w) for w in tokens + more]
    ranks = {t: i for i, t in enumerate(words[: len(tokens)])}
    words = words[len(tokens) :]
    first = [longest(word, ranks) for word in words]
    last = [longest(w[::-1], {t[::-1] for t in ranks}) for w in words]
    right = [shortest(word, ranks) for word in words]
    mistakes = [
        ("the longest token first is not always best", first),
        ("the longest token last is not always best", last),
        ("neither end is always best", [*map(min, first, last)]),
        *(
            (
                "the longest token anywhere is not always best",
                [anywhere(word, ranks, side) for word in words],
            )
            for side in (0, -1, 1)  # of two: the first in ranks, left, right
        ),
        (
            "you count what BPE takes; expected the fewest",
            [*(5 * n for n in times), 3, 8, 6],
        ),
        ("you count the bytes; expected tokens", [*map(len, words)]),
        ("your count is one too many", [n + 1 for n in right]),
    ]
    agree([fewest(word, ranks) for word in words], right, mistakes)
