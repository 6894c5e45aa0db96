"""The number of threads: for each size, machine and limit; who sets it."""

import nbformat
import pytest
import torch

from lessons import n09_generate as lesson
from llamalib import __main__ as library
from llamalib import chat, load, threads, verify
from llamalib.load import ROOT
from llamalib.threads import cpu_quota, thread_count
from tools.frame import SERIES
from tools.notebooks import NOTEBOOKS

POCKET, SMOLLM2, REAL = 256 * 1024, 576 * 1536, 2048 * 8192  # D·F
POCKET_FOLDER = ROOT / "data" / "pocket-llama"


@pytest.mark.parametrize(
    "size, cores, quota, expected",
    [
        *[(POCKET, cores, None, 1) for cores in (1, 2, 8, 64)],
        (SMOLLM2, 8, None, 1),
        *[(REAL, cores, None, cores) for cores in (1, 2, 8, 64)],
        (REAL, 64, 2.0, 2),
        (REAL, 64, 3.9, 3),  # a fourth thread would wait
        (REAL, 64, 0.5, 1),
        (REAL, 4, 16.0, 4),
        (POCKET, 64, 2.0, 1),
    ],
)
def test_size_cores_and_limit_give_the_number(size, cores, quota, expected):
    assert thread_count(size, cores, quota) == expected


def machine(root, groups, **files):
    """Write what Linux says of this process's group, and of its limits."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return cpu_quota(root)


V1 = "4:memory:/b\n3:cpuset:/b\n2:cpu,cpuacct:/docker/a\n0::/\n"


def v1(quota, group="cpu/"):
    """Return the files of version 1 for a group."""
    return {
        f"{group}cpu.cfs_quota_us": f"{quota}\n",
        f"{group}cpu.cfs_period_us": "100000\n",
    }


@pytest.mark.parametrize(
    "groups, files, expected",
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": ""}, None),
        ("0::/\n", {}, None),
        # a service's limit, and a tighter one above it
        ("0::/s/hub\n", {"s/hub/cpu.max": "200000 100000\n"}, 2.0),
        (
            "0::/s/hub\n",
            {
                "s/cpu.max": "50000 50000\n",
                "s/hub/cpu.max": "200000 100000\n",
                "cpu.max": "max 100000\n",
            },
            1.0,
        ),
        # version 1; a container sees its own group as the root
        (V1, v1("400000"), 4.0),
        (V1, v1("-1"), None),
        (V1, v1("400000", "cpu/b/"), None),  # another resource's group
    ],
)
def test_limit_is_read_from_linux(tmp_path, groups, files, expected):
    assert machine(tmp_path, groups, **files) == expected


def test_no_limit_on_other_systems(tmp_path):
    assert cpu_quota(tmp_path) is None


# -- who chooses -------------------------------------------------------------


@pytest.fixture
def three(monkeypatch):
    """Set three threads, as a user might, where no variable decides."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_load_and_a_forward_pass_change_nothing(three):
    llama = load(POCKET_FOLDER, device="cpu")
    llama(torch.tensor([1, 2]))
    assert torch.get_num_threads() == 3


def test_a_large_model_gets_the_cores(three, monkeypatch):
    llama = load(POCKET_FOLDER, device="cpu")
    monkeypatch.setattr(threads, "CORES", 2)
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)
    assert threads.choose_threads(llama) == torch.get_num_threads() == 1
    monkeypatch.setattr(threads, "LARGE", POCKET)
    assert threads.choose_threads(llama) == torch.get_num_threads() == 2
    monkeypatch.setattr(threads, "cpu_quota", lambda: 1.0)
    assert threads.choose_threads(llama) == torch.get_num_threads() == 1


def talk(llama):
    with pytest.raises(ValueError, match="was not trained for"):
        chat.talk(POCKET_FOLDER, "", "", None, 8, None, temperature=0.0)


@pytest.mark.parametrize(
    "begin",
    [
        lambda llama: library.run("Monday,"),
        talk,
        lambda llama: verify.print_report(POCKET_FOLDER),
        lambda llama: lesson.strip("generate", llama),
        lambda llama: lesson.answers(llama),
    ],
    ids=["run", "chat", "verify", "a notebook's first cell", "index"],
)
def test_commands_and_notebooks_choose(three, begin):
    begin(load(POCKET_FOLDER, device="cpu"))
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("notebook", SERIES, ids=lambda each: each.label)
def test_first_cell_chooses(notebook):
    """By drawing the map, before anything runs for long."""
    path = NOTEBOOKS / notebook.file
    cells = nbformat.read(path, as_version=4).cells
    first = next(cell for cell in cells if cell.cell_type == "code")
    assert "lesson.strip(" in first.source


def test_a_users_variable_decides(three, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    llama = load(POCKET_FOLDER, device="cpu")
    assert threads.choose_threads(llama) == torch.get_num_threads() == 3
