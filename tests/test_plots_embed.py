import pytest

from llamalib.viz import nb02 as plots


def boxes(texts, fig):
    """What each text covers, in pixels."""
    fig.canvas.draw()
    renderer = fig.canvas.get_renderer()
    return [text.get_window_extent(renderer) for text in texts]


def test_lookup():
    one_hot, table = [[0, 1], [1, 0], [0, 1]], [[1.0, -2.0, 3.0], [4, 5, 6]]
    rows = [table[1], table[0], table[1]]
    fig = plots.lookup(one_hot, table, rows)
    drawn = [ax.images[0].get_array().tolist() for ax in fig.axes]
    assert drawn == [one_hot, table, rows]
    first = [text.get_text() for text in fig.axes[0].texts]
    assert first == ["0", "1", "1", "0", "0", "1", "×"]
    last = [text.get_text() for text in fig.axes[2].texts]
    assert last[:3] == ["4.00", "5.00", "6.00"] and len(last) == 9


def test_norm_histogram():
    marks = [(" b", 2.0), ("a", 1.0), ("c", 1.01)]
    fig = plots.norm_histogram([1.0, 1.0, 1.5], [2.0, 2.0], marks)
    (ax,) = fig.axes
    heights = [bar.get_height() for bar in ax.patches]
    assert [sum(heights[:60]), sum(heights[60:])] == [3, 2]
    assert (heights[0], heights[30], heights[-1]) == (2, 1, 2)
    assert [text.get_text() for text in ax.texts] == ["a", "c", "␣b"]
    assert [line.get_xdata()[0] for line in ax.lines] == [1.0, 1.01, 2.0]
    a, c, b = boxes(ax.texts, fig)
    assert not a.overlaps(c) and not c.overlaps(b)


@pytest.mark.parametrize(
    "places", [[0, 0, 0], [0, 5, 10], [9.9, 10, 10], [4, 4.1, 4.2]]
)
def test_labels_stand_apart(places):
    found = plots.embed._apart(places, 1.0, 0, 10)
    assert all(b - a >= 1 - 1e-9 for a, b in zip(found, found[1:]))
    assert all(0 <= p <= 10 for p in found)


def test_neighbours():
    panels = [(" x", ["a", "b"], [0.9, 0.5]), ("y", ["c", "$"], [0.4, 0.1])]
    fig = plots.neighbours(panels)
    for ax, (token, names, cosines) in zip(fig.axes, panels, strict=True):
        assert [bar.get_width() for bar in ax.patches] == cosines
        labels = [label.get_text() for label in ax.get_yticklabels()]
        assert labels == [plots.visible(name) for name in names]
        assert ax.get_title(loc="left") == f"nearest to {plots.visible(token)}"
    assert len(plots.neighbours(panels[:1]).axes) == 1


def test_nearest():
    every = [-0.5, 0.1, 0.1, 0.5, 0.9]
    fig = plots.nearest(" t", ["a", " b"], [0.9, 0.5], every)
    ax, crowd = fig.axes
    assert [bar.get_width() for bar in ax.patches] == [0.9, 0.5]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["a", "␣b"]
    assert [text.get_text() for text in ax.texts] == ["0.90", "0.50"]
    counts, edges, _ = crowd.patches[0].get_data()
    assert sum(counts) == len(every) and counts[-4] == 0 < counts[-3]
    assert list(crowd.lines[0].get_xdata()) == [0.9, 0.5]


def test_word_map():
    points = [[0.0, 0.0], [0.01, 0.0], [1.0, 1.0], [0.0, 0.01]]
    words = [" one", " two", " Paris", " three"]
    groups = ["numbers", "numbers", "capitals", "numbers"]
    fig = plots.word_map(points, words, groups, [0.5, 0.25])
    (ax,) = fig.axes
    drawn = [dots.get_offsets().tolist() for dots in ax.collections]
    assert drawn == [[points[0], points[1], points[3]], [points[2]]]
    assert [text.get_text() for text in ax.texts] == [
        "␣one",
        "␣two",
        "␣Paris",
        "␣three",
    ]
    assert ax.texts[2].get_color() == plots.GROUPS[1]
    assert "50%" in ax.get_xlabel() and "25%" in ax.get_ylabel()
    covered = boxes(ax.texts, fig)
    for i, box in enumerate(covered):
        assert box.count_overlaps(covered[i + 1 :]) == 0


def test_order_by_layer():
    changes = {"a": [0.0, 1e-7], "b": [1e-7, 0.1], "c": [0.1, 0.2]}
    fig = plots.order_by_layer(changes)
    (ax,) = fig.axes
    found = [list(line.get_ydata()) for line in ax.lines]
    assert found == [[1e-9, 1e-7], [1e-7, 0.1], [0.1, 0.2]]
    assert [line.get_label() for line in ax.lines] == ["a", "b", "c"]
    assert list(ax.lines[0].get_xdata()) == [1, 2]
    assert ax.get_yscale() == "log"


def test_position_table():
    import torch

    table = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    fig = plots.position_table(table.numpy(), "t")
    ax = fig.axes[0]
    assert (ax.images[0].get_array() == table.numpy()).all()
    assert ax.get_title(loc="left") == "t"
