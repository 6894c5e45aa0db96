"""The pictures of 04_rope: what is drawn, not how it looks."""

import math

import pytest
import torch
from matplotlib.text import Annotation

from llamalib.viz import nb04 as plots


def arrows(ax):
    """(tip, start) of every arrow in an axes."""
    return [
        (a.xy, a.xyann)
        for a in ax.texts
        if isinstance(a, Annotation) and a.arrowprops
    ]


def test_turning():
    vectors = [(math.cos(m), math.sin(m)) for m in range(5)]
    fig = plots.turning(vectors, "heading")
    circle, waves = fig.axes
    tips = [tip for tip, start in arrows(circle)]
    assert sum(tips, ()) == pytest.approx(sum(vectors, ()))
    assert [t.get_text() for t in circle.texts if t.get_text()] == list(
        "01234"
    )
    first, second = (line.get_ydata() for line in waves.lines)
    assert list(first) == pytest.approx([v[0] for v in vectors])
    assert list(second) == pytest.approx([v[1] for v in vectors])
    assert waves.get_xlabel() and waves.get_ylabel()


def test_kept_angle():
    q, k = (2.0, 0.0), (0.0, 5.0)
    fig = plots.kept_angle([("a", q, k, 1.5), ("b", k, q, 2.5)])
    one, two = fig.axes
    (tip_q, _), (tip_k, _) = arrows(one)
    assert tip_q == pytest.approx((1, 0)) and tip_k == pytest.approx((0, 1))
    assert one.get_xlabel() == "angle 90.0°, score 1.5000"
    assert two.get_xlabel() == "angle -90.0°, score 2.5000"
    arc = one.lines[-1]
    assert arc.get_xdata()[-1] == pytest.approx(0, abs=1e-9)
    assert arc.get_ydata()[-1] > 0


def test_clocks():
    vectors = torch.tensor([[[3.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [-2.0, 0]]])
    fig = plots.clocks(vectors, [0, 1000], [0, 7], "h")
    (ax,) = fig.axes
    moves = [
        (tip[0] - start[0], tip[1] - start[1]) for tip, start in arrows(ax)
    ]
    # the y axis points down, and up is drawn up
    wanted = [0.44, 0, 0, -0.44, 0, -0.44, -0.44, 0]
    assert sum(moves, ()) == pytest.approx(wanted)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1,000"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0", "7"]


def test_bands():
    angles = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1]))
    fig = plots.bands(angles.cos(), angles.sin())
    for ax, wanted in zip(fig.axes, (angles.cos(), angles.sin())):
        (image,) = ax.images
        assert torch.equal(torch.tensor(image.get_array().data), wanted.T)
        assert image.get_clim() == (-1, 1)
        assert ax.get_ylabel()


def test_wavelengths():
    series = {"plain": torch.tensor([6.0, 60.0]), "slowed": [6.0, 1920.0]}
    fig = plots.wavelengths(series, [("limit", 100)], "h")
    (ax,) = fig.axes
    assert ax.get_yscale() == "log"
    found = [list(line.get_ydata()) for line in ax.lines]
    assert found == [[6, 60], [6, 1920], [100, 100]]
    names = [t.get_text() for t in ax.get_legend().get_texts()]
    assert names == ["plain", "slowed"]
    assert ax.get_xlabel() == "pair k"


def test_score_by_distance():
    x = [0, 1, 2]
    fig = plots.score_by_distance(
        x, [1, 2, 3], [4, 5, 6], [[3, 4, 5], [5, 6, 7]], [0, 0, 0]
    )
    (ax,) = fig.axes
    alike, real, unlike, _ = (list(line.get_ydata()) for line in ax.lines)
    assert (alike, real, unlike) == ([4, 5, 6], [1, 2, 3], [0, 0, 0])
    (band,) = ax.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (3, 7)


def test_by_position():
    series = {"a": (range(3), [1, 2, 3]), "b": ([0, 2], [5, 6])}
    fig = plots.by_position(series, "loss", "h", (2, "here"), log=True)
    (ax,) = fig.axes
    a, b, mark = ax.lines
    assert list(a.get_ydata()) == [1, 2, 3] and list(b.get_xdata()) == [0, 2]
    assert set(mark.get_xdata()) == {2}
    assert ax.get_yscale() == "log" and ax.get_ylabel() == "loss"
    assert len(plots.by_position({"a": ([0], [1])}, "y").axes[0].lines) == 1


def test_turned():
    angle = 3 * math.tau + math.pi / 2
    fig = plots.turned((1, 0), (0, 1), 9, angle, ([0, 18], [1, -1]), "h")
    circle, along = fig.axes
    assert [tip for tip, _ in arrows(circle)] == [(1, 0), (0, 1)]
    assert "3 full turns and 90.0°" in circle.get_xlabel()
    arc = circle.lines[-1]
    assert arc.get_xdata()[-1] == pytest.approx(0, abs=1e-9)
    wave, dot = along.lines
    assert list(wave.get_ydata()) == [1, -1]
    assert list(dot.get_xdata()) == [9]
    assert dot.get_ydata()[0] == pytest.approx(0, abs=1e-9)
