"""What all widgets have in common."""

import base64
import gc
import inspect

import ipywidgets
import matplotlib
import pytest

from llamalib import plots, widgets

PNG = b"\x89PNG"


def bars(n):
    if n < 1:
        raise ValueError("n is <0>; wanted more")
    return plots.next_token_bars(["a"] * n, [0.5] * n)


@pytest.fixture
def play():
    return widgets.Play(bars, n=ipywidgets.IntSlider(3, -5, 9))


def test_it_opens_with_a_picture_and_draws_again(play):
    first = play.picture.value
    assert bytes(first).startswith(PNG)
    play.controls["n"].value = 4
    assert bytes(play.picture.value).startswith(PNG)
    assert play.picture.value != first
    play.controls["n"].value = 3
    assert play.picture.value == first


def test_a_mistake_is_said_and_the_picture_stays(play):
    first = play.picture.value
    play.controls["n"].value = 0
    assert play.message.value == "n is &lt;0&gt;; wanted more"
    assert play.picture.value == first
    play.controls["n"].value = 2
    assert play.message.value == ""


def test_garbage_is_collected_after_the_answer(play):
    seen = []
    play.picture.observe(lambda change: seen.append(gc.isenabled()), "value")
    play.controls["n"].value = 6
    assert seen == [False] and gc.isenabled()
    play.controls["n"].value = -1  # a mistake
    assert gc.isenabled()


def test_no_figure_is_left_open(play):
    play.controls["n"].value = 5
    assert matplotlib.pyplot.get_fignums() == []


def test_a_still_picture_stands_in_the_saved_notebook(play):
    bundle = play._repr_mimebundle_()
    if isinstance(bundle, tuple):
        bundle = bundle[0]
    assert base64.b64decode(bundle["image/png"]) == play.picture.value
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == "Play(n=3)"


def test_every_public_widget_says_what_it_is():
    functions = [
        f
        for name, f in inspect.getmembers(widgets, inspect.isfunction)
        if f.__module__ == widgets.__name__ and not name.startswith("_")
    ]
    assert {"norm"} <= {f.__name__ for f in functions}
    assert all(f.__doc__ for f in functions)
