import math

import matplotlib
import pytest
import torch

from llamalib import causal_mask, plots

LABELS = ["The", " cat", "\n"]


def maps(H, T=3):
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(H, T, T, generator=g) + causal_mask(T)
    return scores.softmax(-1)


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_masks():
    fig = plots.masks(
        [
            ("all", causal_mask(3), LABELS, LABELS),
            ("last", causal_mask(1, 3), LABELS[-1:], LABELS),
        ]
    )
    square, row = fig.axes
    assert square.images[0].get_array().tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]
    assert row.images[0].get_array().tolist() == [[1, 1, 1]]
    texts = [text.get_text() for text in square.texts]
    assert texts == ["0", "−∞", "−∞", "0", "0", "−∞", "0", "0", "0"]
    assert ticks(row.yaxis) == ["⏎"]
    assert ticks(square.xaxis) == ["The", "␣cat", "⏎"]


def test_maps_of_heads():
    weights = maps(2)
    fig = plots.attention_maps_of(
        [("a", weights[0], LABELS, 0), ("b", weights[1], LABELS, 1)]
    )
    for ax, drawn, colour in zip(fig.axes, weights, plots.GROUPS):
        image = ax.images[0]
        assert torch.allclose(torch.tensor(image.get_array()), drawn.double())
        assert image.get_clim() == (0, 1)
        assert ax.spines["left"].get_edgecolor() == (
            matplotlib.colors.to_rgba(colour)
        )
        assert len(ax.texts) == 6  # a number for each key that is seen
        assert ax.texts[-1].get_text() == f"{drawn[2, 2]:.2f}"


@pytest.mark.parametrize("H, KV", [(1, 1), (6, 3), (8, 8), (32, 8)])
def test_heads_of_a_layer(H, KV):
    weights = maps(H)
    fig = plots.layer_heads(weights, LABELS, KV, "layer 0")
    shown = [ax for ax in fig.axes if ax.images]
    assert len(shown) == H
    for h, ax in enumerate(shown):
        g = h // (H // KV)
        drawn = torch.tensor(ax.images[0].get_array())
        assert torch.allclose(drawn, weights[h].double())
        assert ax.get_title() == f"head {h} · KV {g}"
        colour = plots.GROUPS[g % len(plots.GROUPS)]
        assert ax.spines["top"].get_edgecolor() == (
            matplotlib.colors.to_rgba(colour)
        )


def test_few_ticks_on_a_long_text():
    labels = [f"t{i}" for i in range(81)]
    fig = plots.layer_heads(maps(32, 81), labels, 8)
    assert len(ticks(fig.axes[0].yaxis)) <= 7
    fig = plots.attention_maps_of([("", maps(1, 81)[0], labels, 0)])
    assert len(ticks(fig.axes[0].xaxis)) <= 20 and not fig.axes[0].texts


@pytest.mark.parametrize("H, KV", [(8, 2), (32, 8), (1, 1)])
def test_sharing(H, KV):
    fig = plots.sharing(H, {"multi-head": H, "grouped": KV})
    whole, grouped = fig.axes
    assert all(len(set(line.get_xdata())) == 1 for line in whole.lines)
    ends = [tuple(line.get_xdata()) for line in grouped.lines]
    assert [int(start) for start, _ in ends] == list(range(H))
    below = sorted({end for _, end in ends})
    assert len(below) == KV
    n_rep = H // KV
    for h, end in ends:  # neighbours meet in one place
        assert end == below[int(h) // n_rep]
    assert ticks(grouped.yaxis) == [f"{KV} KV", f"{H} query"]
    inks = {  # black on yellow, white on blue
        text.get_text(): text.get_color() for text in whole.texts
    }
    assert inks["0"] == "white" and inks.get("7", "black") == "black"


def test_weights_by_scale():
    weights = {"a": [0.7, 0.2, 0.1], "b": [0.4, 0.3, 0.3]}
    fig = plots.weights_by_scale(LABELS, weights, "t")
    (ax,) = fig.axes
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == [*weights["a"], *weights["b"]]
    middle = sum(bar.get_x() + bar.get_width() / 2 for bar in ax.patches) / 6
    assert math.isclose(middle, 1)  # each pair around its token
    assert [t.get_text() for t in ax.get_legend().texts] == ["a", "b"]


def test_cache_bytes():
    lengths = [256, 2048, 131072]
    series = {"GQA": [n * 1000 for n in lengths], "MQA": lengths}
    fig = plots.cache_bytes(lengths, {"here": series, "there": series})
    for ax in fig.axes:
        drawn = [list(line.get_ydata()) for line in ax.lines]
        assert drawn == list(series.values())
        assert [text.get_text() for text in ax.texts] == ["131 MB", "131 kB"]
        assert ticks(ax.xaxis) == ["256", "2,048", "16,384", "131,072"]
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


@pytest.mark.parametrize(
    "size, text",
    [(12, "12 bytes"), (1000, "1 kB"), (4.29e9, "4.29 GB"), (537e6, "537 MB")],
)
def test_size_text(size, text):
    assert plots.size_text(size) == text
