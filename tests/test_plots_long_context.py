import matplotlib
import pytest
import torch

from llamalib.viz import nbD as plots
from llamalib.viz.nbD import look


def texts(labels):
    return [label.get_text() for label in labels]


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


def test_a_way_looks_the_same_everywhere():
    for name in ("as it is", "by wavelength", "by wavelength, factor 8"):
        assert look(name, 0) == look(name, 3)
    assert look("by wavelength") == look("by wavelength, factor 8")
    ways = ("as it is", "last keys only", "distance capped")
    ways += ("positions divided", "base raised", "by wavelength")
    looks = [look(way) for way in ways]
    assert len({(each["color"], each["ls"]) for each in looks}) == len(ways)
    others = [look("another", place)["color"] for place in range(4)]
    assert len(set(others)) == 4


def test_losses_along():
    xs = torch.tensor([32.0, 96.0, 160.0])
    ys, error = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.5, 0.1])
    panels = {
        "one": {"as it is": (xs, ys, error), "by wavelength": (xs, ys / 2)},
        "two": {"as it is": (xs, ys)},
    }
    marks = {"one": [(64, "trained")], "two": []}
    fig = plots.losses_along(panels, marks, "whole")
    left, right = fig.axes
    drawn = lines(left)
    assert list(drawn["as it is"].get_ydata()) == [1, 2, 3]
    assert list(drawn["by wavelength"].get_ydata()) == [0.5, 1, 1.5]
    (band,) = left.collections
    edges = band.get_paths()[0].vertices
    assert {0.5, 1.5, 2.9} <= {round(float(y), 3) for _, y in edges}
    assert texts(left.texts) == [" trained"] and not right.texts
    assert texts(fig.legends[0].get_texts()) == ["as it is", "by wavelength"]
    assert left.get_ylim()[0] == 0
    (title,) = [ax.get_title(loc="left") for ax in fig.axes[:1]]
    assert title == "one" and fig.get_suptitle() == "whole"
    fig = plots.losses_along({"$1": panels["two"]}, [(64, "64"), (99, "99")])
    assert texts(fig.axes[0].texts) == [" 64", " 99"]
    fig.canvas.draw()
    fig = plots.losses_along(panels, [(64, "64"), (150, "end")])
    assert texts(fig.axes[0].texts) == [" 64", "end "]
    sides = [text.get_ha() for text in fig.axes[0].texts]
    assert sides == ["left", "right"]  # the last one's words within the axes


def test_no_line_hides_a_narrower_one():
    xs, ys = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])
    names = ("as it is", "a", "b", "c", "wide and grey")
    fig = plots.losses_along({"": dict.fromkeys(names, (xs, ys))})
    drawn = sorted(fig.axes[0].lines, key=lambda line: line.get_zorder())
    widths = [line.get_linewidth() for line in drawn]
    assert widths == sorted(widths, reverse=True) and len(widths) == 5


def test_loss_by_gap():
    fig = plots.loss_by_gap(
        [0, 100, 200], [1.0, 5.0, 2.0], [0.1, 0.2, 0.1], {3: 90.0, 4: 150.0}
    )
    upper, lower = fig.axes
    assert list(upper.lines[0].get_ydata()) == [1, 5, 2]
    at = [(line.get_xdata()[0], line.get_ydata()[0]) for line in lower.lines]
    assert at == [(0, 0), (90, 0), (180, 0), (0, 1), (150, 1)]
    assert texts(lower.texts) == ["   1 turn", "   2 turns", "   1 turn"]
    names = texts(lower.get_yticklabels())
    assert names == ["pair 3: 90 a turn", "pair 4: 150 a turn"]
    assert len(upper.collections) == 1 and not upper.get_legend()
    fig.canvas.draw()


def test_loss_by_gap_beside_the_half_alone():
    fig = plots.loss_by_gap([0, 9], [1.0, 5.0], None, {3: 5.0}, alone=1.5)
    upper, _ = fig.axes
    assert not upper.collections  # of one text there is no standard error
    line = lines(upper)["first half not seen"]
    assert list(line.get_ydata()) == [1.5, 1.5]
    assert len(upper.get_legend().get_texts()) == 1
    fig.canvas.draw()


def test_shares_along():
    xs, ys = torch.arange(3), torch.tensor([0.0, 0.5, 0.25])
    panels = {
        "a": {"as it is": (xs, ys), "distance capped": (xs, ys / 2)},
        "b": {"as it is": (xs, ys)},
    }
    fig = plots.shares_along(panels, ("share", "nats"))
    left, right = fig.axes
    assert list(lines(left)["distance capped"].get_ydata()) == [0, 0.25, 0.125]
    assert [ax.get_ylabel() for ax in fig.axes] == ["share", "nats"]
    colour = plots.COLOURS["probability"]
    assert lines(left)["distance capped"].get_color() == colour
    assert lines(right)["as it is"].get_color() == plots.COLOURS["plain"]


def test_slowed_pairs():
    before = torch.tensor([10.0, 100.0, 1000.0])
    after = torch.tensor([10.0, 200.0, 8000.0])
    fig = plots.slowed_pairs(
        {"8B": (before, after), "1B": (before, before)}, [("2,048", 2048)]
    )
    left, right = fig.axes
    assert list(lines(left)["before"].get_ydata()) == before.tolist()
    assert list(lines(left)["after"].get_ydata()) == after.tolist()
    assert list(lines(right)["after"].get_ydata()) == before.tolist()
    strokes = left.collections[0].get_segments()
    assert [[y for _, y in each] for each in strokes] == [
        [10, 10],
        [100, 200],
        [1000, 8000],
    ]
    for ax in fig.axes:
        assert ax.get_yscale() == "log" and texts(ax.texts) == ["2,048"]
        assert not ax.get_legend()  # one, of the whole picture
    assert texts(fig.legends[0].get_texts()) == ["before", "after"]


def test_cache_and_weights():
    lengths = [512, 1024, 2048, 4096]
    models = {
        "small": ([1e6, 2e6, 4e6, 8e6], 3e6),
        "large": ([1e6, 2e6, 4e6, 8e6], 1e12),
    }
    fig = plots.cache_and_weights(lengths, models)
    (ax,) = fig.axes
    assert "dots" in ax.get_title(loc="left")
    drawn = lines(ax)
    assert list(drawn["small: cache"].get_ydata()) == [1e6, 2e6, 4e6, 8e6]
    assert list(drawn["small: weights, 3 MB"].get_ydata()) == [3e6, 3e6]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    (dot,) = dots  # the large one's cache never gets there
    assert dot.get_xdata()[0] == pytest.approx(1536)
    assert dot.get_ydata()[0] == 3e6
    assert texts(ax.get_xticklabels()) == ["512", "2,048"]
    formatted = ax.yaxis.get_major_formatter()
    assert [formatted(y, 0) for y in (1e6, 1e10, 1e12)] == [
        "1 MB",
        "10 GB",
        "1 TB",
    ]
    fig.canvas.draw()


def test_attention_share():
    fig = plots.attention_share(
        [512, 1024, 2048], {"1B": [0.1, 0.2, 0.4], "8B": [0.05, 0.1, 0.2]}
    )
    (ax,) = fig.axes
    assert list(lines(ax)["1B"].get_ydata()) == [0.1, 0.2, 0.4]
    assert lines(ax)["1B"].get_linestyle() != lines(ax)["8B"].get_linestyle()
    assert lines(ax)["1B"].get_color() == plots.COLOURS["attention"]
    assert ax.get_ylim() == (0, 1)


def test_needle_maps():
    counts = torch.tensor([[8, 2], [4, 0], [6, 1]])
    fig = plots.needle_maps(
        {"as it is": counts, "slowed": 8 - counts},
        ["start", "middle", "end"],
        [128, 256],
        trials=8,
        trained=128,
    )
    left, right = fig.axes
    (image,) = left.images
    assert image.get_array().tolist() == counts.tolist()
    assert image.get_clim() == (0, 8)
    assert texts(left.texts) == ["8", "2", "4", "0", "6", "1"]
    assert "of 8" in fig.get_suptitle()
    inks = [text.get_color() for text in left.texts]
    assert inks == ["white", "black", "black", "black", "white", "black"]
    assert left.lines[0].get_xdata()[0] == 0.5  # behind 128
    assert texts(left.get_yticklabels()) == ["start", "middle", "end"]
    assert right.get_title(loc="left") == "slowed"
    plain = plots.needle_maps(
        {"a": counts}, ["x", "y", "z"], [1, 2], 8, trained=131072
    )
    assert not plain.axes[0].lines


def test_stretched():
    xs, ys = torch.tensor([10.0, 300.0]), torch.tensor([1.0, 6.0])
    fig = plots.stretched(
        torch.tensor([6.0, 60.0]),
        torch.tensor([6.0, 240.0]),
        {"as it is": (xs, ys), "by wavelength": (xs, ys / 6)},
        [("trained", 256), ("4 times", 1024)],
        "heading",
    )
    left, right = fig.axes
    assert list(lines(left)["after"].get_ydata()) == [6, 240]
    assert list(lines(right)["by wavelength"].get_ydata()) == pytest.approx(
        [1 / 6, 1]
    )
    assert texts(left.texts) == ["trained", "4 times"]
    upright = [x for x in right.lines if len(set(x.get_xdata())) == 1]
    assert [x.get_xdata()[0] for x in upright] == [256]  # 1024 is outside
    assert fig.get_suptitle() == "heading"
    assert matplotlib.colors.to_hex(lines(left)["before"].get_color()) == (
        plots.COLOURS["other"].lower()
    )
