"""One model over several processes: the same numbers, memory, errors."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

import llamalib
from lessons import nE_tensor_parallel as lesson_E
from llamalib import LLAMA_1B, parallel
from llamalib.__main__ import main
from llamalib.load import ROOT
from llamalib.tensors import shard_axis, tensor_shapes
from tests import one_of_several
from tests.helpers import (
    random_ids,
    random_llama,
    small_config,
    write_checkpoint,
)
from tests.reference import write_shards, write_transformers
from tests.test_huggingface import tokenizer_json

SAFE = ["--rdzv-backend=static", "--master-addr=127.0.0.1", "--master-port="]


def torchrun(n, *arguments):
    """Run a command in n processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = [sys.executable, "-m", "torch.distributed.run", *SAFE]
    run[-1] += str(port)
    path = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*run, f"--nproc-per-node={n}", *map(str, arguments)],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=240,
    )


def run_task(task, n, folder, folders) -> list[dict]:
    """Run a task of one_of_several.py; return what each rank found."""
    names = {name: str(path) for name, path in folders.items()}
    (folder / "jobs.json").write_text(json.dumps(names))
    done = torchrun(n, one_of_several.__file__, task, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    files = [folder / f"{task}-{n}-{rank}.pt" for rank in range(n)]
    return [torch.load(file, weights_only=False) for file in files]


def hugging_face(folder, llama, tokenizer):
    write_transformers(llama, folder)
    tokenizer_json(tokenizer, folder / "tokenizer.json")
    return folder


# -- the plan, without processes ---------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("odd", [{}, dict(vocab_size=1001, multiple_of=10)])
def test_the_parts_cover_each_tensor_once(n, odd):
    config = llamalib.ModelArgs(**vars(LLAMA_1B) | odd)
    for name, shape in tensor_shapes(config).items():
        parts = [
            parallel.part(config, name, shape, rank=rank, n=n)
            for rank in range(n)
        ]
        if "norm" in name:
            assert set(parts) == {None}
            continue
        axis = shard_axis(name)
        assert {part[0] for part in parts} == {axis}
        rows = [i for _, start, stop in parts for i in range(start, stop)]
        assert rows == list(range(shape[axis])), name


@pytest.mark.parametrize(
    "change, said",
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE must be a number from 1"),
        ({"RANK": "2"}, "RANK must be a number from 0 to 1, got '2'"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT must be a number from 1"),
    ],
)
def test_torchruns_variables_are_checked(monkeypatch, change, said):
    right = dict(RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost")
    for name, value in (right | {"MASTER_PORT": "29555"} | change).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=said):
        llamalib.load()


def test_a_used_port_is_said():
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        own = dict(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
        done = subprocess.run(
            [sys.executable, "-m", "llamalib", "run"],
            env={**os.environ, **own, "MASTER_PORT": str(port)},
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
        )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    said = f"RuntimeError: 2 processes cannot meet at 127.0.0.1:{port}; is"
    assert said in done.stderr


# -- in training, without processes: appendix E, section 7 -------------------


class Copies(torch.autograd.Function):
    """Megatron's f: a copy for each part; in backward, a sum."""

    @staticmethod
    def forward(ctx, sums, x, n):
        ctx.sums = sums
        return tuple(x.clone() for _ in range(n))

    @staticmethod
    def backward(ctx, *gradients):
        ctx.sums.append("backward")
        return None, sum(gradients), None


class Sum(torch.autograd.Function):
    """Megatron's g: a sum over the parts; in backward, nothing is sent."""

    @staticmethod
    def forward(ctx, sums, *parts):
        sums.append("forward")
        ctx.n = len(parts)
        return sum(parts)

    @staticmethod
    def backward(ctx, gradient):
        return None, *[gradient] * ctx.n


def run_part(llama, name, rank, n, *args):
    """Run a module with a rank's part of its weights."""
    module, own = llama.get_submodule(name), {}
    for key, w in module.named_parameters():
        full = f"{name}.{key}"
        cut = parallel.part(llama.config, full, w.shape, rank=rank, n=n)
        own[key] = w.narrow(cut[0], cut[1], cut[2] - cut[1])
    return functional_call(module, own, args)


def forward_in_parts(llama, tokens, n, sums):
    """Return the logits (T, V); note each sum over the parts in `sums`."""
    c = llama.config

    def of_parts(name, x, *args):
        copies = enumerate(Copies.apply(sums, x, n))
        return [run_part(llama, name, r, n, u, *args) for r, u in copies]

    rows = llama.tok_embeddings.weight
    found = []
    for r in range(n):
        start, stop = parallel.split(c.vocab_size, r, n)
        here = (start <= tokens) & (tokens < stop)
        own = F.embedding((tokens - start).where(here, 0), rows[start:stop])
        found.append(own * here[:, None])
    x = Sum.apply(sums, *found)  # (T, D)
    angles = c.head_dim, len(tokens), c.rope_theta, c.scaling_factor
    freqs_cis = llamalib.precompute_freqs_cis(*angles)
    given = freqs_cis, llamalib.causal_mask(len(tokens))
    for i, layer in enumerate(llama.layers):
        u, name = layer.attention_norm(x), f"layers.{i}."
        x = x + Sum.apply(sums, *of_parts(name + "attention", u, *given))
        u = layer.ffn_norm(x)
        x = x + Sum.apply(sums, *of_parts(name + "feed_forward", u))
    return torch.cat(of_parts("output", llama.norm(x)), dim=-1)


@pytest.mark.parametrize("n", [2, 4])
def test_backward_adds_as_often_as_forward(n):
    config = small_config(n_kv_heads=4, n_layers=3)
    llama = random_llama(config, tied=False).requires_grad_()
    weights, tokens = [*llama.parameters()], random_ids(5)
    target, sums = tokens.roll(-1), []
    logits = forward_in_parts(llama, tokens, n, sums)
    loss = F.cross_entropy(logits, target)
    found = torch.autograd.grad(loss, weights)
    loss = F.cross_entropy(llama(tokens), target)
    expected = torch.autograd.grad(loss, weights)
    for mine, other in zip(found, expected):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
    once = 2 * config.n_layers + 1
    assert sums == ["forward"] * once + ["backward"] * once


# -- processes ---------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory, pocket_folder, pocket):
    """Return checkpoints of every kind, by name."""
    top = tmp_path_factory.mktemp("parallel")
    eight = small_config(n_kv_heads=8, n_layers=3, vocab_size=560)
    many = random_llama(eight, seed=1, tied=False)
    uneven = small_config(dim=48, n_heads=6, n_kv_heads=2, multiple_of=10)
    make = dict(dtype=torch.float32)
    found = {
        "pocket": pocket_folder,
        "int8": pocket_folder,
        "int4": pocket_folder,  # its groups are along the cut, never across
        "pocket in two files": write_shards(pocket_folder, top / "two", 2),
        "eight files": write_checkpoint(top / "8", many, shards=8, **make),
        "uneven": write_checkpoint(top / "uneven", random_llama(uneven)),
    }
    model = pocket_folder / "tokenizer.model"
    found["Hugging Face's"] = hugging_face(top / "hf", pocket, model)
    model = found["eight files"] / "tokenizer.model"
    found["Hugging Face's, untied"] = hugging_face(
        top / "hf untied", many, model
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


# The middle ones of many: the plan's test sees their parts, too.
FOUR, EIGHT = (pytest.param(n, marks=pytest.mark.slow) for n in (4, 8))


@pytest.mark.parametrize("n", [2, FOUR, EIGHT])
def test_several_processes_compute_what_one_does(n, folders, whole, tmp_path):
    configs = {k: llamalib.load(f).config for k, f in folders.items()}
    fits = {k: f for k, f in folders.items() if configs[k].n_kv_heads % n == 0}
    assert len(fits) == {2: 8}.get(n, 2)
    found = run_task("parity", n, tmp_path, fits)
    for name in fits:
        one, config = whole[name], configs[name]
        for rank, parts in enumerate(found):
            mine = parts[name]
            worst = (mine["logits"] - one["logits"]).abs().max()
            # a part of a row of 8 bits has a scale of its own
            assert worst < (0.5 if name == "int8" else 1e-4), (name, rank)
            for kind in ("greedy", "sampled", "batch"):
                same = mine[kind] == one[kind]
                assert same or name == "int8", (name, rank, kind)
            assert len(mine["greedy"]) == 10
            # one random text, not several
            assert mine["unseeded"] == found[0][name]["unseeded"]
            assert mine["unseeded"] != one["unseeded"]
            assert mine["cache"][1] == config.n_kv_heads // n
            assert mine["tied"] == (name not in (
                "eight files", "Hugging Face's, untied"))  # fmt: skip
            # a part, not a view that keeps the whole
            assert mine["held"] < 1.1 * one["bytes"] / n, name
            # a hook on every linear layer is called once a pass
            seen = mine["hooked"]
            assert len(set(seen)) == len(seen) == 7 * config.n_layers + 1


@pytest.fixture(scope="module")
def said(folders, tmp_path_factory):
    """Return what two processes say to each mistake."""
    top = tmp_path_factory.mktemp("errors")
    one_kv = random_llama(small_config(n_kv_heads=1))
    bad = {
        "whole": folders["eight files"],
        "other": folders["pocket"],
        "one KV head": write_checkpoint(top / "mqa", one_kv),
    }
    return run_task("errors", 2, top, bad)


@pytest.mark.parametrize(
    "mistake, words",
    [
        ("heads", "ValueError: the number of processes must divide .* 1 KV"),
        ("models", "ValueError: config must be the same in all processes"),
        ("dtypes", "ValueError: dtype must be the same in all processes"),
        ("a device", "ValueError: device must be None with several process"),
        ("tokens", "ValueError: prompts must be the same in all processes"),
        ("lengths", "ValueError: prompts must be the same in all processes"),
        ("long prompts", "ValueError: prompts must be the same in all"),
        ("batches", "ValueError: prompts must be the same in all processes"),
        ("arguments", "ValueError: max_new_tokens must be the same in all"),
        ("seeds", "ValueError: seed must be the same in all processes, but"),
        ("one wrong seed", "ValueError: seed must be the same .*rank 1 <obj"),
        ("compile", "ValueError: compile=True does not work with several pr"),
    ],
)
def test_a_mistake_is_said_by_all_processes(mistake, words, said):
    for rank in (0, 1):
        assert re.match(f"(?s).*{words}", said[rank][mistake]), said[rank]
    assert said[0][mistake] == said[1][mistake]


def test_after_a_mistake_all_go_on(said):
    assert all(said[rank]["afterwards"] == (6, 560) for rank in (0, 1))


# -- what is sent ------------------------------------------------------------


def test_every_command_keeps_strangers_out():
    """torchrun's other rendezvous runs pickles that anybody sends to it."""
    command, found = r'torchrun (?=-)|torch\.distributed\.run\\?"', set()
    for kind in ("*.md", "[!.]*/**/*.md", "[!.]*/**/*.py", "[!.]*/**/*.ipynb"):
        for path in set(ROOT.glob(kind)) - {Path(__file__)}:
            text = path.read_text(encoding="utf-8")
            for each in re.finditer(command, text):
                after = text[each.end() :][:250]
                assert all(flag in after for flag in SAFE), (path, after)
                if "-m llamalib" in after:  # a model that 2 processes divide
                    before = text[: each.start()].rpartition("\n")[2]
                    assert "LLAMA_DIR=data/pocket-llama " in before, path
                found.add(path.name)
            assert "--standalone" not in text, path
    files = {"README.md", "parallel.py", "one_of_several.py"}
    assert found >= files | {"E_tensor_parallel.ipynb"}


def test_processes_send_numbers_only():
    """A pickle that arrives could run code."""
    for path in (ROOT / "llamalib").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\w_object\w*\(|pickle\.loads?\(", text), path


# -- the command -------------------------------------------------------------


def test_the_command_prints_what_one_process_prints(capsys):
    one = ["run", "The capital of Peru is"]
    assert main(one) == 0
    expected = capsys.readouterr().out.splitlines()[:-1]  # without the time
    done = torchrun(2, "-m", "llamalib", *one)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[:-1] == expected
    assert len(expected) > 2


@pytest.mark.slow
def test_the_command_says_what_is_wrong():
    """One process of two says the same in the test of mistakes above."""
    done = torchrun(3, "-m", "llamalib", "run")
    assert done.returncode != 0 and done.stdout == ""
    words = "the number of processes must divide the model's 2 KV heads, got 3"
    assert f"ValueError: {words}" in done.stderr


ADDED = """
import sys, torch
from torch import distributed
distributed.init_process_group("gloo")
found = torch.tensor(distributed.get_rank() + 1)
distributed.all_reduce(found)
print(found.item(), *sys.argv[1:])
distributed.destroy_process_group()
"""
ONE_ENDS = """
import os, sys, time
time.sleep(60) if os.environ["RANK"] == "0" else sys.exit("it is broken")
"""


@pytest.mark.parametrize("has", [True, False])
def test_the_notebook_starts_processes_also_without_torchrun(monkeypatch, has):
    """Windows' PyTorch has none that works."""
    monkeypatch.setattr(lesson_E, "HAS_TORCHRUN", has)
    assert lesson_E.torchrun(2, ADDED, "羊") == "3 羊\n" * 2
    if not has:  # the other process is ended
        with pytest.raises(RuntimeError, match="it is broken"):
            lesson_E.torchrun(2, ONE_ENDS)
