"""The architecture's four rules, held by the code; and tests of the rules."""

import importlib.util
import json
import subprocess
import sys

import pytest

from llamalib.files import ROOT
from tests import rules


def hold(rule):
    """Fail with a line for each violation, unless there is none."""
    found = list(rule(ROOT))
    if found:
        pytest.fail("\n".join([rule.__doc__, *found]), pytrace=False)


def test_shared_means_two_readers():
    hold(rules.unshared)


def test_arrows_point_outwards():
    hold(rules.inward_imports)


def test_nothing_is_set_for_the_whole_process():
    hold(rules.process_switches)


def test_the_core_has_no_clock_lock_or_compiler():
    hold(rules.hidden_speed)


def test_rooms_keep_to_their_budget():
    hold(rules.lines_over_budget)


def test_functions_keep_to_their_budget():
    hold(rules.long_functions)


def test_no_module_is_named_like_a_function():
    hold(rules.modules_named_like_functions)


def test_tests_need_nothing_from_the_benchmark():
    hold(rules.tests_of_the_benchmark)


def test_importing_needs_only_torch_and_tiktoken():
    """Importing llamalib loads no room, and of libraries only these two."""
    others = {*rules.OWNERS, "IPython", "jupyterlab", "nbformat"}
    others |= {"hypothesis", "sentencepiece"}
    listing = subprocess.run(
        [sys.executable, "-c", "import llamalib, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {"torch", "tiktoken", "llamalib.model"} <= set(listing)
    for name in others:
        assert importlib.util.find_spec(name), f"{name} is not installed"
    rooms = {f"llamalib.{room}" for room in rules.ROOMS}
    assert (others | rooms) & set(listing) == set()


# -- a made-up project breaks each rule, and the report names file and line --


@pytest.fixture
def found(tmp_path):
    """A function: a rule and files by path, to the report's lines."""

    def report(rule, **files):
        files = {"llamalib/__init__.py": "", "notebooks/.keep": ""} | files
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".ipynb":
                text = notebook(*([text] if isinstance(text, str) else text))
            file.write_text(text, encoding="utf-8")
        return list(rule(tmp_path))

    return report


def notebook(*cells):
    """The JSON of a notebook; a cell is a source, or (source, tag)."""
    cells = [(c, None) if isinstance(c, str) else c for c in cells]
    return json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "metadata": {"tags": [tag] if tag else []},
                    "source": source.splitlines(keepends=True),
                }
                for source, tag in cells
            ]
        }
    )


MODEL = """
LIMIT = 3


def one(x):
    return helper(x) + LIMIT


def helper(x):
    return x


def two(x):
    return x
"""


def test_unshared_names_are_found(found):
    files = {
        "llamalib/__init__.py": "from .model import one, two\n",
        "llamalib/model.py": MODEL,
        "notebooks/05_a.ipynb": "import llamalib\nllamalib.one(1)",
        "notebooks/06_b.ipynb": "from llamalib.model import two\ntwo(1)",
    }
    alone = [  # what only `one` uses is no more shared than `one`
        "llamalib/model.py:2: LIMIT is used by nothing",
        "llamalib/model.py:5: one is used by notebook 05 alone",
        "llamalib/model.py:9: helper is used by nothing",
        "llamalib/model.py:13: two is used by notebook 06 alone",
    ]
    assert found(rules.unshared, **files) == alone
    # the widget of notebook 05 is no second reader
    files["llamalib/viz/nb05.py"] = "from ..model import one\none(2)\n"
    assert found(rules.unshared, **files) == alone
    # another module is, and so is another notebook, by a cell that teaches
    files["llamalib/cache.py"] = "from . import model\nmodel.one(3)\n"
    files["notebooks/07_c.ipynb"] = [("def two(x):\n    return x", "llamalib")]
    assert found(rules.unshared, **files) == []


def test_promised_calls_and_replaced_names_are_shared(found):
    files = {
        "llamalib/__init__.py": "from .model import one, load\n",
        "llamalib/model.py": "def one(): ...\ndef load(): ...\n",
        "notebooks/05_a.ipynb": "break_it(1, one=2)",
        "notebooks/06_b.ipynb": "break_it(1, one=3)",
    }
    assert found(rules.unshared, **files) == []


@pytest.mark.parametrize(
    "file, text, problem",
    [
        ("model.py", "\nfrom .fast import x", "core imports the room fast"),
        ("model.py", "\nfrom . import fast", "core imports the room fast"),
        ("model.py", "\nimport llamalib.viz", "the room viz, which only"),
        ("model.py", "if 1:\n import llamalib.formats.find", "at import time"),
        ("model.py", "def f():\n from .fast import x", "only loading and"),
        ("loading.py", "def f():\n from .viz import x", "the room viz"),
        ("fast/a.py", "\nfrom ..viz import nb05", "the room viz"),
        ("fast/a.py", "\nfrom ..tasks import lab", "the room tasks"),
        ("fast/a/b.py", "\nfrom ...course import nb05", "the room course"),
        ("formats/__init__.py", "\nfrom ..viz import x", "the room viz"),
        ("viz/a.py", "\nfrom llamalib.course import x", "the room course"),
        ("model.py", "\nimport matplotlib.pyplot as plt", "only viz/ may"),
        ("fast/a.py", "def f():\n import safetensors", "only formats/ may"),
        ("formats/a.py", "\nimport transformers", "which nothing may"),
    ],
)
def test_inward_imports_are_found(found, file, text, problem):
    (line,) = found(rules.inward_imports, **{f"llamalib/{file}": text})
    assert line.startswith(f"llamalib/{file}:2: ") and problem in line


def test_outward_imports_are_not_found(found):
    assert not found(
        rules.inward_imports,
        **{
            "llamalib/loading.py": "def load():\n from .formats import find",
            "llamalib/decoding.py": "def f():\n from .fast.step import Step",
            "llamalib/__main__.py": "from .formats.find import save",
            "llamalib/tasks/a.py": "from ..viz import x\nimport os",
            "llamalib/fast/a.py": "from ..model import Llama",
            "llamalib/formats/a.py": "from ..fast import b\nimport tokenizers",
            "llamalib/viz/a.py": "from .base import x\nimport ipywidgets",
        },
    )


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.set_num_threads(1)",
        "import torch\ntorch.backends.mkldnn.enabled = False",
        "from torch.backends import mkldnn\nmkldnn.enabled = False",
        "import torch as t\nt.backends.cudnn.enabled, y = 1, 2",
        "from torch import set_num_threads\nset_num_threads(1)",
        "import torch._inductor.config as c\nc.freezing = True",
        "import torch\nwith torch._inductor.config.patch(freezing=1): pass",
        "import torch\nsetattr(torch.backends.mkldnn, 'enabled', False)",
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'",
        "from os import environ\nenviron.setdefault('A', 'b')",
        "from os import environ\ndel environ['A']",
        "import gc\ngc.disable()",
        "import sys\nsys.setrecursionlimit(9)",
    ],
)
@pytest.mark.parametrize("place", ["model.py", "viz/base.py"])
def test_process_switches_are_found(found, place, text):
    file = f"llamalib/{place}"
    (line,) = found(rules.process_switches, **{file: text})
    assert line.startswith(f"{file}:2: sets ")
    assert not found(
        rules.process_switches,
        **{file: "", "llamalib/__main__.py": text},
    )


def test_a_switch_by_another_name_is_found(found):
    text = "import torch\ndef f():\n a = torch.backends.mkldnn\n a.b = 1"
    (line,) = found(rules.process_switches, **{"llamalib/model.py": text})
    assert line.startswith("llamalib/model.py:4: sets torch.backends.mkldnn.b")
    fine = "import torch\nx = torch.ones(2)\nx[0] = 1\nx.name = 'x'\n"
    assert not found(rules.process_switches, **{"llamalib/model.py": fine})


@pytest.mark.parametrize(
    "file, text, name",
    [
        ("model.py", "\nimport time", "time"),
        ("model.py", "\nfrom time import perf_counter", "time"),
        ("model.py", "import torch\ntorch.compile(f)", "torch.compile"),
        ("model.py", "\nfrom torch import compile", "torch.compile"),
        ("model.py", "\nimport threading", "threading"),
        ("fast/step.py", "\nimport subprocess", "subprocess"),
        ("fast/step.py", "\nfrom ctypes import CDLL", "ctypes"),
    ],
)
def test_hidden_speed_is_found(found, file, text, name):
    lines = found(rules.hidden_speed, **{f"llamalib/{file}": text})
    assert lines == [f"llamalib/{file}:2: uses {name}"]


def test_speed_in_its_place_is_not_found(found):
    assert not found(
        rules.hidden_speed,
        **{
            "llamalib/roofline.py": "import time\ntime.perf_counter()",
            "llamalib/fast/step.py": "import time, torch\ntorch.compile(f)",
        },
    )
    c = found(rules.hidden_speed, **{"llamalib/fast/one.c": "int x;"})
    assert c == ["llamalib/fast/one.c:1: is not Python"]


def test_a_room_over_its_budget_is_found(found, monkeypatch):
    monkeypatch.setitem(rules.LINES, "fast", 5)
    files = {"llamalib/fast/a.py": "a = 1\n" * 4}
    assert not found(rules.lines_over_budget, **files)
    files["llamalib/fast/b.py"] = "b = 1\n\n"
    assert found(rules.lines_over_budget, **files) == [
        "llamalib/fast/a.py:4: the longest file of fast, which has 6 lines; "
        "its budget is 5"
    ]


def test_pictures_of_late_appendices_have_a_budget(found, monkeypatch):
    monkeypatch.setitem(rules.LINES, "viz", 1)
    monkeypatch.setitem(rules.LINES, "viz with E to H", 2)
    files = dict.fromkeys(("llamalib/viz/a.py", "llamalib/viz/nbF.py"), "a\n")
    assert not found(rules.lines_over_budget, **files)
    (problem,) = found(
        rules.lines_over_budget, **files, **{"llamalib/viz/nbE.py": "a\n"}
    )
    assert "viz with E to H, which has 3 lines" in problem


LONG = '''
@decorated
def f(
    x,
):
    """A docstring
    of two lines."""
    # a comment

    y = """
    two
    """
    def g():
        "Another docstring."
        return 1  # counted
    return y
'''


def test_lines_of_code_are_counted(found, monkeypatch):
    for most, lines in ((6, 0), (5, 1)):
        monkeypatch.setitem(rules.FUNCTION_LINES, "llamalib", most)
        monkeypatch.setitem(rules.FUNCTION_LINES, "notebooks", most)
        files = {
            "llamalib/a.py": LONG,
            "notebooks/00_a.ipynb": ["pass", LONG],
            "notebooks/01_b.ipynb": [(LONG, "check-1")],
        }
        assert (
            found(rules.long_functions, **files)
            == [
                "llamalib/a.py:3: f has 6 lines of code, at most 5",
                "notebooks/00_a.ipynb, cell 2:3: f has 6 lines of code, at "
                "most 5",
            ][: 2 * lines]
        )


def test_a_module_named_like_a_function_is_found(found):
    files = {
        "llamalib/__init__.py": "from .a import b\n_LAZY = ('find',)\n",
        "llamalib/a.py": "\ndef a(): ...\ndef b(): ...\n",
        "llamalib/fast/b.py": "",
        "llamalib/formats/find.py": "",
    }
    assert found(rules.modules_named_like_functions, **files) == [
        "llamalib/a.py:2: a has the name of its module",
        "llamalib/fast/b.py:1: llamalib exports a b, too",
        "llamalib/formats/find.py:1: llamalib exports a find, too",
    ]


def test_a_test_that_needs_the_benchmark_is_found(found):
    files = {
        "bench/plan.py": "",
        "tests/test_a.py": "\nfrom bench.plan import CPU",
        "tests/test_b.py": "\nimport plan",
        "tests/test_bench.py": "from bench import plan",
    }
    assert found(rules.tests_of_the_benchmark, **files) == [
        "tests/test_a.py:2: imports bench.plan",
        "tests/test_b.py:2: imports plan",
    ]
