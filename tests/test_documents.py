"""Appendix H: each row of its tables leads to a cell that exists."""

import ast
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from llamalib.course.nbH import DOCUMENTS, shortest
from llamalib.course.series import NOTEBOOKS
from llamalib.files import ROOT
from llamalib.tokenizer import read_ranks
from llamalib.viz import nbH
from tests.helpers import code_cells

H = NOTEBOOKS / "appendix" / "H_documents.ipynb"
PLACES = [
    (document, *row)
    for document, rows in DOCUMENTS["places"].items()
    for row in rows
]


def headings(file: Path) -> list[str]:
    """Return the headings of a notebook below its title, without the #s."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] != "code"]
    return re.findall(r"^##+ (.+)$", "\n".join(texts), flags=re.M)


def problem(stem: str, heading: str) -> str | None:
    """Return what is wrong with a row's target, or None."""
    file = NOTEBOOKS / f"{stem}.ipynb"
    if not file.is_file():
        return f"{stem} does not exist"
    found = headings(file).count(heading)
    if heading and found != 1:
        return f"{stem} has {found} sections {heading!r}"
    return None


def test_every_row_of_the_concordance_leads_to_a_section():
    problems = {row[:2]: problem(*row[2:]) for row in PLACES}
    assert {row: words for row, words in problems.items() if words} == {}
    assert len(problems) == len(PLACES) > 100  # no row is there twice


def test_a_section_that_is_gone_is_found():
    assert problem("04_rope", "7 · Three forms") is None
    assert problem("04_rope", "7 · Four forms") is not None
    assert problem("04_rope", "Exercises") is None
    assert problem("10_rope", "7 · Three forms") == "10_rope does not exist"


def test_document_003_is_covered_by_number():
    words = " ".join(row[1] for row in PLACES if row[0] == "003")
    for n in range(1, 12):
        assert f"Remark 2.{n}" in words
    for name in ("Equation 2.1", "Equation 2.2", "Equation 2.3", "Table 1"):
        assert name in words
    for section in ("1", "2.1", "2.2", "2.3", "2.5"):
        assert f"§{section} " in words
    for part in range(1, 6):
        assert f"§2.4.{part} " in words
    assert list(DOCUMENTS["places"]) == ["000", "001", "003", "004"]


def settled() -> list[str]:
    """Return the slips that the notebook's calls of `settle` name."""
    names = []
    for _, source in code_cells(H):
        for node in ast.walk(ast.parse(source)):
            if getattr(getattr(node, "func", None), "id", "") == "settle":
                names += [keyword.arg for keyword in node.keywords]
    return names


def test_every_slip_is_settled_once():
    assert sorted(settled()) == sorted(DOCUMENTS["slips"])


def test_every_slip_has_a_number_in_the_saved_tables():
    """Or words of the machine, such as the name of an error."""
    cells = json.loads(H.read_text(encoding="utf-8"))["cells"]
    pages = [
        "".join(output["data"]["text/markdown"])
        for cell in cells
        for output in cell.get("outputs", ())
        if "text/markdown" in output.get("data", {})
    ]
    lines = [line for page in pages for line in page.splitlines()]
    for name, (document, says, right) in DOCUMENTS["slips"].items():
        start = f"| {document} | {says} | {right} | "
        (line,) = (line for line in lines if line.startswith(start))
        by = line.removeprefix(start)
        assert re.search(r"\d|Error|False|identity|'", by), name


def test_rows_fit_a_table():
    """A bar would end a cell of a Markdown table."""
    rows = [row[1:] for row in PLACES] + list(DOCUMENTS["slips"].values())
    rows += DOCUMENTS["without"] + DOCUMENTS["changes"]
    assert not [row for row in rows if "|" in "".join(row)]
    widths = {len(row) for row in DOCUMENTS["slips"].values()}
    widths |= {len(row) for row in DOCUMENTS["without"]}
    assert widths == {3}


def listings(document: str) -> list[str]:
    """Return the fenced listings of a source document, as printed."""
    folder = Path(os.environ.get("DOCUMENTS", ROOT.parent / "shared/documents"))
    files = list(folder.glob(f"{document}_*.txt"))
    if not files:
        pytest.skip("DOCUMENTS names no folder with the four documents")
    text = files[0].read_text(encoding="utf-8")
    return re.findall(r"```(?:python)?\n(.*?)```", text, flags=re.S)


def parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def test_four_listings_of_003_do_not_parse():
    """Output and a command aside; and `x =` is part of a comment."""
    code = r"^(# |from |def |seqlen|xq = |freqs|h = |x_norm|###|prompt)"
    found = [each for each in listings("003") if re.match(code, each.strip())]
    broken = [each for each in found if not parses(each)]
    assert len(found) == 17 and len(broken) == 4
    for sign in ("pat_str", "def precompute", "def verify", "Equation 2.3"):
        assert sum(sign in each for each in broken) == 1
    (ffn,) = (each for each in found if "activated = " in each)
    assert re.search(r"^#.* x = torch.matmul\(activated", ffn, flags=re.M)
    names = {"math", "F", "Tuple"}
    assert not any(re.search(r"^\s*(import|from) .*\b(math|Tuple)\b", each)
                   for each in found)  # fmt: skip
    assert all(any(f"{n}." in e or f"{n}[" in e for e in found) for n in names)


def test_the_notebooks_special_names_are_those_of_003():
    (listing,) = (e for e in listings("003") if "special_tokens = [" in e)
    printed = listing[listing.index("[") : listing.index("mergeable_ranks = ")]
    names = {}
    (cell,) = (s for _, s in code_cells(H) if "names += [" in s)
    exec(cell.split("same = ")[0], names)
    assert names["names"] == eval(printed)


def test_bpe_takes_more_tokens_than_needed(pocket, pocket_folder):
    """As exercise 2 says of one word."""
    ranks = read_ranks(pocket_folder / "tokenizer.model")
    ids = pocket.tokenizer.encode(" gaitrar", bos=False, eos=False)
    assert len(ids) == 4 and shortest(b" gaitrar", ranks) == 3


# -- the widget


def test_only_the_right_form_keeps_the_length():
    angles = np.arange(0, 361, 5)
    for right in (True, False):
        lengths = np.hypot(*nbH.rotated((3.0, 4.0), angles, right))
        kept = np.isclose(lengths, 5)
        assert kept.all() == right
        assert right or set(angles[kept]) == {0, 90, 180, 270, 360}
    # 0.6 and 0.8, as in the example by hand
    degrees = np.degrees(np.arctan2(0.8, 0.6))
    assert np.allclose(nbH.rotated((3, 4), degrees, True), (-1.4, 4.8))
    assert np.allclose(nbH.rotated((3, 4), degrees, False), (-0.6, 5.6))


def test_the_widget_follows_its_angle():
    play = nbH.last_pair()
    first = play.picture.value
    assert repr(play) == "Play(degrees=53)" and first
    play.controls["degrees"].value = 90
    assert play.picture.value != first and not play.message.value
    assert play._repr_mimebundle_()[0]["text/html"]
