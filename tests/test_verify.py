"""`verify`: what is published comes out, and what differs is named."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import llamalib
from llamalib import verify as module
from llamalib.__main__ import main
from llamalib.checks import read_json
from llamalib.config import config_of
from llamalib.load import ROOT, tensor_shapes
from llamalib.tokenizer import read_ranks, write_ranks
from llamalib.verify import FAILED, PASSED, UNKNOWN, verify
from tests.conftest import published
from tests.helpers import random_llama, write_checkpoint
from tests.reference import write_transformers
from tests.test_huggingface import tokenizer_json

sys.path.append(str(ROOT / "data" / "recipe"))
import publish  # noqa: E402

PTH = "consolidated.00.pth"
POCKET = "pocket-llama"
FACTS = read_json(module.PUBLISHED)


@pytest.fixture
def folder(tmp_path, pocket_folder):
    """A copy of the pocket Llama."""
    return shutil.copytree(pocket_folder, tmp_path / "mine")


def failures(rows) -> dict[str, str]:
    return {row.what: row.words for row in rows if row.result == FAILED}


def results(rows) -> dict[str, str]:
    return {row.what: row.result for row in rows}


# -- the pocket Llama --------------------------------------------------------


def test_the_pocket_passes_from_the_shell():
    done = subprocess.run(
        [sys.executable, "-m", "llamalib", "verify"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    *lines, _, counts = done.stdout.splitlines()
    assert counts == "12 passed, 0 failed, 0 not known"
    assert all(line.startswith(("passed ", " ")) for line in lines)
    assert max(map(len, lines)) <= 100
    assert f"{POCKET}, by the folder" in lines[0]


def test_what_is_published_of_the_pocket_is_measured():
    """As data/recipe/publish.py would write it today, up to rounding."""
    measured, facts = publish.measure(), json.loads(json.dumps(FACTS[POCKET]))
    for new, old in zip(measured["texts"], facts["texts"], strict=True):
        values = new.pop("logits"), old.pop("logits")
        assert torch.tensor(values[0]).allclose(torch.tensor(values[1]))
    assert measured == facts


def test_the_pocket_in_hugging_faces_format(tmp_path, pocket_folder):
    """And in 16 bits; its files have other checksums, the same numbers."""
    folder = tmp_path / "hf"
    write_transformers(llamalib.load(pocket_folder, device="cpu"), folder)
    ranks = pocket_folder / "tokenizer.model"
    tokenizer_json(ranks, folder / "tokenizer.json")
    for dtype in ("float16", "bfloat16"):
        rows = verify(folder, dtype=dtype)
        assert not failures(rows)
        found = results(rows)
        assert found["numbers"] == found["4 prompts"] == PASSED
        assert found["model.safetensors"] == UNKNOWN
    config = read_json(folder / "config.json") | {"eos_token_id": 13}
    (folder / "config.json").write_text(json.dumps(config))
    failed = failures(verify(folder))
    assert set(failed) == {"stop ids"}
    assert failed["stop ids"].startswith("[13], Llama 3's are [3073, 3080")


# -- damage, and wrong files -------------------------------------------------

NAME = "layers.2.attention.wk.weight"


@pytest.mark.parametrize("size", ["a bit", "all rows"])
def test_other_numbers(folder, size, capsys):
    tensors = torch.load(folder / PTH, weights_only=True)
    if size == "a bit":
        tensors[NAME].view(torch.int16)[0, :1].bitwise_xor_(1)
    else:
        tensors[NAME] = tensors[NAME].flip(0)
    torch.save(tensors, folder / PTH)
    assert main(["verify", str(folder)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"1 tensors have other numbers: {NAME}" in out
    assert "rounding explains" in out


def test_a_truncated_file(folder):
    data = (folder / PTH).read_bytes()
    (folder / PTH).write_bytes(data[: len(data) // 2])
    named = folder.rename(folder.with_name("Pocket_Llama"))
    rows = verify(named)
    failed = failures(rows)
    assert set(failed) == {PTH, "content"}
    assert f"{len(data) // 2:,} bytes" in failed[PTH]
    assert f"published {len(data):,} bytes" in failed[PTH]
    assert "is damaged or incomplete" in failed["content"]


def test_a_wrong_tokenizer(folder):
    file = folder / "tokenizer.model"
    ranks = list(read_ranks(file))
    ranks[300:] = ranks[:299:-1]  # the same number of other tokens
    write_ranks(file, {token: i for i, token in enumerate(ranks)})
    rows = verify(folder)
    failed = failures(rows)
    assert set(failed) == {"tokenizer.model", "4 prompts"}
    assert failed["4 prompts"].startswith("4 have other ids: [3072, ")
    # the published ids need no tokenizer: the weights are right
    assert len([r for r in rows if "ids as published (" in r.words]) == 4


def test_wrong_settings_show_in_the_texts(folder):
    params = read_json(folder / "params.json") | {"rope_theta": 10000.0}
    (folder / "params.json").write_text(json.dumps(params))
    failed = failures(verify(folder))
    wrong = "rope_theta is 10000.0, not 500000.0. Correct the config"
    assert failed.pop("settings").startswith(wrong) and failed
    assert all("rounding explains" in words for words in failed.values())


def test_what_cannot_be_read_or_asked(folder, capsys):
    (folder / "tokenizer.model").unlink()
    assert "has no tokenizer.model" in failures(verify(folder))["content"]
    assert main(["verify", str(folder / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(
        ValueError, match="dtype must be one of .*, got 'int8'"
    ):
        verify(folder, dtype="int8")
    file = folder / "params.json"  # a text, but none in UTF-8
    file.write_bytes(b"\xff\0\x80")
    assert main(["verify", str(folder), "--wikitext", str(file)]) == 1
    assert "is not WikiText-2's test text in UTF-8" in capsys.readouterr().err


# -- which model it is -------------------------------------------------------


@pytest.mark.parametrize(
    "path, name",
    [
        ("Llama-3.2-1B/original", "Llama-3.2-1B"),
        ("Llama3.2-1B", "Llama-3.2-1B"),
        ("Llama-3.2-1B-Instruct-original", "Llama-3.2-1B-Instruct"),
        ("models--x--Llama-3.2-1B/snapshots/9", "Llama-3.2-1B"),
        ("Llama-3.2-1B/Llama-3.2-1B-Instruct", "Llama-3.2-1B-Instruct"),
        ("Llama-3.2-1B-tuned", None),
        ("Llama-Guard-3-1B", None),
        ("original", None),
    ],
)
def test_a_model_is_named(tmp_path, path, name):
    """By its folder, then by a checksum, then by shapes that one has."""
    with torch.device("meta"):
        stored = llamalib.Llama(llamalib.LLAMA_1B)
    found, row = module.name_model(tmp_path / path, FACTS, {}, stored)
    assert found == name
    if name is None:
        assert row.result == UNKNOWN
        assert "which of Llama-3.2-1B, Llama-3.2-1B-Instruct?" in row.words
    (file, fact), *_ = FACTS["Llama-3.2-1B-Instruct"]["files"].items()
    sums = {file: fact["sha256"]}
    found, _ = module.name_model(tmp_path / path, FACTS, sums, stored)
    assert found == (name or "Llama-3.2-1B-Instruct")


# -- continuations -----------------------------------------------------------


def facts_of(folder, **text) -> dict:
    """Return facts as published.json has them, with one measured text."""
    llama = llamalib.load(folder, device="cpu", dtype=torch.float32)
    ids = llama.tokenizer.encode("abcabcabd", bos=True, eos=False)
    new = llamalib.generate(llama, ids, max_new_tokens=6, stop=())
    made = {"prompt": "abcabcabd", "bos": True, "prompt_ids": ids}
    made |= {"ids": list(new), "dtype": "float16", "source": "a test"} | text
    return {
        "params": read_json(folder / "params.json"),
        "begin": llama.tokenizer.bos_id,
        "files": {PTH: {"sha256": "0" * 64}},
        "texts": [made],
    }


@pytest.fixture
def tiny(tmp_path):
    return write_checkpoint(tmp_path / "Tiny", random_llama())


def text_row(folder, facts):
    facts = facts | {"files": {}}
    rows = verify(folder, published={"Tiny": facts})
    return next(row for row in rows if row.what.startswith("'"))


def test_a_near_tie_is_judged_in_the_sources_dtype(tiny, monkeypatch):
    facts = facts_of(tiny)
    (text,) = facts["texts"]
    llama = llamalib.load(tiny, device="cpu", dtype=torch.float32)
    ids = text["prompt_ids"] + text["ids"]
    logits = llama(torch.tensor(ids[:-1]))[-6:].topk(2)
    gaps = (logits.values[:, 0] - logits.values[:, 1]).tolist()
    i = gaps.index(min(gaps))
    text["ids"] = text["ids"][:i] + [logits.indices[i, 1].item()]
    ulp = 2**-7 * 2 ** math.floor(math.log2(logits.values[i, 0].item()))
    for dtype in ("float16", "bfloat16"):
        # so many ulps that this gap is a near tie in bfloat16, not float16
        most = 2 * min(gaps) / ulp
        monkeypatch.setitem(module.ULPS, getattr(torch, dtype), most)
        text["dtype"] = dtype
        row = text_row(tiny, facts)
        assert row.result == (PASSED if dtype == "bfloat16" else FAILED)
        assert f"step {i + 1}: " in row.words
        assert f"logit is {min(gaps):.2g} less" in row.words
        kind = "near ties: 1" if dtype == "bfloat16" else "explains"
        assert kind in row.words


def test_a_text_that_differs(tiny):
    """Unless its source leaves something open."""
    facts = facts_of(tiny)
    facts["texts"][0]["ids"].reverse()
    assert text_row(tiny, facts).result == FAILED
    facts["texts"][0]["uncertain"] = "its date"
    row = text_row(tiny, facts)
    assert row.result == UNKNOWN and "its date" in row.words


def test_perplexity(pocket, pocket_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "WINDOW", 64)
    file = tmp_path / "some text.txt"
    file.write_text("\n".join(publish.STORIES[:2]), encoding="utf-8")
    ids = pocket.tokenizer.encode(file.read_text(), bos=True, eos=False)
    n = len(ids) // 64
    assert n >= 3 and len(ids) % 64
    losses = []
    for i in range(n):
        window = torch.tensor(ids[64 * i : 64 * i + 64])
        logits = pocket(window)
        losses.append(F.cross_entropy(logits[:-1], window[1:]).item())
    expected = math.exp(sum(losses) / n)
    assert main(["verify", str(pocket_folder), "--wikitext", str(file)]) == 0
    out = capsys.readouterr().out
    assert f"{expected:.3f}, windows: {n}; none was published" in out
    for factor, result in ((1.005, PASSED), (1.02, FAILED)):
        facts = FACTS[POCKET] | {"perplexity": expected * factor}
        rows = verify(wikitext=file, published={POCKET: facts})
        assert results(rows)["perplexity"] == result
    monkeypatch.setattr(module, "WINDOW", 10**6)  # one incomplete window
    assert "windows: 1" in verify(wikitext=file)[-1].words


# -- what is published of Meta's models --------------------------------------


def test_the_published_facts_are_whole():
    """Every fact has a source, and its settings are those of a Llama."""
    for name, facts in FACTS.items():
        config = config_of(facts["params"])
        old = "Llama-3-" in name
        factor = None if old else 8 if "3.1" in name else 32
        assert config.scaling_factor == factor
        for fact in [*facts["files"].values(), facts["tokenizer"]]:
            assert len(bytes.fromhex(fact["sha256"])) == 32
        for text in facts["texts"]:
            assert text["source"]
            dtype = getattr(torch, text.get("dtype") or "bfloat16")
            assert dtype in module.ULPS
            ids = text.get("ids", []) + text.get("prompt_ids", [])
            assert all(0 <= i < config.vocab_size for i in ids)
        shapes = tensor_shapes(config)
        if facts["tied"]:
            del shapes["output.weight"]
        count = sum(map(math.prod, shapes.values()))
        assert facts.get("parameters", count) == count


def test_the_published_tokenizer_gives_the_published_ids(llama3_tokenizer):
    data = published("LLAMA3_TOKENIZER").read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    for name, facts in FACTS.items():
        if name != POCKET:
            found = {"bytes": len(data), "sha256": sha256}
            assert facts["tokenizer"] == found
            rows = module.token_rows(llama3_tokenizer, facts)
            assert {row.result for row in rows} == {PASSED}


def test_nan_is_no_near_tie(tiny):
    facts = facts_of(tiny)
    llama = llamalib.load(tiny, device="cpu", dtype=torch.float32)
    assert module.text_rows(llama, facts)[0].result == PASSED
    llama.norm.weight.fill_(math.nan)
    assert module.text_rows(llama, facts)[0].result == FAILED
