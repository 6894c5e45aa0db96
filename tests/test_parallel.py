"""One model over several processes: the same numbers, memory, errors."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import llamalib
from llamalib import LLAMA_1B, ModelArgs, fast, parallel
from llamalib.files import ROOT
from llamalib.formats.meta import shard_axis, tensor_shapes
from llamalib.parallel.plan import keep_part, kv_heads, split
from tests import one_of_several
from tests.helpers import random_llama, small_config, write_checkpoint
from tests.reference import weights, write_shards, write_transformers
from tests.test_huggingface import tokenizer_json

LLAMA_70B = ModelArgs(
    dim=8192,
    n_layers=80,
    n_heads=64,
    n_kv_heads=8,
    vocab_size=128256,
    multiple_of=4096,
    ffn_dim_multiplier=1.3,
    norm_eps=1e-5,
    rope_theta=500000.0,
    use_scaled_rope=True,
)


def torchrun(n, *arguments, **environment):
    """Run a command in n processes; return its result and the seconds."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    path = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    done = subprocess.run(
        [*run, f"--nproc-per-node={n}", *map(str, arguments)],
        env={**os.environ, **path, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done, time.perf_counter() - start


def run_task(task, n, folder, folders) -> list[dict]:
    """Run a task of one_of_several.py; return what each rank found."""
    names = {name: str(path) for name, path in folders.items()}
    (folder / "jobs.json").write_text(json.dumps(names))
    done, _ = torchrun(n, one_of_several.__file__, task, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    files = [folder / f"{task}-{n}-{rank}.pt" for rank in range(n)]
    return [torch.load(file, weights_only=False) for file in files]


def hugging_face(folder, llama, tokenizer):
    write_transformers(llama, folder)
    tokenizer_json(tokenizer, folder / "tokenizer.json")
    return folder


# -- the plan, without processes ---------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 32])
def test_the_1b_is_cut_into_parts_that_cover_it_once(n):
    for name, shape in tensor_shapes(LLAMA_1B).items():
        parts = [parallel.part(LLAMA_1B, name, r, n) for r in range(n)]
        if "norm" in name:
            assert set(parts) == {None}
            continue
        rows = [i for _, ranges in parts for each in ranges for i in each]
        copies = max(1, n // 8) if ".wk." in name or ".wv." in name else 1
        axis = shard_axis(name)
        assert {axis} == {axis for axis, _ in parts}
        assert sorted(rows) == sorted([*range(shape[axis])] * copies), name


def test_a_70b_needs_no_weights():
    """Shapes of what 8 ranks keep of eight files, on the meta device."""
    c, n = LLAMA_70B, 8
    D, F, V, kv = c.dim, c.hidden_dim, c.vocab_size, c.n_kv_heads * 128
    assert (F, c.head_dim) == (28672, 128)
    expected = {
        "wq": (D // n, D),
        "wk": (kv // n, D),
        "wv": (kv // n, D),
        "wo": (D, D // n),
        "w1": (F // n, D),
        "w3": (F // n, D),
        "w2": (D, F // n),
        "tok_embeddings": (V // n, D),
        "output": (V // n, D),
        "norm": (D,),
    }
    for rank in range(n):
        total = 0
        for name, shape in parallel.part_shapes(c, rank, n).items():
            stem = name.split(".")[-2].replace("attention_", "")
            assert shape == expected[stem.replace("ffn_", "")], name
            total += torch.Size(shape).numel()
        norms = 161 * D
        assert total == (70_553_706_496 - norms) // n + norms


@pytest.mark.parametrize("files", [1, 2, 8])
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_any_number_of_files_into_any_number_of_parts(files, n):
    config = small_config(dim=48, n_heads=6, n_kv_heads=3, multiple_of=8)
    whole = weights(random_llama(config, tied=False))
    for name, w in whole.items():
        axis = shard_axis(name)
        held = [w] * files if axis is None else w.chunk(files, axis)
        kept = [
            keep_part(config, name, list(held), rank=r, n=n) for r in range(n)
        ]
        if axis is None:
            assert all(torch.equal(part[0], w) for part in kept)
            continue
        assert all(v.data_ptr() >= w.data_ptr() for p in kept for v in p)
        for rank, views in enumerate(kept):
            _, ranges = parallel.part(config, name, rank, n)
            ids = torch.tensor([i for each in ranges for i in each])
            right = w.index_select(axis, ids)
            assert torch.equal(torch.cat(views, axis), right), name


def test_kv_heads_follow_the_query_heads():
    """Also where a rank's query heads are no whole number of groups."""
    for H, KV in ((8, 8), (8, 2), (8, 1), (6, 3), (12, 4)):
        config = small_config(dim=48, n_heads=H, n_kv_heads=KV, head_width=8)
        for n in (n for n in range(1, H + 1) if H % n == 0):
            for rank in range(n):
                held, own = kv_heads(config, rank, n), split(H, rank, n)
                each = len(own) // len(held)  # as `repeat_kv` repeats them
                assert len(own) % len(held) == 0
                found = [held[i // each] for i in range(len(own))]
                assert found == [head // (H // KV) for head in own]


def test_no_number_of_processes_but_a_divisor():
    with pytest.raises(ValueError, match=r"is 3; expected a divisor of n_he"):
        parallel.part_shapes(LLAMA_1B, 0, 3)


def test_without_torchrun(monkeypatch):
    for name in parallel.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="'RANK', .*; expected none: start N"):
        parallel.start()


# -- processes ---------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory, pocket_folder, pocket):
    """Return checkpoints of every kind, by name."""
    top = tmp_path_factory.mktemp("parallel")
    eight = small_config(n_kv_heads=8, n_layers=3, vocab_size=560)
    many = random_llama(eight, seed=1, tied=False)
    one_kv = random_llama(small_config(n_kv_heads=1), seed=2, tied=False)
    uneven = small_config(dim=48, n_heads=6, n_kv_heads=2, multiple_of=10)
    make = dict(dtype=torch.float32)
    found = {
        "pocket": pocket_folder,
        "int4": pocket_folder,  # its groups are along the cut, never across
        "pocket in two files": write_shards(pocket_folder, top / "two", 2),
        "eight files": write_checkpoint(top / "8", many, shards=8, **make),
        "one KV head": write_checkpoint(top / "mqa", one_kv, **make),
        "uneven": write_checkpoint(top / "uneven", random_llama(uneven)),
    }
    model = pocket_folder / "tokenizer.model"
    found["Hugging Face's"] = hugging_face(top / "hf", pocket, model)
    model = found["one KV head"] / "tokenizer.model"
    found["Hugging Face's, untied"] = hugging_face(
        top / "hf untied", one_kv, model
    )
    return found


@pytest.fixture(scope="module")
def whole(folders):
    """Return what one process computes."""
    with torch.inference_mode():
        return {
            name: one_of_several.compute(one_of_several.load(name, folder))
            for name, folder in folders.items()
        }


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_several_processes_compute_what_one_does(n, folders, whole, tmp_path):
    load = llamalib.load
    configs = {k: load(folder).config for k, folder in folders.items()}
    fits = {k: f for k, f in folders.items() if configs[k].n_heads % n == 0}
    assert len(fits) == {1: 8, 2: 8, 3: 1}.get(n, 7)
    found = run_task("parity", n, tmp_path, fits)
    for name in fits:
        one, config = whole[name], configs[name]
        for rank, parts in enumerate(found):
            part = parts[name]
            worst = (part["logits"] - one["logits"]).abs().max()
            assert worst < 1e-4, (name, rank)
            for kind in {"greedy", "sampled", "batch"} & part.keys():
                assert part[kind] == one[kind], (name, rank, kind)
            assert part["shapes"] == parallel.part_shapes(config, rank, n)
            assert part["cache"][1] == len(kv_heads(config, rank, n))
            for linear, sizes in part["said"].items():
                if linear != "output":  # it gives the whole vocabulary
                    assert sizes == part["shapes"][f"{linear}.weight"]
            assert part["said"]["output"] == (config.vocab_size, config.dim)
            assert part["tied"] == ("untied" not in name and name not in (
                "eight files", "one KV head"))  # fmt: skip
            if n == 2:  # one random text, not two
                assert part["unseeded"] == found[0][name]["unseeded"]
                assert part["unseeded"] != one["unseeded"]
            assert len(part["greedy"]) == 40
            # a hook on every nn.Linear is called once a pass
            assert len(part["hooked"]) == 7 * config.n_layers + 1
            last = part["hooked"].pop("output")
            assert last == 1 and set(part["hooked"].values()) == {1}


@pytest.fixture(scope="module")
def said(folders, tmp_path_factory):
    """Return what two processes say to each mistake."""
    top = tmp_path_factory.mktemp("errors")
    source = folders["eight files"]
    bad = {name: top / name for name in ("missing", "mixed", "damaged")}
    for folder in bad.values():
        folder.mkdir()
        for file in source.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    (bad["missing"] / "consolidated.05.pth").unlink()
    config = small_config(n_kv_heads=8, n_layers=3, vocab_size=560)
    other = random_llama(config, seed=9, tied=False)
    other = write_checkpoint(top / "8", other, shards=8, dtype=torch.float32)
    shard = "consolidated.06.pth"
    (bad["mixed"] / shard).write_bytes((other / shard).read_bytes())
    file = bad["damaged"] / "consolidated.03.pth"
    file.write_bytes(file.read_bytes()[:-2000])
    bad |= {"whole": source, "other": other, "uneven": folders["uneven"]}
    return run_task("errors", 2, top, bad)


@pytest.mark.parametrize(
    "mistake, words",
    [
        ("missing", r"FileNotFoundError: rank 0: .*consolidated\.05\.pth"),
        ("mixed", r"ValueError: rank 0: .*06\.pth: .*not as in the first"),
        ("damaged", r"ValueError: rank 0: .*03\.pth cannot be opened"),
        ("one is missing here", r"FileNotFoundError: rank 1: .*nowhere"),
        ("models", "ValueError: rank 1: norms is .* as rank 0 has"),
        ("dtypes", "rank 1: dtype is torch.float16; expected torch.float32"),
        ("tokens", "ValueError: rank 1: tokens is .* as rank 0 has"),
        ("lengths", "ValueError: rank 1: tokens is .* as rank 0 has"),
        ("arguments", "rank 1: max_new_tokens is 4; expected 3, as rank 0"),
        ("seeds", "ValueError: rank 1: seed is 1; expected 0, as rank 0 has"),
        ("a number", "ValueError: mesh is 2; expected llamalib.parallel.st"),
        ("a device", "ValueError: device is 'cpu'; expected None: the mesh"),
        ("one id", "ValueError: rank 1: tokens is .* as rank 0 has"),
        ("one id, two", "ValueError: rank 1: tokens is .* as rank 0 has"),
        ("a bad argument", "rank 1: max_new_tokens is 0; expected 1, as rank"),
        ("compile", "ValueError: compile=True does not work with several pro"),
        ("compile in one", "rank 1: compile is True; expected False, as rank"),
        ("a strange error", "ValueError: rank 1: 'ascii' codec can't encod"),
        ("a bug", "RuntimeError: rank 0: 'no such'"),
        ("bias", "NotImplementedError: .*: use its `rows`"),
        (
            "prepare",
            r"ValueError: prepare\(\) does not support tensor-parallel",
        ),
        ("other functions", "NotImplementedError: .*: use its `rows`"),
    ],
)
def test_a_mistake_is_said_by_all_processes(mistake, words, said):
    for rank in (0, 1):
        assert re.match(f"(?s).*{words}", said[rank][mistake]), said[rank]
    assert said[0][mistake] == said[1][mistake]


def test_after_a_mistake_all_go_on(said):
    assert all(said[rank]["afterwards"] == (6, 560) for rank in (0, 1))
    assert "no error: Llama" in said[0]["uneven"]


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="needs Linux, which shows a process's peak memory",
)
def test_each_process_has_its_share_in_memory(tmp_path, folders):
    """At most a tenth more, with all that a first pass needs."""
    config = small_config(dim=1024, n_layers=8, vocab_size=768, n_kv_heads=8)
    llama = random_llama(config)
    model = write_checkpoint(tmp_path / "meta", llama) / "tokenizer.model"
    eight = write_shards(tmp_path / "meta", tmp_path / "eight", 8)
    hf = hugging_face(tmp_path / "hf", llama.bfloat16(), model)
    names = dict(meta=tmp_path / "meta", eight=eight, hf=hf)
    small = folders["eight files"]
    found = run_task("memory", 2, tmp_path, {"small": small, **names})
    size = 4 * sum(w.numel() for w in set(llama.parameters()))
    for rank, parts in enumerate(found):
        for name, part in parts.items():
            assert 0.5 * size <= part["held"] < 0.51 * size
            assert part["more"] <= 1.1 * part["held"], (rank, name, part)


def test_one_that_dies_ends_all_and_is_named(tmp_path, folders):
    names = {"whole": str(folders["pocket"])}
    (tmp_path / "jobs.json").write_text(json.dumps(names))
    done, seconds = torchrun(2, one_of_several.__file__, "death", tmp_path)
    assert done.returncode != 0 and seconds < 30
    cause = done.stderr.partition("Root Cause")[2]
    assert re.search(r"rank +: 1 .*\n.*SIGKILL", cause), done.stderr
    left = [
        file
        for file in Path("/proc").glob("[0-9]*/cmdline")
        if str(tmp_path).encode() in file.read_bytes()
    ]
    assert left == []


# -- the command -------------------------------------------------------------


def test_the_command_prints_once():
    done, _ = torchrun(2, "-m", "llamalib", "run")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0] == "2 processes"  # each with half of the heads
    own = "rank 0: pocket-llama: L=6, D=256, H=4, KV=1, "
    assert lines[1].startswith(own)
    held = int(re.search(r"rank 0: ([\d,]+) bytes", lines[2])[1]
               .replace(",", ""))  # fmt: skip
    shapes = parallel.part_shapes(llamalib.load().config, 0, 2)
    numbers = sum(
        torch.Size(shape).numel()
        for name, shape in shapes.items()
        if name != "output.weight"  # tied
    )
    assert held == 2 * numbers
    assert lines[3].startswith("The capital of France is Paris")
    assert sum(line == lines[1] for line in lines) == 1


def test_the_command_says_once_what_is_wrong():
    done, seconds = torchrun(3, "-m", "llamalib", "run")
    assert done.returncode != 0 and seconds < 30
    words = "the number of processes is 3; expected a divisor of n_heads = 8"
    assert done.stderr.count(words) == 1 and done.stdout == ""


def test_an_unknown_argument_is_refused():
    with pytest.raises(TypeError, match="load.* unexpected .*'dtpye'"):
        llamalib.load(dtpye=torch.float32)


def test_a_whole_model_can_be_prepared_again():
    llama = llamalib.load()
    assert fast.prepare(llama) is llama
    assert not hasattr(llama, "processes")
