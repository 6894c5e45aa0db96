"""Properties of every committed notebook."""

import ast
import contextlib
import html
import io
import json
import re
import tokenize

import pytest
import torch
from matplotlib import pyplot as plt

import llamalib
from llamalib.files import ROOT
from llamalib.tasks.notebooks import all_notebooks
from tests.helpers import (
    code_cells,
    random_llama,
    small_config,
    write_checkpoint,
)

NOTEBOOKS = all_notebooks()
# Names that a notebook's cells find in a kernel.
MAIN = {"__name__": "__main__", "display": lambda *_: None}
DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


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


@pytest.mark.parametrize(
    "name, shards, tied", [("other", 1, True), ("other-Instruct", 2, False)]
)
def test_runs_on_a_checkpoint_of_other_proportions(
    path, tmp_path, monkeypatch, name, shards, tied
):
    """No cell depends on the pocket Llama, and each can be run twice.

    The weights are random. Cells tagged `long` and what needs them are left
    out; `make test-slow` runs them all on the 1B's shapes.
    """
    both = path.stem[:2] in ("00", "01", "09")  # they read the files
    if not both and (NOTEBOOKS.index(path) % 2 == 0) == tied:
        pytest.skip("one of the two checkpoints is enough")
    config = small_config(
        dim=48, n_layers=3, n_heads=6, n_kv_heads=3, use_scaled_rope=True
    )
    llama = random_llama(config, tied=tied)
    write_checkpoint(tmp_path / name, llama, shards=shards)
    monkeypatch.setenv("LLAMA_DIR", str(tmp_path / name))
    printed, changed = run_twice(code_cells(path))
    assert name in printed and changed == []
    if path.stem == "09_generate":  # only an Instruct model gets a dialogue
        is_chat = "'<|start_header_id|>'" in printed
        assert is_chat == ("Instruct" in name)


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


def test_a_cell_that_changes_what_it_reads_is_found():
    cells = [((), "n = 0"), ((), "n += 1\nprint(n)"), ((), "print(n)")]
    assert run_twice(cells) == ("1\n2\n", ["n += 1\nprint(n)"])
    cells = [((), "n = [1]"), ((), "print(n.pop())")]
    with pytest.raises(IndexError):
        run_twice(cells)
    cells = [(("long",), "n = 1"), ((), "print(n)")]
    assert run_twice(cells) == ("", [])


def test_a_widget_leaves_a_still_picture(path, cells):
    """The saved output is its first picture or text and needs no kernel."""
    saved = [
        output["data"]
        for output in outputs(cells)
        if re.match(r"(Play|Stream)\(", plain_text(output))
    ]
    assert len(saved) == 1, path.stem
    assert all(set(each) == {"text/html", "text/plain"} for each in saved)
    assert "widget-view" not in path.read_text(encoding="utf-8")


def test_every_picture_has_words_in_its_metadata(cells):
    for output in outputs(cells):
        page = "".join(output.get("data", {}).get("text/html", ""))
        if "<img " in page:
            alt = output["metadata"]["text/html"]["alt"]
            assert alt and f'alt="{html.escape(alt)}"' in page


def plain_text(output):
    return "".join(output.get("data", {}).get("text/plain", ""))


def test_size(path):
    assert path.stat().st_size < 2_000_000


# -- a function that a notebook teaches and others share is defined twice: in
# a cell tagged `llamalib` and, with the same syntax tree, in llamalib. A
# function that one notebook alone uses is in a cell tagged `taught`.


def definitions(source):
    """Return name to syntax tree of every definition at the top level.

    Docstrings are left out: in a notebook, prose explains the function.
    """
    found = {}
    for node in ast.parse(source).body:
        if not isinstance(node, DEFINITIONS):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
                inner.body = without_docstring(inner) or inner.body
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
        elif isinstance(node, ast.AnnAssign):
            name = ast.unparse(node.target)
        else:
            name = node.name
        found[name] = ast.dump(node)
    return found


def without_docstring(node):
    """Return the body of a function or class, less its docstring."""
    first = node.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(
        first.value, ast.Constant
    )
    return node.body[is_text:]


def library():
    """Return the definitions of every module that notebooks may share."""
    files = [
        path
        for folder in ("", "formats", "fast", "course")
        for path in sorted((ROOT / "llamalib" / folder).glob("*.py"))
        if path.stem != "__init__"
    ]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): definitions(
            path.read_text(encoding="utf-8")
        )
        for path in files
    }


def tagged(tag):
    """Yield (notebook, cell number, name, tree) of the tag's definitions."""
    for path in NOTEBOOKS:
        for number, cell in enumerate(code(cells_of(path)), 1):
            if tag in tags(cell):
                source = "".join(cell["source"])
                for name, tree in definitions(source).items():
                    yield path.name, number, name, tree


def drift(found, modules):
    """Yield a line for each definition that is not the library's.

    Its twin is the one module that defines the name: another module's
    function of that name must not pass for it.
    """
    for notebook, number, name, tree in found:
        where = f"{notebook}, cell {number}: {name}"
        twins = [m for m, names in modules.items() if name in names]
        if not twins:
            yield f"{where} is not in llamalib"
        elif len(twins) > 1:
            yield f"{where} has several twins: {', '.join(twins)}"
        elif modules[twins[0]][name] != tree:
            yield f"{where} differs from {twins[0]}.{name}"


def copies(found, modules):
    """Yield a line for each definition that llamalib has too."""
    for notebook, number, name, _ in found:
        for module, names in modules.items():
            if name in names:
                where = f"{notebook}, cell {number}"
                yield f"{where}: {name} is also in {module}; keep one"


def test_shared_functions_are_the_librarys():
    assert list(drift(tagged("llamalib"), library())) == []
    names = {name for *_, name, _ in tagged("llamalib")}
    assert {"forward", "record", "prefill", "decode_one"} <= names


def test_what_one_notebook_uses_is_not_in_llamalib():
    assert list(copies(tagged("taught"), library())) == []


def test_drift_is_seen():
    """A changed operator, a changed name, a second twin and a copy."""
    modules = {"m": definitions('def f(x):\n    "Doc."\n    return x + 1')}
    same = definitions("def f(x):\n    return x + 1  # why")
    other = definitions("def f(x):\n    return x - 1")
    assert list(drift([("n", 1, "f", same["f"])], modules)) == []
    found = list(drift([("n", 1, "f", other["f"])], modules))
    assert found == ["n, cell 1: f differs from m.f"]
    found = list(drift([("n", 2, "g", other["f"])], modules))
    assert found == ["n, cell 2: g is not in llamalib"]
    found = list(drift([("n", 1, "f", same["f"])], modules | {"k": other}))
    assert found == ["n, cell 1: f has several twins: m, k"]
    found = list(copies([("n", 1, "f", other["f"])], modules))
    assert found == ["n, cell 1: f is also in m; keep one"]


def test_each_function_is_taught_once():
    found = [*tagged("llamalib"), *tagged("taught")]
    names = [name for *_, name, _ in found]
    assert sorted(names) == sorted(set(names))


# Public names without a cell of their own: they hold or open things, are
# tools of the notebooks, or are a faster twin of a function that has one.
NOT_TAUGHT = {
    "KVCache",
    "Llama",
    "ModelArgs",
    "Tokenizer",
    "break_it",
    "find_checkpoint",
    "generate",
    "generate_batch",
    "load",
    "save",
    "sdpa_attention",
}


def test_every_teaching_function_is_written_out_in_one_notebook():
    """Also in no untagged cell of any other notebook."""
    teaching = set(llamalib.__all__) - NOT_TAUGHT
    places = {name: [] for name in teaching}
    for path in NOTEBOOKS:
        for cell in code(cells_of(path)):
            for name in definitions("".join(cell["source"])):
                if name in teaching:
                    places[name].append((path.stem, "llamalib" in tags(cell)))
    for name, found in places.items():
        assert len(found) == 1 and found[0][1], f"{name}: {found}"


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


def test_shared_cells_can_be_pasted_into_an_empty_file():
    """In order and alone, they make the model that llamalib is."""
    names = {"__name__": "pasted"}
    for path in NOTEBOOKS:
        for cell in code(cells_of(path)):
            if "llamalib" in tags(cell):
                source = "".join(cell["source"])
                exec(source, dict(names))  # it runs without a change
                exec(without_known_imports(source, names), names)
    llama = llamalib.load(device="cpu", dtype=torch.float32)
    config, w = llama.config, llama.state_dict()
    tokens = torch.tensor(llama.tokenizer.encode("A b c", bos=1, eos=0))
    freqs_cis = names["precompute_freqs_cis"](
        config.head_dim,
        len(tokens),
        config.rope_theta,
        config.rope_scaling_factor,
    )
    mask = names["causal_mask"](len(tokens))
    logits = names["forward"](tokens, w, config, freqs_cis, mask)
    assert torch.allclose(logits, llama(tokens), rtol=1e-4, atol=1e-4)
    assert names["pick"](logits[-1]) == llama(tokens)[-1].argmax()
    # the functions are the pasted ones, not llamalib's
    for name in ("forward", "transformer_block", "rms_norm", "pick"):
        assert names[name].__module__ == "pasted"


# Lines under 80 columns and short cells fit on a slide.


def test_cells_are_short_and_narrow(cells):
    for number, cell in enumerate(code(cells), 1):
        lines = "".join(cell["source"]).splitlines()
        wide = [line for line in lines if len(line) > 79]
        assert not wide, f"cell {number}: {wide}"
        whole = {"llamalib", "taught"} & set(tags(cell))  # a function
        most = 60 if is_check(cell) else 45 if whole else 25
        assert len(lines) <= most, f"cell {number}: {len(lines)} lines"


def is_check(cell):
    return any(tag.split("-")[0] == "check" for tag in tags(cell))


def code_lines(source):
    """Yield each function's name and its lines of code.

    The lines of its body count, but not its docstring, comments and blank
    lines.
    """
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}
    used = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in blank:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            body = without_docstring(node) or node.body
            span = range(body[0].lineno, node.end_lineno + 1)
            yield node.name, len(used.intersection(span))


def test_a_function_has_at_most_25_lines_of_code(cells):
    """The checks of the exercises may be longer."""
    for number, cell in enumerate(code(cells), 1):
        if not is_check(cell):
            for name, lines in code_lines("".join(cell["source"])):
                assert lines <= 25, f"cell {number}: {name} has {lines} lines"


def test_lines_of_code_are_counted():
    source = 'def f():\n    "Doc."\n\n    # why\n    x = (\n        1\n    )'
    assert list(code_lines(source)) == [("f", 3)]


def test_opens_with_the_map_and_ends_with_exercises(path, cells):
    text = "\n".join("".join(cell["source"]) for cell in cells)
    part = path.stem.split("_", 1)[1]
    assert f'viz.strip("{part}"' in text
    order = [
        text.index(words)
        for words in (
            "# " + path.stem.split("_")[0] + " · ",
            "**Input:**",
            "viz.strip(",
            "## What to remember",
            "## Exercises",
        )
    ]
    assert order == sorted(order)


def test_public_names_are_there():
    for name in llamalib.__all__:
        assert getattr(llamalib, name).__doc__, name
