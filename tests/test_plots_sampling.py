import pytest

from llamalib.viz import nb08 as plots


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_unit_interval():
    fig = plots.unit_interval([" a", "b"], [0.5, 0.25], [0.1, 0.9], "t")
    (ax,) = fig.axes
    pieces = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert pieces == [(0, 0.5), (0.5, 0.25), (0.75, 0.25)]
    assert texts(ax) == ["␣a", "b"]
    assert list(ax.lines[0].get_xdata()) == [0.1, 0.9]
    assert ax.get_title(loc="left") == "t" and ax.get_xlabel()


def test_unit_interval_leaves_short_pieces_unnamed():
    fig = plots.unit_interval(["long name"] * 2, [0.05, 0.01], [])
    assert [text.get_rotation() for text in fig.axes[0].texts] == [90]


def test_frequencies():
    fig = plots.frequencies([" a", "b"], [0.5, 0.5], [0.4, 0.6], 100)
    (ax,) = fig.axes
    assert [bar.get_height() for bar in ax.patches] == [0.5, 0.5]
    (dots,) = ax.containers[1:]
    assert list(dots[0].get_ydata()) == [0.4, 0.6]
    whiskers = dots[2][0].get_segments()
    assert whiskers[0][1][1] == pytest.approx(0.4 + 3 * 0.05)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["␣a", "b"]


def test_entropy_by_temperature():
    fig = plots.entropy_by_temperature(
        [0.1, 1, 10], {"one": [0, 1, 2], "two": [1, 2, 3]}, 3.0, "t"
    )
    (ax,) = fig.axes
    curves = [line for line in ax.lines if len(line.get_xdata()) == 3]
    assert [list(line.get_ydata()) for line in curves] == [
        [0, 1, 2],
        [1, 2, 3],
    ]
    assert 3.0 in {line.get_ydata()[0] for line in ax.lines}
    assert ax.get_xscale() == "log"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "one",
        "two",
    ]


def test_reshaped():
    panels = {
        "as it is": ([0.6, 0.3, 0.1], [0.6, 0.3, 0.1]),
        "cut": ([0.6, 0.3, 0.1], [1.0, 0, 0]),
    }
    fig = plots.reshaped([" a", "b"], panels, "7 others", "t")
    first, second = fig.axes
    for ax, cut, kept in (
        (first, [0, 0, 0], [0.6, 0.3, 0.1]),
        (second, [0, 0.3, 0.1], [1, 0, 0]),
    ):
        widths = [bar.get_width() for bar in ax.patches]
        assert widths == [*cut, *kept]
        places = [bar.get_y() for bar in ax.patches[:3]]
        assert places == sorted(places, reverse=True)  # likeliest on top
    names = [t.get_text() for t in first.get_yticklabels()]
    assert names == ["␣a", "b", "7 others"]
    assert texts(second) == [" 1.00"]


def test_reshaped_takes_one_panel():
    (ax,) = plots.reshaped(["a"], {"x": ([1, 0], [1, 0])}, "rest").axes
    assert ax.get_title(loc="left") == "x"


def test_sample_tree():
    paths = [["a", "b"], ["a", "c"], ["d"], ["a", "c"]]
    fig = plots.sample_tree(paths, " root", "t")
    (ax,) = fig.axes
    where = {text.get_text(): text.get_position() for text in ax.texts}
    assert where == {
        "␣root ×4": (0, -1.25),
        "a ×3": (1, -0.5),
        "b": (2, 0),
        "c ×2": (2, -1),
        "d": (1, -2),
    }
    widths = [line.get_linewidth() for line in ax.lines]
    # stem and branch of a, b, c, d
    assert widths == [4.5, 3.5, 3.5, 1.5, 3.5, 2.5, 4.5, 1.5]


def test_a_sample_may_end_within_another():
    fig = plots.sample_tree([["a"], ["a", "b"], []], "r")
    assert texts(fig.axes[0]) == ["r ×3", "a ×2", "b"]
