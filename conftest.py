"""What every run of pytest needs before torch or a kernel starts."""

import os
from pathlib import Path

import pytest

from tools.notebooks import llama_of, models_of

POCKET = Path(__file__).parent / "data" / "pocket-llama"
os.environ["LLAMA_DIR"] = str(POCKET)
os.environ["PYTHONUTF8"] = "1"  # on Windows too, in the kernels
if "PYTEST_XDIST_WORKER" in os.environ:
    # A process per core: for models this small, one thread each is faster.
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.hookimpl(tryfirst=True)  # before nbval starts the kernel
def pytest_runtest_setup(item):
    """Run each notebook on the model whose outputs it holds."""
    if item.path.suffix == ".ipynb":
        os.environ["LLAMA_DIR"] = str(llama_of(item.path))
        skip_without(models_of(item.path))


def skip_without(folders):
    """Skip a test that needs a model that is not there; not in CI."""
    for folder in folders:
        if not folder.is_dir() and os.environ.get("CI") != "true":
            command = f"python -m llamalib fetch {folder.name}"
            pytest.skip(f"{folder} is not there: run `{command}`")
