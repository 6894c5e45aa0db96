import matplotlib
import pytest
import torch

from llamalib.viz import nb06 as plots


def heights(container):
    return pytest.approx([bar.get_height() for bar in container])


def texts(labels):
    return [label.get_text() for label in labels]


def colours_of(bars):
    return {matplotlib.colors.to_hex(bar.get_facecolor()) for bar in bars}


def test_a_half_has_a_colour_of_its_own():
    attention, feed_forward = (
        plots.COLOURS[half] for half in ("attention", "feed-forward")
    )
    assert len(set(plots.COLOURS.values())) == len(plots.COLOURS)
    assert (attention, feed_forward) == ("#332288", "#882255")
    pairs = {"attention": [0.5], "feed-forward": [2.0]}
    for ax in plots.additions(pairs, pairs, 0.3).axes:
        assert colours_of(ax.containers[0]) == {attention}
        assert colours_of(ax.containers[1]) == {feed_forward}
    stream = plots.COLOURS["residual"].lower()
    assert colours_of(ax.containers[2]) == {stream}
    (ax,) = plots.loss_left_out([8.4, 1.0], 0.9, 8.1).axes
    assert colours_of(ax.containers[0]) == {feed_forward}
    quantiles = [[-0.2, -0.1, 0.0, 0.5, 1.0]]
    for ax in plots.gate_openness(torch.rand(1, 2), quantiles).axes:
        assert colours_of(ax.containers[0]) == {feed_forward}


def test_activations():
    z = torch.linspace(-2, 2, 5)
    curves = {"SiLU": z * 0.5, "ReLU": z.clamp(min=0), "GELU": z * 0.25}
    gates = {f"{name}: gate": curve / 2 for name, curve in curves.items()}
    fig = plots.activations(z, curves, gates)
    for ax, wanted in zip(fig.axes, (curves, gates), strict=True):
        lines = {line.get_label(): line for line in ax.lines}
        for name, values in wanted.items():
            assert list(lines[name].get_ydata()) == values.tolist()
            assert list(lines[name].get_xdata()) == z.tolist()
        assert texts(ax.get_legend().get_texts()) == list(wanted)
        assert ax.get_xlabel() and ax.get_ylabel()
        colours = [lines[name].get_color() for name in wanted]
        assert len(set(colours)) == 3
        assert colours[0] == plots.COLOURS["feed-forward"]  # the network's own


def test_gate_openness():
    share = torch.tensor([[0.2, 0.4], [0.5, 0.9]])
    quantiles = [[-0.2, -0.1, 0.0, 0.5, 1.0], [-0.3, -0.2, -0.1, 0.1, 0.2]]
    fig = plots.gate_openness(share, quantiles)
    left, right = fig.axes
    assert [0.3, 0.7] == heights(left.containers[0])
    for layer, strokes in enumerate(left.collections):
        places = torch.tensor(strokes.get_offsets().tolist())
        assert (places[:, 0] == layer).all()
        assert torch.allclose(places[:, 1], share[layer])
        # on the bar white, above it black
        inside, above = strokes.get_edgecolors()[:, :3].tolist()
        assert inside == [1, 1, 1] and above == [0, 0, 0]
    boxes = [bar for container in right.containers for bar in container]
    assert [bar.get_y() for bar in boxes] == pytest.approx([-0.1, -0.2])
    assert [0.6, 0.3] == heights(boxes)
    spans = [list(line.get_ydata()) for line in right.lines[1::2]]
    assert spans == [[-0.2, 1.0], [-0.3, 0.2]]
    medians = [line.get_ydata()[0] for line in right.lines[2::2]]
    assert medians == [0.0, -0.1]


@pytest.mark.parametrize("layers, step", [(1, 1), (12, 1), (16, 2), (32, 3)])
def test_ticks_of_many_layers(layers, step):
    fig = plots.gate_openness(
        torch.rand(layers, 2), [[0, 1, 2, 3, 4]] * layers
    )
    for ax in fig.axes:
        assert list(ax.get_xticks()) == list(range(0, layers, step))


def test_stream_norms():
    norms = torch.tensor([[1.0, 2.0], [3.0, 4.0], [50.0, 1000.0]])
    fig = plots.stream_norms(norms, ["a", " b"])
    ax = fig.axes[0]
    (image,) = ax.images
    assert (image.get_array() == norms.numpy()).all()
    assert image.get_clim() == (1, 1000)
    assert image.norm(1000) == 1 and image.norm(1) == 0
    assert image.norm(1000**0.5) == pytest.approx(0.5)  # logarithmic
    assert texts(ax.get_yticklabels()) == [
        "embedding",
        "layer 0: + attention",
        "layer 0: + feed-forward",
    ]
    assert texts(ax.get_xticklabels()) == ["a", "␣b"]
    written = ["1", "2", "3", "4", "50", "1000"]
    assert texts(ax.texts) == written
    fig.canvas.draw()


def test_stream_norms_of_a_long_text_has_no_numbers():
    fig = plots.stream_norms(torch.rand(33, 40) + 1, ["a"] * 40)
    assert not fig.axes[0].texts
    assert len(fig.axes[0].get_yticklabels()) == 33


def test_additions():
    relative = {"attention": [0.5, 1.0], "feed-forward": [20.0, 0.1]}
    share = {
        "attention": torch.tensor([0.1, 0.2]),
        "feed-forward": torch.tensor([-0.1, 0.5]),
    }
    fig = plots.additions(relative, share, 0.3)
    left, right = fig.axes
    assert left.get_yscale() == "log"
    for container, wanted in zip(left.containers, relative.values()):
        # from the line at 1, up or down
        assert [bar.get_y() for bar in container] == [1, 1]
        assert [value - 1 for value in wanted] == heights(container)
    for container, wanted in zip(right.containers, share.values()):
        assert wanted.tolist() == heights(container)
    (embedding,) = right.containers[2]
    assert embedding.get_height() == 0.3 and embedding.get_x() < -1
    assert texts(right.get_xticklabels()) == ["emb.", "0", "1"]
    assert texts(fig.legends[0].get_texts()) == [
        "attention",
        "feed-forward",
        "embedding",
    ]


def test_loss_left_out():
    fig = plots.loss_left_out([8.4, 1.0, 2.0], 0.9, 8.1)
    (ax,) = fig.axes
    assert [8.4, 1.0, 2.0] == heights(ax.containers[0])
    assert [line.get_ydata()[0] for line in ax.lines] == [0.9, 8.1]
    assert texts(ax.texts) == ["8.40", "1.00", "2.00"]
    assert ax.get_ylim()[1] > 8.4


def test_neuron_on_text():
    fig = plots.neuron_on_text(
        ["a", " b", "$", "c"],
        [0.5, -3.0, 0.0, 1.0],
        [1.0, -0.1, 0.0, 2.0],
        "layer 1, neuron 7",
        top=2,
    )
    (ax,) = fig.axes
    (strokes,) = ax.collections
    ends = [(x, y) for _, (x, y) in strokes.get_segments()]
    assert ends == [(0, 0.5), (1, -3.0), (2, 0.0), (3, 1.0)]
    colours = [matplotlib.colors.to_hex(c) for c in strokes.get_colors()]
    opened = plots.COLOURS["feed-forward"].lower()
    shut = plots.COLOURS["other"].lower()
    assert colours == [opened, shut, shut, opened]
    assert texts(ax.texts) == ["a", "␣b", r"\$", "c"]
    assert [word.get_position()[0] for word in ax.texts] == [0, 1, 2, 3]
    assert "␣b (-3.00)   c (+1.00)" in ax.get_title(loc="left")
    assert fig.get_suptitle() == (
        "layer 1, neuron 7: gate open (wine red) at 2 of 4 tokens"
    )
    fig.canvas.draw()
