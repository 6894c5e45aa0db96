import numpy as np
import pytest

from llamalib.viz import nb07 as plots


def texts(labels):
    return [label.get_text() for label in labels]


def test_bars_do_not_round_to_certain_or_impossible():
    values = [0.99999, 0.996, 0.25, 0.001, 0.00001]
    fig = plots.next_token_bars(list("abcde"), values)
    labels = [">0.9999", "0.9960", "0.25", "0.0010", "<0.0001"]
    assert texts(fig.axes[0].texts) == labels


def test_lens_map():
    words = [["a", " b"], ["$", "d\n"], ["e", ""]]
    p = np.array([[0.1, 0.9], [0.3, 0.4], [0.6, 1.0]])
    fig = plots.lens_map(words, p, ["x", " y"], "t")
    ax = fig.axes[0]
    (image,) = ax.images
    assert np.array_equal(image.get_array(), p)
    assert image.get_clim() == (0, 1)
    cells = {t.get_position(): t for t in ax.texts}
    assert cells[1, 0].get_text() == "␣b"
    assert cells[0, 1].get_text() == r"\$"
    assert cells[1, 2].get_text() == "∅"
    assert cells[1, 0].get_color() == "white"
    assert cells[0, 0].get_color() == "black"
    low, high = ax.get_ylim()
    assert low > high or low < 0 < high  # the embedding is at the bottom
    assert (
        ax.transData.transform((0, 0))[1] < (ax.transData.transform((0, 2))[1])
    )
    assert texts(ax.get_yticklabels()) == ["embedding: 0", "1", "2"]
    assert texts(ax.get_xticklabels()) == ["x", "␣y"]
    assert ax.get_xlabel() and ax.get_ylabel() == "blocks done"


def test_lens_map_of_sixteen_layers():
    words = [["<|begin_of_text|>"] * 8] * 17
    fig = plots.lens_map(words, np.ones((17, 8)), [" token"] * 8)
    fig.canvas.draw()
    ax = fig.axes[0]
    boxes = [t.get_window_extent() for t in ax.texts]
    # no text of a row reaches into the next cell
    cell = ax.get_window_extent().width / 8
    assert max(box.width for box in boxes) <= cell


def test_answer_by_layer():
    fig = plots.answer_by_layer([0.0, 0.1, 0.9], [1000, 20, 1], " $5")
    left, right = fig.axes
    assert list(left.lines[0].get_ydata()) == [0.0, 0.1, 0.9]
    assert list(right.lines[0].get_ydata()) == [1000, 20, 1]
    assert right.get_yscale() == "log"
    low, high = right.get_ylim()
    assert low > 1000 and high < 1  # rank 1 is at the top
    assert left.get_xlabel() == right.get_xlabel() == "blocks done"
    assert left.get_title(loc="left") == r"the answer ␣\$5"
    fig.canvas.draw()


def test_answer_by_layer_that_was_always_on_top():
    fig = plots.answer_by_layer([0.5, 0.5], [1, 1], "a")
    fig.canvas.draw()
    low, high = fig.axes[1].get_ylim()
    assert low > 1 > high


@pytest.mark.parametrize("n", [3, 17])
def test_logit_by_block(n):
    parts = [i - 1.5 for i in range(n)]
    leads = {"over the mean": parts, "over a": [1.0] * n}
    fig = plots.logit_by_block([f"block {i}" for i in range(n)], leads)
    (ax,) = fig.axes
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == parts + [1.0] * n
    names = texts(ax.get_legend().get_texts())
    assert names == [
        f"over the mean: {sum(parts):.2f} in all",
        f"over a: {float(n):.2f} in all",
    ]
    assert ax.get_ylabel()
    fig.canvas.draw()
    boxes = [t.get_window_extent() for t in ax.get_xticklabels()]
    if n == 3:
        assert all(a.x1 < b.x0 for a, b in zip(boxes, boxes[1:]))
