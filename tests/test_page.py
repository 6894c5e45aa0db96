"""The files of the Llama in the page, without a browser."""

import json
import re
import sys

import pytest
import torch
from safetensors.torch import load_file

import llamalib
from lessons.theme import AMOUNT, COLOURS, GROUPS
from llamalib.load import ROOT

SITE = ROOT / "site"
sys.path.insert(0, str(SITE))

from book.pocket import write_pocket  # noqa: E402


@pytest.fixture(scope="module")
def script():
    return (SITE / "llama.js").read_text(encoding="utf-8")


def test_the_pages_weights_are_the_pockets(tmp_path, pocket_folder):
    write_pocket(tmp_path / "pocket")
    found = load_file(tmp_path / "pocket" / "model.safetensors")
    expected = llamalib.load(pocket_folder, device="cpu").state_dict()
    assert expected.keys() - found.keys() == {"output.weight"}
    for name, weight in found.items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, expected[name])
    for name in ("params.json", "tokenizer.model"):
        ours = (pocket_folder / name).read_bytes()
        assert (tmp_path / "pocket" / name).read_bytes() == ours


def test_the_script_is_short_and_has_no_markup_from_texts(script):
    assert script.count("\n") <= 900
    assert max(map(len, script.split("\n"))) <= 99
    found = re.findall(r"innerHTML|outerHTML|insertAdjacent|\beval\b", script)
    assert not found and "document.write" not in script


def test_the_script_asks_for_its_own_files_only(script):
    addresses = set(re.findall(r"https?://[\w.:/]+", script))
    namespaces = {f"http://www.w3.org/{n}" for n in ("1999/xhtml", "2000/svg")}
    assert addresses - namespaces == {"http://localhost:8000."}  # in a message
    files = re.findall(r'fetch_and_read\("(.+?)"', script)
    names = {"tokenizer.model", "params.json", "model.safetensors"}
    assert set(files) == names
    assert len(re.findall(r"\bfetch\(|import\b|XMLHttp", script)) == 1


def test_the_colours_are_the_notebooks(script):
    found = dict(re.findall(r'([\w-]+): "(#[0-9A-F]{6})"', script))
    assert found == {name: COLOURS[name] for name in found}
    assert list(found.values())[:6] == list(GROUPS[:6])
    amount = json.loads(re.search(r"AMOUNT = (\[\[.*?\]\])", script)[1])
    stops = [AMOUNT(i / 3, bytes=True)[:3] for i in range(4)]
    assert torch.tensor(amount).sub(torch.tensor(stops)).abs().max() <= 1
