"""The pictures of appendix A show the numbers that they are given."""

import io

import matplotlib
import pytest
import torch
from IPython.display import DisplayHandle
from matplotlib import pyplot as plt

from llamalib.viz import nbA as plots

LEARNED = plots.COLOURS["plain"].lower()
HELD = "#999933"


def texts(labels):
    return [label.get_text() for label in labels]


def colour(artist):
    return matplotlib.colors.to_hex(artist.get_color())


def test_label_rows():
    rows = [
        (["<|begin_of_text|>", " a", "$"], [" a", "$", "<|end|>"]),
        (["b", None, None], ["end", None, None]),
    ]
    fig = plots.label_rows(rows)
    (ax,) = fig.axes
    said = texts(ax.texts)
    assert len(said) == len(ax.patches) == 12
    assert said.count("–") == 4  # padding, and what is asked nothing
    assert {"<|beg…t|>", "␣a", r"\$", "end"} <= set(said)
    grey = (0.933, 0.933, 0.933)
    faces = [patch.get_facecolor()[:3] for patch in ax.patches]
    for word, face in zip(said, faces):
        assert (face == pytest.approx(grey, abs=0.01)) == (word == "–")
    assert texts(ax.get_xticklabels()) == ["0", "1", "2"]
    fig.canvas.draw()


def test_label_rows_draws_so_many_columns():
    fig = plots.label_rows([(["a"] * 30, ["b"] * 30)], most=5)
    assert len(fig.axes[0].patches) == 10


def test_loss_by_scale():
    curves = {"tied": [7, 8], "own": [7, 9], "ln V + σ²/2": [7, 9.5]}
    fig = plots.loss_by_scale([0.02, 0.2], curves, 6.9)
    (ax,) = fig.axes
    lines = {line.get_label(): line for line in ax.lines}
    for name, values in curves.items():
        assert list(lines[name].get_ydata()) == values
        predicted = name.startswith("ln")
        assert (lines[name].get_linestyle() == "-") == predicted
        assert predicted or lines[name].get_markerfacecolor() == "none"
    assert lines["ln V"].get_ydata()[0] == 6.9
    assert texts(ax.get_xticklabels()) == ["0.02", "0.2"]


def test_logit_gradient():
    fig = plots.logit_gradient(
        ["a", " b"], torch.tensor([0.7, 0.2]), torch.tensor([0.7, -0.8]), " b"
    )
    left, right = fig.axes
    assert [bar.get_width() for bar in left.patches] == pytest.approx(
        [0.7, 0.2]
    )
    assert [bar.get_width() for bar in right.patches] == pytest.approx(
        [0.7, -0.8]
    )
    down, up = (
        matplotlib.colors.to_hex(bar.get_facecolor()) for bar in right.patches
    )
    assert down == plots.COLOURS["key"].lower()
    assert up == plots.COLOURS["query"].lower()
    assert "␣b came" in left.get_title(loc="left")
    assert texts(left.get_yticklabels()) == ["a", "␣b"]


def test_step_sizes():
    fig = plots.step_sizes([0.1, 0.2, 0.1], {"with": [1, 1], "without": [2]})
    left, right = fig.axes
    assert list(left.lines[0].get_ydata()) == [0.1, 0.2, 0.1]
    assert list(left.lines[0].get_xdata()) == [1, 2, 3]
    assert [list(line.get_ydata()) for line in right.lines] == [[1, 1], [2]]
    assert texts(right.get_legend().get_texts()) == ["with", "without"]


def test_running_mean():
    assert plots.running_mean([1, 3, 5, 7], n=2) == [1, 2, 4, 6]
    assert plots.running_mean([]) == []


def test_training_curve():
    levels = {"blind guess": 7.0, "bigram": 3.0}
    losses, norms = [7.0, 6.0, 5.0], [2.0, 1.0, 0.5]
    fig = plots.training_curve(
        100, losses, [(0, 7.1), (3, 5.5)], levels, norms, 1.0, "A cat. $5"
    )
    left, right = fig.axes
    assert list(left.lines[0].get_ydata()) == losses
    assert list(left.lines[1].get_ydata()) == plots.running_mean(losses)
    assert list(left.lines[2].get_xdata()) == [0, 3]
    assert [colour(line) for line in left.lines[1:3]] == [LEARNED, HELD]
    assert [line.get_ydata()[0] for line in left.lines[3:]] == [7.0, 3.0]
    assert texts(left.texts)[:2] == ["blind guess: 7.00", "bigram: 3.00"]
    assert list(right.lines[0].get_ydata()) == norms
    assert right.get_yscale() == "log"
    assert right.get_ylim() == (0.1, 10)
    # the axes are those of the whole run from the start
    assert left.get_xlim() == right.get_xlim() == (0, 100)
    assert texts(fig.texts) == [r"A cat. \$5"]
    fig.canvas.draw()


def test_a_long_gradient_stays_on_the_picture():
    fig = plots.training_curve(9, [5.0], [], {"a": 6.0}, [40.0], 1.0)
    assert fig.axes[1].get_ylim() == (0.1, 100)


def test_training_curve_before_anything_is_known():
    fig = plots.training_curve(10, [5.0], [], {"blind": 6.0}, [1.0], 1.0)
    assert len(fig.axes[0].lines) == 3


def test_a_long_sample_stays_on_the_picture():
    sample = "A long sentence that goes on.\n\n" * 40
    fig = plots.training_curve(9, [5.0], [], {"a": 6.0}, [1.0], 1.0, sample)
    (said,) = texts(fig.texts)
    assert said.count("\n") == 2 and said.endswith(" …")
    fig.canvas.draw()
    box = fig.texts[0].get_window_extent()
    assert box.x1 < fig.bbox.x1 and box.y0 > 0


def test_overfitting():
    runs = {
        "many": ([3.0, 2.0], [(0, 3.0), (2, 2.5)]),
        "few": ([3.0, 1.0], [(0, 3.0), (2, 3.5)]),
    }
    fig = plots.overfitting(runs)
    for ax, (name, (losses, held)) in zip(fig.axes, runs.items(), strict=True):
        assert ax.get_title(loc="left") == name
        learned, kept = ax.lines
        assert list(learned.get_ydata()) == plots.running_mean(losses)
        assert list(zip(*kept.get_data())) == held
        assert [colour(line) for line in ax.lines] == [LEARNED, HELD]
    assert len(plots.overfitting({"one": runs["few"]}).axes) == 1


def test_attention_by_step():
    maps = {"step 0": torch.eye(3), "step 9": torch.ones(3, 3) / 3}
    fig = plots.attention_by_step(maps, ["a", " b", "c"], "layer 1 $")
    *panels, bar = fig.axes
    for ax, (name, weights) in zip(panels, maps.items(), strict=True):
        (image,) = ax.images
        assert (image.get_array() == weights.numpy()).all()
        assert image.get_clim() == (0, 1)
        assert ax.get_title(loc="left") == name
        assert texts(ax.get_xticklabels()) == ["a", "␣b", "c"]
    assert fig.get_suptitle() == r"layer 1 \$"
    fig.canvas.draw()


def test_heads_by_step():
    weights = torch.zeros(3, 2, 2)
    weights[:, 1, 0] = torch.tensor([0.1, 0.2, 0.4])
    weights[:, 0, 1] = torch.tensor([0.1, 0.3, 0.3])
    losses = {"again": [5, 4, 3], "others": [5, 1, 1]}
    fig = plots.heads_by_step([0, 10, 20], weights, losses)
    left, right = fig.axes
    assert len(left.lines) == 4
    said = texts(left.get_legend().get_texts())
    assert said == ["layer 1, head 0", "layer 0, head 1"]
    *others, best, second = left.lines
    assert list(best.get_ydata()) == pytest.approx([0.1, 0.2, 0.4])
    assert list(second.get_ydata()) == pytest.approx([0.1, 0.3, 0.3])
    assert colour(best) == plots.COLOURS["attention"].lower()
    assert colour(second) == plots.COLOURS["probability"].lower()
    assert second.get_linestyle() == "--"
    assert not any(any(line.get_ydata()) for line in others)
    assert [list(line.get_ydata()) for line in right.lines] == list(
        losses.values()
    )
    assert texts(right.get_legend().get_texts()) == list(losses)


def test_training_log():
    read = [4_000, 90_000, 1_000_000, 16_000_000]
    losses, rates = [8.0, 3.0, 1.0, 0.7], [0.1, 0.2, 0.1, 0.0]
    fig = plots.training_log(read, losses, rates, {"ln V": 8.1, "pairs": 3.6})
    above, below = fig.axes
    assert list(above.lines[0].get_ydata()) == losses
    assert list(above.lines[0].get_xdata()) == read
    assert texts(above.texts) == ["ln V: 8.10", "pairs: 3.60"]
    assert above.get_yscale() == "log"
    assert list(below.lines[0].get_ydata()) == rates
    assert below.get_xscale() == above.get_xscale() == "log"
    ticks = ["10,000", "100,000", "1 million", "10 million"]
    assert texts(below.get_xticklabels()) == ticks


def test_snapshot():
    weights = torch.eye(3)
    fig = plots.snapshot(
        "step 5", "A cat.", [" x", "y"], [0.6, 0.1], weights, ["a", "b", "c"],
        "head 2",
    )  # fmt: skip
    left, right = fig.axes
    assert [bar.get_width() for bar in left.patches] == [0.6, 0.1]
    assert texts(left.get_yticklabels()) == ["␣x", "y"]
    assert (right.images[0].get_array() == weights.numpy()).all()
    assert texts(right.get_yticklabels()) == ["a", "b", "c"]
    assert right.get_title(loc="left") == "head 2"
    assert texts(fig.texts) == ["step 5", "A cat."]
    fig.canvas.draw()


def test_a_live_picture_is_shown_once_and_then_changed(monkeypatch):
    calls = []
    for name in ("display", "update"):
        monkeypatch.setattr(
            DisplayHandle,
            name,
            lambda self, image, name=name: calls.append(
                (name, self.display_id, image.data)
            ),
        )
    live = plots.LivePicture()
    for value in (1, 2, 3):
        fig, ax = plt.subplots()
        ax.plot([0, value])
        live.show(fig)
        assert not plt.fignum_exists(fig.number)  # closed: not drawn twice
    assert [name for name, *_ in calls] == ["display", "update", "update"]
    assert len({place for _, place, _ in calls}) == 1
    images = [data for *_, data in calls]
    assert len(set(images)) == 3
    assert all(data.startswith(b"\x89PNG") for data in images)


def test_a_live_picture_without_a_notebook(capsys):
    live = plots.LivePicture()
    for _ in range(2):
        live.show(plt.figure())
    out = io.StringIO(capsys.readouterr().out)
    assert all("Image" in line for line in out)
