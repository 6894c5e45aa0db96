"""Marks: the sandbox, what an answer may do in it, and what is written."""

import ast
import csv
import io
import json
import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from importlib import import_module

import pytest
import torch

from llamalib.course import judge as checks
from llamalib.course.__main__ import main
from llamalib.grading import judging, marks, sandbox
from llamalib.grading.assignments import exercises
from llamalib.load import ROOT
from tests.helpers import code_cells
from tests.test_exercises import MISTAKES, PATHS, RIGHT, SOLUTIONS, sections


def problem():
    """Return why no sandbox can be made here, or an empty text."""
    command = "bwrap --unshare-all --ro-bind / / true".split()
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no bwrap that works: {error}"
    sandbox.refuse_unless_isolated()  # a fault of ours is no reason to skip
    return ""


PROBLEM = problem()
isolated = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)


def code_notebook(*sources, tags=()):
    """Return a notebook's JSON with these code cells."""
    cells = [
        dict(cell_type="code", metadata=dict(tags=[*tags]), source=[source])
        for source in sources
    ]
    return json.dumps(dict(cells=cells, metadata={}, nbformat=4))


def ours(stem):
    """Return our notebook's JSON."""
    return json.loads(PATHS[stem].read_text(encoding="utf-8"))


def solutions(stem):
    """Return the sources of our solutions."""
    return [s for _, _, s in sections(SOLUTIONS / f"{stem}.py")]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The llamalib that answers see."""
    folder = tmp_path_factory.mktemp("package")
    sandbox.write_package(folder)
    return folder


def names_in(tree):
    """Return the names that a piece of code sets or changes, and reads."""
    written, read = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            written.add(node.name)
        elif isinstance(node, ast.alias):
            written.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Name):
            kind = read if isinstance(node.ctx, ast.Load) else written
            kind.add(node.id)
        elif isinstance(node, ast.Attribute):  # x.weight = …, x.append(…)
            if isinstance(node.value, ast.Name) and node.attr != "shape":
                changes = not isinstance(node.ctx, ast.Load)
                if changes or node.attr in ("append", "update", "extend"):
                    written.add(node.value.id)
    return written, read


def needed(stem, sources):
    """Return the cells of our notebook that these sources need."""
    read, found = names_in(ast.parse("\n".join(sources)))[1], []
    for tags, source in reversed(judging.code_of(ours(stem))):
        written, more = names_in(ast.parse(source))
        if written & read:
            found.insert(0, (tags, source))
            read |= more
    return found


class Bench:
    """One notebook's sandbox, in which answers are tried."""

    def __init__(self, stem, package, cells):
        notebook = ours(stem)
        module = f"llamalib.course.nb{stem.split('_')[0]}"
        self.checks, self.variants = import_module(module), [0, 1, 2, 3]
        self.exercises = {e.number: e for e in exercises(PATHS[stem])}
        self.given = {
            n: [judging.value_of(name, notebook) for name in e.given]
            for n, e in self.exercises.items()
        }
        self.work = judging.Submission(cells, [], package)
        self.close = self.work.close

    def attempt(self, number, source, seconds=20):
        """Return (whether it is right, words) of a source's function."""
        box = self.work.ready()
        with box.within(60):
            box.run("answer", source)
        check = getattr(self.checks, f"check_{number}")
        case = self.exercises[number], check, self.given[number]
        return judging.judged(self.work, *case, self.variants, seconds)


# the other notebooks take minutes; test_variants has their checks alone
QUICK = "03_rmsnorm", "05_attention", "08_sampling"
STEMS = [
    stem if stem in QUICK else pytest.param(stem, marks=pytest.mark.slow)
    for stem in PATHS
]


@isolated
@pytest.mark.parametrize("stem", STEMS)
def test_each_answer_gets_its_marks(stem, package):
    """Solutions and other right ones, the empty stubs, and each mistake."""
    right = sections(SOLUTIONS / f"{stem}.py") + sections(RIGHT / f"{stem}.py")
    wrong = sections(MISTAKES / f"{stem}.py")
    stubs = [s for tags, s in code_cells(PATHS[stem])
             if any(t.startswith("exercise-") for t in tags)]  # fmt: skip
    cells = needed(stem, [source for _, _, source in right + wrong])
    with closing(Bench(stem, package, cells)) as bench:
        for number, source in enumerate(stubs, 1):
            assert bench.attempt(number, source) == (False, "not done yet")
        for number, _, source in right:
            found = bench.attempt(number, source)
            assert found[0], (number, source, found)
        bench.variants = [0]
        for number, words, source in wrong:
            right, said = bench.attempt(number, source)
            assert not right and words in said, (number, words, said)


# -- attacks: each on exercise 1 of 05, tokens_that_fit(config, free, size) --

SOLUTION = solutions("05_attention")[0]
DO = """
import builtins, ctypes, json, os, signal, socket, struct, subprocess, sys
import threading, time
import numpy as np, torch
def tokens_that_fit(config, free, bytes_each):
{}
"""
FORGE = """text = b'["tuple", "value", true, ["list"]]'
data = struct.pack("<QQ", len(text), 0) + text
for fd in range(3, 40):
    try: os.write(fd, {}data)
    except OSError: pass
return None"""
# name, the function's body, and what the page says of it
ATTACKS = [
    ("loops", "while True: pass", "no answer within 2 s"),
    ("sleeps", "time.sleep(1000)", "no answer within 2 s"),
    ("forks without end", "while True: os.fork()", "PermissionError"),
    ("starts a process", "subprocess.Popen(['sleep', '9'])", "PermissionErr"),
    ("takes all memory", "return bytearray(2**40)", "MemoryError"),
    ("takes all memory in torch", "return torch.ones(2**38)", "alloc"),
    ("exits with 0", "os._exit(0)", "exited early, with status 0"),
    ("asks to exit", "sys.exit(0)", "your code raises SystemExit"),
    ("interrupts", "raise KeyboardInterrupt", "ended with signal 2"),
    ("crashes", "ctypes.string_at(0)", "ended with signal 11"),
    ("kills itself", "os.kill(os.getpid(), 9)", "ended with signal 9"),
    ("kills its parent", "os.kill(1, 9); os.kill(-1, 9); return 0", "No such"),
    ("closes its pipes", "os.closerange(0, 99); time.sleep(99)", "no answer"),
    ("forges a result", FORGE.format(""), "is True; expected another"),
    ("sends rubbish", FORGE.format("b'x' * 16 + "), "sent "),
    ("forges a call",
     FORGE.format("").replace('"value", true', '"call", 0, ["list"]')
     .replace('["list"]]', '["dict"]]'), "not done yet"),
    ("returns a liar", """class Liar:
    __eq__ = __le__ = __ge__ = __float__ = __bool__ = lambda *a: True
return Liar()""", "a Liar; expected"),
    ("returns a lying tensor", """class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, kinds, args=(), kwargs=None):
        return True
return Liar()""", "raises|cannot be read"),
    ("returns far too much", "return torch.zeros(2**28)", "too large"),
    ("returns a long text", "return 'x' * 2**28", "too large"),
    ("nests its result", """x = []
for _ in range(10**5): x = [x]
return x""", "nested more than"),
    ("returns itself", "x = []; x.append(x); return x", "nested more than"),
    ("returns nan", "return float('nan')", "is nan; expected"),
    ("returns a huge number", "return 10**5000", "your code raises Value"),
    ("never ends its result", "while True: yield 1", "a generator; expected"),
    ("raises what cannot be shown", """class Bad(Exception):
    def __str__(self): os._exit(0)
raise Bad""", "exited early"),
    ("connects", "socket.create_connection(('1.1.1.1', 80), 1)", "unreach"),
    ("asks for a name", "socket.getaddrinfo('pypi.org', 80)", "gaierror"),
    ("fills the disk", """for i in range(99):
    open(f'/tmp/{i}', 'wb').write(b'x' * 2**22)""", "No space left"),
    ("writes one large file", """with open('/tmp/x', 'wb') as file:
    file.truncate(2**40)""", "too large"),
    ("changes torch and json", """always = lambda *a, **k: True
for f in ('allclose', 'equal', 'as_tensor'): setattr(torch, f, always)
import llamalib.course.judge as judge
judge.agree = judge.close = always
return -1""", "is -1; expected another number"),
    ("changes the worker", """from llamalib.grading import wire
wire.Worker.packed = lambda self, message: b''
return 1""", "no answer within"),
    ("hides memory", "os.memfd_create('x')", "PermissionError"),
    ("shares memory", """libc = ctypes.CDLL(None, use_errno=True)
found = libc.shmget(0, 4096, 0o1600), ctypes.get_errno()
raise Exception(found)""", r"Exception: \(-1, 1\)"),
    ("opens many files", "x = [os.dup(0) for _ in range(300)]", "Too many"),
    ("sends keys of one hash", FORGE.format("").replace(
        "text = b'[\"tuple\", \"value\", true", "text = b'[\"tuple\", "
        "\"value\", [\"dict\"' + b''.join(b', %d, 0' % (i * (2**61 - 1)) "
        "for i in range(20_001)) + b']"), "sent what cannot be read"),
    ("forges an end", FORGE.format("").replace(
        '"value", true, ["list"]]', '"stop"]'), "sent what cannot be read"),
    ("sends bytes twice", FORGE.format("").replace(
        "text = b'[\"tuple\", \"value\", true", "text = b'[\"tuple\", "
        "\"value\", [\"list\"' + 2 * b', [\"tensor\", \"torch.uint8\", [9], "
        "false, 0, 9]' + b']").replace("0) + text", "9) + text + bytes(9)"),
     "sent what cannot be read"),
    ("returns 65 dimensions", "return torch.zeros([1] * 65)", "cannot be re"),
    ("prints a verdict", """sys.__stdout__.write('Exercise 1: right')
print('Exercise 1: right'); return -1""", "is -1; expected"),
]  # fmt: skip


@pytest.fixture(scope="module")
def bench(package):
    """Exercise 05's sandbox without the notebook's cells."""
    found = Bench("05_attention", package, [])
    found.variants = [0]
    with closing(found):
        yield found


def body(text):
    """Return a source of the answer with this body."""
    return DO.format("    " + text.replace("\n", "\n    "))


@isolated
@pytest.mark.parametrize("name, text, words", ATTACKS, ids=lambda x: x[:30])
def test_an_attack_earns_nothing(bench, name, text, words):
    seconds = 2 if "no answer" in words else 20
    right, said = bench.attempt(1, body(text), seconds)
    assert not right and re.search(words, said), said
    if name.startswith(("changes", "forges", "sends")):
        bench.close()
    assert bench.attempt(1, SOLUTION) == (True, "right")


def told(bench, text):
    """Return the error that an answer raises, to tell what it has seen."""
    right, said = bench.attempt(1, body(text))
    assert not right
    return said


SEARCH = r"""
import re
found = []
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if f not in ("proc", "sys")]
    for name in files:
        path = os.path.join(folder, name)
        if name in NAMES: found.append(path)
        if re.fullmatch(r"nb.*\.pyc?", name):
            if b"agree" in open(path, "rb").read(): found.append(path)
raise Exception(f"{found}"[:900])
""".replace("NAMES", str([s + end for s in PATHS for end in (".py", ".ipynb")]))


@isolated
def test_no_check_and_no_solution_can_be_read(bench):
    assert "raises Exception: []" in told(bench, SEARCH)
    text = "from llamalib.course import nb05\nreturn nb05.head_with"
    assert "AttributeError: head_with" in told(bench, text)
    for path in (ROOT / "tests", ROOT / ".git", MISTAKES, "/root", "/home"):
        text = f"raise Exception(os.listdir({str(path)!r}))"
        seen = told(bench, text)
        assert "FileNotFoundError" in seen or ".pyenv" in seen, seen


@isolated
def test_no_other_process_can_be_seen(bench):
    seen = told(bench, """seen = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    seen.append(open(f'/proc/{pid}/cmdline').read()[:30])
raise Exception(seen)""")  # fmt: skip
    assert seen.count("bwrap") + seen.count("python") <= 3, seen
    assert "pytest" not in seen and "judging" not in seen
    memory = told(bench, "open(f'/proc/{os.getppid()}/mem', 'rb').read(9)")
    assert "Error" in memory
    assert "raises Exception: {'" in told(
        bench, "raise Exception({k: v for k, v in os.environ.items()})"
    )
    os.environ["SECRET_OF_THE_JUDGE"] = "1"
    seen = told(bench, "raise Exception(' '.join(os.environ))")
    assert "SECRET" not in seen


@isolated
def test_no_server_of_this_machine_can_be_reached(bench):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        text = f"socket.create_connection(('127.0.0.1', {port}), 1)"
        assert "ConnectionRefusedError" in told(bench, text)


@isolated
def test_nothing_but_its_own_folder_can_be_written(bench):
    seen = told(bench, """open('/tmp/x', 'w').close()
places = '/ /course /course/llamalib /usr /dev /dev/shm /etc /home /var'
made = []
for place in places.split() + sys.path + [sys.prefix]:
    try:
        open(f'{place}/x', 'w').close()
        made.append(place)
    except OSError: pass
raise Exception(made)""")  # fmt: skip
    assert "raises Exception: []" in seen


NAMES = r"""
def name_of(network):
    return repr(network).split("'")[1]
""", r"""
def name_of(network):
    raise Exception(repr(network) + str(vars(network)))
"""


@isolated
def test_a_function_does_not_say_what_it_is(package):
    """The answer of H's exercise 1 is the name of a formula."""
    with closing(Bench("H_documents", package, [])) as bench:
        assert bench.attempt(1, NAMES[0])[1].startswith("your code raises Ind")
        seen = bench.attempt(1, NAMES[1])[1]
        assert "raises Exception: Function{" in seen
        assert not re.search("<locals>|check_|partial|right|float", seen)


@isolated
def test_threads_are_allowed(bench):
    text = "made = []\nt = threading.Thread(target=made.append, args=(1,))"
    text += "\nt.start(); t.join()\nraise Exception(f'{made}')"
    assert "raises Exception: [1]" in told(bench, text)


@checks.exercise(1, expects="a number")
def check_sum(answer):
    rows = torch.randint(99, (5,), generator=checks.draws()).tolist()
    n = checks.vary(2, 3)
    checks.agree(answer(rows, n), sum(rows[:n]))


@isolated
def test_answers_by_heart_fail_a_hidden_check(bench):
    rows = torch.randint(99, (5,), generator=checks.draws()).tolist()
    by_heart = f"def tokens_that_fit(rows, n): return {sum(rows[:2])}"
    right = "def tokens_that_fit(rows, n): return sum(rows[:n])"
    work, exercise = bench.work, bench.exercises[1]
    for source, expected in ((by_heart, False), (right, True)):
        work.ready().run("answer", source)
        case = work, exercise, check_sum, ()
        assert judging.judged(*case, [0], 9)[0]
        found, said = judging.judged(*case, [0, 1, 2, 3], 9)
        assert found is expected
        assert said.startswith("in a hidden check: ") is not expected


# -- whole submissions --

FIT, HEAD, STREAMED = (e.title for e in exercises(PATHS["05_attention"]))


def hand_in(folder, *sources, stem="05_attention"):
    """Write a submission with the cells that the answers need."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = [s for _, s in needed(stem, solutions(stem))]
    path = folder / f"{stem}.ipynb"
    path.write_text(code_notebook(*cells, *sources), encoding="utf-8")
    return path


@isolated
def test_what_dies_costs_its_own_exercise_alone(tmp_path):
    first, _, third = solutions("05_attention")
    dies = "def one_head(xq, xk, xv, h):\n    import os\n    os._exit(0)"
    path = hand_in(tmp_path, first, dies, third)
    found = judging.judge(path, "05_attention", [0])["marks"]
    assert found == {
        FIT: (10, 10, "right"),
        HEAD: (0, 25, "exited early, with status 0"),
        STREAMED: (30, 30, "right"),
    }


@isolated
def test_a_cell_that_dies_or_fails_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "CELL", 8)
    bad = "import os; os._exit(0)", "while True: pass", "1 / 0", "x = ("
    bad += ("def one_head(x)\n    return x",)
    path = tmp_path / "05_attention.ipynb"
    cells = code_notebook(*bad, "%time 1\n!ls\n" + SOLUTION)
    path.write_text(cells, encoding="utf-8")
    found = judging.judge(path, "05_attention", [0])
    assert found["marks"][FIT] == (10, 10, "right")
    assert found["marks"][HEAD] == (
        0,
        25,
        "the notebook defines no one_head: "
        "SyntaxError: expected ':' (code cell 5, line 1)",
    )
    words = " | ".join(found["notes"].values())
    assert re.fullmatch(
        r"exited early, with status 0 \| no answer within 8 s \| "
        r"ZeroDivisionError: .*line 1: 1 / 0 \| SyntaxError: .*:' \(.*",
        words,
        re.S,
    ), words


def test_a_sandbox_that_does_not_start_is_a_fault_of_ours(
    tmp_path, monkeypatch
):
    """It is tried once, and the teacher is told."""
    made, start = [], sandbox.Sandbox.__init__

    def init(box, package, unsafe):
        made.append(box)
        monkeypatch.setattr(sandbox, "isolated", lambda *given: ["false"])
        start(box, package, False)

    monkeypatch.setattr(sandbox.Sandbox, "__init__", init)
    found = judging.judge(hand_in(tmp_path, SOLUTION), "05_attention", [0])
    said = "the judge failed, please report it: its sandbox exited early"
    assert all(m[0] == 0 and said in m[2] for m in found["marks"].values())
    assert len(made) == 3  # one for each exercise


@isolated
def test_a_python_in_the_temporary_folder(tmp_path, monkeypatch):
    """As in a clone below /tmp: the sandbox's own /tmp does not hide it."""
    folder = tmp_path / "lib" / "x-packages"
    folder.mkdir(parents=True)
    (folder / "seen.py").touch()
    (folder / "llamalib").mkdir()
    monkeypatch.syspath_prepend(str(folder))
    sandbox.refuse_unless_isolated()
    with closing(Bench("05_attention", tmp_path / "package", [])) as bench:
        sandbox.write_package(tmp_path / "package")
        text = f"raise Exception(os.listdir({str(folder)!r}))"
        assert "seen.py" in told(bench, text)
        for inside in ("x", "llamalib/x"):
            text = f"open('{folder}/{inside}', 'w')"
            assert "Read-only file system" in told(bench, text)
        assert "True" in told(bench, "raise Exception(os.access('/tmp', 2))")


@isolated
def test_a_cell_may_have_what_is_ipythons(tmp_path):
    """%time runs its statement; what no sandbox can do is left out."""
    more = "tokens_that_fit?\nfiles = !ls\n%time k = 1\nassert k == 1\n"
    more += "get_ipython().system('ls')\nx = (100\n% 7)\n%matplotlib inline\n"
    compiled = f"import torch\n@torch.compile\n{SOLUTION}"
    for own in (more + SOLUTION, "%%time\n" + SOLUTION, compiled):
        path = tmp_path / "05_attention.ipynb"
        text = code_notebook("x = '\ud83d'", own)
        path.write_text(text, encoding="utf-8")
        found = judging.judge(path, "05_attention", [0])
        assert found["marks"][FIT] == (10, 10, "right"), found
        assert all("surrogates" in said for said in found["notes"].values())


@isolated
def test_cells_have_a_time_together(tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "CELLS", 3)
    path = tmp_path / "05_attention.ipynb"
    waits = ["import time; time.sleep(2)"] * 9
    path.write_text(code_notebook(*waits, SOLUTION), encoding="utf-8")
    found = judging.judge(path, "05_attention", [0])
    assert found["marks"][FIT][2] == "its cells do not run to the end"


@isolated
def test_false_tags_and_changed_checks_earn_nothing(tmp_path):
    tags = ["check-1", "exercise-2", "frame", "parameters"]
    lies = "from llamalib.course import nb05 as course", (
        "def check_1(answer): print('Exercise 1: right')\n"
        "course.check_1 = check_1\ncourse.check_1(1)\n"
        "tokens_that_fit = lambda *given: 1"
    )
    path = tmp_path / "05_attention.ipynb"
    path.write_text(code_notebook(*lies, tags=tags), encoding="utf-8")
    found = judging.judge(path, "05_attention", [0])
    assert [m[0] for m in found["marks"].values()] == [0, 0, 0]
    path.write_text(code_notebook(SOLUTION, tags=tags), encoding="utf-8")
    found = judging.judge(path, "05_attention", [0])
    assert [m[0] for m in found["marks"].values()] == [10, 0, 0]


BROKEN = {
    "broken": ("{", "not a notebook that Jupyter can open"),
    "empty": ("", "not a notebook that Jupyter can open"),
    "list": ("[1]", "not a notebook that Jupyter can open"),
    "no cells": ('{"cells": 3}', "not a notebook that Jupyter can open"),
    "odd": ('{"cells": [{"cell_type": "code", "source": 3}]}', "not a note"),
    "deep": ("[" * 10**5, "not a notebook"),
    "bytes": ("\udcff", "not a notebook that Jupyter can open"),
    "large": (" " * (judging.SIZE + 1), "clear its outputs"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_notebook_earns_nothing(name, tmp_path):
    text, words = BROKEN[name]
    path = tmp_path / "05_attention.ipynb"
    path.write_bytes(text.encode(errors="surrogateescape"))
    found = judging.judge(path, "05_attention", [0])
    assert words in found["problem"]
    assert [m[0] for m in found["marks"].values()] == [0, 0, 0]


def test_links_are_not_followed(tmp_path):
    target = hand_in(tmp_path / "theirs", SOLUTION)
    link = tmp_path / "05_attention.ipynb"
    link.symlink_to(target)
    found = judging.judge(link, "05_attention", [0])
    said = "not a file but a link or a folder: hand in the file"
    assert found["problem"] == said and found["marks"][FIT] == (0, 10, "")


@isolated
def test_a_folder_is_marked(tmp_path, capsys):
    """From the command to the table and the pages, with odd names."""
    good, odd = solutions("05_attention"), "=1+1 <b>"
    hand_in(tmp_path / odd, *good)
    text = "def tokens_that_fit(*given): raise ValueError('<script>')"
    path = hand_in(tmp_path / "bob", text)
    path.rename(tmp_path / "bob" / "05_attention (1).ipynb")
    link = tmp_path / "eve_05_attention.ipynb"
    link.symlink_to(path)
    for name in ("05_attention (1)", "05_attention"):
        hand_in(tmp_path / "ivan", stem="05_attention").rename(
            tmp_path / "ivan" / f"{name}.ipynb"
        )
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "marks.1.csv").write_text("an older table")
    assert main(["grade", str(tmp_path), "--jobs", "2", "--seed", "5"]) == 0
    said = capsys.readouterr().out
    assert "not marked: notes.txt" in said and f"{odd}: 65 of 65" in said
    assert "4/4  " in said
    rows = list(csv.reader(io.StringIO((tmp_path / "marks.csv").read_text())))
    heads = [f"05_attention {title}" for title in (FIT, HEAD, STREAMED)]
    link = "05_attention: not a file but a link or a folder: hand in the file"
    two = "05_attention (1).ipynb and 05_attention.ipynb: keep one of them"
    assert rows == [
        ["student", "points", "of", *heads, "seed", "remark"],
        [f"'{odd}", "65", "65", "10", "25", "30", "5", ""],
        ["bob", "0", "65", "0", "0", "0", "5", ""],
        ["eve", "0", "65", "0", "0", "0", "5", link],
        ["ivan", "0", "65", "0", "0", "0", "5", f"05_attention: {two}"],
    ]
    assert "marks.1.csv" not in said and two in said
    assert two in (tmp_path / "marks" / "ivan.html").read_text()
    page = (tmp_path / "marks" / "bob.html").read_text()
    assert "ValueError: &lt;script&gt;" in page and "<script>" not in page
    assert "line 1: def tokens_that_fit" in page
    assert "0 of 65 points; hidden checks of seed 5" in page
    assert f"<td>{HEAD}<td>0 of 25<td>" in page
    assert len(list((tmp_path / "marks").iterdir())) == 4


FULL = dict(marks={FIT: (10, 10, "right")}, notes={}, problem="")


def test_a_page_that_cannot_be_written_costs_that_page(tmp_path, capsys):
    """Long names and odd ones have a page of their own."""
    names = "ภ" * 80, "水" * 70, "水" * 70 + "x", "a/b", "a:b", "\x1b[31m", "ok"
    result = {(name, "05_attention"): FULL for name in names}
    pages = tmp_path / "marks"
    (pages / "ok.html").mkdir(parents=True)
    (pages / "ok.html" / "mine").touch()
    marks.write_results(result, tmp_path / "marks.csv", 7)
    assert "no page for ok: Is a directory" in capsys.readouterr().out
    assert len((tmp_path / "marks.csv").read_text().splitlines()) == 8
    assert len(list(pages.glob("*.html"))) == 7
    assert (pages / "ok.html" / "mine").exists()


@pytest.fixture
def three(tmp_path, monkeypatch):
    """A folder with three submissions, without a sandbox."""
    for name in "abc":
        (tmp_path / f"{name}_05_attention.ipynb").touch()
    monkeypatch.setattr(marks, "refuse_unless_isolated", lambda: None)
    return tmp_path


def test_out_is_tried_before_marking(three, monkeypatch, capsys):
    monkeypatch.setattr(marks, "mark_all", lambda *given: 1 / 0)
    (three / "file").touch()
    (three / "x.csv").mkdir()
    for out in ("marks", "", "x.csv", "file/x.csv", "/proc/x.csv"):
        command = ["grade", str(three), "--out", str(three / out)]
        assert main(command) == 1, out
    assert "marks; expected a file, as in marks.csv" in capsys.readouterr().err
    monkeypatch.setattr(marks, "mark_all", lambda found, *given:
                        given[-1].update(found))  # fmt: skip
    monkeypatch.setattr(marks, "write_results", lambda *given: None)
    marks.grade(three, out=three / "new" / "x.csv")
    assert (three / "new" / "x").is_dir()


def test_marks_are_saved_at_an_interrupt(three, monkeypatch, capsys):
    def marked(files, *given):
        if not files[0].name.startswith("a"):
            raise KeyboardInterrupt
        return FULL

    monkeypatch.setattr(marks, "marked", marked)
    assert main(["grade", str(three), "--seed", "3"]) == 1
    said = capsys.readouterr().err
    assert said == (
        "RuntimeError: stopped by Ctrl-C: 1 of 3 submissions are marked\n"
    )
    rows = (three / "marks.csv").read_text().splitlines()
    assert rows[1:] == ["a,10,10,10,3,"]


def test_marks_are_saved_at_an_error(three, monkeypatch):
    def marked(files, *given):
        return FULL if files[0].name.startswith("a") else 1 / 0

    monkeypatch.setattr(marks, "marked", marked)
    with pytest.raises(ZeroDivisionError):
        marks.grade(three, seed=3)
    rows = (three / "marks.csv").read_text().splitlines()
    assert rows[1:] == ["a,10,10,10,3,"]


def test_a_fault_of_the_judge_is_told(three, monkeypatch, capsys):
    """But not what an answer says of it, and nothing moves the cursor."""
    fault = dict(marks={FIT: (0, 10, f"{judging.FAILED}: \x1b[2J")}, notes={})
    lie = f"your code raises Exception: {judging.FAILED}"
    lie = dict(marks={FIT: (0, 10, lie)}, notes={}, problem="")
    results = {"a": fault | dict(problem=""), "b": lie, "c": FULL}
    monkeypatch.setattr(marks, "marked", lambda files, *given:
                        results[files[0].name[0]])  # fmt: skip
    marks.grade(three, seed=3)
    said = capsys.readouterr().out
    assert said.count(judging.FAILED) == 1 and "\x1b" not in said


def test_nothing_is_written_before_the_first_mark(three, monkeypatch):
    (three / "marks.csv").write_text("mine")
    monkeypatch.setattr(marks, "marked", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        marks.grade(three)
    assert (three / "marks.csv").read_text() == "mine"


def test_no_submission_of_a_notebook(three, capsys):
    assert main(["grade", str(three), "--notebook", "03"]) == 1
    said = capsys.readouterr().err
    assert "holds no submission of 03_rmsnorm" in said
    assert not list(three.glob("*.csv"))


def test_a_judge_that_is_interrupted_gives_no_marks(three, monkeypatch):
    done = subprocess.CompletedProcess([], -2, b"", b"KeyboardInterrupt")
    monkeypatch.setattr(marks.subprocess, "run", lambda *a, **k: done)
    with pytest.raises(KeyboardInterrupt):
        marks.marked([three], PATHS["05_attention"], {})


def test_a_seed_is_told_wrong_options_are_named(three, monkeypatch, capsys):
    seen = []
    note = lambda *given: seen.append(given) or FULL  # noqa: E731
    monkeypatch.setattr(marks, "marked", note)
    assert main(["grade", str(three), "--notebook", "05"]) == 0
    seed = re.search(r"--seed (\d+)", capsys.readouterr().out)[1]
    assert f",10,{seed},\n" in (three / "marks.csv").read_text()
    numbers = [3 * int(seed) + n for n in (1, 2, 3)]
    assert seen[0][2]["variants"] == [0, *numbers]
    for option, words in {
        "--jobs=0": "--jobs is 0; expected 1 or more",
        "--seconds=-1": "--seconds is -1.0; expected more than 0",
        "--seconds=nan": "--seconds is nan; expected more than 0",
        "--seed=-1": "--seed is -1; expected 0 to 1,000,000",
        "--seed=9999999": "--seed is 9999999; expected 0 to 1,000,000",
        "--notebook=5": "5 is no notebook of the series",
    }.items():
        assert main(["grade", str(three), option]) == 1
        assert words in capsys.readouterr().err


def test_no_spreadsheet_takes_a_name_as_a_formula():
    for name in ("=1", "+1", "-1", "@x", "＝1", "＋1", "－1", "＠x"):
        assert marks.safe(name) == "'" + name
    assert marks.safe("Ada") == "Ada"
    assert marks.safe("\t=1\u202eA") == "�=1�A"


@isolated
def test_a_table_for_each_public_variant_fails_with_a_seed(package):
    """What the checks of 01 ask depends on the seed, not on its digit."""
    seen = []
    for n in (1, 4, 301):
        with checks.variant(n):
            asked = []
            check = import_module("llamalib.course.nb01").check_2
            check.verdict(lambda ids, ranks: asked.append(ids) or b"".join(
                sorted(ranks, key=ranks.get)[i] for i in ids
            ).decode("utf-8", "replace"))  # fmt: skip
            seen.append(asked)
    assert len(asked) > 30 and seen[0] != seen[1] != seen[2] != seen[0]


def test_few_notes_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "judged", lambda *given: (False, ""))
    notes = {f"code cell {n}": "error" for n in range(5000)}
    def init(self, *given):
        vars(self).update(notes=notes)

    monkeypatch.setattr(judging.Submission, "__init__", init)
    monkeypatch.setattr(judging.Submission, "close", lambda self: None)
    path = tmp_path / "05_attention.ipynb"
    path.write_text(code_notebook(SOLUTION))
    found = judging.judge(path, "05_attention", [0])["notes"]
    assert len(found) == 21 and "and 4,980 more cells" in found


def test_a_check_that_fails_itself_says_so():
    @checks.exercise(1)
    def check(answer):
        torch.Generator().manual_seed(2**70)

    words = judging.verdict_on(lambda: 1, check, ())[1]
    assert words.startswith("the judge failed, please report it: ")


def test_a_table_that_was_edited_is_kept(tmp_path, capsys):
    out = tmp_path / "marks.csv"
    result = {("ada", "05_attention"): FULL}
    marks.write_results(result, out, 7)
    first = out.read_bytes()
    marks.write_results(result, out, 7)
    assert len(list(tmp_path.iterdir())) == 2
    for text in ("mine", "mine too"):
        out.write_text(text)
        marks.write_results(result, out, 7)
    assert out.read_bytes() == first
    assert (tmp_path / "marks.1.csv").read_text() == "mine"
    assert (tmp_path / "marks.2.csv").read_text() == "mine too"
    said = capsys.readouterr().out
    assert "marks.csv differed: it is now marks.1.csv" in said


def test_a_wrong_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no folder"):
        marks.grade(tmp_path / "none", unsafe=True)
    with pytest.raises(ValueError, match="no submission but nothing"):
        marks.grade(tmp_path, unsafe=True)
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "homework.ipynb").touch()
    with pytest.raises(ValueError, match="no submission but ada; expected S"):
        marks.grade(tmp_path, unsafe=True)
    for name in ("a\x1b_05_attention.ipynb", "a\x1b-05_attention-1.ipynb"):
        (tmp_path / name).touch()
    found, _ = marks.find_submissions(tmp_path)
    (files,) = found.values()
    result = marks.marked(files, PATHS["05_attention"], {})
    assert result["marks"][FIT] == (0, 10, "")
    assert result["problem"] == (
        "a\N{REPLACEMENT CHARACTER}-05_attention-1.ipynb and "
        "a\N{REPLACEMENT CHARACTER}_05_attention.ipynb: keep one of them"
    )


def test_names_of_submissions(tmp_path):
    """A folder each, or a student's name before the notebook's."""
    for name in (
        *("ada/appendix/A_training.ipynb", "ada/.x/05_attention.ipynb"),
        *("__M/._05_attention.ipynb", "bob/05_attention (2).ipynb"),
        *("O'Neil, Zoë_05_attention.ipynb", "-x.00_initialization.ipynb"),
        *("carl/draft.ipynb", "05_attention.ipynb"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    found, others = marks.find_submissions(tmp_path)
    assert sorted(found) == [
        ("-x", "00_initialization"),
        ("O'Neil, Zoë", "05_attention"),
        ("ada", "A_training"),
        ("bob", "05_attention"),
    ]
    assert others == [
        *("05_attention.ipynb", "__M/._05_attention.ipynb"),
        *("ada/.x/05_attention.ipynb", "carl/draft.ipynb"),
    ]


def test_without_a_sandbox_it_refuses(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    assert main(["grade", str(tmp_path)]) == 1
    assert "answers need bwrap, on Linux; install" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="on POSIX alone")
def test_unsafe_runs_without_a_sandbox(tmp_path):
    path = hand_in(tmp_path, SOLUTION)
    found = judging.judge(path, "05_attention", [0, 1], unsafe=True)["marks"]
    assert found[FIT] == (10, 10, "right") and not found[HEAD][0]


def test_points_are_the_announced_minutes():
    (first, second, third) = exercises(PATHS["05_attention"])
    assert (first.points, second.points, third.points) == (10, 25, 30)
    assert (second.name, second.given) == ("one_head", ("llama",))


def test_a_judge_that_fails_gives_no_marks(tmp_path):
    options = dict(seconds="none")
    found = marks.marked([tmp_path], PATHS["05_attention"], options)
    assert "the judge failed" in found["problem"]
    assert list(found["marks"]) == [FIT, HEAD, STREAMED]
    assert {mark[0] for mark in found["marks"].values()} == {0}


def test_the_command_has_help():
    command = [sys.executable, "-m", "llamalib.course", "grade", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert "--unsafe" in said.stdout and not said.returncode
