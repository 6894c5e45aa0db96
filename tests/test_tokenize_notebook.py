"""Notebook 01's statements about published tokenizers, on their files."""

import json
import re
import subprocess
import sys

import pytest
import regex

from llamalib import Tokenizer
from llamalib.files import ROOT
from llamalib.tokenizer import SPECIAL_TOKENS, SPLIT_PATTERN, read_ranks
from tests.conftest import published
from tests.helpers import small_ranks

NOTEBOOK = ROOT / "notebooks" / "01_tokenize.ipynb"
DOCUMENT_000 = [1, 15043, 29892, 445, 338, 263, 1243, 10541, 29889, 2]
DOCUMENT_003 = [128000, 791, 6864, 315, 9822, 374]


def source_of(start):
    """Return the source of the only code cell that begins with `start`."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    (found,) = (
        source
        for cell in cells
        if cell["cell_type"] == "code"
        and (source := "".join(cell["source"])).startswith(start)
    )
    return found


def names_of(*starts):
    """Return the names that these cells define."""
    names = {"regex": regex, "SPLIT_PATTERN": SPLIT_PATTERN}
    for start in starts:
        exec(source_of(start), names)
    return names


@pytest.fixture(scope="module")
def merging():
    """The notebook's merge_by_rank and lowest_pair."""
    return names_of("def lowest_pair")


@pytest.fixture(scope="module")
def languages():
    return names_of("LANGUAGES = {")["LANGUAGES"]


def test_llama_2(languages):
    sentencepiece = pytest.importorskip("sentencepiece")
    path = published("LLAMA2_TOKENIZER")
    sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = sp.encode("Hello, this is a test sentence.")
    assert [sp.bos_id(), *ids, sp.eos_id()] == DOCUMENT_000
    pieces = [sp.id_to_piece(i) for i in ids[:3]]
    assert pieces == ["▁Hello", ",", "▁this"]
    assert sp.vocab_size() == 32_000
    assert [sp.id_to_piece(i) for i in (0, 1, 2, 3, 258)] == [
        "<unk>",
        "<s>",
        "</s>",
        "<0x00>",
        "<0xFF>",
    ]
    for text, count, _ in languages.values():
        assert len(sp.encode(text)) == count, text
    assert sp.decode(sp.encode("a▁b")) == "a b"


def test_llama_3(llama3_tokenizer, languages):
    t = llama3_tokenizer
    ids = t.encode("The capital of France is", bos=True, eos=False)
    assert ids == DOCUMENT_003
    for text, _, count in languages.values():
        assert len(t.encode(text, bos=False, eos=False)) == count, text


def test_llama_3_encoded_by_hand(llama3_tokenizer, languages):
    ranks = read_ranks(published("LLAMA3_TOKENIZER"))
    names = names_of("def lowest_pair")
    exec(source_of("def naive_encode").split("\n\n\n")[0], names)
    texts = [text for text, _, _ in languages.values()]
    for text in [*texts, "it's 1234567 LLAMAS …\r\n\n  🦙", " việc", ""]:
        expected = llama3_tokenizer.encode(text, bos=False, eos=False)
        assert names["naive_encode"](text, ranks) == expected


def test_merging_cannot_make_588_tokens(merging):
    """The notebook states this number for Llama 3's file."""
    ranks = read_ranks(published("LLAMA3_TOKENIZER"))

    def merged(token):
        parts = [bytes([b]) for b in token]
        while (i := merging["lowest_pair"](parts, ranks)) is not None:
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return parts

    stuck = [token for token in ranks if len(merged(token)) > 1]
    assert len(stuck) == 588
    assert " việc".encode() in stuck
    for token in stuck:  # each is a whole piece of the pattern
        text = token.decode("utf-8")
        assert regex.findall(SPLIT_PATTERN, text) == [text]


def test_merging_makes_every_token_of_the_pocket(merging, pocket_folder):
    ranks = read_ranks(pocket_folder / "tokenizer.model")
    for token in ranks:
        parts = [bytes([b]) for b in token]
        while (i := merging["lowest_pair"](parts, ranks)) is not None:
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        assert parts == [token]


def test_merging_takes_the_lowest_rank_then_the_leftmost(merging):
    ranks = small_ranks(256) | {b"ab": 256, b"bc": 257, b"aa": 258}
    by_rank = merging["merge_by_rank"]
    assert by_rank(b"abc", ranks) == [b"ab", b"c"]
    assert by_rank(b"aaa", ranks) == [b"aa", b"a"]
    assert by_rank(b"", ranks) == []
    ranks[b"abc"] = 259  # no merge makes it, but it is the whole word
    assert by_rank(b"abc", ranks) == [b"abc"]


def test_the_pattern_is_llama_3s():
    """The notebook's pattern is the library's, character by character."""
    names = {}
    exec(source_of("SPLIT_PATTERN = ("), names)
    assert names["SPLIT_PATTERN"] == SPLIT_PATTERN


def test_special_tokens_that_document_003_lists_as_reserved():
    named = {4: "finetune_right_pad_id", 8: "eom_id", 10: "python_tag"}
    for index, name in named.items():
        assert SPECIAL_TOKENS[index] == f"<|{name}|>"


def test_the_published_files_do_not_change_what_is_printed():
    """The saved output does not depend on LLAMA2_ and LLAMA3_TOKENIZER."""
    source = source_of("import os\n\ndocument_000 = ")
    printed = re.findall(r"^print\(.*", source, re.M)
    assert len(printed) == 2 and all("document_00" in p for p in printed)


def test_training_sentencepiece_prints_nothing(tmp_path):
    """Not on stderr either, although its log is written in C++."""
    program = "\n".join(
        (source_of('TEXT = """'), "K = 60", source_of("import io\n"))
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == "355 pieces\n"
    assert list(tmp_path.iterdir()) == []


def test_a_random_tokenizer_has_no_piece_with_the_space_sign():
    t = Tokenizer(small_ranks())
    assert t.decode(t.encode("a▁b", bos=False, eos=False)) == "a▁b"
