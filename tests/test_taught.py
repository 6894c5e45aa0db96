"""Tagged cells: each runs after the tagged cells before it."""

import ast
import builtins
import dis
import inspect
import types

import pytest

from llamalib.load import ROOT
from tests.taught import notebooks, tagged


def globals_of(code):
    """Yield the global names that a function's code loads."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from globals_of(inner)


def functions(names):
    """Yield the functions and methods that were defined in `names`."""
    for value in list(names.values()):
        if getattr(value, "__module__", None) == names["__name__"]:
            inside = vars(value).values() if isinstance(value, type) else ()
            yield from filter(inspect.isfunction, (value, *inside))


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_tagged_cell_needs_only_the_tagged_cells_before_it(path):
    names = {"__name__": "pasted"}
    for source in tagged(path):
        exec(compile(source, path.name, "exec"), names)
        for function in functions(names):
            if function.__code__.co_filename != path.name:
                continue  # made by a decorator, such as dataclass
            used = set(globals_of(function.__code__))
            missing = used - set(names) - set(dir(builtins))
            assert not missing, f"{function.__name__}: {missing}"


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
