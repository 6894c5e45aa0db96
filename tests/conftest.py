import os
from pathlib import Path

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt

import llamalib
from llamalib.formats.find import ROOT

# Not by MPLBACKEND: the kernels that tests start would draw otherwise too.
matplotlib.use("agg")


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    plt.close("all")


@pytest.fixture(autouse=True)
def no_real_weights(monkeypatch):
    """Tests run on what they make, or on the pocket Llama."""
    pocket = ROOT / "data" / "pocket-llama"
    monkeypatch.setenv("LLAMA_DIR", str(pocket))
    monkeypatch.delenv("LLAMA_PROMPT", raising=False)
    monkeypatch.delenv("LLAMA_TEXT", raising=False)


@pytest.fixture(scope="session")
def pocket_folder():
    return ROOT / "data" / "pocket-llama"


@pytest.fixture(scope="session")
def pocket(pocket_folder):
    """The pocket Llama in float32 on the CPU."""
    return llamalib.load(pocket_folder, device="cpu", dtype=torch.float32)


def published(variable):
    """A file that an environment variable names, or a skip."""
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} does not name a file: not distributed here")
    return Path(path)


@pytest.fixture(scope="session")
def llama3_tokenizer():
    return llamalib.Tokenizer.from_file(published("LLAMA3_TOKENIZER"))
