"""The architecture's four rules, held by the code; and tests of the rules."""

import importlib.util
import json
import subprocess
import sys

import pytest

from llamalib.load import ROOT
from tests import rules


def hold(rule):
    """Fail with a line for each violation, unless there is none."""
    found = list(rule(ROOT))
    if found:
        pytest.fail("\n".join([rule.__doc__, *found]), pytrace=False)


def test_arrows_point_outwards():
    hold(rules.inward_imports)


def test_nothing_is_set_for_the_whole_process():
    hold(rules.process_switches)


def test_the_core_has_no_clock_lock_or_compiler():
    hold(rules.hidden_speed)


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


@pytest.mark.parametrize(
    "file, text, problem",
    [
        ("model.py", "\nimport llamalib.viz", "the room viz, which only"),
        ("load.py", "\nfrom .viz import nb05", "the room viz"),
        ("load.py", "\nfrom .tasks import lab", "the room tasks"),
        ("viz/a.py", "\nfrom llamalib.course import x", "the room course"),
        ("model.py", "\nimport matplotlib.pyplot as plt", "only viz/ may"),
        ("load.py", "\nimport transformers", "which nothing may"),
    ],
)
def test_inward_imports_are_found(found, file, text, problem):
    (line,) = found(rules.inward_imports, **{f"llamalib/{file}": text})
    assert line.startswith(f"llamalib/{file}:2: ") and problem in line


def test_outward_imports_are_not_found(found):
    assert not found(
        rules.inward_imports,
        **{
            "llamalib/load.py": "def load():\n import safetensors",
            "llamalib/__main__.py": "from .load import save",
            "llamalib/tasks/a.py": "from ..viz import x\nimport os",
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
        ("load.py", "\nimport subprocess", "subprocess"),
        ("load.py", "\nfrom ctypes import CDLL", "ctypes"),
    ],
)
def test_hidden_speed_is_found(found, file, text, name):
    lines = found(rules.hidden_speed, **{f"llamalib/{file}": text})
    assert lines == [f"llamalib/{file}:2: uses {name}"]


def test_speed_in_its_place_is_not_found(found):
    assert not found(
        rules.hidden_speed,
        **{
            "llamalib/probe.py": "import time\ntime.perf_counter()",
            "llamalib/generate.py": "import torch\ntorch.compile(f)",
        },
    )
    c = found(rules.hidden_speed, **{"llamalib/one.c": "int x;"})
    assert c == ["llamalib/one.c:1: is not Python"]


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
