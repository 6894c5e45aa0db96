import pytest

from llamalib.viz import nb09 as plots


def test_cost_in_other_units():
    series = {"naive": [3, 9], "cached": [1, 1]}
    fig = plots.cost_by_position([16, 32], series, "t", "milliseconds")
    (ax,) = fig.axes
    assert ax.get_ylabel() == "milliseconds" and ax.get_ylim()[0] == 0


def test_bytes_by_length():
    lengths = [64, 128, 256]
    caches = {1: [1e6, 2e6, 4e6], 8: [8e6, 16e6, 32e6]}
    fig = plots.bytes_by_length(lengths, 5e6, caches)
    (ax,) = fig.axes
    weights, one, eight = ax.lines
    assert list(weights.get_ydata()) == [5, 5]
    assert list(one.get_ydata()) == [1, 2, 4]
    assert list(eight.get_ydata()) == [8, 16, 32]
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    assert texts == ["cache, 1 text", "cache, 8 texts"]
    assert one.get_color() == plots.COLOURS["key"]
    assert ax.get_xlabel() and "MB" in ax.get_ylabel()


def test_roofline():
    products = [(1, 0.5, 4e9), (64, 30.0, 9e10)]
    steps = [("decode", 0.5, 2e9), ("prefill", 100.0, 5e10)]
    fig = plots.roofline(1e10, 1e11, products, steps)
    (ax,) = fig.axes
    roof, product, decode, prefill = ax.lines
    x, y = roof.get_xdata(), roof.get_ydata()
    # 10 GB/s and 100 billion operations a second meet at 10 a byte
    assert x[1] == pytest.approx(10) and list(y[1:]) == [100, 100]
    assert y[0] == pytest.approx(10 * x[0])
    assert list(product.get_ydata()) == [4, 90]
    assert decode.get_xdata() == [0.5] and prefill.get_ydata() == [50]
    texts = {t.get_text() for t in ax.texts}
    assert {"1 row", "64", "memory: 10 GB/s"} <= texts


def test_roofline_of_a_machine_that_never_waits_for_memory():
    fig = plots.roofline(1e12, 1e11, [(1, 0.5, 4e9), (4, 2.0, 9e9)])
    fig.canvas.draw()
    assert max(fig.axes[0].lines[0].get_ydata()) == 100


def test_speed_by_batch():
    fig = plots.speed_by_batch([1, 2, 8], [10, 19, 60], 10)
    (ax,) = fig.axes
    free, here = ax.lines
    assert list(free.get_ydata()) == [10, 20, 80]
    assert list(here.get_ydata()) == [10, 19, 60]
