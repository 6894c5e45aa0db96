"""The benchmark: all peers give our answer, and reports match the figures.

Nothing is timed here; a tiny random checkpoint replaces the 1B.
"""

import json
import re
import subprocess
import sys

import pytest
import torch

import llamalib
from bench import generation, peers, picture, report
from bench.checkpoint import write_for_peers
from bench.generation import Disagreement, check_agreement
from bench.plan import CPU, CUDA, PLANS, Row, Section
from llamalib.load import ROOT
from tests.helpers import random_llama, small_config, write_checkpoint

OURS = Row("ours", "float32")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder of Meta's files, and one of what the others open."""
    folder = tmp_path_factory.mktemp("tiny")
    config = small_config(
        use_scaled_rope=True, rope_scaling_factor=32.0, n_layers=1
    )
    source = write_checkpoint(folder / "meta", random_llama(config))
    kinds = ("f32", "bf16", "q8_0")
    return source, write_for_peers(source, folder / "others", kinds)


def measured(tiny, *rows, **changes):
    section = Section("tiny", rows, new=4, rounds=2, **changes)
    return generation.measure(section, *tiny, "cpu", threads=1)


def test_ours_by_a_worker(tiny):
    """Every command passes through the process and back."""
    found = measured(
        tiny,
        OURS,
        Row("ours", "int8"),
        Row("naive", "float32", ("generate",)),
        prefills=(20,),
        positions=(16, 32),
        batches=(1, 3),
        repeats=3,
        caches=(10,),
    )
    ours, int8, naive = found["rows"]
    for what in ("first", "decode", "position 32", "batch 3", "prefill 20"):
        assert len(ours[what]) == 2 and min(ours[what]) > 0, what
        assert what == "first" or len(found["bandwidth"]["decode"]) == 2
    assert ours["distance"] == 0 and ours["load"] > 0 and ours["peak"][0] > 0
    assert len(int8["decode"]) == 2 and 0 < int8["distance"] < 0.15
    assert int8["step bytes"]["decode"] < ours["step bytes"]["decode"] / 3
    assert "position 16" not in naive and len(naive["decode"]) == 2
    held = found["cache 10"]
    assert held["bytes"] == held["formula"] == 2 * 1 * 2 * 8 * 4 * 10
    assert found["repeat"]["grown"] is not None


@pytest.mark.parametrize(
    "package, rows",
    [
        ("transformers", [Row("transformers", "float32")]),
        (
            "llama_cpp",
            [Row("llama.cpp", "float32"), Row("llama.cpp", "q8_0")],
        ),
    ],
)
def test_others_give_our_answer(tiny, package, rows):
    pytest.importorskip(package, reason=f"{package} is not installed")
    found = measured(tiny, OURS, *rows, positions=(16,), batches=(3,))
    for row in found["rows"][1:]:
        assert "missing" not in row, row
        exact = row["dtype"] == "float32" and package == "transformers"
        assert row["distance"] < (1e-3 if exact else 0.15)
        for what in ("first", "decode", "position 16", "batch 3"):
            assert min(row[what]) > 0


@pytest.mark.parametrize("dtype", ["float32", "int8", "int4"])
def test_the_compiled_step_gives_our_answer(tiny, dtype):
    """After a prompt, and after a cache that was filled; in two sizes."""
    peer, ours = (
        peers.PEERS[name](*tiny, dtype, "cpu", 1)
        for name in ("ours compile=True", "ours")
    )
    prompts, filled = [[5, 9, 20], [30, 31, 7]], [[100]]
    with torch.compiler.set_stance("force_eager"), torch.inference_mode():
        for given, room in ((prompts, 8), (filled, 300), (prompts, 8)):
            for each in (peer, ours):
                torch.manual_seed(0)  # of the cache's numbers
                each.start(len(given), room)
                if given is filled:
                    each.fill(280)
            found = [each.prefill_logits(given) for each in (peer, ours)]
            for token in (3, 50, 7):
                assert torch.allclose(
                    *found, atol=1e-4 if dtype == "float32" else 0.05
                )
                ids = torch.full((len(given),), token)
                found = [each.step_logits(ids) for each in (peer, ours)]
            assert peer.cache_bytes() > ours.cache_bytes()  # it is static


def test_no_time_left(tiny):
    """What is late is named; what was measured is kept after each task."""
    section = Section("tiny", (OURS,), new=4, rounds=2, prefills=(20,))
    found = generation.measure(section, *tiny, "cpu", 1, end=0)
    assert found["rows"][0]["missing"] == generation.LATE
    assert found["bandwidth"]["decode"] == []
    kept = []

    def keep(found):
        kept.append(sorted(found["bandwidth"]))

    generation.measure(section, *tiny, "cpu", 1, keep=keep)
    assert kept[0] == ["decode"] and kept[-1] == ["decode", "prefill 20"]


def test_a_batch_is_rows_of_their_own(tiny):
    """Each row of a batch equals its prompt's own continuation."""
    prompts = [[5, 9, 20], [30, 31, 7], [100, 4, 4]]
    for name in ("ours", "transformers", "llama.cpp"):
        try:
            peers.PEERS[name].package()
        except peers.NotMeasured:
            continue
        with torch.no_grad():
            peer = peers.PEERS[name](*tiny, "float32", "cpu", 1)
            alone = [list(peer.generate(p, 3)) for p in prompts]
            peer.start(3, 8)
            ids = peer.prefill(prompts)
            together = [ids.tolist()]
            for _ in range(2):
                ids = peer.step(ids)
                together.append(ids.tolist())
        assert [list(row) for row in zip(*together)] == alone, name


def answer(logits, id=None):
    logits = torch.tensor(logits)
    best = int(logits[0].argmax()) if id is None else id
    return {"logits": logits.tolist(), "id": best}


def test_another_answer_is_refused():
    """A peer that computes something else ends the run."""
    dtypes = {"a": "bfloat16", "b": "bfloat16", "naive": "bfloat16"}
    torch.manual_seed(0)
    logits = torch.randn(2, 50)
    a = answer(logits.tolist())
    near = answer((logits + 0.01 * torch.randn(2, 50)).tolist())
    far = check_agreement({"a": a, "b": near}, dtypes)
    assert far["a"] == 0 and 0.005 < far["b"] < 0.02
    wrong = logits.clone()
    wrong[1] = wrong[1].roll(1)  # only the decoded position
    with pytest.raises(Disagreement, match="^b: .* those of a is 1"):
        check_agreement({"a": a, "b": answer(wrong.tolist(), a["id"])}, dtypes)
    worst = int(logits[0].argmin())
    with pytest.raises(Disagreement, match=f"^naive chooses id {worst}"):
        naive = {"logits": [], "id": worst}
        check_agreement({"a": a, "naive": naive}, dtypes)
    broken = answer((logits * float("nan")).tolist(), a["id"])
    with pytest.raises(Disagreement):
        check_agreement({"a": a, "b": broken}, dtypes)


def test_a_run_with_another_model_ends(tiny, tmp_path):
    """Another model's files for one peer are noticed."""
    pytest.importorskip("transformers", reason="transformers is missing")
    config = llamalib.load(tiny[0]).config
    other = write_checkpoint(tmp_path / "m", random_llama(config, seed=1))
    others = write_for_peers(other, tmp_path / "o", ())
    with pytest.raises(Disagreement, match="transformers float32"):
        measured((tiny[0], others), OURS, Row("transformers", "float32"))


def test_a_worker_that_fails_is_a_row(tiny, tmp_path):
    """A file, package, answer or process that is missing is a reason."""
    source, _ = tiny
    others = Row("transformers", "float32"), Row("gpt-fast", "bfloat16")
    found = measured((source, tmp_path), OURS, *others)
    assert "Error" in found["rows"][1]["missing"]
    assert "cannot be installed as a package" in found["rows"][2]["missing"]
    worker = generation.Worker(OURS, 1)
    assert worker.ask("load", patience=0.01) == "no answer in 0.01 s"
    assert worker.ask("peak") == "no answer in 0.01 s"
    worker = generation.Worker(OURS, 1)
    worker.process.kill()
    assert worker.ask("peak").startswith("its process ended")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(peers.NotMeasured, match="llama_cpp is not installed"):
        peers.LlamaCpp.package()


def test_bytes_of_a_step(tiny):
    """Ours are llamalib's; the others' follow their weights and caches."""
    for dtype in (torch.float32, torch.bfloat16):
        llama = llamalib.load(tiny[0], device="cpu", dtype=dtype)
        row = Row("ours", str(dtype).removeprefix("torch."))
        for length, B in ((0, 1), (100, 1), (7, 3)):
            found = generation.step_bytes(llama, row, length, B)
            assert found == llamalib.bytes_per_step(llama, length, B)
    weights, cache = generation.step_bytes(llama, row, 0), 2 * 2 * 8 * 2
    for kind in ("int8", "int4"):
        small = llamalib.load(tiny[0], dtype=llama.dtype, quantize=kind)
        found = generation.step_bytes(llama, Row("ours", kind), 7, 3)
        assert found == llamalib.bytes_per_step(small, 7, 3) < weights
    for dtype, factor in (("q8_0", 34 / 64), ("float32", 2)):
        found = generation.step_bytes(llama, Row("llama.cpp", dtype), 10)
        assert found == weights * factor + 10 * cache


def test_without_a_gpu_a_sentence():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, "bench/generation.py", "--device", "cuda"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "no CUDA GPU here" in done.stderr
    assert "Traceback" not in done.stderr


SPEEDS = {  # made up, relative to ours
    "ours bfloat16": 1,
    "ours compile=True bfloat16": 2,
    "ours int4": 4,
    "transformers bfloat16": 5,
    "llama.cpp bfloat16": 7,
}


def result(**changes):
    """Return a result with made-up figures."""
    speeds = [SPEEDS.get(r.name, 3) for r in CPU.sections["1b"].rows]
    rows = [
        {
            "name": row.name,
            "dtype": row.dtype,
            "load": 1.0,
            "distance": 0.01,
            "step bytes": {
                "decode": 2.5e9,
                "position 128": 2.5e9,
                "position 2048": 2.5e9,
                "position 8192": 2.5e9,
                "position 32768": 5e9,
                "batch 32": 2.6e9,
            },
            "decode": [10.0 * speed, 30.0 * speed, 20.0 * speed],
            "first": [0.1, 0.3, 0.2],
            "position 128": [20.0],
        }
        for row, speed in zip(CPU.sections["1b"].rows, speeds)
    ]
    section = {
        "rows": rows,
        "new": 32,
        "bandwidth": {"decode": [50e9, 100e9, 75e9]},
        "busy": 0.01,
    }
    int8, cpp = (report.by_name(section, n) for n in (report.INT8, report.CPP))
    int8["missing"] = "there is no such thing"
    del int8["decode"], int8["first"]
    cpp["position 8192"] = "it would take an hour"
    machine = generation.describe("cpu", 2)
    made = {"device": "cpu", "machine": machine, "sections": {"1b": section}}
    return made | changes


def cells(text, name):
    """Return the cells of the first table line that begins with a name."""
    line = next(x for x in text.splitlines() if x.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_report_says_what_the_figures_say():
    text = report.document(result())
    ours = cells(text, "ours bfloat16")
    # 20 of 100; 20 of 140 tokens/s; 10, 30, 20 times 2.5 of 50, 100, 75 GB/s
    assert ours[1:] == ["20", "0.20", "0.14", "67 %", "200"]
    assert "there is no such thing" in text
    assert "llama.cpp bfloat16 (position 8192): it would take an hour" in text
    assert cells(text, "… predicted by its bytes")[1::3] == ["20", "10"]
    assert text.count("… predicted by its bytes") == 2  # and compile=True's


def test_targets():
    """Each by default and with compile=True; one of the two decides."""
    made = result()
    one = made["sections"]["1b"]
    names = report.OURS, report.COMPILED, report.INT4, report.HF, report.CPP
    ours, best, int4, hf, cpp = (report.by_name(one, name) for name in names)
    text = report.document(made)
    target = cells(text, "decode ÷ transformers")[1:]
    assert target == ["0.20", "**0.40**", "≥ 1", "**no**"]
    ours["decode"] = [1.9 * x for x in hf["decode"]]
    hf["position 32768"], ours["position 32768"] = [2.0], [10.0]
    text = report.document(made)
    target = cells(text, "decode ÷ transformers")[1:]
    assert target == ["1.90", "**0.40**", "≥ 1", "**no**"]
    target = cells(text, "position 32768 ÷ transformers")[1:]
    assert target == ["**5.00**", "not measured", "≥ 5", "yes"]
    # the limit is a row's own if it was measured with the row
    share = cells(text, "decode, of the limit")
    assert share[2:] == ["**133 %**", "≥ 85 %", "yes"]
    best["bandwidth"] = [50e9, 150e9, 1000e9]
    share = cells(report.document(made), "decode, of the limit")
    assert share[2:] == ["**100 %**", "≥ 85 %", "yes"]
    # lower is better for a time
    name = "seconds, first token of 6 ÷ llama.cpp"
    assert cells(text, name)[1:] == ["**1.00**", "1.00", "≤ 2", "yes"]
    cpp["first"] = [x / 3 for x in cpp["first"]]
    assert cells(report.document(made), name)[3:] == ["≤ 2", "**no**"]
    # one figure, without compile=True
    assert cells(text, "int8 ÷ bfloat16")[1] == report.NOT
    int4["decode"] = [1.1 * x for x in ours["decode"]]
    target = cells(report.document(made), "int4 ÷ bfloat16")
    assert target[1:] == ["**1.10**", "–", "≥ 2.2", "**no**"]


def test_targets_on_a_gpu():
    made = result()
    on_cpu = made["sections"]["1b"]
    rows = [
        {**row, "name": spec.name, "batch 1": [10.0], "batch 32": [160.0]}
        for spec in CUDA.sections["1b"].rows
        for row in [report.by_name(on_cpu, spec.name) or on_cpu["rows"][0]]
    ]
    rows[1]["batch 32"] = [149.0]
    made = report.nothing("cuda") | {
        "machine": made["machine"] | {"gpu": "one"},
        "sections": {"1b": made["sections"]["1b"] | {"rows": rows}},
    }
    text = report.document(made)
    asked = cells(text, "tokens/s of 32 rows ÷ of one")[1:]
    assert asked == ["16.00", "**14.90**", "≥ 15", "**no**"]
    assert cells(text, "decode ÷ transformers")[3:] == ["≥ 5", "**no**"]
    assert cells(text, "decode, of the limit")[3:] == ["≥ 60 %", "yes"]
    assert "pocket" not in text


def test_an_older_version_is_named():
    """Its figures are shown, its removed rows are not."""
    made = result()
    rows = made["sections"]["1b"]["rows"]
    rows.append(rows[0] | {"name": report.REMOVED[0]})
    text = report.document(made)
    assert "repack" not in text and "with version 0.2" not in text
    assert len(rows) == len(CPU.sections["1b"].rows) + 1  # it is kept
    del made["machine"]["llamalib"]
    said = f"Measured on {made['machine']['day']} with version 0.2; the "
    said += "compiled step and the quantized products have been rewritten "
    said += "since.\n"
    for text in (report.document(made), report.readme_section([made])):
        assert said in text and "repack" not in text


def test_what_was_not_measured_is_named():
    made = result()
    text = report.document(made)
    assert cells(text, "ours int8")[1:] == 5 * [report.NOT]
    assert cells(text, "pocket Llama, tokens/s")[1] == report.NOT
    for device in PLANS:
        text = report.document(report.nothing(device))
        for row in PLANS[device].sections["1b"].rows:
            assert set(cells(text, row.name)[1:]) == {report.NOT}
        assert report.NO_GPU in text
    assert report.reasons(made["sections"]["1b"]).count(";") == 1


def test_headlines():
    """Three ratios for the README, of each measured device."""
    made = result()
    text = report.readme_section([made, report.nothing("cuda")])
    assert "on a CPU" in text and "on a GPU" not in text
    name = "`generate(…, compile=True)` ÷ transformers, bfloat16"
    assert cells(text, name)[1:] == ["0.40"]
    assert cells(text, report.HEADLINES[2][0])[1:] == ["4.00"]


def test_the_pictures_numbers():
    made = result()
    fig = picture.draw(made)
    left, right = fig.axes
    names = [label.get_text() for label in left.get_yticklabels()]
    rows = made["sections"]["1b"]["rows"]
    assert names == [r["name"] for r in rows if r["name"] != report.INT8]
    assert left.patches[0].get_width() == 20
    # 20 of 100 tokens/s: 67 % of 75 GB/s; a row's own, where it has one
    assert left.get_lines()[0].get_xdata() == pytest.approx([30, 30])
    made["sections"]["1b"]["rows"][0]["bandwidth"] = [25e9, 75e9, 500e9]
    left, right = picture.draw(made).axes
    assert left.get_lines()[0].get_xdata() == pytest.approx([20, 20])
    assert right.get_lines()


def test_written_reports_are_up_to_date():
    """README and tables are what the JSON makes of them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert report.in_readme(readme) == readme, "python bench/report.py"
    section = readme.split(report.BEGIN)[1].split(report.END)[0]
    assert len(re.findall(r"\d\.\d\d \|$", section, re.M)) == 3
    for device in PLANS:
        if report.path_of(device, "json").is_file():
            text = report.path_of(device, "md").read_text(encoding="utf-8")
            found = report.document(report.read(device))
            assert text == found, "python bench/report.py"
            assert report.path_of(device, "png").is_file()


def test_results_name_no_machine():
    for file in report.RESULTS.glob("generation-*.json"):
        found = json.loads(file.read_text(encoding="utf-8"))
        assert "/" not in json.dumps(found["machine"]).replace("n/a", "")


def test_plans_ask_for_what_is_reported():
    """Every device's plan measures what the tables have columns for."""
    for plan in (CPU, CUDA):
        section = plan.sections["1b"]
        assert section.prefills == report.PREFILLS
        assert section.positions == report.POSITIONS
        assert section.batches == (1, 8, 32)
        assert section.rows[0] == Row("ours", "bfloat16")
        rows = [r for each in plan.sections.values() for r in each.rows]
        for dtype in ("int8", "int4"):
            assert Row("ours compile=True", dtype, ("generate",)) in rows
        text = report.document(report.nothing(plan.device))
        for row in rows:
            assert f"| {row.name} |" in text and row.peer in peers.PEERS
