"""Notebook 01's statements about published tokenizers, on their files."""

import json
import random
import re

import pytest
import regex

from lessons import n01_tokenize as lesson
from lessons.exercises import SOLUTIONS, function_in, sections
from lessons.texts import page
from llamalib import LLAMA_1B
from llamalib.load import ROOT
from llamalib.tokenizer import SPLIT_PATTERN, read_ranks
from tests.conftest import published
from tests.helpers import code_cells, small_ranks

NOTEBOOK = ROOT / "notebooks" / "01_tokenize.ipynb"
LLAMA_2_IDS = [1, 15043, 29892, 445, 338, 263, 1243, 10541, 29889, 2]
SHORT = "La capitale de la France est Paris."


def names_of(*starts):
    """Return the names that the cells that begin so define."""
    names = {"regex": regex, "SPLIT_PATTERN": SPLIT_PATTERN}
    for start in starts:
        (source,) = (s for _, s in code_cells(NOTEBOOK) if s.startswith(start))
        # a cell's definitions, without what it then shows
        exec(re.split(r"\n(?=\w+ = |print)", source)[0], names)
    return names


def prose():
    """Return the notebook's texts, each in one line."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] != "code"]
    return [" ".join(text.split()) for text in texts]


@pytest.fixture(scope="module")
def naive():
    names = names_of("def numbered", "def readable", "def naive_encode")
    sources = (source for _, source in code_cells(NOTEBOOK))
    exec(next(s for s in sources if s.startswith("import regex")), names)
    return names


def length(tokenizer, text):
    return len(tokenizer.encode(text, bos=False, eos=False))


# -- SentencePiece ----------------------------------------------------------


def test_llama_2():
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
    texts = list(lesson.ARTICLE_1.values())[:6]
    counts = [len(sp.encode(text)) for text in texts]
    assert counts == [36, 52, 47, 43, 57, 206]  # the notebook's text
    assert len(sp.encode(SHORT)) == 8
    assert sp.decode(sp.encode("a▁b")) == "a b"


def test_sentencepiece_has_the_pieces_that_the_text_names():
    sp = lesson.train_sentencepiece(page(), merges=100)
    assert sp.vocab_size() == 408 == 3 + 256 + 100 + 49
    names = ["<unk>", "<s>", "</s>", "<0x00>"]
    assert [sp.id_to_piece(i) for i in range(4)] == names
    for text in ("Hello, you.", "Zebra, 水 🦙"):
        assert sp.decode(sp.encode(text)) == text


# -- Llama 3's tokenizer ----------------------------------------------------


def test_llama_3(llama3_tokenizer):
    t = llama3_tokenizer
    ids = t.encode("The capital of France is", bos=True, eos=False)
    assert ids == [128000, 791, 6864, 315, 9822, 374]
    spaced = t.encode("The capital of France is ", bos=True, eos=False)
    assert spaced == [*ids, 220]  # a space at the end is a token of its own
    counts = [length(t, text) for text in lesson.ARTICLE_1.values()]
    assert counts == [33, 50, 44, 44, 48, 93, 36]
    assert (length(t, SHORT), length(t, " Ouagadougou")) == (9, 5)
    assert t.n_words == LLAMA_1B.vocab_size == 128_256
    ids = t.encode("s t r a w b e r r y", bos=False, eos=False)
    assert len(ids) == 10 and [t.decode([i]) for i in ids].count(" r") == 3


def test_what_the_pocket_llama_takes(pocket):
    chinese = lesson.ARTICLE_1["Chinese"]
    assert length(pocket.tokenizer, chinese) == len(chinese.encode())
    assert length(pocket.tokenizer, " Ouagadougou") == 1


def test_the_whole_article(naive, llama3_tokenizer, llama3_file):
    ranks = read_ranks(llama3_file)
    texts = [*lesson.ARTICLE_1.values(), page(), " việc", ""]
    for text in [*texts, "it's 1234567 LLAMAS …\r\n\n  🦙"]:
        expected = llama3_tokenizer.encode(text, bos=False, eos=False)
        assert naive["naive_encode"](text, ranks) == expected


def test_what_no_merges_reach(naive, llama3_file):
    """Of the added tokens 588; of GPT-4's, every tenth is tried."""
    ranks = read_ranks(llama3_file)
    some = [t for t, i in ranks.items() if i >= 100_256 or i % 10 == 0]
    join = naive["join_by_rank"]
    lost = [ranks[t] for t in some if join(t, ranks) != [t]]
    assert len(lost) == 588 and min(lost) >= 100_256
    assert ranks[b"let"] < ranks[b" apple"]


def test_merging_takes_the_lowest_rank_then_the_leftmost(naive):
    ranks = small_ranks(256) | {b"ab": 256, b"bc": 257, b"aa": 258}
    join = naive["join_by_rank"]
    assert join(b"abc", ranks) == [b"ab", b"c"]
    assert join(b"aaa", ranks) == [b"aa", b"a"]
    assert join(b"", ranks) == []
    ranks[b"xyz"] = 259  # no merge makes it, but it is the whole word
    assert join(b"xyz", ranks) == [b"x", b"y", b"z"]
    assert naive["naive_encode"]("xyz", ranks) == [259]


def test_another_tokenizer_stands_in_for_llama_3s(tmp_path, capsys):
    assert lesson.llama_3_file(tmp_path) == lesson.POCKET_FILE
    assert "`python -m llamalib fetch Llama-3-tokenizer`" in (
        capsys.readouterr().out
    )
    assert len(read_ranks(lesson.POCKET_FILE)) == 256 + 2816
    file = tmp_path / "Llama-3.2-1B" / "original" / "tokenizer.model"
    file.parent.mkdir(parents=True)
    file.touch()
    assert lesson.llama_3_file(tmp_path) == file  # Meta's folder of the 1B
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    "old, new, said",
    [
        (
            'header(t, "assistant")',
            'header(t, "model")',
            "from the first difference on, yours is 'model<|end_header_id|>"
            "\\n\\n'; expected 'assistant<|end_header_id|>\\n\\n'",
        ),
        (
            "plain(t, content.strip())",
            "[i for c in content.strip() for i in plain(t, c)]",
            "the text is right, but cut at other places",
        ),
        (
            "made += header(t, role)",
            "made += plain(t, t.decode(header(t, role)))",
            "the names of special tokens became plain text",
        ),
        ("return made", "return t.decode(made)", "a str; expected"),
    ],
)
def test_an_unknown_mistake_is_shown_as_text(pocket, old, new, said):
    solved = SOLUTIONS / "01_tokenize.py"
    (source,) = (s for n, _, s in sections(solved) if n == 3)
    if old == "return made":
        source = source.replace(' + header(t, "assistant")', "")
    assert source.count(old) == 1
    answer = function_in(source.replace(old, new), solved)
    right, words = lesson.check_3.verdict(answer, pocket.tokenizer)
    assert right is False and said in words


# -- the pattern ------------------------------------------------------------

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


def test_the_pattern_cuts_a_text_into_words(naive):
    """The notebook's seven alternatives are the library's pattern."""
    assert "|".join(naive["ALTERNATIVES"]) == SPLIT_PATTERN
    for text, expected in CUTS.items():
        assert regex.findall(SPLIT_PATTERN, text) == expected
        pieces = [piece[1:] for piece in naive["numbered"](text)]
        assert pieces == [repr(each) for each in expected]
    # the second takes a word, the third digits, the sixth leaves a space
    takes = [int(piece[0]) for piece in naive["numbered"]("a   b 12 !\n")]
    assert takes == [2, 6, 2, 7, 3, 4]


HARD = [
    "👩‍👩‍👧‍👦 🇫🇷 ❤️ 🙂🙃",
    "日本語と中文, 그리고 한국어。",
    "a\n\nb\r\nc\r\r\n  d \t\n\n\n",
    "\x00\x7f\ufeff\u200b مرحبا नमस्ते ½²",
    "",
]
SYMBOLS = [*"etaoinsHT'.,-!#1234567  \n\t", "\r\n", *"éя日水語🦙🙂", "\u200d"]


def test_encoding_by_hand_is_the_tokenizers(pocket, naive):
    """The loop of the notebook on 2,000 texts; the pattern loses nothing."""
    ranks = pocket.tokenizer.ranks
    draw = random.Random(1)
    drawn = ["".join(draw.choices(SYMBOLS, k=12)) for _ in range(2000)]
    for text in [page(), *HARD, *CUTS, *drawn]:
        expected = pocket.tokenizer.encode(text, bos=False, eos=False)
        assert naive["naive_encode"](text, ranks) == expected
        assert "".join(regex.findall(SPLIT_PATTERN, text)) == text
