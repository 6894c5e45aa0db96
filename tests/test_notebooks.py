"""What is true of every notebook as it is committed."""

import ast
import json
import re

import pytest
import torch
from helpers import random_llama, small_config, write_checkpoint

import llamalib
from llamalib.__main__ import all_notebooks, executed
from llamalib.formats.find import ROOT

NOTEBOOKS = all_notebooks()
APPENDIX = [path for path in NOTEBOOKS if path.parent.name == "appendix"]
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


@pytest.mark.parametrize(
    "name, shards, tied", [("other", 1, True), ("other-Instruct", 2, False)]
)
def test_runs_on_a_checkpoint_of_other_proportions(
    path, tmp_path, monkeypatch, name, shards, tied
):
    """Random weights, other sizes: no cell is about the pocket alone."""
    if path in APPENDIX and shards == 1:
        pytest.skip("an appendix takes a minute: on one of the two")
    config = small_config(
        dim=48, n_layers=3, n_heads=6, n_kv_heads=3, use_scaled_rope=True
    )
    llama = random_llama(config, tied=tied)
    write_checkpoint(tmp_path / name, llama, shards=shards)
    monkeypatch.setenv("LLAMA_DIR", str(tmp_path / name))
    printed = [o.get("text", "") for o in outputs(executed(path).cells)]
    printed = "".join(printed)
    assert name in printed
    if path.stem == "09_generate":  # a dialogue for who was trained on them
        is_chat = "'<|start_header_id|>'" in printed
        assert is_chat == ("Instruct" in name)


def test_a_widget_leaves_a_still_picture(path, cells):
    """Saved: its first picture or text, and nothing that needs a kernel."""
    saved = [
        output["data"]
        for output in outputs(cells)
        if re.match(r"(Play|Stream)\(", plain_text(output))
    ]
    assert len(saved) == 1, path.stem
    assert set(saved[0]) in (
        {"image/png", "text/plain"},
        {"text/html", "text/plain"},
    )
    assert "widget-view" not in path.read_text(encoding="utf-8")


def plain_text(output):
    return "".join(output.get("data", {}).get("text/plain", ""))


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


# What is public and not taught in a cell of its own: what holds and opens
# things, and the tools of the notebooks.
NOT_TAUGHT = {
    "CompiledDecode",
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
}


def test_every_teaching_function_is_written_out_in_one_notebook():
    """And in no untagged cell of any notebook besides."""
    teaching = set(llamalib.__all__) - NOT_TAUGHT
    places = {name: [] for name in teaching}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in code(cells):
            tagged = "llamalib" in cell["metadata"].get("tags", ())
            for name in definitions("".join(cell["source"])):
                if name in teaching:
                    places[name].append((path.stem, tagged))
    for name, found in places.items():
        assert len(found) == 1 and found[0][1], f"{name}: {found}"


def without_known_imports(source, known):
    """The code, but nothing is imported from llamalib that is known."""
    tree = ast.parse(source)
    for node in list(tree.body):
        of_ours = getattr(node, "module", "") or ""
        if isinstance(node, ast.ImportFrom) and of_ours.startswith("llamalib"):
            node.names = [a for a in node.names if a.name not in known]
            if not node.names:
                tree.body.remove(node)
    return ast.unparse(tree)


def test_taught_cells_can_be_pasted_into_an_empty_file():
    """In order, with nothing else, they make the model that llamalib is."""
    names = {"__name__": "pasted"}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in code(cells):
            if "llamalib" in cell["metadata"].get("tags", ()):
                source = "".join(cell["source"])
                exec(source, dict(names))  # as it stands, it runs
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
    x = w["tok_embeddings.weight"][tokens]
    for layer in range(config.n_layers):
        x = names["transformer_block"](x, w, layer, freqs_cis, mask, config)
    x = names["rms_norm"](x, w["norm.weight"], config.norm_eps)
    logits = x @ w["output.weight"].T
    assert torch.allclose(logits, llama(tokens), rtol=1e-4, atol=1e-4)
    assert names["pick"](logits[-1]) == llama(tokens)[-1].argmax()
    # the functions are the pasted ones, not llamalib's
    for name in ("transformer_block", "rms_norm", "attention", "pick"):
        assert names[name].__module__ == "pasted"


# Lines under 80 columns, cells short: they are read, and put on slides.


def test_cells_are_short_and_narrow(cells):
    for number, cell in enumerate(code(cells), 1):
        lines = "".join(cell["source"]).splitlines()
        wide = [line for line in lines if len(line) > 79]
        assert not wide, f"cell {number}: {wide}"
        tags = cell["metadata"].get("tags", ())
        checks = any(tag.startswith("check-") for tag in tags)
        most = 60 if checks else 45 if "llamalib" in tags else 25
        assert len(lines) <= most, f"cell {number}: {len(lines)} lines"


def test_opens_with_the_map_and_ends_with_exercises(path, cells):
    text = "\n".join("".join(cell["source"]) for cell in cells)
    part = path.stem.split("_", 1)[1]
    assert f'plots.strip("{part}"' in text
    order = [
        text.index(words)
        for words in (
            "# " + path.stem.split("_")[0] + " · ",
            "**Comes in:**",
            "plots.strip(",
            "## What to remember",
            "## Exercises",
            "**Next:**",
        )
    ]
    assert order == sorted(order)


def test_public_names_are_there():
    for name in llamalib.__all__:
        assert getattr(llamalib, name).__doc__, name
