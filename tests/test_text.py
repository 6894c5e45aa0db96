"""Files of text, the project's own text, and packed rows."""

import pytest
import torch

from lessons import texts as text
from lessons.texts import (
    find_text,
    held_out_texts,
    own_documents,
    pack_rows,
    read_documents,
)
from llamalib import LLAMA_1B, Llama
from tests.conftest import published


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A project and a current folder without any text."""
    monkeypatch.setattr(text, "ROOT", tmp_path / "project")
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below")
    return tmp_path


def test_find_text(nowhere, monkeypatch):
    """By order: the argument, LLAMA_TEXT, the project, a folder above."""
    assert find_text() is None
    here, own = nowhere / "here" / "data", nowhere / "project" / "data"
    names = "tinyshakespeare.txt", "TinyStories-train.txt"
    here.mkdir()
    for file in (here / names[0], here / names[1]):
        file.write_text("x")
        assert find_text() == file
    own.mkdir(parents=True)
    (own / names[0]).write_text("x")
    assert find_text() == own / names[0]
    monkeypatch.setenv("LLAMA_TEXT", str(here / names[0]))
    assert find_text() == here / names[0]
    assert find_text(here / names[1]) == here / names[1]
    # relative to the project, whatever folder the notebook runs in
    monkeypatch.setenv("LLAMA_TEXT", f"data/{names[0]}")
    assert find_text() == own / names[0]
    monkeypatch.setenv("LLAMA_TEXT", "")
    assert find_text() == own / names[0]


def test_no_such_text(nowhere, monkeypatch):
    monkeypatch.setenv("LLAMA_TEXT", "nothing.txt")
    said = r"nothing.txt \(LLAMA_TEXT\) is not a file; .*data/README.md"
    with pytest.raises(FileNotFoundError, match=said):
        find_text()
    for name in (nowhere, "~nobody-of-that-name/x", "x" * 300):
        with pytest.raises(FileNotFoundError, match=r"\(path\) is not a file"):
            find_text(name)


def written(tmp_path, data):
    file = tmp_path / "text.txt"
    file.write_bytes(data)
    return file


MANY = [f"Story {i}.\nIt ends." for i in range(30)]


@pytest.mark.parametrize(
    "data",
    [
        "\n\n".join(MANY),
        "\r\n\r\n".join(MANY),
        "\n<|endoftext|>\n".join(m.replace("\n", "\n\n") for m in MANY),
        "\ufeff" + "\n\n\n\n".join(MANY) + "\n\n",
    ],
    ids=["blank lines", "of Windows", "TinyStories'", "a byte-order mark"],
)
def test_read_documents(tmp_path, data):
    found = read_documents(written(tmp_path, data.encode()))
    assert len(found) == 30
    assert found[0].split() == ["Story", "0.", "It", "ends."]
    assert "\r" not in "".join(found) and "<|" not in "".join(found)


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", r"is empty: download it again"),
        ("é".encode("latin1") * 50, "is not UTF-8: byte 0 is 0xe9"),
        ("a b\n\n".encode("utf-16") * 50, "is not UTF-8: byte 0 is 0xff"),
        (b"No blank line.\n" * 50, "has 1 texts; expected at least 20"),
        (b" \n\n \n\n", "has 0 texts; .* separated by <.endoftext.>"),
        (b"<!DOCTYPE html><html>\n\n" * 50, "is an HTML page"),
        ("\n\n".join(MANY).encode()[:-3] + b"\xc3", "not UTF-8: byte 5"),
    ],
)
def test_bad_texts(tmp_path, data, said):
    file = written(tmp_path, data)
    with pytest.raises(ValueError, match=said) as error:
        read_documents(file)
    assert str(file) in str(error.value)
    with pytest.raises(FileNotFoundError, match="README.md says where to ge"):
        read_documents(tmp_path / "x")


def test_tiny_shakespeare(pocket):
    file = published("TINYSHAKESPEARE")
    found = read_documents(find_text(file))
    assert len(found) > 7000 and found[0].startswith("First Citizen:\n")
    assert len(set(file.read_text(encoding="utf-8"))) == 65  # characters
    ids = pocket.tokenizer.encode(found[7], bos=False, eos=False)
    assert pocket.tokenizer.decode(ids) == found[7]


# -- the project's own text --------------------------------------------------


def test_own_documents():
    stories = own_documents(40, ["gift_story", "animal_story"])
    assert len(stories) == 40
    assert all("friend" in story for story in stories)
    assert stories == own_documents(40, ["gift_story", "animal_story"])
    assert stories != own_documents(40, ["gift_story"], seed="other")
    mixture = own_documents(200)
    assert sum("capital" in text for text in mixture) > 20
    with pytest.raises(ValueError, match=r"unknown kinds \['ghost_story'\]"):
        own_documents(1, ["gift_story", "ghost_story"])


# -- rows --------------------------------------------------------------------


def test_rows_start_with_a_document_and_have_a_target_more(pocket):
    rows = pack_rows(["one two"] * 100, pocket.tokenizer, 3, 10)
    document = pocket.tokenizer.encode("one two", bos=True, eos=True)
    assert rows.tolist() == [(document * 11)[:11]] * 3


def test_a_document_that_just_fills_a_row(pocket):
    """The last target is the begin token of the next document."""
    document = pocket.tokenizer.encode("one two", bos=True, eos=True)
    rows = pack_rows(["one two"] * 9, pocket.tokenizer, 2, len(document))
    assert rows.tolist() == [[*document, document[0]]] * 2


# 16.4 million tokens are fewer than 400,000 texts
ALL = pytest.param(400_000, marks=pytest.mark.slow)


@pytest.mark.parametrize("n", [10_000, ALL])
def test_the_texts_are_held_out(pocket, n):
    """Fifty documents that training did not draw; the file holds them."""
    texts, trained = held_out_texts(pocket), own_documents(n, seed="train")
    drawn = own_documents(56, seed="held out")
    assert texts == [text for text in drawn if text in texts]
    assert len(texts) == 50 and not {*texts} & {*trained}
    left_out = {*drawn} - {*texts}
    assert n < 400_000 or left_out <= {*trained}


def test_a_large_model_gets_fewer_texts():
    with torch.device("meta"):
        large = Llama(LLAMA_1B)
    assert len(held_out_texts(large)) == 8
