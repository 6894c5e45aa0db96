import matplotlib
import pytest
import torch
from helpers import random_llama, small_ranks

from llamalib import Tokenizer, next_token_probs, widgets


@pytest.fixture
def llama():
    llama = random_llama()
    llama.tokenizer = Tokenizer(small_ranks())
    return llama


@pytest.fixture
def play(llama):
    yield widgets.sampling(llama, "Once")
    matplotlib.pyplot.close("all")


def last_logits(llama, text):
    ids = llama.tokenizer.encode(text, bos=True, eos=False)
    return llama(torch.tensor(ids))[-1]


def drawn(play, panel=1, **values):
    """The kept bars' lengths in a panel, the likeliest first."""
    ax = play.draw(**values).axes[panel]
    widths = [bar.get_width() for bar in ax.patches]
    kept = widths[len(widths) // 2 :]
    return torch.tensor(kept, dtype=torch.float32)


def test_opens_with_a_picture(play):
    assert bytes(play.picture.value[:4]) == b"\x89PNG"
    assert repr(play) == "Play(text='Once', temperature=0.7, k=0, p=0.9)"


@pytest.mark.parametrize(
    "temperature, k, p", [(1.0, 0, 1.0), (0.5, 5, 1.0), (2.0, 0, 0.6)]
)
def test_the_bars_are_the_distribution(llama, play, temperature, k, p):
    row = last_logits(llama, "Once")
    top = row.topk(11).indices
    before = row.softmax(-1)
    after = next_token_probs(row, temperature, k or None, p)
    for panel, probs in enumerate((before, after)):
        bars = drawn(
            play, panel, text="Once", temperature=temperature, k=k, p=p
        )
        wanted = torch.cat([probs[top], 1 - probs[top].sum()[None]])
        assert torch.allclose(bars, wanted, atol=1e-6)


def test_temperature_0_is_greedy(play):
    bars = drawn(play, text="Once", temperature=0, k=0, p=0.9)
    assert bars.tolist() == [1] + [0] * 11


@pytest.mark.parametrize(
    "name, value", [("temperature", 2.0), ("k", 3), ("p", 0.4), ("text", "aa")]
)
def test_a_control_changes_the_picture(play, name, value):
    before = play.picture.value
    play.controls[name].value = value
    assert play.picture.value != before
    assert play.message.value == ""


def test_the_model_runs_once_for_a_text(llama, monkeypatch):
    calls = []
    forward = type(llama).forward
    monkeypatch.setattr(
        type(llama),
        "forward",
        lambda self, *a, **k: calls.append(1) or forward(self, *a, **k),
    )
    play = widgets.sampling(llama, "Once")
    play.controls["temperature"].value = 1.5
    play.controls["k"].value = 7
    assert len(calls) == 1
    play.controls["text"].value = "other"
    assert len(calls) == 2
