"""Notebook 01's statements about published tokenizers, on their files."""

import ast
import random

import pytest
import regex

from llamalib import LLAMA_1B
from llamalib.load import ROOT
from llamalib.tokenizer import SPLIT_PATTERN, read_ranks
from tests.conftest import published
from tests.helpers import code_cells, small_ranks

NOTEBOOK = ROOT / "notebooks" / "01_tokenize.ipynb"
LLAMA_2_IDS = [1, 15043, 29892, 445, 338, 263, 1243, 10541, 29889, 2]


def sources():
    return [source for _, source in code_cells(NOTEBOOK)]


def source_of(start):
    """Return the source of the only code cell that begins with `start`."""
    (found,) = (source for source in sources() if source.startswith(start))
    return found


def value_of(name, **names):
    """Return what the notebook assigns to a name, from its literal."""
    (found,) = (
        node.value
        for source in sources()
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") == name
    )
    return eval(ast.unparse(found), names)


def names_of(start):
    """Return the names that this cell defines."""
    names = {"regex": regex, "SPLIT_PATTERN": SPLIT_PATTERN}
    exec(source_of(start), names)
    return names


@pytest.fixture(scope="module")
def languages():
    return names_of("LANGUAGES = {")["LANGUAGES"]


LETTER, SIGN = r"[\p{L}\p{M}]", r"[\p{P}\p{S}]"


def test_llama_2(languages):
    sentencepiece = pytest.importorskip("sentencepiece")
    path = published("LLAMA2_TOKENIZER")
    sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = sp.encode("Hello, this is a test sentence.")
    assert [sp.bos_id(), *ids, sp.eos_id()] == LLAMA_2_IDS
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
    # it cuts at punctuation: no piece mixes it with letters
    for i in range(259, 32_000):
        piece = sp.id_to_piece(i).replace("▁", "")
        assert not (regex.search(LETTER, piece) and regex.search(SIGN, piece))


def test_llama_3(llama3_tokenizer, languages):
    t = llama3_tokenizer
    ids = t.encode("The capital of France is", bos=True, eos=False)
    assert ids == value_of("PUBLISHED")
    spaced = t.encode("The capital of France is ", bos=True, eos=False)
    assert spaced == [*ids, 220]  # a space at the end is a token of its own
    for text, _, count in languages.values():
        assert len(t.encode(text, bos=False, eos=False)) == count, text
    for text, count in value_of("COSTS").items():
        assert len(t.encode(text, bos=False, eos=False)) == count, text
    assert t.n_words == LLAMA_1B.vocab_size == 128_256


def test_llama_3_encoded_by_hand(llama3_tokenizer, llama3_file, languages):
    ranks = read_ranks(llama3_file)
    names = names_of("def lowest_pair")
    exec(source_of("def naive_encode").split("\n\n\n")[0], names)
    texts = [text for text, _, _ in languages.values()]
    for text in [*texts, "it's 1234567 LLAMAS …\r\n\n  🦙", " việc", ""]:
        expected = llama3_tokenizer.encode(text, bos=False, eos=False)
        assert names["naive_encode"](text, ranks) == expected


def test_merging_takes_the_lowest_rank_then_the_leftmost():
    ranks = small_ranks(256) | {b"ab": 256, b"bc": 257, b"aa": 258}
    by_rank = names_of("def lowest_pair")["merge_by_rank"]
    assert by_rank(b"abc", ranks) == [b"ab", b"c"]
    assert by_rank(b"aaa", ranks) == [b"aa", b"a"]
    assert by_rank(b"", ranks) == []
    ranks[b"abc"] = 259  # no merge makes it, but it is the whole word
    assert by_rank(b"abc", ranks) == [b"abc"]


CUTS = {
    "it's WE'LL": ["it", "'s", " WE", "'LL"],
    " list (list)": [" list", " (", "list", ")"],
    "1234567 km": ["123", "456", "7", " km"],
    "wait ...\n\nso": ["wait", " ...\n\n", "so"],
    "a \n b": ["a", " \n", " b"],
    "a   b  ": ["a", "  ", " b", "  "],
    "x  1": ["x", " ", " ", "1"],
    "'tis": ["'t", "is"],
    "x = 10000": ["x", " =", " ", "100", "00"],
}


def test_the_pattern_cuts_a_text_into_words():
    alternatives = value_of("ALTERNATIVES")
    assert "|".join(alternatives) == SPLIT_PATTERN
    for text, expected in CUTS.items():
        assert regex.findall(SPLIT_PATTERN, text) == expected
    # the picture's steps: what matches is a cut, by this alternative
    text, at = "a   b", 0
    for start, end, words, cut in value_of("STEPS"):
        assert start == at
        if cut:
            tries = (regex.match(a, text, pos=at) for a in alternatives)
            found = [m and m.end() for m in tries]
            first = next(i for i, stop in enumerate(found) if stop)
            assert (first + 1, found[first]) == (int(words[0]), end)
            at = end
    assert at == len(text)


HARD = [
    "👩‍👩‍👧‍👦 🇫🇷 ❤️ 🙂🙃",
    "日本語と中文, 그리고 한국어。",
    "a\n\nb\r\nc\r\r\n  d \t\n\n\n",
    "\x00\x7f\ufeff\u200b مرحبا नमस्ते ½²",
    "",
]
SYMBOLS = [*"etaoinsHT'.,-!#1234567  \n\t", "\r\n", *"éя日水語🦙🙂", "\u200d"]


def test_encoding_by_hand_is_the_tokenizers(pocket):
    """The loop of the notebook on 2,000 texts; the pattern loses nothing."""
    ranks = pocket.tokenizer.ranks
    names = names_of("def lowest_pair")
    exec(source_of("def naive_encode").split("\n\n\n")[0], names)
    draw = random.Random(1)
    drawn = ["".join(draw.choices(SYMBOLS, k=12)) for _ in range(2000)]
    for text in [value_of("TEXT"), *HARD, *CUTS, *drawn]:
        expected = pocket.tokenizer.encode(text, bos=False, eos=False)
        assert names["naive_encode"](text, ranks) == expected
        assert "".join(regex.findall(SPLIT_PATTERN, text)) == text
