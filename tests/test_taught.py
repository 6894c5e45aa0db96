"""Tagged cells: together they name everything that they use."""

import ast
import subprocess
import sys

import pytest

from llamalib.load import ROOT
from tests.taught import notebooks, tagged


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_tagged_cells_need_only_tagged_cells(path):
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated"]
    done = subprocess.run(
        [*ruff, "--select=F821", "-"],  # undefined names
        input="\n\n".join(tagged(path)),
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout


def definition(source, name):
    """Return a function's syntax tree without its docstring."""
    for node in ast.parse(source).body:
        if getattr(node, "name", None) == name:
            if ast.get_docstring(node):
                del node.body[0]
            return ast.dump(node)


def test_the_recipe_has_the_notebooks_learning_rate():
    notebook = ROOT / "notebooks" / "appendix" / "A_training.ipynb"
    recipe = (ROOT / "data" / "recipe" / "train.py").read_text("utf-8")
    found = [definition(s, "learning_rate") for s in tagged(notebook)]
    assert definition(recipe, "learning_rate") in filter(None, found)
