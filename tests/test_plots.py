import matplotlib
import pytest

matplotlib.use("agg")

from llamalib import plots  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    matplotlib.pyplot.close("all")


def test_next_token_bars():
    fig = plots.next_token_bars([" Paris", "\n", ""], [0.7, 0.2, 0.1], "t")
    (ax,) = fig.axes
    assert [bar.get_width() for bar in ax.patches] == [0.7, 0.2, 0.1]
    assert [bar.get_y() for bar in ax.patches] == sorted(
        (bar.get_y() for bar in ax.patches), reverse=True
    )
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["␣Paris", "⏎", "∅"]
    assert ax.get_xlabel() and ax.get_title(loc="left") == "t"


def test_dollar_signs_are_no_mathematics():
    title = r"$HOME_$USER $\foo$"
    fig = plots.next_token_bars(["$_$", "$", "a"], [0.6, 0.3, 0.1], title)
    fig.canvas.draw()  # where matplotlib would fail
    (ax,) = fig.axes
    drawn = [t._preprocess_math(t.get_text()) for t in ax.get_yticklabels()]
    assert drawn[0] == ("$_$", False)


def test_cost_by_position():
    fig = plots.cost_by_position([6, 7], {"a": [6, 7], "b": [1, 1]}, "t")
    (ax,) = fig.axes
    found = [list(line.get_ydata()) for line in ax.lines]
    assert found == [[6, 7], [1, 1]]
    assert [line.get_color() for line in ax.lines] == [
        plots.COLOURS["query"],
        plots.COLOURS["key"],
    ]
    assert ax.get_xlabel() and ax.get_ylabel()
