"""Execute notebooks in place, each on the model that its text is about."""

import os
import subprocess
import sys
from pathlib import Path

from . import frame
from .notebooks import NOTEBOOKS, ROOT, all_notebooks, llama_of, read_notebook


def execute(notebooks: list[Path]) -> int:
    """Execute notebooks, all by default, with the library's cells of today."""
    for file in notebooks:
        read_notebook(file)  # before anything is written
    for line in frame.write_frames():
        print(f"written: {line}")
    for file in notebooks or [NOTEBOOKS / "index.ipynb", *all_notebooks()]:
        command = [sys.executable, "-m", "nbconvert", "--config"]
        command += [ROOT / ".ci" / "execute.json", file]
        model = {"LLAMA_DIR": str(llama_of(file))}
        ended = subprocess.run(command, env=os.environ | model, check=False)
        if ended.returncode:
            return ended.returncode
    return frame.main([])
