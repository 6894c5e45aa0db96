"""Properties of every committed notebook."""

import ast
import contextlib
import html
import io
import json
import re

import pytest
import torch
from matplotlib import pyplot as plt

import llamalib
from tests.conftest import fetched
from tests.helpers import (
    code_cells,
    random_llama,
    small_config,
    write_checkpoint,
)
from tools import quote
from tools.notebooks import all_notebooks, models_of

NOTEBOOKS = all_notebooks()
# They take as long as the others together; nbval runs 07 on SmolLM2, and B.
LONG = "07_lm_head", "B_quantization"
# Names that a notebook's cells find in a kernel.
MAIN = {"__name__": "__main__", "display": lambda *_: None}


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def cells(path):
    return cells_of(path)


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def code(cells):
    return [cell for cell in cells if cell["cell_type"] == "code"]


def tags(cell):
    return cell["metadata"].get("tags", ())


def outputs(cells):
    return [output for cell in code(cells) for output in cell["outputs"]]


def test_executed_in_order_from_a_fresh_kernel(cells):
    counts = [cell["execution_count"] for cell in code(cells)]
    in_order = counts == list(range(1, len(counts) + 1))
    assert in_order, f"{counts}: execute it, make notebooks FILES=…"
    for output in outputs(cells):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", output["text"]


def test_nothing_names_a_machine(path):
    text = path.read_text(encoding="utf-8")
    found = re.search(r"/(home|root|work|tmp|Users|usr|mnt)/\w+|C:\\\\", text)
    assert not found, found
    assert set(json.loads(text)["metadata"]) == {
        "kernelspec",
        "language_info",
    }


@pytest.mark.parametrize(
    "name, shards, tied",
    [
        ("other", 1, True),
        pytest.param("other-Instruct", 2, False, marks=pytest.mark.slow),
    ],
)
def test_runs_on_a_checkpoint_of_other_proportions(
    path, tmp_path, monkeypatch, name, shards, tied
):
    """No cell depends on the pocket Llama, and each can be run twice.

    The weights are random. Cells tagged `long` and what needs them are left
    out; `make test-slow` runs them all on the 1B's shapes.
    """
    both = path.stem[:2] in ("00", "01", "09")  # they read the files
    number = int(path.stem.split("_")[0], 36)  # A is 10
    second = path.stem in LONG or number % 2 == 0
    if not both and second == tied:
        pytest.skip("one of the two checkpoints is enough")
    for folder in models_of(path)[1:]:  # B reads SmolLM2's own file
        fetched(folder.name)
    config = small_config(
        dim=48, n_layers=3, n_heads=6, n_kv_heads=3, use_scaled_rope=True
    )
    llama = random_llama(config, tied=tied)
    write_checkpoint(tmp_path / name, llama, shards=shards)
    monkeypatch.setenv("LLAMA_DIR", str(tmp_path / name))
    printed, changed = run_twice(code_cells(path))
    assert name in printed and changed == []
    if path.stem == "09_generate":  # whatever its name is
        assert "was not trained for dialogues" in printed


def run_twice(cells) -> tuple[str, list[str]]:
    """Run each cell twice in a row in this process.

    Return what was printed first, and the cells that print something else
    the second time. Cells tagged `long` are left out; a cell that needs one
    may fail.
    """
    names, printed, changed, skipped = MAIN.copy(), "", [], False
    for tags, text in cells:
        if "long" in tags:
            skipped = True
            continue
        first, again = (printed_by_cell(text, names, skipped) for _ in "12")
        printed += first
        if again != first and "nbval-ignore-output" not in tags:
            changed.append(text)
    return printed, changed


def printed_by_cell(text, names, may_fail):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(text, "cell", "exec"), names)
        except Exception:
            if not may_fail:
                raise
        finally:
            plt.close("all")
    return printed.getvalue()


def test_a_widget_leaves_a_still_picture(path, cells):
    """The saved output is its first picture or text and needs no kernel."""
    saved = [
        output["data"]
        for output in outputs(cells)
        if re.match(r"(Play|Stream|Chat)\(", plain_text(output))
    ]
    n = len(saved)
    assert n == 1, f"{n} cells of {path.stem} show a widget; expected one"
    assert all(set(each) == {"text/html", "text/plain"} for each in saved)
    assert "widget-view" not in path.read_text(encoding="utf-8")


def test_every_picture_has_words(cells):
    for output in outputs(cells):
        page = "".join(output.get("data", {}).get("text/html", ""))
        if "<img " in page:
            alt = output["metadata"]["text/html"]["alt"]
            assert alt and f'alt="{html.escape(alt)}"' in page


def plain_text(output):
    return "".join(output.get("data", {}).get("text/plain", ""))


# -- a cell tagged `llamalib:…` shows the library (test_quote); a
# function that one notebook alone uses is in a cell tagged `taught`.


def quoted(path):
    """Return the sources of a notebook's cells that show the library."""
    return [
        "".join(cell["source"])
        for cell in code(cells_of(path))
        if any(tag.startswith("llamalib:") for tag in tags(cell))
    ]


def without_known_imports(source, known):
    """Return the code without imports from llamalib of known names."""
    tree = ast.parse(source)
    for node in list(tree.body):
        of_ours = getattr(node, "module", "") or ""
        if isinstance(node, ast.ImportFrom) and of_ours.startswith("llamalib"):
            node.names = [a for a in node.names if a.name not in known]
            if not node.names:
                tree.body.remove(node)
    return ast.unparse(tree)


def imported_from_llamalib(source):
    """Return the names that a cell imports from llamalib."""
    return {
        alias.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom)
        and node.module.startswith("llamalib")
        for alias in node.names
    }


def test_the_library_s_cells_run_after_those_that_their_imports_name():
    """Pasted into an empty file in this order, they are the whole Llama.

    A notebook's cells see their own notebook's names and what they import.
    """
    pasted = {}
    for path in NOTEBOOKS:
        names = {"__name__": "pasted"}
        for source in quoted(path):
            for name in imported_from_llamalib(source) & set(pasted):
                names[name] = pasted[name]
            exec(without_known_imports(source, pasted), names)
        pasted |= {n: v for n, v in names.items() if is_own(v)}
        pasted |= {n: v for n, v in names.items() if n.isupper()}
    llama = llamalib.load(device="cpu", dtype=torch.float32)
    ids = llama.tokenizer.encode("The capital of", bos=True, eos=False)
    own = pasted["Llama"](llama.config)
    own.load_state_dict(llama.state_dict())
    own.tokenizer = llama.tokenizer
    with torch.no_grad():
        assert torch.equal(own(torch.tensor(ids)), llama(torch.tensor(ids)))
    assert not isinstance(own, llamalib.Llama)
    new = list(pasted["generate"](own, ids, max_new_tokens=9))
    assert new == list(llamalib.generate(llama, ids, max_new_tokens=9))


def is_own(value):
    return getattr(value, "__module__", None) == "pasted"


def test_a_name_of_the_library_is_written_out_once():
    """No other tagged cell of any notebook defines it again."""
    shown, taught = [], set()
    for path in NOTEBOOKS:
        for cell in code(cells_of(path)):
            shown += [name for _, name in quote.shown_by(cell)]
            if "taught" in tags(cell):
                taught |= quote.defined("".join(cell["source"]))
    assert sorted(shown) == sorted(set(shown))
    assert not taught & set(shown)
