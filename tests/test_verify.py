"""`verify`: what was published comes out, and what differs is named."""

import hashlib
import json
import math
import re
import shutil
import sys

import pytest
import torch

import llamalib
from llamalib import verify as module
from llamalib.__main__ import main
from llamalib.checks import read_json
from llamalib.config import config_of
from llamalib.fetch import PACKED
from llamalib.load import ROOT, read_config
from llamalib.tokenizer import read_ranks, write_ranks
from llamalib.verify import FAILED, PASSED, UNKNOWN, verify
from tests.conftest import fetched
from tests.reference import transformers_config, write_transformers
from tests.test_convert import small_file, smollm
from tests.test_huggingface import change_tensors, tokenizer_json
from tests.test_smollm import CONFIG

sys.path.append(str(ROOT / "data" / "recipe"))
import publish  # noqa: E402

PTH, POCKET = "consolidated.00.pth", "pocket-llama"
SMOLLM2 = "SmolLM2-135M-Instruct"
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
    assert counts == "11 passed, 0 failed, 0 not known"
    assert len(lines) == 11
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
    assert len(found) == 9 and set(found.values()) == {PASSED}
    llama.norm.weight[0] += 1 / 64  # a file that `save` writes, not the same
    llamalib.save(llama, folder / "new")
    found = results(folder / "new")
    assert found.pop(PTH) == UNKNOWN
    assert len(found) == 10 and set(found.values()) == {PASSED}


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
    assert out.endswith("9 passed, 2 failed, 0 not known\n")
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
    rows = [*module.weights_rows(llama, FACTS[POCKET]["texts"])]
    assert (rows[0].what, rows[0].result) == ("loss", FAILED)
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
    plain = "Llama-3-" in name or name == SMOLLM2
    factor = None if plain else 8 if "3.1" in name else 32
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
    for name in FACTS.keys() - {POCKET, SMOLLM2}:
        facts = FACTS[name]
        assert facts["files"]["tokenizer.model"] == sha256
        row = module.tokenizer_row(llama3_tokenizer, facts["texts"])
        assert row.result == PASSED


# -- GGUF files --

FILE = f"{SMOLLM2}.Q4_1.gguf"
THETA, TOKENS = "llama.rope.freq_base", "tokenizer.ggml.tokens"
SOURCE = r"\(transformers \d+\.\d+\.\d+, float32, 20\d\d-\d\d-\d\d\)"


@pytest.fixture
def gguf_folder(tmp_path, monkeypatch):
    """A small random model under SmolLM2's name, and facts of its file."""
    facts = tmp_path / "published.json"
    facts.write_text(json.dumps(FACTS), encoding="utf-8")
    for module_ in (module, publish):
        monkeypatch.setattr(module_, "PUBLISHED", facts)
    folder = tmp_path / SMOLLM2
    folder.mkdir()
    small_file(folder, n_kv_heads=8).rename(folder / FILE)
    found = publish.measure_gguf(folder / FILE)
    publish.write(found, SMOLLM2)
    return folder


def rewrite(folder, change=None, kind="F32", name=FILE, tokenizer=smollm):
    """Write the file of a folder again, with something changed."""
    file = small_file(folder, tokenizer, True, kind, change, n_kv_heads=8)
    (folder / FILE).unlink()
    file.rename(folder / name)


def zero(name):
    return lambda facts, tensors, kinds: tensors[name].fill(0)


def test_what_transformers_gave_comes_out(gguf_folder):
    rows = list(verify(gguf_folder))
    assert {row.result for row in rows} == {PASSED}
    whats = [row.what.partition(" of ")[0] for row in rows]
    known = ["model", FILE, "content", "settings", "tokenizer", "loss"]
    assert whats == [*known, *["continuation"] * 4]
    assert all(re.search(SOURCE, row.words) for row in rows[5:])
    entry = read_json(module.PUBLISHED)[SMOLLM2]
    assert len(entry["texts"][-1]["prompt_ids"]) > 150


@pytest.mark.parametrize(
    "change, failed",
    [
        (zero("blk.1.ffn_down.weight"), {"loss", "continuation"}),
        (zero("blk.0.attn_q.weight"), {"continuation"}),
        (lambda facts, t, kinds: t.pop("blk.1.attn_k.weight"), {"content"}),
        (
            lambda facts, t, kinds: t["output_norm.weight"].fill(math.inf),
            {"content"},
        ),
        (
            lambda facts, t, kinds: facts.update({THETA: 1e4}),
            {"settings"},
        ),
        (
            lambda facts, t, kinds: facts[TOKENS].insert(
                40, facts[TOKENS].pop(70)
            ),
            {"tokenizer"},
        ),
    ],
)
def test_a_damaged_gguf(gguf_folder, change, failed):
    """Its checksum fails, and what the damage changed."""
    rewrite(gguf_folder, change)
    found = {what.partition(" of ")[0] for what in failures(gguf_folder)}
    assert found - {FILE} >= failed and FILE in found
    assert failed & {"loss", "continuation"} or found == {FILE, *failed}


@pytest.mark.parametrize(
    "kind, change, expected",
    [
        ("BF16", None, PASSED),
        ("Q8_0", zero("blk.1.ffn_down.weight"), UNKNOWN),
    ],
)
def test_another_quantization(gguf_folder, kind, change, expected):
    """What was published of one file says nothing of its numbers."""
    rewrite(gguf_folder, change, kind, f"{SMOLLM2}-{kind}.gguf")
    model, file, content, settings, tokenizer, *rest = verify(gguf_folder)
    assert file.result == UNKNOWN
    assert "no checksum was published" in file.words
    for row in (model, content, settings, tokenizer):
        assert row.result == PASSED
    assert len(rest) == 5
    assert expected in {row.result for row in rest} <= {PASSED, expected}
    unknown = [row.words for row in rest if row.result == UNKNOWN]
    assert all("published of this quantization" in w for w in unknown)


def test_the_same_file_by_another_name(gguf_folder):
    """Even where no name says what it is, as in Ollama's store."""
    (gguf_folder / FILE).rename(gguf_folder / "model.gguf")
    assert set(results(gguf_folder).values()) == {PASSED}
    blob = gguf_folder.rename(gguf_folder.parent / "blobs") / "sha256-1"
    (blob.parent / "model.gguf").rename(blob)
    assert set(results(blob).values()) == {PASSED}


def test_a_folder_made_of_a_gguf(gguf_folder, tmp_path):
    """It may as well have what the model's owner published."""
    folder = tmp_path / f"new-{SMOLLM2}"
    assert main(["convert", str(gguf_folder), str(folder)]) == 0
    found = results(folder)
    assert found.pop("model.safetensors") == UNKNOWN
    assert set(found.values()) == {PASSED}
    change_tensors(folder, lambda t: t["model.norm.weight"].neg_())
    found = results(folder)
    assert found["loss"] == UNKNOWN
    assert set(found.values()) == {PASSED, UNKNOWN}


@pytest.mark.parametrize(
    "file, inside, name",
    [
        ("Llama-3.2-1B-Instruct-Q8_0", "", "Llama-3.2-1B-Instruct"),
        ("Llama-3.2-1B-Instruct-UD-Q4_K_XL", "", "Llama-3.2-1B-Instruct"),
        ("Meta-Llama-3-8B.f16", "", "Llama-3-8B"),
        ("smollm2-135m-instruct-iq3_m", "", SMOLLM2),
        ("sha256-74701a8c35f6", "Llama 3.2 1B Instruct", "Llama-3.2-1B-Instruct"),
        ("Llama-3.2-1B-tuned.Q8_0", "Tuned", None),
        ("a", "Smollm2 135M 8k Lc100K Mix1 Ep2", None),
    ],
)  # fmt: skip
def test_a_gguf_is_known_by_its_name(tmp_path, file, inside, name):
    """By the file's, or by the one that its header has, as Ollama's."""

    def change(facts, tensors, kinds):
        facts["general.name"] = inside

    path = small_file(tmp_path, change=change)
    path = path.rename(tmp_path / f"{file}.gguf")
    assert module.published_name(path, FACTS) == name
    path.write_bytes(path.read_bytes()[:999])
    shown = module.published_name(path, FACTS)
    assert shown == (None if inside else name)


# -- SmolLM2 itself --


@pytest.fixture(scope="module")
def smollm2():
    return fetched(SMOLLM2)


def test_smollm2_passes(smollm2):
    found = results(smollm2)
    assert len(found) == 10 and set(found.values()) == {PASSED}


def test_what_is_published_of_smollm2(tmp_path):
    """Its settings are those of its page, its file is the one of PyPI."""
    facts = FACTS[SMOLLM2]
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert config_of(facts["params"]) == read_config(tmp_path)
    assert facts["files"] == {FILE: PACKED[SMOLLM2].sha256}


@pytest.mark.slow
def test_smollm2_is_measured_again(smollm2):
    """By the version of transformers that is installed."""
    found, facts = publish.measure_gguf(smollm2 / FILE), FACTS[SMOLLM2]
    for text in found["texts"] + facts["texts"]:
        assert re.search(SOURCE, f"({text.pop('source')})")
    assert found == facts


def test_it_keeps_no_gradients(pocket_folder):
    """Of the 1B they would take gigabytes."""
    seen = []

    def note(module, given):
        if isinstance(module, llamalib.Llama):
            seen.append(torch.is_grad_enabled())

    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        assert len([*verify(pocket_folder)]) > 4
    finally:
        hook.remove()
    assert seen and not any(seen)
