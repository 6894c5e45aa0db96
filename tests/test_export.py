"""The library's modules are the notebooks' cells, byte for byte."""

import ast
import json
import shutil
import subprocess
import sys

import pytest
import torch

import llamalib
from lessons import export
from llamalib.load import ROOT

MODULES = ("model", "generate", "quantize", "probe")


def test_the_modules_are_as_exported():
    files = export.export(ROOT)
    assert sorted(files) == sorted(
        ROOT / "llamalib" / f"{name}.py" for name in MODULES
    )
    for file, text in files.items():
        assert file.read_bytes() == text.encode(), file.name


@pytest.mark.parametrize("name", MODULES)
def test_every_cell_is_in_its_module_unchanged(name):
    text = (ROOT / "llamalib" / f"{name}.py").read_text(encoding="utf-8")
    cells = [
        source
        for notebook in export.notebooks(ROOT)
        for module, source in export.tagged_cells(notebook)
        if module == name
    ]
    assert cells
    for source in cells:
        body = export.divided(source)[1]
        assert body in source and f"\n\n\n{body}\n" in text


def test_model_py_imports_torch_and_the_standard_library_alone():
    tree = ast.parse((ROOT / "llamalib" / "model.py").read_text("utf-8"))
    found = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert found - sys.stdlib_module_names == {"torch"}


def test_the_exporter_needs_neither_package(tmp_path):
    """It repairs a module that does not run, and says which it wrote."""
    for name in ("lessons", "notebooks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    package = tmp_path / "llamalib"
    package.mkdir()
    shutil.copy(ROOT / "llamalib" / "__init__.py", package)
    for name in MODULES:
        (package / f"{name}.py").write_text("this does not run")
    command = [sys.executable, "-S", "-m", "lessons", "export"]
    checked = subprocess.run(
        [*command, "--check"], cwd=tmp_path, capture_output=True, text=True
    )
    assert checked.returncode == 1
    assert "llamalib/model.py" in checked.stdout
    assert (package / "model.py").read_text() == "this does not run"
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("wrote llamalib/") == 4
    for name in MODULES:
        ours = (ROOT / "llamalib" / f"{name}.py").read_bytes()
        assert (package / f"{name}.py").read_bytes() == ours
    again = subprocess.run(
        [*command, "--check"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (again.returncode, again.stdout) == (0, "")


# -- a small series ----------------------------------------------------------


@pytest.fixture
def series(tmp_path, monkeypatch):
    """A function from notebooks, as {name: [(tag, source)]}, to a project."""

    def write(init="", **notebooks):
        (tmp_path / "notebooks" / "appendix").mkdir(parents=True)
        (tmp_path / "llamalib").mkdir()
        (tmp_path / "llamalib" / "__init__.py").write_text(init)
        tags = [tag for cells in notebooks.values() for tag, _ in cells]
        titles = {t.split(":")[1]: "Title." for t in tags if ":" in t}
        titles.pop("modle", None)
        monkeypatch.setattr(export, "TITLES", titles or {"model": "Title."})
        for name, cells in notebooks.items():
            folder = tmp_path / "notebooks"
            folder = folder / "appendix" if name[0] == "A" else folder
            cells = [
                {"metadata": {"tags": [tag]}, "source": source}
                for tag, source in cells
            ]
            name = name.removeprefix("n")
            file = folder / f"{name}.ipynb"
            file.write_text(json.dumps({"cells": cells}))
        files = export.export(tmp_path)
        return {file.stem: text for file, text in files.items()}

    return write


def after_head(text):
    """Return a module's text after its docstring."""
    return text.split('"""\n', 1)[1]


def test_cells_become_modules(series):
    found = series(
        init="from .tokenizer import Tokenizer\n",
        n00_a=[
            ("llamalib:model", "import math\n\nONE = 1\n\n\nx = math.pi"),
            ("taught", "def not_here(): ..."),
        ],
        n01_b=[
            ("llamalib:model", "from llamalib import ONE\n\n\nclass B: ..."),
            (
                "llamalib:generate",
                "import torch\nfrom llamalib import B, Tokenizer, files\n"
                "from llamalib.checks import check\n\n\ndef g():\n    ...",
            ),
        ],
        A_c=[
            ("llamalib:generate", "from llamalib.generate import g\n\ny = g")
        ],
    )
    assert after_head(found["model"]) == (
        '\nimport math\n\n__all__ = [\n    "ONE",\n    "x",\n    "B",\n]\n\n\n'
        "ONE = 1\n\n\nx = math.pi\n\n\nclass B: ...\n"
    )
    assert after_head(found["generate"]) == (
        "\nimport torch\n\nfrom . import files\nfrom .checks import check\n"
        "from .model import B\nfrom .tokenizer import Tokenizer\n\n"
        '__all__ = [\n    "g",\n    "y",\n]\n\n\n'
        "def g():\n    ...\n\n\ny = g\n"
    )


def test_a_wrong_tag_is_named(series):
    with pytest.raises(ValueError, match="unknown tag llamalib:modle, not in"):
        series(n00_a=[("llamalib:modle", "x = 1")])


@pytest.mark.parametrize(
    "source, said",
    [
        ("x = 1\nimport math", "line 2: imports come first"),
        ("import math; x = 1", "only imports may stand in"),
        ("# why\nimport math\nx = 1", "only imports may stand in"),
        ("import math  # why\nx = 1", "only imports may stand in"),
        ("from . import model\nx = 1", "write from llamalib import"),
        ("from llamalib import x as y\nx = 1", "x is of this module"),
        ("x = 1\nx = 2", "model: x is defined twice"),
        ("x = (", "never closed"),
    ],
)
def test_a_cell_that_would_be_changed_is_refused(series, source, said):
    with pytest.raises((ValueError, SyntaxError), match=said):
        series(n00_a=[("llamalib:model", source)])


class Copied(ast.NodeTransformer):
    """Change the cells as notebook 09 tells those who copy them."""

    def visit_ImportFrom(self, node):
        return None if node.module.startswith("llamalib") else node

    def visit_FunctionDef(self, node):
        return None if node.name == "generate" else self.generic_visit(node)

    def visit_Expr(self, node):
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return None if "check_sampling" in names else self.generic_visit(node)


def test_the_cells_copied_for_coursework_generate(pocket):
    names = {"__name__": "coursework"}
    for notebook in export.notebooks(ROOT):
        if notebook.parent.name == "appendix":
            continue
        for module, source in export.tagged_cells(notebook):
            if module in ("model", "generate"):
                tree = Copied().visit(ast.parse(source))
                exec(compile(tree, notebook.name, "exec"), names)
    config = names["ModelArgs"](**vars(pocket.config))
    own = names["Llama"](config, tied=pocket.tied).requires_grad_(False)
    own.load_state_dict(pocket.state_dict())
    ids = pocket.tokenizer.encode("The capital", bos=True, eos=False)
    stop = pocket.tokenizer.stop_tokens
    for how in ({}, dict(temperature=0.8, top_k=20, top_p=0.9, seed=3)):
        expected = [*llamalib.generate(pocket, ids, max_new_tokens=20, **how)]
        choose = names["make_sampler"]("cpu", 1, how.pop("seed", None), **how)
        steps = names["decode_loop"](own, torch.tensor([ids]), 20, choose)
        assert [*names["until_stop"](steps, stop)] == expected


def test_the_cells_that_05_names_are_enough_for_attention(pocket):
    """`ModelArgs`, three cells of 04, five of 05: an `Attention` of its own."""
    names = {"__name__": "coursework"}
    for start, expected in (("00", 2), ("04", 3), ("05", 5)):
        (notebook,) = (ROOT / "notebooks").glob(f"{start}_*.ipynb")
        cells = [s for m, s in export.tagged_cells(notebook) if m == "model"]
        assert len(cells) == expected
        for source in cells[: 1 if start == "00" else None]:
            tree = Copied().visit(ast.parse(source))
            exec(compile(tree, notebook.name, "exec"), names)
    c, usual = pocket.config, pocket.layers[0].attention
    own = names["Attention"](names["ModelArgs"](**vars(c)))
    own.load_state_dict(usual.state_dict())
    x = torch.randn(5, c.dim, generator=torch.Generator().manual_seed(0))
    angles = names["precompute_freqs_cis"](c.head_dim, 5)
    given = x, angles, names["causal_mask"](5)
    assert torch.equal(own(*given), usual(*given))
