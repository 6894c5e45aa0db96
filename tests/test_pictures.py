"""All pictures: their fingerprints, texts, the map, colours, and Play."""

import ast
import base64
import builtins
import copy
import inspect
import io
import json
import re
import warnings
from pathlib import Path

import ipywidgets
import matplotlib
import numpy as np
import pytest
from IPython.testing.globalipapp import get_ipython
from IPython.utils.capture import capture_output
from PIL import Image

from lessons import charts, pocket, theme
from lessons import map as model_map
from lessons.play import STILL, Play
from tests import drawings, fingerprints
from tests.drawings import PICTURES, colours, small_llama
from tools import explorer
from tools.notebooks import all_notebooks


def texts(labels):
    return [label.get_text() for label in labels]


def drawn(play, **values):
    """Return the axes of a widget's picture, with some other values."""
    now = {name: control.value for name, control in play.controls.items()}
    return play.draw(**now | values).axes


# -- what each picture holds ------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    return fingerprints.read()


def assert_same(name, found, stored):
    if changed := fingerprints.differences(found, stored[name]):
        words = "holds something else (-: before, +: now)"
        wanted = f"If it should, run `{fingerprints.COMMAND}`."
        pytest.fail(f"{name} {words}\n{changed}\n{wanted}", pytrace=False)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_holds_the_same(name, stored):
    assert_same(name, fingerprints.fingerprint(PICTURES[name]()), stored)


def test_each_role_has_the_same_colour(stored):
    assert_same("colours", colours(), stored)
    assert stored.keys() == {"colours", *PICTURES}


MAKERS = {"canvas", "panels", "page", "subplots", "maps_of", "Play"}
NOT_DRAWN = {
    "lessons.nF_heads.maps_of": "head_maps and look_and_carry draw it",
    "lessons.nF_heads.said_twice": "its `page` is a page of text",
}


def test_every_function_that_makes_a_figure_is_drawn():
    """Else a wrong picture passes: see drawings.py."""
    made = set()
    for file in Path(charts.__file__).parent.glob("*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            calls = (c for c in ast.walk(node) if isinstance(c, ast.Call))
            names = {ast.unparse(c.func).split(".")[-1] for c in calls}
            if isinstance(node, ast.FunctionDef) and names & MAKERS:
                made.add(f"lessons.{file.stem}.{node.name}")
    source = "".join(map(inspect.getsource, PICTURES.values()))
    drawn = {
        f"{getattr(vars(drawings).get(module), '__name__', '')}.{name}"
        for module, name in re.findall(r"(\w+)\.(\w+)\(", source)
    }
    assert made - drawn == NOT_DRAWN.keys()


@pytest.mark.parametrize(
    "line, same",
    [
        ("line #882255 - 2 'a': 0 1.235, 1 5e+06", True),  # rounded elsewhere
        ("line #882255 - 2 'a': 0 1.244, 1 5e+06", False),
        ("line #882255 - 2 'a': 0 1.234, 1 5e+07", False),
        ("line #882255 - 2 'a': 0 -1.234, 1 5e+06", False),
        ("line #882256 - 2 'a': 0 1.234, 1 5e+06", False),
        ("line #882255 - 2 'b': 0 1.234, 1 5e+06", False),
        ("line #882255 - 2 'a': 0 1.234", False),
    ],
)
def test_only_a_last_digit_may_differ(line, same):
    before = ["frame none", "line #882255 - 2 'a': 0 1.234, 1 5e+06"]
    changed = fingerprints.differences(["frame none", line], before)
    assert (not changed) == same and (same or f"+{line}" in changed)


# -- texts and charts --------------------------------------------------------


def test_visible():
    assert theme.visible(" a\n") == "␣a⏎"
    assert theme.visible("") == "∅"
    assert theme.plain(theme.visible("$")) == r"\$"  # escaped once
    assert theme.visible("水") == "⟨6C34⟩"  # the font has no such glyph
    assert theme.visible("<|reserved_special_token_7|>") == "<|reserv…n_7|>"


def test_dollar_signs_and_foreign_letters_are_drawn():
    """Wherever a text of the reader's may come."""
    mathematics = r"$HOME_$USER $\foo$"  # matplotlib cannot parse it
    odd = mathematics + " 水\n🦙"
    fig, (left, middle, right) = theme.panels(3, 3)
    charts.ranked_bars(left, [odd, "$"], [1, 2], "token")
    charts.heatmap(middle, np.eye(2), [odd, "a"], [odd, "$_$"])
    charts.lines(right, {mathematics: [1, 2]}, [("key", "-")], [0, 1])
    right.plot([0, 1], [1, 2], label="한국어")
    charts.finish(right, odd, "水", "हिन्दी", legend="best")
    charts.write(right, 0, 1, odd.replace("$", ""))
    right.set_xticks([0, 1], [theme.plain("水"), "b"])
    theme.heading(fig, odd)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a glyph that is missing
        assert theme.png(fig)
    assert texts(left.get_yticklabels())[1] == r"\$"


def test_boxes_hold_their_texts():
    labels = ["WWWW", "i", "␣token", "\ufffd"] * 40
    widths = [charts.text_width(label, 10) + 7 for label in labels]
    places, count = charts.flow(widths)
    fig, ax = charts.page(10 + 22 * count)
    charts.boxes(ax, 5, labels, places, ["#f6e3ee"] * len(labels))
    renderer, last = fig.canvas.get_renderer(), None
    for box, label in zip(ax.patches, ax.texts, strict=True):
        outer = box.get_window_extent(renderer)
        inner = label.get_window_extent(renderer)
        assert outer.x0 <= inner.x0 and inner.x1 <= outer.x1
        assert last is None or outer.x0 > last.x1 or outer.y1 < last.y0
        assert fig.bbox.x0 <= outer.x0 and outer.x1 <= fig.bbox.x1
        last = outer
    assert charts.flow([]) == ([], 0)


def test_every_notebook_has_a_map():
    stems = {path.stem.split("_", 1)[1] for path in all_notebooks()}
    assert stems <= set(model_map.PARTS)


def test_the_map_says_how_to_open_the_text_s_model(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(model_map, "ROOT", tmp_path)
    about = Path("data", "SmolLM2-135M-Instruct")
    for brought in (False, True):
        model_map.strip("rope", small_llama())
        said = capsys.readouterr().out
        assert said.startswith("The text below is about SmolLM2-135M-Instruct")
        assert ("fetch SmolLM2-135M-Instruct` brings it" in said) != brought
        assert (f"LLAMA_DIR={tmp_path / about}" in said) == brought
        (tmp_path / about).mkdir(parents=True, exist_ok=True)
    llama = copy.copy(small_llama())
    llama.name = "SmolLM2-135M-Instruct.Q4_1"
    model_map.strip("rope", llama)
    assert capsys.readouterr().out == ""
    pocket.strip("rope", llama)
    assert "about pocket-llama" in capsys.readouterr().out


@pytest.mark.parametrize("part", model_map.PARTS)
def test_a_map_lights_the_notebooks_parts(part):
    (ax,) = model_map.strip(part, small_llama(), 6).axes
    lit = [t.get_text() for t in ax.texts if t.get_weight() == "bold"]
    names = model_map.PARTS[part][0].split(", ")
    expected = [model_map.BOXES[name][0] for name in names]
    assert sorted(lit) == sorted(expected)


def test_the_explorers_colours_are_the_pictures():
    """Its page has them from theme.py: none is typed again."""
    text = explorer.made([], [])
    found = dict(re.findall(r"export const (\w+) = (.*);", text))
    assert json.loads(found["colours"]) == theme.COLOURS
    for name, drawn in (("amount", theme.AMOUNT), ("signed", theme.SIGNED)):
        scale = json.loads(found["scales"])[name]
        stops = drawn(np.linspace(0, 1, len(scale)), bytes=True)[:, :3]
        assert np.abs(stops.astype(int) - scale).max() <= 2
    ours = {c.lower() for c in theme.COLOURS.values()}
    ours |= {c.lower() for scale in theme.SCALES.values() for c in scale}
    texts = [*explorer.modules().values()]
    texts.append((explorer.SITE / "explorer.css").read_text("utf-8"))
    typed = {c.lower() for c in re.findall("#[0-9a-fA-F]{6}", "".join(texts))}
    assert not typed & ours - {"#ffffff"}


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


def test_a_widget_draws_again_or_says_why_not(play):
    first = play.picture.value
    assert 'alt="bars of a token: a, a, a"' in first
    play.controls["n"].value = 4
    second = play.picture.value
    assert second != first
    play.controls["n"].value = 0
    assert play.message.value == "n is &lt;0&gt;; expected more"
    assert play.picture.value == second
    play.controls["n"].value = 3
    assert play.picture.value == first and play.message.value == ""
    assert matplotlib.pyplot.get_fignums() == []


def test_a_saved_notebook_holds_a_still_picture(play):
    bundle, metadata = play._repr_mimebundle_()
    page = bundle["text/html"]
    assert metadata["text/html"]["alt"].startswith("bars of a token")
    assert 'alt="bars of a token' in page and "A still picture" in page
    assert image_of(page).size == (1720, 400)
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == "Play(n=3)"
    # the live widget holds the same words, for a time without its kernel
    assert STILL in play.children[0].value and STILL in page


# -- a picture in a notebook --------------------------------------------------


def image_of(page):
    """The image in a piece of HTML."""
    encoded = page.split("base64,")[1].split('"')[0]
    return Image.open(io.BytesIO(base64.b64decode(encoded)))


@pytest.fixture
def shell():
    """Start IPython, which displays pictures, and takes `exit` away."""
    kept = vars(builtins).copy()
    yield get_ipython()
    vars(builtins).update(kept)


def test_a_picture_has_words_twice_the_pixels_and_few_colours(shell):
    fig, ax = theme.canvas(2)
    charts.lines(ax, {"a < b": [1, 2]}, [("query", "-")], [0, 1])
    charts.finish(ax, "Cost in $", "positions", "bytes", legend="right")
    with capture_output() as captured:
        fig._ipython_display_()
    (output,) = captured.outputs
    alt = "Cost in $: bytes by positions: a < b"
    assert output.data["text/plain"] == alt
    assert output.metadata["text/html"]["alt"] == alt
    page = output.data["text/html"]
    assert 'alt="Cost in $: bytes by positions: a &lt; b"' in page
    image = image_of(page)
    assert image.size == (1720, 400) and len(image.getcolors()) <= 64


def test_a_drawing_is_described_by_its_texts():
    fig, ax = theme.canvas(2)
    with pytest.raises(ValueError, match="no title"):
        theme.alt_text(fig)
    ax.axis("off")
    charts.write(ax, 0, 0, "embed")
    charts.write(ax, 0, 1, "norm")
    fig.subject = "Two boxes"
    assert theme.alt_text(fig) == "Two boxes. embed, norm"


def test_ticks_are_words_unless_numbers_or_outside():
    fig, ax = theme.canvas(2)
    names = "1e-06", "−1e−06", "0.5", "$10^{-6}$", "e", "1 kB", "9 kB"
    ax.set_xticks(range(7), names)
    charts.finish(ax, "sizes", xlim=(5.5, -0.5))
    assert theme.alt_text(fig) == "sizes: e, 1 kB"
