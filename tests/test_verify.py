"""`verify`: what is published comes out, and what differs is named."""

import hashlib
import json
import math
import shutil
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
from tests.test_huggingface import change_json, tokenizer_json

sys.path.append(str(ROOT / "data" / "recipe"))
import publish  # noqa: E402

PTH = "consolidated.00.pth"
POCKET = "pocket-llama"
FACTS = read_json(module.PUBLISHED)
MODEL_1B = "Llama-3.2-1B"


@pytest.fixture
def folder(tmp_path, pocket_folder):
    """A copy of the pocket Llama."""
    return shutil.copytree(pocket_folder, tmp_path / "mine")


def failures(rows) -> dict[str, str]:
    return {row.what: row.words for row in rows if row.result == FAILED}


# -- the pocket Llama --------------------------------------------------------


def test_the_pocket_passes(capsys):
    assert main(["verify"]) == 0
    *lines, _, counts = capsys.readouterr().out.splitlines()
    assert counts == "12 passed, 0 failed, 0 not known"
    assert all(line.startswith(("passed ", " ")) for line in lines)
    assert max(map(len, lines)) <= 100


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
        found = {row.what: row.result for row in rows}
        assert found.pop("model.safetensors") == UNKNOWN
        assert set(found.values()) == {PASSED} and "numbers" in found
    change_json(folder / "config.json", eos_token_id=13)
    failed = failures(verify(folder))
    assert set(failed) == {"stop ids"}
    assert failed["stop ids"].startswith("[13], Llama 3's are [3073, 3080")


# -- damage, and wrong files -------------------------------------------------


def test_one_other_bit(folder, capsys):
    name = "layers.2.attention.wk.weight"
    tensors = torch.load(folder / PTH, weights_only=True)
    tensors[name].view(torch.int16)[0, :1].bitwise_xor_(1)
    torch.save(tensors, folder / PTH)
    assert main(["verify", str(folder)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"1 tensors have other numbers: {name}" in out
    assert "rounding explains" in out


def test_a_truncated_file(folder):
    data = (folder / PTH).read_bytes()
    (folder / PTH).write_bytes(data[: len(data) // 2])
    failed = failures(verify(folder.rename(folder.with_name("Pocket_Llama"))))
    assert set(failed) == {PTH, "content"}
    assert f"{len(data) // 2:,} bytes" in failed[PTH]
    assert f"published {len(data):,} bytes" in failed[PTH]
    assert "is damaged or incomplete" in failed["content"]


def test_a_wrong_tokenizer(folder):
    file = folder / "tokenizer.model"
    ranks = list(read_ranks(file))
    ranks[300:] = ranks[:299:-1]  # the same number of other tokens
    write_ranks(file, {token: i for i, token in enumerate(ranks)})
    # the published ids need no tokenizer: the weights are right
    assert set(failures(verify(folder))) == {"tokenizer.model", "4 prompts"}


def test_wrong_settings_show_in_the_texts(folder):
    params = read_json(folder / "params.json") | {"rope_theta": 10000.0}
    (folder / "params.json").write_text(json.dumps(params))
    failed = failures(verify(folder))
    assert "rope_theta is 10000.0, not 500000.0" in failed.pop("settings")
    assert failed
    assert all("rounding explains" in words for words in failed.values())


def test_what_cannot_be_read_or_asked(folder, capsys):
    (folder / "tokenizer.model").unlink()
    assert "has no tokenizer.model" in failures(verify(folder))["content"]
    assert main(["verify", str(folder / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(ValueError, match="dtype must be .*, got 'int8'"):
        verify(folder, dtype="int8")
    file = folder / "params.json"  # a text, but none in UTF-8
    file.write_bytes(b"\xff\0\x80")
    assert main(["verify", str(folder), "--wikitext", str(file)]) == 1
    assert "is not WikiText-2's test text in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path, name",
    [
        ("Llama-3.2-1B/original", MODEL_1B),
        ("Llama3.2-1B", MODEL_1B),
        ("models--x--Llama-3.2-1B/snapshots/9", MODEL_1B),
        ("Llama-3.2-1B/Llama-3.2-1B-Instruct", "Llama-3.2-1B-Instruct"),
        ("Llama-3.2-1B-tuned", None),
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


@pytest.fixture
def tiny(tmp_path):
    """A small model, and facts with one measured text of it."""
    folder = write_checkpoint(tmp_path / "Tiny", random_llama())
    llama = llamalib.load(folder, device="cpu", dtype=torch.float32)
    ids = llama.tokenizer.encode("abcabcabd", bos=True, eos=False)
    new = llamalib.generate(llama, ids, max_new_tokens=6, stop=())
    text = dict(prompt="abcabcabd", bos=True, prompt_ids=ids, ids=list(new))
    return llama, text | {"dtype": "float16", "source": "a test"}


def text_row(llama, text):
    (row,) = module.text_rows(llama, {"texts": [text]})
    return row


def test_a_near_tie_is_judged_in_the_sources_dtype(tiny, monkeypatch):
    llama, text = tiny
    ids = text["prompt_ids"] + text["ids"]
    logits = llama(torch.tensor(ids[:-1]))[-6:].topk(2)
    gaps = (logits.values[:, 0] - logits.values[:, 1]).tolist()
    i = gaps.index(min(gaps))
    text["ids"] = text["ids"][:i] + [logits.indices[i, 1].item()]
    ulp = 2**-7 * 2 ** math.floor(math.log2(logits.values[i, 0].item()))
    for dtype, result in (("float16", FAILED), ("bfloat16", PASSED)):
        # so many ulps that this gap is a near tie in bfloat16, not float16
        most = 2 * min(gaps) / ulp
        monkeypatch.setitem(module.ULPS, getattr(torch, dtype), most)
        row = text_row(llama, text | {"dtype": dtype})
        assert row.result == result and f"step {i + 1}: " in row.words
        assert f"logit is {min(gaps):.2g} less" in row.words


def test_a_text_that_differs(tiny):
    """Unless its source leaves something open."""
    llama, text = tiny
    assert text_row(llama, text).result == PASSED
    other = text | {"ids": text["ids"][::-1]}
    assert text_row(llama, other).result == FAILED
    row = text_row(llama, other | {"uncertain": "its date"})
    assert row.result == UNKNOWN and "its date" in row.words
    llama.norm.weight.fill_(math.nan)  # which is no near tie
    assert text_row(llama, text).result == FAILED


def test_perplexity(pocket, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 64)
    file = tmp_path / "some text.txt"
    file.write_text("\n".join(publish.STORIES[:2]), encoding="utf-8")
    ids = pocket.tokenizer.encode(file.read_text(), bos=True, eos=False)
    n, losses = len(ids) // 64, []
    assert n >= 3 and len(ids) % 64
    for i in range(n):
        window = torch.tensor(ids[64 * i : 64 * i + 64])
        logits = pocket(window)
        losses.append(F.cross_entropy(logits[:-1], window[1:]).item())
    expected = math.exp(sum(losses) / n)
    words = verify(wikitext=file)[-1].words
    assert words == f"{expected:.3f}, windows: {n}; none was published"
    for factor, result in ((1.005, PASSED), (1.02, FAILED)):
        facts = FACTS[POCKET] | {"perplexity": expected * factor}
        row = verify(wikitext=file, published={POCKET: facts})[-1]
        assert (row.what, row.result) == ("perplexity", result)
    monkeypatch.setattr(module, "WINDOW", 10**6)  # one incomplete window
    assert "windows: 1" in verify(wikitext=file)[-1].words


# -- what is published of Meta's models --------------------------------------


@pytest.mark.parametrize("name", FACTS)
def test_the_published_facts_are_whole(name):
    facts, config = FACTS[name], config_of(FACTS[name]["params"])
    factor = None if "Llama-3-" in name else 8 if "3.1" in name else 32
    assert config.scaling_factor == factor
    assert all(text["source"] for text in facts["texts"])
    shapes = tensor_shapes(config)
    if facts["tied"]:
        del shapes["output.weight"]
    count = sum(map(math.prod, shapes.values()))
    assert facts.get("parameters", count) == count


def test_the_published_tokenizer_gives_the_published_ids(llama3_tokenizer):
    data = published("LLAMA3_TOKENIZER").read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    for name in FACTS.keys() - {POCKET}:
        facts = FACTS[name]
        assert facts["tokenizer"] == {"bytes": len(data), "sha256": sha256}
        rows = module.token_rows(llama3_tokenizer, facts)
        assert {row.result for row in rows} == {PASSED}
