import matplotlib
import pytest

from llamalib.viz import nb01 as plots


def texts(ax):
    return [text.get_text() for text in ax.texts]


def boxes(ax):
    """(left, top, right, bottom) of every box."""
    return [
        (
            b.get_x(),
            b.get_y(),
            b.get_x() + b.get_width(),
            b.get_y() + b.get_height(),
        )
        for b in ax.patches
    ]


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_token_rows():
    fig = plots.token_rows({"one": ["a", " b"], "two": ["a\n", "$", ""]}, "t")
    (ax,) = fig.axes
    wanted = ["t", "one: 2 tokens", "a", "␣b", "two: 3 tokens"]
    assert texts(ax) == [*wanted, "a⏎", r"\$", "∅"]
    found = boxes(ax)
    assert len(found) == 5
    tops = [top for _, top, _, _ in found]
    assert tops[0] == tops[1] < tops[2] == tops[3] == tops[4]


@pytest.mark.parametrize("n", [1, 40, 300])
def test_long_rows_are_wrapped_and_nothing_overlaps(n):
    rows = {"a": ["word"] * n, "b": [" token"] * n}
    (ax,) = plots.token_rows(rows).axes
    found = boxes(ax)
    assert len(found) == 2 * n
    assert all(0 <= box[0] and box[2] <= plots.tokenize.PAGE for box in found)
    bottom = ax.get_ylim()[0]
    assert all(box[3] <= bottom for box in found)
    for a, b in zip(found, found[1:]):
        assert not overlap(a, b)


def test_token_boxes():
    fig = plots.token_boxes(
        ["He", "�", "<|eot_id|>"],
        [7, 8, 300],
        [b"He", b"\xf0", None],
        "t",
    )
    (ax,) = fig.axes
    assert texts(ax) == [
        *["t", "He", "7", "48 65", "�", "8", "f0"],
        *["<|eot_id|>", "300", "control"],
    ]
    colours = [matplotlib.colors.to_hex(b.get_facecolor()) for b in ax.patches]
    assert colours == [*plots.tokenize.TINTS, plots.tokenize.CONTROL]


def test_labels_are_inside_their_boxes():
    """As drawn, of the widest letters and of many bytes."""
    tokens = ["WWWWWW", "i", " continent", "l"]
    codes = [token.encode() for token in tokens]
    ids = [128255, 3, 128000, 12345]
    fig = plots.token_boxes(tokens, ids, codes)
    (ax,) = fig.axes
    renderer = fig.canvas.get_renderer()
    labels = ax.texts[1:]
    for n, box in enumerate(ax.patches):
        outer = box.get_window_extent(renderer)
        for label in labels[3 * n : 3 * n + 3]:
            inner = label.get_window_extent(renderer)
            assert outer.x0 <= inner.x0 and inner.x1 <= outer.x1
            assert outer.y0 <= inner.y0 and inner.y1 <= outer.y1


def test_no_tokens_and_too_many():
    (ax,) = plots.token_boxes([], [], [], "nothing").axes
    assert texts(ax) == ["nothing"] and not ax.patches
    (ax,) = plots.token_boxes(["a"], [1], [b"a"], left_out=1200).axes
    assert texts(ax)[-1] == "… and 1,200 more tokens, not drawn"


def test_many_bytes_are_cut():
    (ax,) = plots.token_boxes(["x" * 9], [1], [b"x" * 9]).axes
    assert texts(ax)[-1] == "78 78 78 78 78 78 78 78 …"


def test_token_counts():
    series = {"one": [3, 1], "two": [2, 5]}
    fig = plots.token_counts(["a", "$b"], series, "t")
    (ax,) = fig.axes
    bars = [bar.get_width() for bar in ax.patches]
    assert bars == [3, 1, 2, 5]
    middles = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    # the first text on top, and within it the first tokenizer
    assert middles[0] > middles[2] > middles[1] > middles[3]
    assert (middles[0] + middles[2]) / 2 == pytest.approx(1)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", r"\$b"]
    assert texts(ax) == [" 3", " 1", " 2", " 5"]
    (legend,) = fig.legends
    assert [t.get_text() for t in legend.get_texts()] == ["one", "two"]
    assert ax.get_xlabel() == "tokens" and ax.get_title(loc="left") == "t"
