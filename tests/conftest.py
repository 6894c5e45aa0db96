import os
from pathlib import Path

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt

import llamalib
from llamalib.load import ROOT

# MPLBACKEND would also change what the kernels that tests start draw.
matplotlib.use("agg")


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    plt.close("all")


@pytest.fixture(autouse=True)
def no_real_weights(monkeypatch):
    """Use only the pocket Llama and what the tests make."""
    pocket = ROOT / "data" / "pocket-llama"
    monkeypatch.setenv("LLAMA_DIR", str(pocket))
    monkeypatch.delenv("LLAMA_PROMPT", raising=False)
    monkeypatch.delenv("LLAMA_TEXT", raising=False)


@pytest.fixture(scope="session")
def pocket_folder():
    return ROOT / "data" / "pocket-llama"


@pytest.fixture(scope="session")
def pocket(pocket_folder):
    """Return the pocket Llama in float32 on the CPU."""
    return llamalib.load(pocket_folder, device="cpu", dtype=torch.float32)


def published(variable):
    """Return the file that an environment variable names, or skip."""
    path = os.environ.get(variable)
    if not path:
        pytest.skip(
            f"{variable} names no file; it is not distributed with the project"
        )
    return Path(path)


@pytest.fixture(scope="session")
def llama3_tokenizer():
    return llamalib.Tokenizer.from_file(published("LLAMA3_TOKENIZER"))
