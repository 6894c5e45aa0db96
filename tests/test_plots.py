from helpers import random_llama

from llamalib import plots
from llamalib.__main__ import all_notebooks


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
        plots.COLOURS["other"],
        plots.COLOURS["plain"],
    ]
    assert ax.get_xlabel() and ax.get_ylabel()


# -- the map ----------------------------------------------------------------


def lit(fig):
    """The labels in bold of a strip."""
    (ax,) = fig.axes
    return {t.get_text() for t in ax.texts if t.get_weight() == "bold"}


def test_strip_lights_its_part_and_numbers_the_shapes():
    llama = random_llama()
    llama.name = "small"
    fig = plots.strip("attention", llama, 6)
    assert lit(fig) == {"attention", "RoPE"}
    texts = " ".join(t.get_text() for t in fig.axes[0].texts)
    assert "in: (T, D) = (6, 64)" in texts
    assert "small:" in texts and "KV = 2" in texts
    assert "block, 2 times" in texts
    fig = plots.strip("rope", llama)
    texts = " ".join(t.get_text() for t in fig.axes[0].texts)
    assert "queries (T, H, hd) = (T, 8, 8), keys (T, KV, hd) = (T, 2, 8)" in (
        texts
    )


def test_every_part_has_a_strip():
    stems = {path.stem.split("_", 1)[1] for path in all_notebooks()}
    assert stems <= set(plots.PARTS)
    llama = random_llama()
    for part in plots.PARTS:
        assert lit(plots.strip(part, llama, 3)), part


def test_visible():
    assert plots.visible(" a\n") == "␣a⏎"
    assert plots.visible("") == "∅"
    assert plots.visible("水") == "⟨6C34⟩"  # the font has no such glyph
    assert len(plots.visible("<|begin_of_text|>")) < 15
