"""The benchmark: all peers give our answer, and tables match the figures.

Nothing is timed here; a tiny random checkpoint replaces the 1B.
"""

import json
import multiprocessing
import os
import re
import signal
import threading

import pytest
import torch

import llamalib
from bench import generation
from bench.generation import COMPILED, CPP, CPP4, HF, NOT, OURS, rows_of
from lessons.bandwidth import bytes_per_step
from llamalib.gguf import open_file
from llamalib.load import ROOT
from tests.gguf_files import write_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with each peer's files."""
    folder = tmp_path_factory.mktemp("tiny") / "1b"
    return generation.write_all(folder, **generation.TINY)


@pytest.fixture(autouse=True, scope="module")
def one_import():
    """Fork the processes from one that has imported the bench: seconds each."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        yield
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.generation"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda kind: context)
        yield


class Here(generation.Process):
    """A row's peer in the tests' own process."""

    def __init__(self, name, end=None):
        self.row, self.peer = {"name": name}, None
        self.dtype = name.split()[-1]

    def ask(self, task, *given):
        if task == "load":
            self.peer = generation.load_peer(*given)
            return 1.0
        with torch.inference_mode():
            return getattr(self.peer, task)(*given)

    def stop(self):
        self.row["stopped"] = True


@pytest.fixture(autouse=True)
def bandwidth(monkeypatch):
    """Measure no bandwidth, which takes seconds; test_roofline.py does."""
    monkeypatch.setattr(generation, "memory_bandwidth", lambda device: 1e9)


def measured(folder, *names, **how):
    how = dict(sizes=(6, 3, 2), tasks=generation.TINY_TASKS) | how
    return generation.measure(names, folder, "cpu", **how)


def test_each_row_has_each_figure(tiny):
    """Every question passes through a process and back."""
    found = measured(tiny, OURS, "ours int8", HF)
    assert len(found["bandwidth"]["decode"]) == 6
    rounds = {"bandwidth": 2, "first": 2, "decode": 2, "peak": 1}
    rounds |= {"prefill 20": 3, "batch 3": 3}
    for row in found["rows"]:
        for what, n in rounds.items():
            assert len(row[what]) == n and min(row[what]) > 0, (row, what)
        assert row["peak"][0] > 10**7
    ours, int8, hf = found["rows"]
    assert ours["distance"] == 0 < hf["distance"] < 0.03
    assert 0.003 < int8["distance"] < 0.15
    small, large = (row["step bytes"] for row in (int8, ours))
    assert small["decode"] < 0.6 * large["decode"]
    llama = llamalib.load(tiny, device="cpu")
    assert large["decode"] == bytes_per_step(llama, 7)
    assert large["batch 3"] == bytes_per_step(llama, 7, 3)


@pytest.fixture(scope="module")
def four_bits(tiny, tmp_path_factory):
    """A folder with each peer's files, made of one in Q4_1."""

    def keep_head(facts, tensors, kinds):
        kinds["token_embd.weight"] = "Q8_0"

    folder = tmp_path_factory.mktemp("four")
    llama = llamalib.load(tiny, device="cpu")
    file = write_gguf(folder / "a.gguf", llama, "Q4_1", keep_head)
    return generation.copy_gguf(file, folder / "smollm2")


def test_a_gguf_is_opened_by_all(four_bits, monkeypatch):
    """The same weights, of four bits, for us and for transformers."""
    monkeypatch.setattr(generation, "Process", Here)
    ours, hf = measured(four_bits, OURS, HF)["rows"]
    assert 0 < ours["open"] and ours["distance"] == 0 < hf["distance"] < 0.03
    llama = llamalib.load(four_bits, device="cpu")
    cache = generation.step_bytes(llama, "bfloat16", 7, ())["decode"]
    cache -= bytes_per_step(llama, 0)
    found = generation.step_bytes(llama, "q4_1", 7, ())["decode"] - cache
    tensors = open_file(four_bits / "q4_1.gguf").tensors
    stored = sum(each.n_bytes for each in tensors)
    assert found == pytest.approx(stored, rel=1e-3)


@pytest.mark.parametrize("bits", ["many", "four"])
def test_llama_cpp_gives_our_answer(request, bits):
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    if bits == "four":
        folder, names = request.getfixturevalue("four_bits"), [CPP4]
    else:
        folder, names = (
            request.getfixturevalue("tiny"),
            [CPP, "llama.cpp q8_0"],
        )
    ours, *theirs = measured(folder, OURS, *names)["rows"]
    rows = [row for row in theirs if "missing" not in row]
    for row in [ours, *rows]:
        assert row["distance"] < 0.15 and len(row["decode"]) == 2
        assert min(row["prefill 20"] + row["batch 3"]) > 0, row
    ended = [row for row in theirs if row not in rows]
    for row in ended:  # another reason would be our fault
        assert re.match(r"its process ended \(-\d+\)$", row["missing"]), row
    if ended:  # as q8_0 does on a CPU with AMX
        names = ", ".join(row["name"] for row in ended)
        pytest.skip(f"{names}: {ended[0]['missing']}")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_a_peer_that_crashes_is_a_reason(tiny, monkeypatch):
    """In the table; the others are measured."""
    ask = generation.Process.ask

    def crashing(process, task, *given):
        if process.row["name"] == "ours int8" and task == "load":
            os.kill(process.process.pid, signal.SIGSEGV)
        return ask(process, task, *given)

    monkeypatch.setattr(generation.Process, "ask", crashing)
    found = measured(tiny, OURS, "ours int8", sizes=(6, 3, 1))
    ours, int8 = found["rows"]
    assert len(ours["decode"]) == 1 and "decode" not in int8
    made = result() | {"sections": {"1b": found}}
    why = "ours int8: its process ended (-11)."
    assert f"Not measured: {why}" in generation.document(made)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int4"])
def test_the_compiled_step_gives_our_answer(tiny, dtype):
    """After prompts of two sizes, in one process."""
    both = [generation.Ours(tiny, dtype, "cpu", how) for how in (True, False)]
    with torch.compiler.set_stance("force_eager"), torch.inference_mode():
        for rows, length in ((2, 3), (1, 280)):
            tokens = both[0].tokens(rows, length)
            for each in both:
                each.start(rows, length + 5)
            found = [each.run(tokens) for each in both]
            for token in (3, 50, 7):
                near = 1e-4 if dtype == "float32" else 0.05
                assert torch.allclose(*found, atol=near)
                ids = torch.full((rows, 1), token)
                found = [each.run(ids) for each in both]


@pytest.mark.parametrize("peer", generation.PEERS)
def test_a_batch_is_rows_of_their_own(tiny, peer):
    """Each row of a batch equals its prompt's own continuation."""
    if peer == "llama.cpp":
        pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    with torch.no_grad():
        one = generation.load_peer(f"{peer} bfloat16", tiny, "cpu")
        tokens, together = one.tokens(3, 4), []
        alone = [list(one.generate(row.tolist(), 3)) for row in tokens]
        one.start(3, 8)
        for _ in range(3):
            tokens = one.run(tokens).argmax(-1, keepdim=True)
            together.append(tokens[:, 0].tolist())
    assert [list(row) for row in zip(*together)] == alone


def test_another_answer_ends_the_run(tiny, tmp_path, monkeypatch):
    """Another model's files for one peer are noticed; all are stopped."""
    other = dict(generation.TINY, n_heads=8)
    theirs = generation.write_all(tmp_path / "1b", **other)
    for name in ("consolidated.00.pth", "params.json"):
        (theirs / name).write_bytes((tiny / name).read_bytes())
    made = []

    def process(*given):
        made.append(Here(*given))
        return made[-1]

    monkeypatch.setattr(generation, "Process", process)
    with pytest.raises(generation.Disagreement, match=f"^{HF}: its logits"):
        measured(theirs, OURS, HF)
    assert all(each.row["stopped"] for each in made) and len(made) == 2


def test_what_cannot_be_measured_is_a_reason(tmp_path, monkeypatch):
    """An error; a process that is killed in the second round."""
    source = generation.write_1b(tmp_path / "1b", **generation.TINY)
    turns = []

    def bandwidth(device):  # it is asked before each turn
        turns.append(device)
        if len(turns) == 3:
            last = max(multiprocessing.active_children(), key=lambda p: p.pid)
            last.kill()
        return 1e9

    monkeypatch.setattr(generation, "memory_bandwidth", bandwidth)
    found = measured(source, OURS, "ours bits", "ours int8", sizes=(6, 3, 3))
    ours, wrong, killed = found["rows"]
    assert "Error" in wrong["missing"] and "decode" not in wrong
    assert len(killed["decode"]) == 1
    assert killed["prefill 20"].startswith("its process ended")
    assert len(ours["decode"]) == len(ours["prefill 20"]) == 3
    assert not multiprocessing.active_children()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="not on Windows")
@pytest.mark.parametrize("dies", [False, True])
def test_a_peer_that_does_not_answer(monkeypatch, dies):
    """It hangs, and is ended; or it ends while its parent waits."""
    monkeypatch.setattr(generation, "PATIENCE", 60 if dies else 0.1)
    hangs = generation.Process(OURS)
    os.kill(hangs.process.pid, signal.SIGSTOP)
    first = "its process ended" if dies else "no answer in 0.1 s"
    if dies:
        hangs.connection, theirs = multiprocessing.Pipe()

        def end():  # after the question is read
            theirs.recv()
            hangs.process.kill()
            theirs.close()

        threading.Thread(target=end).start()
    for why in (first, "its process ended"):
        with pytest.raises(generation.NotMeasured, match=why):
            hangs.ask("peak")
    hangs.end = 0
    with pytest.raises(generation.NotMeasured, match="no time was left"):
        hangs.ask("peak")


def result(**rows):
    """Return a result with made-up figures."""
    made = [
        {
            "name": name,
            "bandwidth": [10e9, 30e9],
            "step bytes": {"decode": 1e9},
            "decode": speeds,
        }
        for name, speeds in rows.items()
    ]
    section = {"rows": made, "prompt": 6, "new": 32}
    section["bandwidth"] = {"decode": [10e9, 30e9]}
    machine = generation.describe("cpu")
    sections = {"1b": section}
    return {"device": "cpu", "machine": machine, "sections": sections}


def test_the_table_says_what_the_figures_say():
    made = result(**{OURS: [5.0, 15.0], HF: [4.0, 10.0], CPP: "it is late"})
    rows_of(made)[HF]["first"] = [0.2, 0.4]  # no row has the other columns
    text = generation.document(made)
    (line,) = [x for x in text.splitlines() if x.startswith(f"| {OURS}")]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    # medians: of 5 and 15; of 5/4 and 15/10; of 5/10 and 15/30
    assert cells == [OURS, "10.0", "1.38", NOT, "50 %", NOT]
    assert "of the limit | first token, ms |\n" in text
    assert f"Not measured: {CPP}: it is late." in text
    assert "with version" not in text
    made["machine"]["llamalib"] = "0.1"
    assert "Measured with version 0.1" in generation.document(made)


def test_readmes_ratios():
    made = result(**{COMPILED: [6.0, 15.0], HF: [4.0, 10.0]})
    text = generation.readme_section([made])
    assert "on a CPU" in text and "GPU" not in text
    assert f"{generation.HEADLINES[0][0]} | 1.50 |" in text
    assert f"{generation.HEADLINES[1][0]} | {NOT} |" in text


def test_smollm2_has_a_table_and_a_sentence():
    made = result(**{COMPILED: [6.0, 9.0], HF: [4.0, 6.0], CPP4: [8.0, 12.0]})
    assert "llama.cpp on four bits" not in generation.readme_section([made])
    made["sections"] = {"smollm2": made["sections"]["1b"]}
    text = generation.document(made)
    assert text.startswith("# How fast SmolLM2-135M-Instruct runs on a CPU\n")
    assert f"| {COMPILED} | 7.5 | 1.50 | 0.75 |" in text
    text = generation.readme_section([made])
    assert "1.50 × transformers, 0.75 × llama.cpp on four bits" in text
    assert "generation-smollm2.md" in text and "| 1.50 |" not in text


def test_written_tables_are_todays():
    """`python bench/generation.py --tables` would change nothing."""
    results = generation.read_all(generation.RESULTS)
    for found in results:
        name = generation.name_of(found)
        file = generation.RESULTS / f"generation-{name}.md"
        assert file.read_text(encoding="utf-8") == generation.document(found)
        assert "/" not in json.dumps(found["machine"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert generation.readme_section(results) in readme
