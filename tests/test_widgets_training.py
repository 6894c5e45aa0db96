"""The widget of appendix A: a training, step by step."""

import pytest
import torch
from helpers import random_ids, random_llama, small_ranks

import llamalib
from llamalib.viz import nbA as widgets
from llamalib.training import take_snapshot

IDS = random_ids(6).tolist()


@pytest.fixture
def run():
    """A model, and what it was like at three steps."""
    shots = []
    for step, seed in ((0, 1), (50, 2), (100, 3)):
        llama = random_llama(seed=seed)
        seen = dict(loss=5.0 - step / 50, held=5.5, sample=f"text {seed}")
        shots.append(take_snapshot(llama, IDS, step=step, **seen))
    llama.tokenizer = llamalib.Tokenizer(small_ranks())
    return llama, shots


@pytest.fixture
def play(run):
    return widgets.training(*run, IDS, head=(1, 2))


def drawn(play, **values):
    shown = {name: c.value for name, c in play.controls.items()}
    fig = play.draw(**shown | values)
    return fig, *fig.axes


def test_opens_with_the_last_step_and_the_head(play):
    assert repr(play) == "Play(step=100, head=(1, 2))"
    assert play.picture.value and not play.message.value


def test_every_step_shows_its_own_snapshot(run, play):
    llama, shots = run
    assert play.controls["step"].options == (0, 50, 100)
    for shot in shots:
        for layer, head in ((0, 0), (1, 7)):
            fig, bars, maps = drawn(play, step=shot.step, head=(layer, head))
            said = [text.get_text() for text in fig.texts]
            assert said[1] == shot.sample
            assert said[0].startswith(
                f"step {shot.step}: loss {shot.loss:.2f}"
            )
            image = torch.tensor(maps.images[0].get_array())
            assert torch.equal(image, shot.maps[layer, head])
            top = shot.probs.topk(8).values.tolist()
            assert [bar.get_width() for bar in bars.patches] == (
                pytest.approx(top)
            )


def test_the_bars_have_the_tokens_names(run, play):
    llama, shots = run
    _, bars, maps = drawn(play)
    ids = shots[-1].probs.topk(8).indices.tolist()
    wanted = [llamalib.plots.visible(llama.tokenizer.decode([i])) for i in ids]
    assert [t.get_text() for t in bars.get_yticklabels()] == wanted
    labels = [llamalib.plots.visible(llama.tokenizer.decode([i])) for i in IDS]
    assert [t.get_text() for t in maps.get_yticklabels()] == labels


def test_controls_change_the_picture(run, play):
    seen = {bytes(play.picture.value)}
    for name, value in (("step", 50), ("head", (0, 1)), ("step", 0)):
        play.controls[name].value = value
        assert not play.message.value
        seen.add(bytes(play.picture.value))
    assert len(seen) == 4
    heads = dict(play.controls["head"].options)
    assert heads["layer 1, head 7"] == (1, 7) and len(heads) == 16
