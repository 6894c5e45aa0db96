import pytest

from llamalib.viz import nb01 as plots
from llamalib.viz import nb01 as widgets


def drawn(play, **values):
    """The texts in the picture, title first, then three a token."""
    (ax,) = play.draw(**values).axes
    title, *rest = (text.get_text() for text in ax.texts)
    return title, rest


def test_tokens(pocket):
    play = widgets.tokens(pocket)
    before = play.picture.value
    assert bytes(before).startswith(b"\x89PNG") and not play.message.value
    play.controls["text"].value = "The capital of France"
    assert play.picture.value != before
    title, rest = drawn(play, text="The capital of France", special=False)
    t = pocket.tokenizer
    ids = t.encode("The capital of France", bos=False, eos=False)
    assert title.startswith("21 characters · 21 bytes · 4 tokens")
    assert rest[::3] == ["The", "␣capital", "␣of", "␣France"]
    assert rest[1::3] == [str(i) for i in ids]
    assert bytes.fromhex("".join(rest[2::3])) == b"The capital of France"


def test_names_of_special_tokens(pocket):
    play = widgets.tokens(pocket, "a<|eot_id|>")
    before = play.picture.value
    _, rest = drawn(play, text="a<|eot_id|>", special=False)
    assert "control" not in rest
    play.controls["special"].value = True
    assert play.picture.value != before
    _, rest = drawn(play, text="a<|eot_id|>", special=True)
    assert rest[3:] == ["<|eot_id|>", str(pocket.tokenizer.eot_id), "control"]


def test_part_of_a_character(pocket):
    _, rest = drawn(widgets.tokens(pocket), text="é水", special=False)
    assert bytes.fromhex("".join(rest[2::3])) == "é水".encode()


@pytest.mark.parametrize("text", ["", " ", "\n\n", "$", "a" * 100_000])
def test_texts_of_all_kinds(pocket, text):
    play = widgets.tokens(pocket)
    play.controls["text"].value = text
    assert not play.message.value
    title, rest = drawn(play, text=text, special=False)
    if text == "":
        assert "no tokens" in title and rest == []
    if len(text) > 1000:
        assert rest[-1].endswith("more tokens, not drawn")
        assert len(rest) == 3 * widgets.MOST_TOKENS + 1


def test_what_cannot_be_encoded_is_a_message(pocket):
    play = widgets.tokens(pocket)
    before = play.picture.value
    play.controls["text"].value = "a\ud800"
    assert "surrogate" in play.message.value
    assert play.picture.value == before
    play.controls["text"].value = "a"
    assert not play.message.value and play.picture.value != before


def test_the_saved_text_is_the_first_state(pocket):
    play = widgets.tokens(pocket, "hi")
    assert repr(play) == "Play(text='hi', special=False)"
    assert plots.visible(" ") == "␣"
