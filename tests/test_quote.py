"""The cells that show the library are its modules, byte for byte."""

import ast
import json
import shutil
import subprocess
import sys

import pytest

import llamalib
from tools import frame, quote
from tools.notebooks import ROOT, all_notebooks

# modules whose every definition is in a cell; model.py is one Llama
WHOLE = "model", "sampling", "cache", "generate"


def cells(path):
    """Return (what it shows, its source) of each cell of the library."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    found = [
        (quote.shown_by(c), "".join(c["source"])) for c in notebook["cells"]
    ]
    return [(shown, source) for shown, source in found if shown]


def test_nothing_has_to_be_written():
    assert frame.write_frames(check=True) == []


@pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)
def test_a_cell_has_the_module_s_own_lines(path):
    """Found here without the tool: the text after the imports."""
    for shown, source in cells(path):
        ((module, _), *_) = shown
        assert source.startswith(f"# in llamalib/{module}.py\n")
        text = (ROOT / "llamalib" / f"{module}.py").read_text("utf-8")
        tree = ast.parse(source).body
        imports = [
            n for n in tree if isinstance(n, (ast.Import, ast.ImportFrom))
        ]
        start = imports[-1].end_lineno if imports else 1
        body = "\n".join(source.split("\n")[start:]).strip("\n")
        for part in body.split("\n\n\n"):  # two blank lines
            assert f"\n{part}\n" in text, part
        names = [n for node in tree for n in quote.definitions(node)]
        assert names == [name for _, name in shown]


@pytest.mark.parametrize("name", WHOLE)
def test_every_definition_is_in_a_cell(name):
    shown = {
        pair
        for path in all_notebooks()
        for pairs, _ in cells(path)
        for pair in pairs
    }
    for defined in quote.Module(name).lines:
        assert defined == "__all__" or (name, defined) in shown


def test_model_py_imports_torch_and_the_standard_library_alone():
    origins = quote.Module("model").origins.values()
    packages = {module.split(".")[0] for module, _ in origins}
    assert packages - sys.stdlib_module_names == {"torch", "llamalib"}
    text = quote.Module("model").file.read_text(encoding="utf-8")
    assert "from ." not in text and "import llamalib" not in text


def test_lessons_need_nothing_of_tools():
    for file in (ROOT / "lessons").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] != "tools", file


@pytest.fixture
def copy(tmp_path):
    """Return a function that runs `python -m tools frame` in a copy."""
    ignored = shutil.ignore_patterns("__pycache__", "explorer.html")
    for name in ("tools", "lessons", "notebooks", "llamalib"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def run(*options):  # -S: the standard library alone
        command = [sys.executable, "-S", "-m", "tools", "frame", *options]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, encoding="utf-8"
        )

    return tmp_path, run


def changed_lines(old, new):
    pairs = zip(old.splitlines(), new.splitlines(), strict=True)
    return sum(a != b for a, b in pairs)


def test_a_change_of_the_library_reaches_the_cell(copy):
    """And no other line; it needs no package, only Python."""
    folder, run = copy
    module = folder / "llamalib" / "model.py"
    notebook = folder / "notebooks" / "03_rmsnorm.ipynb"
    text = module.read_text("utf-8")
    text = text.replace("scale = torch.rsqrt(", "factor = torch.rsqrt(")
    text = text.replace("(xf * scale)", "(xf * factor)")
    module.write_text(text, "utf-8")
    before = notebook.read_text("utf-8")
    done = run("--check")
    assert done.returncode == 1 and "model.rms_norm" in done.stdout
    assert notebook.read_text("utf-8") == before
    done = run()
    assert done.returncode == 0
    assert "03_rmsnorm.ipynb: the cell of model.rms_norm" in done.stdout
    assert changed_lines(before, notebook.read_text("utf-8")) == 2
    assert (run("--check").returncode, run("--check").stdout) == (0, "")


def test_a_changed_cell_is_reported(copy):
    folder, run = copy
    notebook = folder / "notebooks" / "03_rmsnorm.ipynb"
    text = notebook.read_text("utf-8")
    notebook.write_text(text.replace("xf = x.float()", "xf = x"), "utf-8")
    done = run("--check")
    assert done.returncode == 1
    assert "03_rmsnorm.ipynb: the cell of model.rms_norm" in done.stdout


# -- a small library ---------------------------------------------------------


@pytest.fixture
def quoted(tmp_path):
    """Return a function from a module and tags to the cells' texts."""

    def run(module, *tags):
        package = tmp_path / "llamalib"
        package.mkdir()
        (package / "__init__.py").write_text("from .one import public\n")
        (package / "two.py").write_text(module)
        made = [
            {"metadata": {"tags": list(each)}, "source": []} for each in tags
        ]
        quote.quote({"cells": made}, tmp_path)
        return ["".join(cell["source"]) for cell in made]

    return run


MODULE = '''"""Two."""

import math
import torch.nn.functional as F
from collections.abc import Iterator

from torch import Tensor, nn

from .one import hidden, public

# why it is 1
ONE = 1
TWO = 2


@public
def f(x: Tensor) -> Iterator:
    math = hidden(F.relu(x))
    return math


class C(nn.Module):
    x: int = ONE

    def call(self):
        return f(self.x)
'''


def test_a_cell_has_its_definition_and_what_that_needs(quoted):
    names = ["ONE", "TWO"], ["f"], ["C"]
    tags = [[f"llamalib:two.{name}" for name in each] for each in names]
    one, f, C = quoted(MODULE, *tags)
    assert one == ("# in llamalib/two.py\n\n# why it is 1\nONE = 1\nTWO = 2")
    assert f.startswith(
        "# in llamalib/two.py\nimport math\nfrom collections.abc import "
        "Iterator\n\nimport torch.nn.functional as F\nfrom torch import "
        "Tensor\n\nfrom llamalib import public\nfrom llamalib.one import "
        "hidden\n\n\n@public\ndef f(x: Tensor) -> Iterator:\n"
    )
    # what earlier cells define or import is known
    assert C.startswith(
        "# in llamalib/two.py\nfrom torch import nn\n\n\nclass C(nn.Module):"
    )


def test_a_name_of_an_earlier_notebook_is_imported(quoted):
    (C,) = quoted(MODULE, ["llamalib:two.C"])
    assert (
        "from torch import nn\n\nfrom llamalib.two import ONE, f\n\n\ncl" in C
    )


@pytest.mark.parametrize(
    "tag, said",
    [
        ("llamalib:two", "the tag llamalib:two names no definition; expected"),
        ("llamalib:two.g", "two.py defines no g"),
        ("llamalib:three.f", "three.py is missing, but a tag names it"),
    ],
)
def test_a_wrong_tag_is_named(quoted, tag, said):
    with pytest.raises(ValueError, match=said):
        quoted(MODULE, [tag])


# -- coursework --------------------------------------------------------------


class Copied(ast.NodeTransformer):
    """Change the modules as notebook 09 tells those who copy them."""

    def visit_ImportFrom(self, node):
        return None if node.level else node

    def visit_FunctionDef(self, node):
        return None if node.name == "generate" else self.generic_visit(node)

    def visit_Expr(self, node):
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return None if "check_sampling" in names else self.generic_visit(node)


def test_the_files_copied_for_coursework_generate(pocket):
    names = {"__name__": "coursework"}
    for name in ("model", "sampling", "cache", "generate"):
        text = (ROOT / "llamalib" / f"{name}.py").read_text("utf-8")
        exec(compile(Copied().visit(ast.parse(text)), name, "exec"), names)
    config = names["ModelArgs"](**vars(pocket.config))
    own = names["Llama"](config, tied=pocket.tied).requires_grad_(False)
    own.load_state_dict(pocket.state_dict())
    ids = pocket.tokenizer.encode("The capital", bos=True, eos=False)
    stop = pocket.tokenizer.stop_tokens
    for how in ({}, dict(temperature=0.8, top_k=20, top_p=0.9, seed=3)):
        expected = [*llamalib.generate(pocket, ids, max_new_tokens=20, **how)]
        choose = names["make_sampler"]("cpu", **how)
        assert [*names["decode_loop"](own, ids, 20, choose, stop)] == expected
