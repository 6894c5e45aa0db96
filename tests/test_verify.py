"""`verify`: what was published comes out, and what differs is named."""

import hashlib
import json
import math
import shutil
import sys

import pytest
import torch

import llamalib
from llamalib import verify as module
from llamalib.__main__ import main
from llamalib.checks import read_json
from llamalib.config import config_of
from llamalib.load import ROOT, read_config
from llamalib.tokenizer import read_ranks, write_ranks
from llamalib.verify import FAILED, PASSED, UNKNOWN, verify
from tests.reference import transformers_config, write_transformers
from tests.test_huggingface import tokenizer_json

sys.path.append(str(ROOT / "data" / "recipe"))
import publish  # noqa: E402

PTH, POCKET = "consolidated.00.pth", "pocket-llama"
FACTS = read_json(module.PUBLISHED)


@pytest.fixture
def folder(tmp_path, pocket_folder):
    """A copy of the pocket Llama, with another spelling of its name."""
    return shutil.copytree(pocket_folder, tmp_path / "my_Pocket_Llama")


def results(folder) -> dict[str, str]:
    return {row.what: row.result for row in verify(folder)}


def failures(folder) -> dict[str, str]:
    rows = verify(folder)
    return {row.what: row.words for row in rows if row.result == FAILED}


# -- what is as published --


def test_the_pocket_passes(capsys):
    assert main(["verify"]) == 0
    *lines, _, counts = capsys.readouterr().out.splitlines()
    assert counts == "10 passed, 0 failed, 0 not known"
    assert len(lines) == 10
    assert all(line.startswith("passed ") for line in lines)


def test_what_is_published_of_the_pocket_is_measured(tmp_path, monkeypatch):
    """As data/recipe/publish.py writes it."""
    copy = tmp_path / "published.json"
    copy.write_text(json.dumps(FACTS | {POCKET: {}}), encoding="utf-8")
    monkeypatch.setattr(publish, "PUBLISHED", copy)
    publish.write(publish.measure())
    text = module.PUBLISHED.read_text(encoding="utf-8")
    assert copy.read_text(encoding="utf-8") == text


def test_other_files_of_the_same_model(tmp_path, pocket_folder):
    """Hugging Face's format, and a conversion: their checksums differ."""
    llama = llamalib.load(pocket_folder, device="cpu")
    folder = tmp_path / POCKET
    write_transformers(llama, folder)
    ranks = pocket_folder / "tokenizer.model"
    tokenizer_json(ranks, folder / "tokenizer.json")
    found = results(folder)
    assert found.pop("model.safetensors") == UNKNOWN
    assert len(found) == 8 and set(found.values()) == {PASSED}
    llama.norm.weight[0] += 1 / 64  # a file that `save` writes, not the same
    llamalib.save(llama, folder / "new")
    found = results(folder / "new")
    assert found.pop(PTH) == UNKNOWN
    assert len(found) == 9 and set(found.values()) == {PASSED}


# -- damage, and wrong files --


def test_a_truncated_file(folder):
    data = (folder / PTH).read_bytes()
    (folder / PTH).write_bytes(data[: len(data) // 2])
    row, *_ = [row for row in verify(folder) if row.what == "content"]
    assert row.result == FAILED and "is damaged or incomplete" in row.words


def test_a_wrong_file(folder, capsys):
    """It is named; the rest is compared, too."""
    file = folder / "tokenizer.model"
    ranks = list(read_ranks(file))
    ranks[300:] = ranks[:299:-1]  # the same number of other tokens
    write_ranks(file, {token: i for i, token in enumerate(ranks)})
    assert main(["verify", str(folder)]) == 1
    out = capsys.readouterr().out
    assert out.endswith("8 passed, 2 failed, 0 not known\n")
    failed = failures(folder)
    assert set(failed) == {"tokenizer.model", "tokenizer"}
    size = file.stat().st_size
    assert f"{size:,} bytes" in failed["tokenizer.model"]
    assert failed["tokenizer.model"].endswith("2ae28658…: download it again")
    assert failed["tokenizer"].endswith("take the published tokenizer")
    file.unlink()
    assert "has no tokenizer.model" in failures(folder)["content"]


def test_wrong_settings(folder):
    params = read_json(folder / "params.json") | {"rope_theta": 10000.0}
    (folder / "params.json").write_text(json.dumps(params))
    said = "rope_theta is 10000.0, not 500000.0: take the published "
    assert failures(folder) == {"settings": f"{said}params.json or config"}


@pytest.mark.parametrize("damage", [torch.flipud, lambda w: w * math.nan])
def test_other_weights(pocket_folder, damage):
    """A wrong matrix is more than rounding explains, and so is NaN."""
    llama = llamalib.load(pocket_folder, device="cpu")
    weight = llama.layers[2].attention.wk.weight
    weight.copy_(damage(weight.clone()))
    rows = module.continuation_rows(llama, FACTS[POCKET]["texts"])
    failed = [row.words for row in rows if row.result == FAILED]
    assert failed and all("damaged ones" in words for words in failed)
    (row,) = module.continuation_rows(llama, [{"ids": []}])
    assert row == (UNKNOWN, "continuation", "none was published")


@pytest.mark.parametrize(
    "path, name",
    [
        ("Llama-3.2-1B/original", "Llama-3.2-1B"),
        ("Llama3.2-1B", "Llama-3.2-1B"),
        ("models--x--Llama-3.2-1B/snapshots/9", "Llama-3.2-1B"),
        ("Llama-3.2-1B/Llama-3.2-1B-Instruct", "Llama-3.2-1B-Instruct"),
        ("Llama-3.2-1B-tuned", None),
    ],
)
def test_a_model_is_known_by_its_folder(tmp_path, path, name):
    assert module.published_name(tmp_path / path, FACTS) == name


def test_a_model_of_another_name(folder):
    """It opens, and nothing else is known."""
    rows = list(verify(folder.rename(folder.with_name("mine"))))
    assert [row.result for row in rows] == [*[UNKNOWN] * 3, PASSED]
    assert "like one of Llama-3.2-1B, Llama" in rows[0].words
    assert rows[1].words.endswith("no checksum was published")


# -- what is published of Meta's models --


@pytest.mark.parametrize("name", FACTS)
def test_the_published_facts_are_whole(name, tmp_path):
    """The two formats' settings are equal; each text has a source."""
    config = config_of(FACTS[name]["params"])
    factor = None if "Llama-3-" in name else 8 if "3.1" in name else 32
    assert config.scaling_factor == factor
    assert all(text["source"] for text in FACTS[name]["texts"])
    with torch.device("meta"):
        theirs = transformers_config(llamalib.Llama(config))
    theirs.save_pretrained(tmp_path)
    row = module.settings_row(read_config(tmp_path), config)
    assert row.result == PASSED


def test_the_published_tokenizer_gives_the_published_ids(
    llama3_tokenizer, llama3_file
):
    data = llama3_file.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    for name in FACTS.keys() - {POCKET}:
        facts = FACTS[name]
        assert facts["files"]["tokenizer.model"] == sha256
        row = module.tokenizer_row(llama3_tokenizer, facts["texts"])
        assert row.result == PASSED
