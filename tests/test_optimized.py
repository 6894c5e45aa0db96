"""Python without docstrings and asserts: `python -OO`, PYTHONOPTIMIZE=2."""

import subprocess
import sys

from llamalib.load import ROOT

CODE = """
import importlib, pkgutil, sys
import matplotlib
matplotlib.use("agg")
import llamalib
from lessons import theme, n07_lm_head as nb07

assert False, "an optimized Python skips this"
for module in pkgutil.walk_packages(llamalib.__path__, "llamalib."):
    if module.name != "llamalib.__main__":
        importlib.import_module(module.name)
llama = llamalib.load("data/pocket-llama", device="cpu")
ids = llama.tokenizer.encode("The capital of France is", bos=True, eos=False)
new = list(llamalib.generate(llama, ids, max_new_tokens=2))
assert theme.png(nb07.next_token(llama).figure())
print(llama.tokenizer.decode(new), "transformers" in sys.modules)
"""


def test_the_package_needs_no_docstrings():
    command = [sys.executable, "-OO", "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Paris") and done.stdout.endswith("False\n")
