"""The pictures of notebook 03."""

import numpy as np
import torch

from llamalib.viz import nb03 as plots

TOKENS = ["<|begin_of_text|>", " a", "$x$"]


def test_rms_by_norm():
    rms = torch.rand(7, 3) + 0.1  # three layers
    (ax,) = plots.rms_by_norm(rms, TOKENS).axes
    drawn = np.array([line.get_ydata() for line in ax.lines])
    assert np.allclose(drawn.T, rms)
    ticks = [label.get_text() for label in ax.get_xticklabels()]
    assert ticks == ["layer 0", "layer 1", "layer 2", "final"]
    assert ax.lines[0].get_xdata()[-1] == ax.get_xticks()[-1] == 3
    assert ax.get_yscale() == "log"


def test_before_and_after_has_one_scale():
    a, b = torch.randn(3, 5), torch.randn(3, 5)
    fig = plots.before_and_after({"before": a, "after": b}, TOKENS)
    left, right, bar = fig.axes
    for ax, values in ((left, a), (right, b)):
        (image,) = ax.images
        assert np.allclose(image.get_array(), values)
        assert image.get_clim() == left.images[0].get_clim()
    assert left.get_title(loc="left") == "before"
    assert [t.get_text() for t in left.get_yticklabels()][1] == "␣a"


def test_epsilon_curves():
    sizes = torch.tensor([0.001, 0.1, 1.0])
    curves = {"under": sizes / 2, "beside": sizes}
    (ax,) = plots.epsilon_curves(sizes, curves, {"here": sizes[:2]}).axes
    assert np.allclose(ax.lines[0].get_ydata(), sizes / 2)
    assert np.allclose(ax.lines[1].get_ydata(), sizes)
    assert np.allclose(ax.lines[2].get_xdata(), sizes[:2])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["under", "beside", "here"]


def test_error_histogram_counts_all():
    errors = {"a": torch.tensor([0.0, 2**-9, 5.0]), "b": torch.ones(4) / 64}
    (ax,) = plots.error_histogram(errors, "t").axes
    shares = [max(p.get_xy()[:, 1]) for p in ax.patches]
    assert np.allclose(sorted(shares), [1 / 3, 1])  # none falls outside


def test_gamma_by_norm():
    gammas = torch.arange(5.0)[:, None] + torch.linspace(-0.1, 0.1, 101)
    (ax,) = plots.gamma_by_norm(gammas).axes  # two layers and the last
    drawn = {line.get_label(): line for line in ax.lines}
    assert np.allclose(drawn["before attention"].get_ydata(), [0, 2])
    assert np.allclose(drawn["before feed-forward"].get_ydata(), [1, 3])
    assert np.allclose(drawn["final"].get_ydata(), [4])


def test_norm_bars():
    before, after = torch.randn(6), torch.randn(6)
    fig = plots.norm_bars(before, after, [0.1, 1], [0.5, 1], (0.2, 0.9), "t")
    left, right = fig.axes
    heights = [bar.get_height() for bar in left.patches]
    assert np.allclose(heights, torch.cat([before, after]))
    assert right.lines[1].get_xydata().tolist() == [[0.2, 0.9]]
