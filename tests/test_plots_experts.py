import matplotlib
import pytest
import torch

from llamalib.viz import nbC as plots


def texts(labels):
    return [label.get_text() for label in labels]


def colour(patch):
    return matplotlib.colors.to_hex(patch.get_facecolor()).lower()


def of_expert(e):
    return plots.expert_colour(e).lower()


def test_eight_experts_have_eight_colours():
    assert len({plots.expert_colour(e) for e in range(8)}) == 8
    assert plots.expert_colour(8) == plots.expert_colour(0)


def test_router_weights():
    weights = torch.tensor([[0.7, 0.0, 0.3], [0.0, 1.0, 0.0]])  # (T, E)
    fig = plots.router_weights(weights, ["a", " b"])
    ax = fig.axes[0]
    (image,) = ax.images
    assert torch.equal(torch.tensor(image.get_array()), weights.T)
    assert image.get_clim() == (0, 1)
    assert texts(ax.get_xticklabels()) == ["a", "␣b"]
    assert ax.get_xlabel() == "token" and ax.get_ylabel() == "expert"


def test_error_by_chosen():
    errors = {"at random": [0.9, 0.5, 0.0], "the longest": [0.7, 0.2, 0.0]}
    (ax,) = plots.error_by_chosen(errors).axes
    lines = {line.get_label(): line for line in ax.lines}
    for name, values in errors.items():
        assert list(lines[name].get_ydata()) == values
        assert list(lines[name].get_xdata()) == [1, 2, 3]
    wine = plots.COLOURS["feed-forward"]
    assert lines["the longest"].get_color() == wine
    assert ax.get_xlabel() and ax.get_ylabel()


def test_active_parameters():
    models = {"$ a": (10, 20, 70), "b": (1_000_000, 3_000_000, 4_000_000)}
    fig = plots.active_parameters(models, [1, 2, 4], [2, 3.5, 5], [2, 3, 5])
    left, right = fig.axes
    widths = [[bar.get_width() for bar in bars] for bars in left.containers]
    found = [width for bars in widths for width in bars]
    assert found == pytest.approx([0.1, 0.2, 0.7, 0.125, 0.375, 0.5])
    starts = [bar.get_x() for bars in left.containers for bar in bars]
    assert starts == pytest.approx([0, 0.1, 0.3, 0, 0.125, 0.5])
    assert texts(left.texts) == [
        r"\$ a: 30 of 100 active",
        "b: 4.0M of 8.0M active",
    ]
    assert texts(fig.legends[0].get_texts()) == [
        "all else",
        "chosen experts",
        "other experts",
    ]
    assert [list(line.get_ydata()) for line in right.lines] == [
        [2, 3.5, 5],
        [2, 3, 5],
    ]
    assert texts(right.get_xticklabels()) == ["1", "2", "4"]
    assert texts(right.get_legend().get_texts()) == ["drawn at random"]
    fig.canvas.draw()


@pytest.mark.parametrize("n", [2, 4])
def test_loads_over_training(n):
    loads = torch.rand(3, 8)
    loads = loads / loads.sum(-1, keepdim=True)
    panels = {f"run {i}": loads.roll(i, dims=-1) for i in range(n)}
    fig = plots.loads_over_training(panels, [0, 10, 20])
    assert len(fig.axes) == n
    for ax, (name, wanted) in zip(fig.axes, panels.items()):
        assert ax.get_title(loc="left") == name
        assert [colour(c) for c in areas(ax)] == [
            of_expert(e) for e in range(8)
        ]
        tops = [area.get_paths()[0].vertices[:, 1].max() for area in areas(ax)]
        assert tops == pytest.approx(wanted.cumsum(-1).amax(0).tolist())
        assert ax.get_xlim() == (0, 20)
    assert sorted(texts(fig.legends[0].get_texts())) == list("01234567")
    fig.canvas.draw()


class Area:
    """One coloured layer of a stack, as a patch."""

    def __init__(self, collection):
        self.get_paths = collection.get_paths
        self.get_facecolor = lambda: collection.get_facecolor()[0]


def areas(ax):
    return [Area(collection) for collection in ax.collections]


def test_taken():
    values = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    fig = plots.taken({"before": values, "after": values / 2}, ["$a", "b"])
    before, after = fig.axes[:2]
    assert texts(before.texts) == ["50", "25", "25", "0", "100", "0"]
    assert texts(after.texts) == ["25", "12", "12", "0", "50", "0"]
    # one scale for both, in the numbers' unit
    both = before.images[0].get_clim(), after.images[0].get_clim()
    assert both == ((0, 100), (0, 100))
    assert fig.axes[2].get_ylabel() == "% of the row"
    assert not before.lines
    assert texts(before.get_yticklabels()) == [r"\$a", "b"]
    fig.canvas.draw()
    lined = plots.taken({"a": values, "b": values}, ["a", "b"], line_after=1)
    for ax in lined.axes[:2]:
        assert list(ax.lines[0].get_ydata()) == [0.5, 0.5]  # between the rows


def boxes(ax):
    """(text, colour of the box) of every token that is drawn."""
    words = [t for t in ax.texts if t.get_ha() == "center"]
    return [
        (word.get_text(), colour(box)) for word, box in zip(words, ax.patches)
    ]


def test_routed_tokens():
    fig = plots.routed_tokens(["a", " b", "$"], {"one": [0, 7, 3]}, "h")
    (ax,) = fig.axes
    drawn = boxes(ax)
    assert drawn[:3] == [
        ("a", of_expert(0)),
        ("␣b", of_expert(7)),
        (r"\$", of_expert(3)),
    ]
    assert [text for text, _ in drawn[3:]] == list("01234567")  # the key
    assert {"h", "one"} <= set(texts(ax.texts))
    fig.canvas.draw()
    twice = plots.routed_tokens(["a"] * 3, {"one": [0] * 3, "two": [1] * 3})
    assert len(boxes(twice.axes[0])) == 6 + 8


def test_dropped_by_capacity():
    shares = {"a": [0.7, 0.5], "b": torch.tensor([0.1, 0.0]), "c": [0.0, 0.0]}
    shares["d"] = [0.2, 0.1]
    (ax,) = plots.dropped_by_capacity([1.0, 2.0], shares).axes
    for line, (name, values) in zip(ax.lines, shares.items(), strict=True):
        assert line.get_label() == name
        assert list(line.get_ydata()) == pytest.approx(
            list(map(float, values))
        )
    looks = {(line.get_color(), line.get_marker()) for line in ax.lines}
    assert len(looks) == 4


def test_routing():
    weights = torch.zeros(4, 8)
    weights[:, 2], weights[:2, 5], weights[2:, 6] = 0.6, 0.4, 0.4
    weights[3, 6] = 0.7  # here the other one is first
    fig = plots.routing(["a", "b", "c", "d"], weights, "$run")
    words, bars = fig.axes
    assert [c for _, c in boxes(words)] == [of_expert(e) for e in (2, 2, 2, 6)]
    assert words.texts[0].get_text() == r"\$run"
    heights = [bar.get_height() for bar in bars.patches]
    assert heights == [0, 0, 0.5, 0, 0, 0.25, 0.25, 0]
    assert [colour(bar) for bar in bars.patches] == [
        of_expert(e) for e in range(8)
    ]
    long = plots.routing(
        ["a"] * 300, torch.eye(8)[torch.zeros(300).long()], ""
    )
    assert len(boxes(long.axes[0])) == 110
    long.canvas.draw()
