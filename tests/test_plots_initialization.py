import matplotlib
import pytest

from llamalib.viz import nb00 as plots


def legend(fig):
    return [text.get_text() for text in fig.legends[0].get_texts()]


def test_shares():
    tied = {"embedding": 25, "attention": 50, "norms": 1, "output": 24}
    untied = {"embedding": 3, "feed-forward": 1}
    fig = plots.shares({"a": tied, "$b": untied})
    (ax,) = fig.axes
    bars = [(b.get_x(), b.get_width()) for b in ax.patches]
    assert bars[:4] == [(0, 25), (25, 50), (75, 1), (76, 24)]
    assert bars[4:] == [(0, 75), (75, 25)]
    # the first model on top
    assert ax.patches[0].get_y() > ax.patches[4].get_y()
    texts = [t.get_text() for t in ax.texts]
    assert texts[:3] == ["25.0 %", "50.0 %", "24.0 %"]  # none for 1 %
    assert texts[3] == "0.0 M"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", r"\$b"]
    places = ["embedding", "attention", "feed-forward", "norms", "output"]
    assert legend(fig) == places
    assert ax.get_xlabel()


def test_parameters_by_layer():
    layer = {"attention": 2e6, "norms": 1e6}
    stops = [{"embedding": 5e6}, layer, layer, {"norms": 1e6}]
    untied = [*stops[:-1], {"norms": 1e6, "output": 5e6}]
    fig = plots.parameters_by_layer({"t": (stops, True), "u": (untied, False)})
    left, right = fig.axes
    bars = [
        (b.get_x() + b.get_width() / 2, b.get_y(), b.get_height())
        for b in left.patches
    ]
    layers = [(0, 0, 2), (0, 2, 1), (1, 0, 2), (1, 2, 1)]
    first, last = -1 - 2 / 16, 2 + 2 / 16
    wanted = [(first, 0, 5), *layers, (last, 0, 1), (last, 0, 5)]
    assert bars == [pytest.approx(bar) for bar in wanted]
    assert left.patches[-1].get_facecolor()[3] == 0  # an outline alone
    assert right.patches[-1].get_facecolor()[3] == 1
    assert right.patches[-1].get_y() == 1
    ticks = [t.get_text() for t in left.get_xticklabels()]
    assert ticks == ["emb.", "0", "1", "out"]
    assert legend(fig) == ["embedding", "attention", "norms", "output"]
    assert left.get_title(loc="left") == "t"


def test_parameters_by_layer_of_many_layers():
    stops = [{"embedding": 1}, *[{"norms": 1}] * 126, {"norms": 1}]
    fig = plots.parameters_by_layer({"a": (stops, False)})
    assert len(fig.axes[0].get_xticks()) < 14


def test_bits():
    rows = {"a": ("1", "01", "110"), "b": ("0", "1", "")}
    fig = plots.bits(rows)
    (ax,) = fig.axes
    assert "".join(t.get_text() for t in ax.texts) == "10111001"
    places = [t.get_position()[0] for t in ax.texts]
    assert places == [0, 1, 2, 3, 4, 5, 0, 1]
    assert len({b.get_facecolor() for b in ax.patches[:6]}) == 3
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert legend(fig) == ["sign", "exponent", "mantissa"]


def test_histograms():
    fig = plots.histograms({"a": [1, 3], "b": [2, 2]}, [0, 1, 2], "x")
    (ax,) = fig.axes
    drawn = [list(p.get_data().values) for p in ax.patches]
    assert drawn == [[25, 75], [50, 50]]
    assert list(ax.patches[0].get_data().edges) == [0, 1, 2]
    assert ax.get_xlabel() == "x" and "percent" in ax.get_ylabel()


def test_tensor_card():
    fig = plots.tensor_card("n", ["l"], [1, 3], [0, 1, 2], [0.5, 0.25], 1)
    ax, side = fig.axes
    assert list(ax.patches[0].get_data().values) == [1, 3]
    assert ax.get_title(loc="left") == "n\nl"
    assert [b.get_height() for b in side.patches] == [0.5, 0.25]
    grey, dark = (b.get_facecolor() for b in side.patches)
    assert grey != dark
    assert matplotlib.colors.to_hex(dark) == plots.COLOURS["plain"]


def test_tensor_card_of_a_tensor_that_stands_once():
    fig = plots.tensor_card("n", [], [1], [0, 1])
    assert not fig.axes[1].axison and not fig.axes[1].patches
