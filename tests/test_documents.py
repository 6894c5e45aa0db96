"""Appendix H: each row of its tables leads to a cell that exists."""

import ast
import contextlib
import io
import json
import os
import re
from pathlib import Path
from textwrap import indent

import pytest
import torch

from lessons.frame import NOTEBOOKS
from lessons.nH_documents import DOCUMENTS
from llamalib import precompute_freqs_cis, scale_frequencies
from llamalib.load import ROOT
from llamalib.tokenizer import SPLIT_PATTERN
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


def listings(document: str) -> list[str]:
    """Return the fenced listings of a source document, as printed."""
    folder = Path(
        os.environ.get("DOCUMENTS", ROOT.parent / "shared/documents")
    )
    files = list(folder.glob(f"{document}_*.txt"))
    if not files:
        pytest.skip("DOCUMENTS names no folder with the four documents")
    text = files[0].read_text(encoding="utf-8")
    return re.findall(r"```(?:python)?\n(.*?)```", text, flags=re.S)


def code_of_003() -> list[str]:
    """Return its 17 listings of code: no output, no command."""
    code = r"^(# |from |def |seqlen|xq = |freqs|h = |x_norm|###|prompt)"
    return [each for each in listings("003") if re.match(code, each.strip())]


IMPORTS = (
    "import math\n",
    "import torch.nn.functional as F\n",
    "from typing import Tuple\n",
)


def program_003(change, imports=IMPORTS) -> str:
    """Return the listings of 003 with the changes n for which change(n)."""
    code = code_of_003()

    def apply(n, listing, pattern, new, flags=re.M):
        changed, count = re.subn(pattern, new, code[listing], flags=flags)
        assert count, (n, pattern)
        code[listing] = changed if change(n) else code[listing]

    apply(0, 0, r"\A", "".join(imports))
    apply(1, 0, r'(torch\.load\("[^"]*")', r"\1, map_location=device")
    pattern = f"pat_str={SPLIT_PATTERN!r},\n"
    apply(2, 2, r"pat_str = .*?(?=\n *mergeable)", lambda _: pattern, re.S)
    scaled = "freqs = scale_frequencies(freqs, 32.0)\n"
    apply(4, 6, r"^(?=t = )", scaled)
    for n in (6, 7):  # one function
        apply(3, n, r"^(?=.)", "    ")
    apply(5, 11, r"^( *)(return False)", r"\1    \2")
    apply(6, 13, r"\n +\\hookrightarrow ", "")
    apply(7, 14, r"^(# .*) (x = )", r"\1\n\2")
    norm = code[4].splitlines()[-1]
    body = [norm, *(code[n] for n in (9, 10, 12, 13, 14)), "return x"]
    body = "\n".join(body).replace('"layers.0.', 'f"layers.{layer}.')
    apply(8, 15, r"^ +\.\.\.", lambda _: indent(body, "    "))
    return "\n".join(code)


def run_003(folder, bos, **options) -> tuple[str, dict]:
    """Return what the program prints last, or its error, and its names."""
    source = program_003(**options)
    source = source.replace("original/", f"{folder}/")
    source = source.replace("128000", str(bos))
    names = {"scale_frequencies": scale_frequencies}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "003", "exec"), names)
    except SyntaxError:  # or one of its kinds
        return "SyntaxError", names
    except Exception as error:
        return type(error).__name__, names
    last = printed.getvalue().splitlines()[-1]
    return f"prints {last.removeprefix('The next token is: ')!r}", names


def test_003_with_its_changes_is_our_model(pocket, pocket_folder):
    """And each change is needed, as the table says."""
    given = pocket_folder, pocket.tokenizer.bos_id
    changes = DOCUMENTS["changes"]
    words, names = run_003(*given, change=lambda n: True)
    assert words == "prints ' Paris'"
    ours = pocket(names["tokens"].cpu())[-1]
    gap = (names["logits"].float().cpu() - ours).abs().max()
    assert gap < 0.02 * ours.abs().max()
    angles, c = names["freqs_cis"].cpu(), pocket.config
    rope = c.head_dim, len(angles), c.rope_theta, c.scaling_factor
    ours = torch.view_as_complex(precompute_freqs_cis(*rope))
    assert torch.allclose(angles, ours)
    for name in IMPORTS:  # each of the three
        others = [each for each in IMPORTS if each != name]
        left_out = dict(change=lambda n: True, imports=others)
        assert run_003(*given, **left_out)[0] == "NameError"
    for left, (_, _, why, without) in enumerate(changes):
        found, names = run_003(*given, change=lambda n: n != left)
        if why == "to run on a GPU":
            assert found == words or torch.cuda.is_available()
        else:
            assert without.startswith(found), left
        if "other angles" in without:
            assert not torch.allclose(names["freqs_cis"].cpu(), angles)


def test_the_notebooks_special_names_are_those_of_003():
    (listing,) = (e for e in listings("003") if "special_tokens = [" in e)
    printed = listing[listing.index("[") : listing.index("mergeable_ranks = ")]
    names = {}
    (cell,) = (s for _, s in code_cells(H) if "names += [" in s)
    exec(cell.split("same = ")[0], names)
    assert names["names"] == eval(printed)
