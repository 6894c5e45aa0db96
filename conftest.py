"""What every run of pytest needs before torch or a kernel starts."""

import os
from pathlib import Path

# The notebooks hold the outputs of the pocket Llama.
os.environ["LLAMA_DIR"] = str(Path(__file__).parent / "data" / "pocket-llama")
os.environ["PYTHONUTF8"] = "1"  # on Windows too, in the kernels
if "PYTEST_XDIST_WORKER" in os.environ:
    # A process per core: for models this small, one thread each is faster.
    os.environ["OMP_NUM_THREADS"] = "1"
