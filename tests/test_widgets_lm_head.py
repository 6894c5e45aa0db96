import warnings

import pytest
import torch

from llamalib.viz import nb07 as widgets


@pytest.fixture(scope="module")
def play(pocket):
    return widgets.next_token(pocket)


def drawn(play, **values):
    """Title, and token to width of its bar."""
    (ax,) = play.draw(**values).axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    widths = [bar.get_width() for bar in ax.patches]
    return ax.get_title(loc="left"), labels, widths


def test_opens_with_the_capital(play, pocket):
    assert repr(play) == "Play(prompt='The capital of France is', bars=10)"
    assert bytes(play.picture.value).startswith(b"\x89PNG")
    values = {name: c.value for name, c in play.controls.items()}
    title, labels, widths = drawn(play, **values)
    assert labels[0] == "␣Paris" and len(labels) == 10
    prompt = play.controls["prompt"].value
    ids = pocket.tokenizer.encode(prompt, bos=True, eos=False)
    p = pocket(torch.tensor(ids))[-1].softmax(-1)
    wanted = p.sort(descending=True).values[:10].tolist()
    assert widths == pytest.approx(wanted, abs=1e-4)
    assert title == "The capital of France is …"


def test_follows_its_controls(pocket):
    play = widgets.next_token(pocket)
    before = play.picture.value
    play.controls["prompt"].value = "The capital of Japan is"
    after = play.picture.value
    assert before != after
    play.controls["bars"].value = 3
    assert play.picture.value != after
    assert play.message.value == ""
    _, labels, _ = drawn(play, prompt="The capital of Japan is", bars=3)
    assert labels[0] == "␣Tokyo" and len(labels) == 3


def test_no_prompt_is_the_start_of_a_text(play, pocket):
    _, _, widths = drawn(play, prompt="", bars=5)
    bos = torch.tensor([pocket.tokenizer.bos_id])
    wanted = pocket(bos)[-1].softmax(-1).max().item()
    assert widths[0] == pytest.approx(wanted, abs=1e-4)


def test_a_long_prompt_is_cut_and_says_so(play, pocket):
    text = "One, two, three, " * 60 + "The capital of France is"
    n = len(pocket.tokenizer.encode(text, bos=False, eos=False))
    title, labels, widths = drawn(play, prompt=text, bars=5)
    assert f"its last {widgets.LONGEST_PROMPT - 1} of {n} tokens" in title
    ids = pocket.tokenizer.encode(text, bos=True, eos=False)
    ids = ids[:1] + ids[-(widgets.LONGEST_PROMPT - 1) :]
    p = pocket(torch.tensor(ids))[-1].softmax(-1)
    assert widths[0] == pytest.approx(p.max().item(), abs=1e-4)


def test_any_text_can_be_typed(play):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("水 🦙", "$x$ costs $", " ", "a\tb", "<|end_of_text|>"):
            play.draw(prompt=text, bars=4).canvas.draw()


def test_what_no_utf8_can_hold_is_a_message(pocket):
    play = widgets.next_token(pocket)
    before = play.picture.value
    with pytest.raises(ValueError, match="surrogate"):
        play.draw(prompt="\ud800", bars=4)
    assert play.picture.value == before
