"""The widget of notebook 03, driven by its values."""

import pytest

from llamalib.viz import nb03 as widgets


@pytest.fixture
def play(pocket):
    return widgets.norm(pocket, pocket.tokenizer.encode("A b", bos=1, eos=0))


def point(play):
    values = {name: c.value for name, c in play.controls.items()}
    right = play.draw(**values).axes[1]
    return right.lines[1].get_xydata()[0].tolist()


def test_the_scale_goes_and_the_size_stays(play):
    first, (before, after) = play.picture.value, point(play)
    assert after == pytest.approx(1, abs=0.01)
    play.controls["scale"].value = 100.0
    assert play.picture.value != first
    assert point(play)[0] == pytest.approx(100 * before, rel=1e-4)
    assert point(play)[1] == pytest.approx(1, abs=0.01)


def test_epsilon_holds_small_vectors_down(play):
    size = point(play)[0]
    play.controls["epsilon"].value = 10.0
    wanted = size / (size**2 + 10) ** 0.5
    assert point(play)[1] == pytest.approx(wanted, rel=1e-4)


def test_another_token(play):
    first = play.picture.value
    play.controls["token"].value = 0
    assert play.picture.value != first
