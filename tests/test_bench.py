"""The benchmark: all peers give our answer, and tables match the figures.

Nothing is timed here; a tiny random checkpoint replaces the 1B.
"""

import json
import time

import pytest
import torch

import llamalib
from bench import generation
from bench.generation import COMPILED, CPP, HF, NOT, OURS
from llamalib.load import ROOT

TASKS = {
    "prefill": ((20,), ""),
    "position": ((16,), ""),
    "batch": ((3,), ""),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with each peer's files."""
    folder = tmp_path_factory.mktemp("tiny") / "1b"
    return generation.write_all(folder, **generation.TINY)


def measured(folder, *names, **how):
    return generation.measure(
        names, folder, "cpu", 1, (6, 3, 2), tasks=TASKS, **how
    )


def test_each_row_has_each_figure(tiny):
    """Every command passes through a process and back."""
    found = measured(tiny, OURS, "ours int8", HF)
    assert len(found["bandwidth"]["decode"]) == 6
    for row in found["rows"]:
        for what in ("first", "decode", "prefill 20", "position 16"):
            assert len(row[what]) >= 2 and min(row[what]) > 0, (row, what)
        assert len(row["batch 3"]) == 3 and row["load"] > 0
        assert row["peak"][0] > 10**7
    ours, int8, hf = found["rows"]
    assert ours["distance"] == 0 < hf["distance"] < 0.03
    assert 0.003 < int8["distance"] < 0.15
    small, large = (row["step bytes"]["decode"] for row in (int8, ours))
    assert small < 0.6 * large
    llama = llamalib.load(tiny, device="cpu")
    assert large == llamalib.bytes_per_step(llama, 7)


def test_llama_cpp_gives_our_answer(tiny):
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    found = measured(tiny, OURS, CPP, "llama.cpp q8_0")
    for row in found["rows"]:
        assert row["distance"] < 0.15 and len(row["decode"]) == 2


@pytest.mark.parametrize("dtype", ["float32", "int8", "int4"])
def test_the_compiled_step_gives_our_answer(tiny, dtype):
    """After a prompt, and after a cache that was filled; in two sizes."""
    both = [generation.Ours(tiny, dtype, "cpu", how) for how in (True, False)]
    prompts = torch.tensor([[5, 9, 20], [30, 31, 7]])
    with torch.compiler.set_stance("force_eager"), torch.inference_mode():
        for given, room in ((prompts, 8), (torch.tensor([[100]]), 300)):
            for each in both:
                torch.manual_seed(0)  # of the cache's numbers
                each.start(len(given), room)
                if room == 300:
                    each.fill(280)
            found = [each.run(given) for each in both]
            for token in (3, 50, 7):
                near = 1e-4 if dtype == "float32" else 0.05
                assert torch.allclose(*found, atol=near)
                ids = torch.full((len(given), 1), token)
                found = [each.run(ids) for each in both]


@pytest.mark.parametrize("peer", ["ours", "transformers", "llama.cpp"])
def test_a_batch_is_rows_of_their_own(tiny, peer):
    """Each row of a batch equals its prompt's own continuation."""
    make, compiled, module = generation.PEERS[peer]
    pytest.importorskip(module)
    prompts = [[5, 9, 20], [30, 31, 7], [100, 4, 4]]
    with torch.no_grad():
        one = make(tiny, "bfloat16", "cpu", compiled)
        alone = [list(one.generate(prompt, 3)) for prompt in prompts]
        one.start(3, 8)
        tokens, together = torch.tensor(prompts), []
        for _ in range(3):
            tokens = one.run(tokens).argmax(-1, keepdim=True)
            together.append(tokens[:, 0].tolist())
    assert [list(row) for row in zip(*together)] == alone


def test_another_answer_ends_the_run(tiny, tmp_path):
    """Another model's files for one peer are noticed."""
    other = dict(generation.TINY, n_heads=8)
    theirs = generation.write_all(tmp_path / "1b", **other)
    for name in ("consolidated.00.pth", "params.json"):
        (theirs / name).write_bytes((tiny / name).read_bytes())
    with pytest.raises(generation.Disagreement, match=f"^{HF}: its logits"):
        measured(theirs, OURS, HF)


def test_what_cannot_be_measured_is_a_reason(tmp_path):
    """A file, an answer or a process that is missing; no time left."""
    source = generation.write_1b(tmp_path / "1b", **generation.TINY)
    found = measured(source, OURS, HF, end=time.monotonic() + 60)
    assert "Error" in found["rows"][1]["missing"]
    found = measured(source, OURS, end=0)
    assert found["rows"][0]["missing"] == "no time was left"
    process = generation.Process(OURS, 1)
    process.process.kill()
    with pytest.raises(generation.NotMeasured, match="no answer"):
        process.ask("peak")
    process.stop("")


def result(**rows):
    """Return a result with made-up figures."""
    made = [
        {
            "name": name,
            "bandwidth": [10e9, 30e9],
            "step bytes": {"decode": 1e9},
        }
        | {"decode": speeds}
        for name, speeds in rows.items()
    ]
    section = {"rows": made, "prompt": 6, "new": 32}
    section["bandwidth"] = {"decode": [10e9, 30e9]}
    machine = generation.describe("cpu", 2)
    sections = {"1b": section}
    return {"device": "cpu", "machine": machine, "sections": sections}


def test_the_table_says_what_the_figures_say():
    made = result(**{OURS: [5.0, 15.0], HF: [4.0, 10.0], CPP: "it is late"})
    text = generation.document(made)
    (line,) = [x for x in text.splitlines() if x.startswith(f"| {OURS}")]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    # medians: of 5 and 15; of 5/4 and 15/10; of 5/10 and 15/30
    assert cells[:5] == [OURS, "10.0", "1.38", NOT, "50 %"]
    assert set(cells[5:]) == {NOT}
    assert f"Not measured: {CPP}: it is late." in text
    assert "with version" not in text
    made["machine"]["llamalib"] = "0.1"
    assert "Measured with version 0.1" in generation.document(made)


def test_readmes_ratios(tmp_path, monkeypatch):
    monkeypatch.setattr(generation, "RESULTS", tmp_path)
    made = result(**{COMPILED: [6.0, 15.0], HF: [4.0, 10.0]})
    (tmp_path / "generation-cpu.json").write_text(json.dumps(made))
    text = generation.readme_section()
    assert "on a CPU" in text and "GPU" not in text
    assert f"{generation.HEADLINES[0][0]} | 1.50 |" in text
    assert f"{generation.HEADLINES[1][0]} | {NOT} |" in text


def test_written_tables_are_todays():
    """`python bench/generation.py --tables` would change nothing."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert generation.readme_section() in readme
    for device in generation.ROWS:
        if found := generation.read(device):
            file = generation.file_of(device).with_suffix(".md")
            text = file.read_text(encoding="utf-8")
            assert text == generation.document(found)
            assert "/" not in json.dumps(found["machine"])
