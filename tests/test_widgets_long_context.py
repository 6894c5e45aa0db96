import time

import pytest
import torch
from matplotlib import pyplot as plt

from llamalib.viz import nbD as widgets

FREQS = torch.tensor([1.0, 0.1, 0.001])
XS = torch.tensor([100.0, 300.0])


def choices():
    return {
        (way, factor): (FREQS / factor / slow, XS, XS / 100 + factor + slow)
        for way, slow in (("positions divided", 1), ("by wavelength", 3))
        for factor in (2, 8)
    }


def play():
    known = {"last keys only": (XS, XS / 300)}
    return widgets.longer(FREQS, 256, choices(), (XS, XS / 50), known)


def drawn(made, **values):
    return made.draw(**values).axes


def lines(ax):
    return {line.get_label(): list(line.get_ydata()) for line in ax.lines}


def test_opens_with_the_last_way_and_factor():
    made = play()
    assert repr(made) == "Play(way='by wavelength', factor=8)"
    assert made.picture.value and not made.message.value
    assert made.controls["way"].options == (
        "positions divided",
        "by wavelength",
    )
    assert made.controls["factor"].options == (2, 8)


def test_what_is_drawn_is_the_choice():
    left, right = drawn(play(), way="positions divided", factor=2)
    assert lines(left)["before"] == pytest.approx(
        (2 * torch.pi / FREQS).tolist()
    )
    assert lines(left)["after"] == pytest.approx(
        (4 * torch.pi / FREQS).tolist()
    )
    found = lines(right)
    assert found["positions divided"] == [4, 6]
    assert found["as it is"] == [2, 6]
    assert found["last keys only"] == pytest.approx([1 / 3, 1])
    names = [text.get_text() for text in left.texts]
    assert names == ["trained: 256", "2 times: 512"]
    across = [ys[0] for name, ys in lines(left).items() if name[0] == "_"]
    assert {256, 512} <= set(across)


def test_controls_change_the_picture():
    made = play()
    seen = {bytes(made.picture.value)}
    made.controls["factor"].value = 2
    seen.add(bytes(made.picture.value))
    made.controls["way"].value = "positions divided"
    seen.add(bytes(made.picture.value))
    assert len(seen) == 3 and not made.message.value


def test_without_lines_to_compare_with():
    made = widgets.longer(FREQS, 256, choices(), (XS, XS / 50))
    _, right = drawn(made, way="by wavelength", factor=8)
    named = [name for name in lines(right) if not name.startswith("_")]
    assert named == ["as it is", "by wavelength"]


def test_it_answers_at_once():
    made = play()
    took = []
    for _ in range(5):
        start = time.process_time()
        made.update()
        took.append(time.process_time() - start)
        plt.close("all")
    assert min(took) < 0.2
