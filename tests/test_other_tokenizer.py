"""The notebooks on a model whose tokenizer is not Llama 3's.

The folder is SmolLM2-135M's in Hugging Face's format, with random weights.
"""

import os
import re

import pytest
import torch

from lessons.notebooks import all_notebooks
from tests.helpers import code_cells, executed
from tests.test_notebooks import run_twice
from tests.test_smollm import write_folder

PATHS = {path.stem[:2].rstrip("_"): path for path in all_notebooks()}
SMALL = dict(
    num_hidden_layers=2,
    hidden_size=144,
    intermediate_size=384,
    vocab_size=500,
)
FIRST = "00", "07"  # it reads the files; it runs the whole model
OTHERS = "02", "03", "04", "05", "06", "08", "09"
SAID = (
    "from here on this notebook needs Llama 3's tokenizer, and SmolLM2-135M "
    "has another: run it without LLAMA_DIR, on the pocket Llama"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "SmolLM2-135M"
    folder.mkdir()
    write_folder(folder, **SMALL)
    return folder


@pytest.fixture(autouse=True)
def one_thread():
    """Set PyTorch to one thread: tests beside this one use the others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "number",
    [*FIRST, *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)],
)
def test_the_main_road_runs(folder, monkeypatch, number):
    """Each cell can be run twice; those tagged `long` are left out."""
    monkeypatch.setenv("LLAMA_DIR", str(folder))
    printed, changed = run_twice(code_cells(PATHS[number]))
    assert "SmolLM2-135M" in printed and changed == []


@pytest.mark.parametrize("number", ["01", "A", "H"])
def test_what_needs_ranks_says_so(folder, monkeypatch, number):
    monkeypatch.setenv("LLAMA_DIR", str(folder))
    with pytest.raises(ValueError, match=f"^{re.escape(SAID)}$"):
        run_twice(code_cells(PATHS[number]))


@pytest.mark.slow
@pytest.mark.parametrize("number", ["00", *OTHERS, "07"])
def test_at_its_shapes(full, monkeypatch, number):
    """134,515,008 parameters: every cell, the long ones too."""
    monkeypatch.setenv("LLAMA_DIR", str(full))
    cells = executed(PATHS[number]).cells
    assert all(c.execution_count for c in cells if c.cell_type == "code")


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full") / "SmolLM2-135M"
    folder.mkdir()
    write_folder(folder, dtype=torch.bfloat16)
    yield folder
    os.remove(folder / "model.safetensors")  # 270 MB
