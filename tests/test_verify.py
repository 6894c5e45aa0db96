"""`verify`: what is published comes out, and every mistake is named."""

import hashlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import llamalib
from llamalib.__main__ import main
from llamalib.files import ROOT, read_json
from llamalib.formats.huggingface import to_meta_layout
from llamalib.formats.meta import shard_axis, tensor_shapes
from llamalib.formats.params import config_of
from llamalib.tokenizer import SPECIAL_TOKENS, read_ranks, write_ranks
from llamalib.verify import files, opened, report, texts
from llamalib.verify.files import FAILED, PASSED, UNKNOWN, Row
from llamalib.verify.report import table, verify
from tests.conftest import published
from tests.helpers import random_llama, write_checkpoint
from tests.reference import write_transformers
from tests.test_huggingface import tokenizer_json

sys.path.append(str(ROOT / "data" / "recipe"))
import publish  # noqa: E402

PTH = "consolidated.00.pth"
POCKET = "pocket-llama"


@pytest.fixture
def folder(tmp_path, pocket_folder):
    """A copy of the pocket Llama."""
    return shutil.copytree(pocket_folder, tmp_path / "mine")


def change_tensors(folder, change):
    tensors = torch.load(folder / PTH, weights_only=True)
    change(tensors)
    torch.save(tensors, folder / PTH)


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
    assert counts.endswith(" passed, 0 failed, 0 not known")
    assert max(map(len, lines)) <= 100
    assert all(line.startswith(("passed ", " ")) for line in lines)
    assert f"{POCKET}, by {PTH}" in lines[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_pocket_in_sixteen_bits(pocket_folder, dtype):
    rows = verify(pocket_folder, dtype=dtype)
    assert not failures(rows)
    if dtype == "bfloat16":  # it parts, and says by how much
        assert any("1 within rounding, step" in row.words for row in rows)


def test_what_is_published_of_the_pocket_is_measured():
    """As data/recipe/publish.py would write it today, up to rounding."""
    measured = publish.measure()
    facts = read_json(report.PUBLISHED)[POCKET]
    for new, old in zip(measured["texts"], facts["texts"], strict=True):
        values = new.pop("logits"), old.pop("logits")
        assert torch.tensor(values[0]).allclose(torch.tensor(values[1]))
    assert measured == facts
    figures = read_json(publish.POCKET / "figures.json")
    assert figures["parameters"] == facts["parameters"]


def test_the_pocket_in_hugging_faces_format(tmp_path, pocket_folder):
    rows = verify(in_hugging_faces_format(tmp_path / "hf", pocket_folder))
    assert not failures(rows)
    found = results(rows)
    assert found["numbers"] == found["4 prompts"] == PASSED
    assert found["model.safetensors"] == UNKNOWN


def in_hugging_faces_format(folder, source):
    write_transformers(llamalib.load(source, device="cpu"), folder)
    tokenizer_json(source / "tokenizer.model", folder / "tokenizer.json")
    return folder


# -- damaged files -----------------------------------------------------------

WK = "layers.{}.attention.wk.weight"
DAMAGE = {
    "rows reversed": (
        lambda t: t.update({WK.format(2): t[WK.format(2)].flip(0)}),
        f"{WK.format(2)} has other numbers",
    ),
    "one bit": (
        lambda t: t[WK.format(2)].view(torch.int16)[0, :1].bitwise_xor_(1),
        f"{WK.format(2)} has other numbers",
    ),
    "a swapped pair": (
        lambda t: t.update(
            {WK.format(1): t[WK.format(4)], WK.format(4): t[WK.format(1)]}
        ),
        f"{WK.format(1)} has those of {WK.format(4)}",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_tensors(folder, kind, capsys):
    change, said = DAMAGE[kind]
    change_tensors(folder, change)
    assert main(["verify", str(folder)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert said in out and f"failed {PTH} wrong file" in out
    failed = failures(verify(folder))
    assert failed["numbers"].endswith(f"in all: {1 + ('swapped' in kind)}")
    if kind != "one bit":  # which no text shows
        assert "no known mistake" in failed["cause"]


def test_a_truncated_file(folder):
    data = (folder / PTH).read_bytes()
    (folder / PTH).write_bytes(data[: len(data) // 2])
    rows = verify(folder)
    failed = failures(rows)
    assert set(failed) == {PTH, "content"}
    assert f"{len(data) // 2:,} bytes" in failed[PTH]
    assert f"published {len(data):,} bytes" in failed[PTH]
    assert "cannot be opened" in failed["content"]
    assert rows[0] == Row(PASSED, "model", f"{POCKET}, by name and shapes")


def test_a_wrong_tokenizer(folder):
    file = folder / "tokenizer.model"
    ranks = list(read_ranks(file))
    ranks[300:] = ranks[:299:-1]  # the same number of other tokens
    write_ranks(file, {token: i for i, token in enumerate(ranks)})
    rows = verify(folder)
    failed = failures(rows)
    assert set(failed) == {"tokenizer.model", "4 prompts"}
    assert failed["4 prompts"].startswith("wrong tokenizer")
    # the published ids need no tokenizer: the weights are right
    assert len([r for r in rows if "ids as published (" in r.words]) == 4
    write_ranks(file, {token: i for i, token in enumerate(ranks[:-1])})
    assert "tokenizer.model" in failures(verify(folder))["content"]


def test_a_missing_file_or_folder(folder, capsys):
    (folder / "tokenizer.model").unlink()
    assert "has no tokenizer.model" in failures(verify(folder))["content"]
    (folder / "params.json").write_text("{")
    assert "is not JSON" in failures(verify(folder))["content"]
    assert main(["verify", str(folder / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(ValueError, match="dtype is 'int8'; expected one of"):
        verify(folder, dtype="int8")


def test_a_file_that_may_not_be_read(folder, monkeypatch):
    def refuse(file, *mode):
        if Path(file).name == PTH:
            raise PermissionError(13, "Permission denied", str(file))
        return io.open(file, *mode)

    monkeypatch.setattr("builtins.open", refuse)
    said = failures(verify(folder))["content"]
    assert PTH in said and "Try chmod u+r" in said


@pytest.mark.parametrize("name", [PTH, "tokenizer.model"])
def test_what_is_not_a_file_is_named(folder, name):
    """A cache of Hugging Face's may hold links to what is gone."""
    (folder / name).unlink()
    (folder / name).symlink_to("nowhere")
    assert (
        f"{name} is a folder, a pipe or" in failures(verify(folder))["content"]
    )
    (folder / name).unlink()
    (folder / name).mkdir()
    assert (
        f"{name} is a folder, a pipe or" in failures(verify(folder))["content"]
    )


def test_a_billion_layers(folder):
    """Their names are not made before they are refused."""
    params = read_json(folder / "params.json") | {"n_layers": 2**31 - 1}
    (folder / "params.json").write_text(json.dumps(params))
    assert "number of layers" in failures(verify(folder))["content"]


def test_numbers_beyond_float16(folder):
    """What was found before is still printed."""
    name = "layers.0.feed_forward.w1.weight"
    change_tensors(folder, lambda t: t[name].view(-1)[:1].fill_(1e6))
    failed = failures(verify(folder, dtype="float16"))
    assert name in failed["numbers"]
    assert "at most 65,504 in float16" in failed["content"]


def test_the_pocket_in_two_shards(tmp_path, folder):
    """The file is another, the numbers are the same."""
    tensors = torch.load(folder / PTH, weights_only=True)
    for i in range(2):
        part = {}
        for name, whole in tensors.items():
            axis = shard_axis(name)
            pieces = [whole] * 2 if axis is None else whole.chunk(2, axis)
            part[name] = pieces[i].clone(memory_format=torch.contiguous_format)
        torch.save(part, folder / f"consolidated.{i:02d}.pth")
    rows = verify(folder)
    assert set(failures(rows)) == {PTH} and results(rows)["numbers"] == PASSED


# -- mistakes ----------------------------------------------------------------


@pytest.mark.parametrize(
    "change, said",
    [
        (
            {"rope_scaling_factor": 8.0},
            "scaling_factor is 8.0, not 32.0",
        ),
        (
            {"use_scaled_rope": False, "context_length": 131072},
            "scaling_factor is None, not 32.0",
        ),
        ({"rope_theta": 10000.0}, "rope_theta is 10000.0, not 500000.0"),
        ({"norm_eps": 1e-6}, "norm_eps is 1e-06, not 1e-05"),
        ({"n_heads": 16, "n_kv_heads": 4, "head_width": 16}, "n_heads is 16"),
    ],
)
def test_wrong_settings_are_named_by_the_logits(folder, change, said):
    params = read_json(folder / "params.json") | change
    (folder / "params.json").write_text(json.dumps(params))
    failed = failures(verify(folder))
    assert failed["settings"].startswith(said)
    assert failed["cause"].startswith(f"these settings: {said}")
    assert any("rounding explains" in words for words in failed.values())
    assert len(failed) >= 3  # a text too


def reorder(tensors, how):
    for name in tensors:
        if name.endswith((".wq.weight", ".wk.weight")):
            tensors[name] = how(tensors[name])


def to_halves(weight, hd=32):
    return weight.unflatten(0, (-1, hd // 2, 2)).transpose(1, 2).flatten(0, 2)


def exchange(tensors, a, b):
    for name in [name for name in tensors if a in name]:
        other = name.replace(a, b)
        tensors[name], tensors[other] = tensors[other], tensors[name]


CAUSES = {
    "halves for neighbours": lambda t: reorder(t, to_halves),
    "neighbours for halves": lambda t: reorder(
        t, lambda w: to_meta_layout(w, 32)
    ),
    "w1 and w3 are swapped in every": lambda t: exchange(t, ".w1.", ".w3."),
    "wk and wv are swapped in every": lambda t: exchange(t, ".wk.", ".wv."),
    "attention_norm and ffn_norm are swapped in every": lambda t: exchange(
        t, ".attention_norm.", ".ffn_norm."
    ),
    "output not tied": lambda t: t.update(
        {"output.weight": t["tok_embeddings.weight"].flip(1)}
    ),
}


@pytest.mark.parametrize("said", CAUSES)
def test_the_cause_is_named(folder, said):
    change_tensors(folder, CAUSES[said])
    if "wv" in said:  # a second mistake does not hide it
        params = read_json(folder / "params.json") | {"rope_theta": 1e4}
        (folder / "params.json").write_text(json.dumps(params))
    failed = failures(verify(folder))
    assert failed["cause"].startswith(said)
    if "tied" in said:
        assert "output: False" in failed["tensors"]


def test_rows_in_metas_order_in_a_hugging_face_folder(tmp_path, pocket_folder):
    from safetensors.torch import load_file, save_file

    folder = in_hugging_faces_format(tmp_path / "hf", pocket_folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in tensors:
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensors[name] = to_meta_layout(tensors[name], 32)
    save_file(tensors, file, metadata={"format": "pt"})
    failed = failures(verify(folder))
    assert failed["cause"].startswith("neighbours for halves")


def test_no_begin_token(tmp_path, pocket_folder):
    """A tokenizer.json that puts nothing before a text."""
    folder = in_hugging_faces_format(tmp_path / "hf", pocket_folder)
    file = folder / "tokenizer.json"
    found = read_json(file)
    found["post_processor"] = None
    found["model"]["ignore_merges"] = False  # the library runs it
    file.write_text(json.dumps(found))
    rows = verify(folder)
    failed = failures(rows)
    begin = 3072
    assert failed.pop("stop ids").startswith("[], Llama 3's are [3073,")
    assert failed == {
        "4 prompts": f"no begin token: put id {begin} at the start of "
        "every prompt"
    }


@pytest.mark.parametrize("ids, right", [(13, False), ([3073, 3081], True)])
def test_the_ids_that_end_a_text(tmp_path, pocket_folder, ids, right):
    folder = in_hugging_faces_format(tmp_path / "hf", pocket_folder)
    config = read_json(folder / "config.json") | {"eos_token_id": ids}
    (folder / "config.json").write_text(json.dumps(config))
    failed = failures(verify(folder))
    assert set(failed) == (set() if right else {"stop ids"})
    assert right or "[13], Llama 3's are [3073, 3080" in failed["stop ids"]


# -- models that are not here: invented facts about tiny ones ----------------

PROMPTS = "abcabcabd", "ab cd ab cd "


def facts_of(folder, **changes) -> dict:
    """Facts of a checkpoint as published.json has them, measured here."""
    llama = llamalib.load(folder, device="cpu", dtype=torch.float32)
    made = []
    for prompt in PROMPTS:
        ids = llama.tokenizer.encode(prompt, bos=True, eos=False)
        new = llamalib.generate(llama, ids, max_new_tokens=6, stop=())
        made.append(
            {
                "prompt": prompt,
                "bos": True,
                "prompt_ids": ids,
                "ids": list(new),
                "dtype": "float16",
                "source": "a test",
            }
        )
    sha256 = hashlib.sha256((folder / PTH).read_bytes()).hexdigest()
    return {
        "params": read_json(folder / "params.json"),
        "dtype": "bfloat16",
        "tied": True,
        "begin": llama.tokenizer.bos_id,
        "files": {PTH: {"sha256": sha256}},
        "texts": made,
    } | changes


@pytest.fixture
def two(tmp_path):
    """Two models of the same shapes, and the facts about both."""
    folders = [
        write_checkpoint(tmp_path / name / "original", random_llama(seed=i))
        for i, name in enumerate(("Tiny-1", "Tiny-1-Instruct"))
    ]
    return folders, {p.parent.name: facts_of(p) for p in folders}


def test_models_are_told_apart_by_checksum(two, tmp_path):
    folders, facts = two
    for folder in folders:
        rows = verify(folder, published=facts)
        assert rows[0].words == f"{folder.parent.name}, by {PTH}"
        assert not failures(rows)
    # the same file in a folder of another name
    folders[0].parent.rename(tmp_path / "x")
    (tmp_path / "x").rename(tmp_path / "tiny_1_instruct-original")
    rows = verify(tmp_path / "tiny_1_instruct-original", published=facts)
    assert "wrong file" in failures(rows)["model"]
    said = f"{PTH} is that of Tiny-1, the folder's name says Tiny-1-Instruct"
    assert said in rows[0].words


def without_checksums(facts):
    return {name: fact | {"files": {}} for name, fact in facts.items()}


def test_models_are_told_apart_by_the_folders_name(two, tmp_path):
    folders, facts = two
    facts = without_checksums(facts)
    for folder in folders:
        rows = verify(folder, published=facts)
        assert rows[0].words == f"{folder.parent.name}, by name and shapes"
        assert results(rows)[PTH] == UNKNOWN and not failures(rows)
    moved = folders[0].parent.rename(tmp_path / "finetuned-tiny-1-more")
    rows = verify(moved, published=facts)
    assert rows[0].result == UNKNOWN
    assert "which of Tiny-1, Tiny-1-Instruct?" in rows[0].words
    assert results(rows)["continuations"] == UNKNOWN
    assert results(rows)["settings"] == UNKNOWN and not failures(rows)


def test_the_file_of_another_model(two):
    """By its texts, where no checksum was published."""
    (one, other), facts = two
    shutil.copy(other / PTH, one / PTH)
    failed = failures(verify(one, published=without_checksums(facts)))
    assert failed["cause"].startswith("wrong file: it continues like Tiny-1-I")


def test_a_file_that_convert_wrote(two):
    (folder, _), facts = two
    llamalib.save(llamalib.load(folder, device="cpu"), folder)
    rows = verify(folder, published=facts)
    assert results(rows)[PTH] == UNKNOWN and not failures(rows)


def test_shapes_that_nobody_published(tmp_path):
    rows = verify(write_checkpoint(tmp_path / "Llama-3.2-1B"))
    assert rows[0].words == "no published model has these shapes"
    assert {row.result for row in rows} <= {UNKNOWN, PASSED}


@pytest.mark.parametrize("damaged", [False, True])
def test_metas_checklist(two, damaged):
    (folder, _), facts = two
    names = PTH, "params.json", "gone.pth"
    lines = []
    for name in names[: 2 + damaged]:
        file = folder / name
        data = file.read_bytes() if file.is_file() else b""
        md5 = hashlib.md5(data).hexdigest()
        md5 = "0" * 32 if damaged and name == PTH else md5
        lines.append(f"{md5}  {name}")
    (folder / "checklist.chk").write_text("\n".join(lines) + "\n")
    rows = verify(folder, published=without_checksums(facts))
    found = {w: r for w, r in results(rows).items() if w.endswith(", MD5")}
    assert found["params.json, MD5"] == PASSED
    expected = FAILED if damaged else PASSED
    assert found[f"{PTH}, MD5"] == expected and len(found) == 2 + damaged
    assert found.get("gone.pth, MD5", FAILED) == FAILED


@pytest.mark.parametrize("data", [b"<html>", b"\xff\0\x80" * 99, None])
def test_a_checklist_that_is_none(folder, data):
    file = folder / "checklist.chk"
    file.mkdir() if data is None else file.write_bytes(data)
    assert failures(verify(folder)).keys() == {"checklist.chk"}


def test_a_near_tie_is_judged_in_the_sources_dtype(two, monkeypatch):
    (folder, _), facts = two
    text = facts["Tiny-1"]["texts"][0]
    llama = llamalib.load(folder, device="cpu", dtype=torch.float32)
    ids = text["prompt_ids"] + text["ids"]
    logits = llama(torch.tensor(ids[:-1]))[-6:].topk(2)
    gaps = (logits.values[:, 0] - logits.values[:, 1]).tolist()
    i = gaps.index(min(gaps))
    text["ids"] = text["ids"][:i] + [logits.indices[i, 1].item()]
    size = logits.values[i, 0].item()
    for dtype in ("float16", "bfloat16"):
        # so many ulps that this gap is a near tie in bfloat16, not float16
        source = getattr(torch, dtype)
        ulp = 2**-7 * 2 ** math.floor(math.log2(size))
        monkeypatch.setitem(texts.ULPS, source, 2 * min(gaps) / ulp)
        text["dtype"] = dtype
        rows = verify(folder, published=facts)
        row = next(row for row in rows if row.what == repr(text["prompt"]))
        assert row.result == (PASSED if dtype == "bfloat16" else FAILED)
        assert f"step {i + 1}: " in row.words
        assert f"logits are {min(gaps):.2g} apart" in row.words
        kind = "within rounding" if dtype == "bfloat16" else "explains"
        assert kind in row.words


def test_nan_is_no_near_tie(two):
    (folder, _), facts = two
    found, _ = opened.open_folder(folder, {}, torch.float32)
    norm = {"norm.weight": lambda: torch.full((64,), math.nan)}
    w = opened.Lazy(found.w | norm)
    broken = opened.Opened(found.config, found.tokenizer, True, w)
    text = facts["Tiny-1"]["texts"][0]
    assert texts.text_row(broken, text, torch.float32).result == FAILED
    assert texts.text_row(found, text, torch.float32).result == PASSED


def test_a_source_that_leaves_something_open(two):
    (folder, _), facts = two
    text = facts["Tiny-1"]["texts"][0]
    text |= {"uncertain": "its date", "ids": text["ids"][::-1]}
    rows = verify(folder, published=facts)
    assert not failures(rows)
    row = next(row for row in rows if row.what == repr(text["prompt"]))
    assert row.result == UNKNOWN and "its date" in row.words


def test_texts_without_ids_and_with_control_tokens(two):
    """As some sources publish them; encoded with the reader's tokenizer."""
    (folder, _), facts = two
    tokenizer = llamalib.load(folder, device="cpu").tokenizer
    encode, decode = tokenizer.encode, tokenizer.decode
    kept = []
    for text in facts["Tiny-1"]["texts"]:
        prompt = "<|begin_of_text|>" + text["prompt"]
        text |= {"prompt": prompt, "bos": False}
        text["text"] = decode(text["ids"][:1])
        if encode(text["text"], bos=False, eos=False) == text.pop("ids")[:1]:
            kept.append(text)  # not a part of a character
        del text["prompt_ids"]
    facts["Tiny-1"]["texts"] = kept
    rows = verify(folder, published=facts)
    found = [row.words[:6] for row in rows if "no begin" in row.what]
    assert found and found == ["1 of 1"] * len(kept)


# -- rounding, memory, perplexity --------------------------------------------


@pytest.mark.parametrize("dtype", texts.ULPS)
def test_rounding_is_within_the_stated_bound(pocket_folder, dtype):
    """Gaps of the four largest logits, compared with float64's."""
    story = publish.STORIES[0]
    exact, _ = opened.open_folder(pocket_folder, {}, torch.float64)
    rounded, _ = opened.open_folder(pocket_folder, {}, dtype)
    ids = exact.tokenizer.encode(story, bos=True, eos=False)[:200]
    for found in (exact, rounded):
        assert found.w["norm.weight"].dtype in (torch.float64, dtype)
    best = exact.logits(ids).topk(4)
    gaps = [
        logits[:, :1] - logits[:, 1:]
        for logits in (
            best.values,
            rounded.logits(ids).gather(-1, best.indices),
        )
    ]
    off = (gaps[1] - gaps[0]).abs().amax(-1)
    sizes = best.values[:, 0].tolist()
    bounds = torch.tensor([texts.rounding(size, dtype) for size in sizes])
    assert (off <= bounds).all()
    assert (off > bounds / 100).any()  # the bound is not a hundred times more


def test_the_coarser_dtype_decides():
    fine = texts.rounding(20.0, torch.float32)
    coarse = texts.rounding(20.0, torch.bfloat16)
    assert coarse == 4 * 2**-7 * 16 and fine == 64 * 2**-23 * 16
    assert texts.rounding(20.0, torch.float32, torch.bfloat16) == coarse


def test_weights_stay_mapped(pocket_folder):
    """In the file's dtype nothing is copied; else one tensor at a time."""
    name = WK.format(0)
    same, _ = opened.open_folder(pocket_folder, {}, torch.bfloat16)
    assert same.w[name].data_ptr() == same.w[name].data_ptr()
    other, _ = opened.open_folder(pocket_folder, {}, torch.float32)
    first, second = other.w[name], other.w[name]
    assert first.data_ptr() != second.data_ptr()
    assert first.equal(same.w[name].float())


def test_perplexity(pocket, pocket_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "WINDOW", 64)
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
    out = capsys.readouterr()
    assert f"{expected:.3f}, windows: {n}; none was published" in out.out
    assert f"{n}/{n}" in out.err  # the progress bar
    every = read_json(report.PUBLISHED)
    for factor, result in ((1.005, PASSED), (1.02, FAILED)):
        every[POCKET]["perplexity"] = expected * factor
        rows = verify(pocket_folder, wikitext=file, published=every)
        assert results(rows)["perplexity"] == result
    monkeypatch.setattr(report, "WINDOW", 10**6)  # one incomplete window
    rows = verify(pocket_folder, wikitext=file, published=every)
    assert "windows: 1" in rows[-1].words


@pytest.mark.parametrize("data", [b"\xff\0\x80", b"", None, "gone"])
def test_a_text_that_is_none(tmp_path, pocket_folder, data, capsys):
    file = tmp_path / "text"
    if data is None:
        file.mkdir()
    elif data != "gone":
        file.write_bytes(data)
    arguments = "verify", str(pocket_folder), "--wikitext", str(file)
    assert main(arguments) == 1
    said = f"{file} is not WikiText-2's test text in UTF-8: "
    assert said in capsys.readouterr().err


def test_the_table_has_a_hundred_columns():
    rows = [Row(FAILED, "what " * 20, "word " * 50), Row(UNKNOWN, "x", "y")]
    lines = table(rows).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-1] == "0 passed, 1 failed, 1 not known"
    assert lines[1].strip().startswith("word")


# -- what is published of Meta's models --------------------------------------


def test_the_published_facts_are_whole():
    """Every fact has a source, and its settings are those of a Llama."""
    for name, facts in read_json(report.PUBLISHED).items():
        config = config_of(facts["params"])
        assert (config.scaling_factor or 1) == (
            1 if "Llama-3-" in name else 8 if "3.1" in name else 32
        )
        V = config.vocab_size
        for fact in [*facts["files"].values(), facts["tokenizer"]]:
            assert len(bytes.fromhex(fact["sha256"])) == 32
        for text in facts["texts"]:
            assert text["source"]
            dtype = getattr(torch, text.get("dtype") or "bfloat16")
            assert dtype in texts.ULPS
            ids = text.get("ids", []) + text.get("prompt_ids", [])
            assert all(0 <= i < V for i in ids)
            begins = text.get("prompt_ids", [facts["begin"]])[0]
            assert begins == facts["begin"] or not text["bos"]
        shapes = tensor_shapes(config)
        if facts["tied"]:
            del shapes["output.weight"]
        count = sum(map(math.prod, shapes.values()))
        assert facts.get("parameters", count) == count


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
def test_the_folders_name(tmp_path, path, name):
    facts = read_json(report.PUBLISHED)
    models = files.models_like(llamalib.LLAMA_1B, facts)
    assert list(models) == ["Llama-3.2-1B", "Llama-3.2-1B-Instruct"]
    assert files.name_model(tmp_path / path, models, {})[0] == name
    sha256 = models["Llama-3.2-1B"]["files"]["model.safetensors"]["sha256"]
    found = {"model.safetensors": sha256}
    named, row = files.name_model(tmp_path / path, models, found)
    assert named == "Llama-3.2-1B"
    assert row.result == (PASSED if name in (named, None) else FAILED)
    assert ("wrong file" in row.words) == (row.result == FAILED)


def test_the_published_tokenizer_gives_the_published_ids(llama3_tokenizer):
    file = published("LLAMA3_TOKENIZER")
    assert SPECIAL_TOKENS[0] == "<|begin_of_text|>"
    seen = 0
    for name, facts in read_json(report.PUBLISHED).items():
        if name == POCKET:
            continue
        found = {
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        assert facts["tokenizer"] == found
        assert facts["begin"] == llama3_tokenizer.bos_id
        made = opened.Opened(None, llama3_tokenizer, True, None)
        for text in [*facts["prompts"], *facts["texts"]]:
            assert texts.prompt_problem(made, text, facts["begin"]) is None
            said = llama3_tokenizer.decode(text.get("ids", []))
            again = llama3_tokenizer.encode(said, bos=False, eos=False)
            assert again == text.get("ids", []) or "<|" in said
            seen += bool(said)
    assert seen >= 5
