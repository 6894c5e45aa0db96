import pytest
import torch

from llamalib.viz import nbB as plots


def test_stairs():
    fig = plots.stairs([0.1, -0.3], [0.0, -0.25], [-0.25, 0.0, 0.25], "name")
    ax, below = fig.axes
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert lines["number"] == [0.1, -0.3] and lines["kept"] == [0.0, -0.25]
    bars = [bar.get_height() for bar in below.containers[0]]
    assert bars == pytest.approx([-0.1, 0.05])
    assert [0.125, 0.125] in [list(each.get_ydata()) for each in below.lines]
    assert len(ax.lines) == 2 + 3
    many = plots.stairs([0.1], [0.1], torch.linspace(-1, 1, 255)).axes[0]
    assert len(many.lines) == 2  # so many steps would be a grey area


def test_error_by_bits():
    fig = plots.error_by_bits({"a row": [(2, 0.5), (3, 0.2)], "8": [(4, 0.1)]})
    (ax,) = fig.axes
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines["a row"].get_xdata()) == [2, 3]
    assert list(lines["8"].get_ydata()) == [0.1]
    assert ax.get_yscale() == "log" and ax.get_xlabel() and ax.get_ylabel()


def test_error_maps():
    maps = {"int8": torch.rand(7, 3), "int4": torch.rand(7, 3)}
    fig = plots.error_maps("wq wk wv wo w1 w2 w3".split(), maps)
    for ax, values in zip(fig.axes, maps.values()):
        shown = torch.as_tensor(ax.images[0].get_array().data)
        assert torch.allclose(shown.float(), values)
    names = [label.get_text() for label in fig.axes[0].get_yticklabels()]
    assert names[0] == "wq" and len(names) == 7


def test_drift():
    (ax,) = plots.drift({"int8": [0.01, 0.02], "int4": [0.1, 0.3]}).axes
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert lines == {
        "int8": pytest.approx([0.01, 0.02]),
        "int4": pytest.approx([0.1, 0.3]),
    }


def test_speed_by_rows():
    (ax,) = plots.speed_by_rows(
        [1, 8], {"int8": [1.9, 0.9]}, {"int8": 2.0}
    ).axes
    (line,) = [each for each in ax.lines if each.get_label() == "int8"]
    assert list(line.get_ydata()) == [1.9, 0.9]
    assert [2.0, 2.0] in [list(each.get_ydata()) for each in ax.lines]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "8"]
    assert "bfloat16" in [t.get_text() for t in ax.texts]


def test_loss_by_matrix():
    names = ["tok_embeddings", "wq", "w2"]
    (ax,) = plots.loss_by_matrix(names, [1.5, 1.0, 1.25], 1.0, 2).axes
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert heights == pytest.approx([0.5, 0.0, 0.25])
    assert len({bar.get_facecolor() for bar in ax.containers[0]}) == 3
    assert "2 bits" in ax.get_title(loc="left")


def test_outlier():
    left, right = plots.outlier([0.1, 3.0], [0.01, 0.4], ["a", "b"]).axes
    assert [b.get_height() for b in left.containers[0]] == [0.1, 3.0]
    assert [b.get_height() for b in right.containers[0]] == [0.01, 0.4]
    assert "40.0 %" in [t.get_text() for t in right.texts]


def test_largest_activations():
    shares = [torch.tensor([5.0, 3.0, 4.0]), torch.tensor([30.0])]
    (ax,) = plots.largest_activations(shares, ["wo", "w2"]).axes
    assert list(ax.lines[0].get_ydata()) == [3, 4, 5]
    assert list(ax.lines[1].get_ydata()) == [4, 4]  # the median
    assert list(ax.lines[2].get_ydata()) == [30]


def test_quantized_row():
    values = torch.tensor([0.1, -0.2, 0.3])
    fig = plots.quantized_row([0.1], [0.2], values, values / 10, "a title")
    left, right = fig.axes
    lines = {line.get_label(): list(line.get_ydata()) for line in left.lines}
    assert lines == {"number": [0.1], "kept": [0.2]}
    assert left.get_title(loc="left") == "a title"
    names = [t.get_text() for t in right.get_legend().get_texts()]
    assert sorted(names) == ["errors", "numbers"]
