"""What is true of every notebook as it is committed."""

import ast
import json
import re

import pytest
from helpers import random_llama, small_config, write_checkpoint

import llamalib
from llamalib.__main__ import all_notebooks, executed
from llamalib.checkpoint import ROOT

NOTEBOOKS = all_notebooks()
TAUGHT = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def code(cells):
    return [cell for cell in cells if cell["cell_type"] == "code"]


def outputs(cells):
    return [output for cell in code(cells) for output in cell["outputs"]]


def test_there_are_notebooks():
    assert ROOT / "notebooks" / "09_generate.ipynb" in NOTEBOOKS


def test_executed_in_order_from_a_fresh_kernel(cells):
    counts = [cell["execution_count"] for cell in code(cells)]
    assert counts == list(range(1, len(counts) + 1))


def test_no_errors_or_warnings(cells):
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


@pytest.mark.parametrize("shards, tied", [(1, True), (2, False)])
def test_runs_on_a_checkpoint_of_other_proportions(
    path, tmp_path, monkeypatch, shards, tied
):
    """Random weights, other sizes: no cell is about the pocket alone."""
    config = small_config(
        dim=48, n_layers=3, n_heads=6, n_kv_heads=3, use_scaled_rope=True
    )
    llama = random_llama(config, tied=tied)
    write_checkpoint(tmp_path / "other", llama, shards=shards)
    monkeypatch.setenv("LLAMA_DIR", str(tmp_path / "other"))
    printed = [o.get("text", "") for o in outputs(executed(path).cells)]
    assert "other" in "".join(printed)


def test_size(path):
    assert path.stat().st_size < 2_000_000


# -- a function that is taught stands once in a notebook, once in llamalib --


def definitions(source):
    """Name to syntax tree, of all that is defined at the top level.

    Docstrings are left out: the notebook's prose stands above the cell.
    """
    found = {}
    for node in ast.parse(source).body:
        if not isinstance(node, TAUGHT):
            continue
        for inner in ast.walk(node):
            body = getattr(inner, "body", None)
            if (
                isinstance(inner, (ast.FunctionDef, ast.ClassDef))
                and isinstance(body[0], ast.Expr)
                and isinstance(body[0].value, ast.Constant)
                and len(body) > 1
            ):
                del body[0]
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
        elif isinstance(node, ast.AnnAssign):
            name = ast.unparse(node.target)
        else:
            name = node.name
        found[name] = ast.dump(node)
    return found


def library():
    """Every module's definitions."""
    folder = ROOT / "llamalib"
    return {
        path.stem: definitions(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.py"))
        if path.stem != "__init__"
    }


def taught():
    """(notebook, cell number, name, tree) of every tagged definition."""
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for number, cell in enumerate(code(cells), 1):
            if "llamalib" in cell["metadata"].get("tags", ()):
                source = "".join(cell["source"])
                for name, tree in definitions(source).items():
                    yield path.name, number, name, tree


def drift(found, modules):
    """What differs, as lines that name notebook, cell and function."""
    for notebook, number, name, tree in found:
        twins = [m for m, names in modules.items() if name in names]
        if not twins:
            yield f"{notebook}, cell {number}: {name} is not in llamalib"
        elif all(modules[m][name] != tree for m in twins):
            yield (
                f"{notebook}, cell {number}: {name} is not the code of "
                f"llamalib.{twins[0]}.{name}"
            )


def test_taught_functions_are_the_librarys():
    assert list(drift(taught(), library())) == []
    assert {"prefill", "decode_one"} <= {name for *_, name, _ in taught()}


def test_drift_is_seen():
    """The comparison itself: one operator, and one name, changed."""
    modules = {"m": definitions('def f(x):\n    "Doc."\n    return x + 1')}
    same = definitions("def f(x):\n    return x + 1  # why")
    other = definitions("def f(x):\n    return x - 1")
    assert list(drift([("n", 1, "f", same["f"])], modules)) == []
    found = list(drift([("n", 1, "f", other["f"])], modules))
    assert found == ["n, cell 1: f is not the code of llamalib.m.f"]
    found = list(drift([("n", 2, "g", other["f"])], modules))
    assert found == ["n, cell 2: g is not in llamalib"]


def test_each_function_is_taught_once():
    names = [name for *_, name, _ in taught()]
    assert sorted(names) == sorted(set(names))


def test_public_names_are_there():
    for name in llamalib.__all__:
        assert getattr(llamalib, name).__doc__, name
