"""What all pictures and widgets share: text, charts, the map, Play."""

import base64
import io
import warnings

import ipywidgets
import matplotlib
import numpy as np
import pytest
from PIL import Image

from lessons import charts, theme
from lessons import map as model_map
from lessons.notebooks import all_notebooks
from lessons.play import Play
from tests.helpers import random_llama

MATHEMATICS = r"$HOME_$USER $\foo$"  # matplotlib cannot parse it


def tick_texts(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


# -- base -------------------------------------------------------------------


def test_visible():
    assert theme.visible(" a\n") == "␣a⏎"
    assert theme.visible("") == "∅"
    assert theme.plain(theme.visible("$")) == r"\$"  # escaped once
    assert theme.visible("水") == "⟨6C34⟩"  # the font has no such glyph
    assert theme.visible("<|reserved_special_token_7|>") == "<|reserv…n_7|>"


# -- charts -----------------------------------------------------------------


def test_dollar_signs_and_foreign_letters_are_drawn():
    """Wherever a text of the reader's may come."""
    odd = MATHEMATICS + " 水\n🦙"
    fig, (left, middle, right) = theme.panels(3, 3)
    charts.ranked_bars(left, [odd, "$"], [1, 2], "token")
    charts.heatmap(middle, np.eye(2), [odd, "a"], [odd, "$_$"])
    charts.lines(right, {MATHEMATICS: [1, 2]}, [("key", "-")], [0, 1])
    right.plot([0, 1], [1, 2], label="한국어")
    charts.finish(right, odd, "水", "हिन्दी", legend="best")
    charts.write(right, 0, 1, odd.replace("$", ""))
    right.set_xticks([0, 1], [theme.plain("水"), "b"])
    theme.heading(fig, odd)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a glyph that is missing
        assert theme.png(fig)
    assert tick_texts(left.yaxis)[1] == r"\$"


def test_heatmaps_have_0_where_it_belongs():
    fig, (amount, signed) = theme.panels(2, 2)
    values = [[1, -4], [2, 3]]
    assert charts.heatmap(amount, values).get_clim() == (0, 4)
    image = charts.heatmap(signed, values, signed=True, limit=2)
    assert image.get_clim() == (-2, 2)
    white = matplotlib.colors.to_rgba("white")
    assert image.cmap(0.5) == pytest.approx(white, abs=0.01)


@pytest.mark.parametrize("n", [0, 1, 40, 300])
def test_boxes_wrap_and_hold_their_texts(n):
    labels = ["WWWW", "i", "␣token", "\ufffd"] * n
    widths = [charts.text_width(label, 10) + 7 for label in labels]
    places, count = charts.flow(widths)
    fig, ax = charts.page(10 + 22 * max(count, 1))
    charts.boxes(ax, 5, labels, places, ["#f6e3ee"] * len(labels))
    renderer, last = fig.canvas.get_renderer(), None
    for box, label in zip(ax.patches, ax.texts, strict=True):
        outer = box.get_window_extent(renderer)
        inner = label.get_window_extent(renderer)
        assert outer.x0 <= inner.x0 and inner.x1 <= outer.x1
        assert outer.y0 <= inner.y0 and inner.y1 <= outer.y1
        assert last is None or outer.x0 > last.x1 or outer.y1 < last.y0
        assert fig.bbox.x0 <= outer.x0 and outer.x1 <= fig.bbox.x1
        assert fig.bbox.y0 <= outer.y0
        last = outer
    assert (count == 0) == (n == 0)


# -- the map ----------------------------------------------------------------


def lit(fig):
    """Return the labels in bold."""
    (ax,) = fig.axes
    return {t.get_text() for t in ax.texts if t.get_weight() == "bold"}


def test_strip_lights_its_part_and_numbers_the_shapes():
    llama = random_llama()
    llama.name = "small"
    fig = model_map.strip("attention", llama, 6)
    assert lit(fig) == {"attention", "RoPE"}
    texts = " ".join(t.get_text() for t in fig.axes[0].texts)
    assert "in: (T, D) = (6, 64)" in texts
    assert "small:" in texts and "KV = 2" in texts
    assert "block, 2 times" in texts
    fig = model_map.strip("rope", llama)
    texts = " ".join(t.get_text() for t in fig.axes[0].texts)
    shapes = "queries (T, H, hd) = (T, 8, 8), keys (T, KV, hd) = (T, 2, 8)"
    assert shapes in texts


def test_every_notebook_has_a_strip():
    stems = {path.stem.split("_", 1)[1] for path in all_notebooks()}
    assert stems <= set(model_map.PARTS)
    llama = random_llama()
    for part in model_map.PARTS:
        assert lit(model_map.strip(part, llama, 3)), part


# -- widgets ----------------------------------------------------------------


def bars(n):
    if n < 1:
        raise ValueError("n is <0>; expected more")
    fig, ax = theme.canvas(2)
    charts.ranked_bars(ax, ["a"] * n, [0.5] * n, "token")
    return charts.finish(ax, "bars of a token")


@pytest.fixture
def play():
    return Play(bars, n=ipywidgets.IntSlider(3, -5, 9))


def test_a_widget_opens_with_a_picture_and_draws_again(play):
    first = play.picture.value
    assert 'alt="bars of a token: a, a, a"' in first
    play.controls["n"].value = 4
    assert play.picture.value != first
    play.controls["n"].value = 3
    assert play.picture.value == first
    assert matplotlib.pyplot.get_fignums() == []


def test_an_error_is_shown_and_the_picture_stays(play):
    first = play.picture.value
    play.controls["n"].value = 0
    assert play.message.value == "n is &lt;0&gt;; expected more"
    assert play.picture.value == first
    play.controls["n"].value = 2
    assert play.message.value == ""


def test_a_saved_notebook_holds_a_still_picture(play):
    bundle, metadata = play._repr_mimebundle_()
    page = bundle["text/html"]
    assert metadata["text/html"]["alt"].startswith("bars of a token")
    assert 'alt="bars of a token' in page and "A still picture" in page
    assert image_of(page).size == (1720, 400)
    assert image_of(play.picture.value).size == (1290, 300)
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == "Play(n=3)"


# -- a picture in a notebook --------------------------------------------------


def image_of(page):
    """The image in a piece of HTML."""
    encoded = page.split("base64,")[1].split('"')[0]
    return Image.open(io.BytesIO(base64.b64decode(encoded)))


def shown(fig):
    """What a notebook keeps of a figure."""
    from IPython.utils.capture import capture_output

    with capture_output() as captured:
        fig._ipython_display_()
    (output,) = captured.outputs
    assert output.metadata["text/html"]["alt"] == output.data["text/plain"]
    return output.data


def test_a_picture_has_words_twice_the_pixels_and_few_colours(monkeypatch):
    from IPython.testing.globalipapp import get_ipython

    get_ipython()
    fig, ax = theme.canvas(2)
    charts.lines(ax, {"a < b": [1, 2]}, [("query", "-")], [0, 1])
    charts.finish(ax, "Cost in $", "positions", "bytes", legend="right")
    data = shown(fig)
    alt = "Cost in $: bytes by positions: a < b"
    assert data["text/plain"] == alt
    page = data["text/html"]
    assert 'alt="Cost in $: bytes by positions: a &lt; b"' in page
    image = image_of(page)
    assert image.size == (1720, 400) and image.mode == "P"
    assert len(image.getcolors()) <= 64


def test_a_drawing_is_described_by_its_texts():
    fig, ax = theme.canvas(2)
    ax.axis("off")
    charts.write(ax, 0, 0, "embed")
    charts.write(ax, 0, 1, "norm")
    assert theme.alt_text(fig) == "embed, norm"
    fig.subject = "Two boxes"
    assert theme.alt_text(fig) == "Two boxes. embed, norm"


def test_a_picture_without_words_is_refused():
    with pytest.raises(ValueError, match="no title"):
        theme.alt_text(theme.canvas(2)[0])


def test_ranked_bars_begin_at_the_top():
    fig, ax = theme.canvas(2)
    tones = ["key", "query"]
    charts.ranked_bars(ax, [" a", "b"], [0.7, -0.2], tones, ["0.7", "-0.2"])
    fig.canvas.draw()
    top, bottom = (bar.get_window_extent().y0 for bar in ax.patches)
    assert top > bottom
    assert tick_texts(ax.yaxis) == ["␣a", "b"]
    assert [text.xy for text in ax.texts] == [(0.7, 0), (0, 1)]


def test_histograms_count_every_number():
    values = {"a": [-5, 0.5, 1.5, 99], "b": [0.5]}
    fig, (counts, shares) = theme.panels(2, 2)
    for ax, share in ((counts, False), (shares, True)):
        charts.histograms(ax, values, [0, 1, 2], "bk", share=share)
    a, b = (patch.get_data().values.tolist() for patch in counts.patches)
    assert (a, b) == ([2, 2], [1, 0])
    a, b = (patch.get_data().values.tolist() for patch in shares.patches)
    assert (a, b) == ([0.5, 0.5], [1, 0])


def test_of_many_tokens_every_nth_is_written():
    fig, ax = theme.canvas(2)
    charts.token_ticks(ax, ["a", "b"], [str(n) for n in range(41)], most=20)
    assert tick_texts(ax.yaxis) == ["a", "b"]
    assert tick_texts(ax.xaxis) == [str(n) for n in range(0, 41, 3)]
